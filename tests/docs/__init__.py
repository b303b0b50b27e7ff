"""Every command on the pages is run as it is written."""
