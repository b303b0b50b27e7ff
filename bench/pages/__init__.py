"""How long the dashboard takes to show a rollout of as many hosts as one may have.

command   fill, measure, print, write into docs/performance.md
measure   a real server, a real browser: loads and repaints
report    the results as a table
"""
