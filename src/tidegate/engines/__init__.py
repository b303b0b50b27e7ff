"""The kernel's store on each database; the only code that imports a database driver."""
