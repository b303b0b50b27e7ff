"""Every verb of an operator, through API, command line and dashboard: each door does the same."""
