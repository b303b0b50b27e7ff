"""Faults of the system below lose nothing acknowledged: `python -m bench faults`.

The trials run in ``bench/trials.py``; each module with a ``run`` is a part.

power      power loss at any point of what the SQLite engine writes
kills      real servers are killed under load
io         writes and syncs of a real server fail
postgres   the database restarts, fails over, loses connections
dynamodb   conflicts, throttling, lost and late responses
"""
