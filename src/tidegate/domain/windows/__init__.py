"""Maintenance windows: times in which orders may go out, and times in which they may not.

facts.py, rows.py   what happens, and the windows that exist
folds.py            the row of a window; its times also enter ``channel_stops``
slices.py           create, edit, delete
checks.py           whether a window can work as it is written
rules.py            the recurrence rule: a subset of RFC 5545
zones.py            time zones, from the package tzdata
occurrences.py      when a window begins, in UTC, with gaps and doubled hours
evaluation.py       whether a host's windows are open, until when, and when they open next
demands.py          whether an order may go out or be acknowledged, from the rows that it pins
sentences.py        texts about a window that is shut
refusals.py         the errors
"""
