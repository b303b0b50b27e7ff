"""Bodies, archives, backups, and what removes what nothing names any more."""
