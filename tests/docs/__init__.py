"""Every command that the pages show is run as it stands there."""
