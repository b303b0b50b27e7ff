"""Every verb of an operator, through API, command line and dashboard, with the same result."""
