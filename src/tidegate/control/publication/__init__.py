"""Publications: documents rendered under a lease, replaced by one commit, served by ETag."""
