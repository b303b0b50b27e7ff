"""The log as clients follow it: one shared tail, pages, long polls and event streams."""
