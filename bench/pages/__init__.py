"""How long the dashboard takes to show a rollout with the largest possible number of hosts.

command   fill, measure, print, write into docs/performance.md
measure   a real server, a real browser: loads and repaints
report    the results as a table
"""
