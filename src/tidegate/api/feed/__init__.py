"""The log for clients that follow it: one shared tail, pages, long polls and event streams."""
