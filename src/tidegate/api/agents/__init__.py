"""What agents ask and report, with a fast path for their two frequent requests."""
