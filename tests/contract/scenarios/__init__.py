"""Contract scenarios 06 to 09 as data, and a runner for any engine.

They are the four checks of docs/design/releases.md, on rows that the caller defines.
"""
