"""Blobs, archives and backups, and the removal of what no row references."""
