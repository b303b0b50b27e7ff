"""What faults of the world below may cost: `python -m bench faults`. Nothing acknowledged is lost.

trials in ``bench/trials.py``; each module with a ``run`` is a part

power      the power goes at any point of what the SQLite engine writes
kills      real servers are killed under load
io         writes and syncs of a real server fail
postgres   the database restarts, fails over, loses connections
dynamodb   conflicts, throttling, lost and late answers
"""
