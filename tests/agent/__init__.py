"""The agent: its disk, its drivers and probes, what it decides, and whole agents at work."""
