"""Test suites that others wrote, run against our engines."""
