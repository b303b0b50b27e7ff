"""Every bench still runs: its harness and adapters, at sizes that take a moment."""
