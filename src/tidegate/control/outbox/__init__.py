"""Work outside that commits asked for: sent to targets at least once, then reconciled."""
