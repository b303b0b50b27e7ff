"""Contract scenarios 06 to 09 as data, and the runner that any engine must satisfy.

They are the four checks of docs/design/releases.md on rows of the caller's own.
"""
