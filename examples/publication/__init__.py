"""Publishing under a lease, after seed 003: both recipes, and everybody who comes too late."""
