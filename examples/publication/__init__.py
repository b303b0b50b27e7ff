"""Publishing under a lease: both recipes, and everybody who comes too late."""
