"""Pure rules, tested without an engine."""
