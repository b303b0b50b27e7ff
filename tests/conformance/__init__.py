"""Test suites written by others, run against our engines."""
