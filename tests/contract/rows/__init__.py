"""Rows under write policies, and leases, on every engine."""
