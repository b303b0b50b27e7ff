"""The command line: as real processes against real servers, and its pure parts on their own."""
