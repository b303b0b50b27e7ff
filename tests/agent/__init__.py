"""The agent: its state directory, drivers, probes and decisions, and whole agents as processes."""
