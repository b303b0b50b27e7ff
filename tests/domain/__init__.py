"""Rules of the domain, tested without an engine."""
