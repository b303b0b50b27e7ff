"""Measurements that run real stores: `python -m bench SUBJECT`."""
