"""Publishing under a lease: both recipes, and four writers that come too late."""
