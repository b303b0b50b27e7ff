"""Published bodies: rendered under a lease, swapped by one commit, served by ETag."""
