"""Requests: what one person asks for on a protected channel, and others approve.

facts.py, rows.py   what happens to a request, and where it stands
states.py           its states, and what may follow which
folds.py            the row of a request
slices.py           make, approve, carry out, reject, withdraw, end, act alone, review
refusals.py         the errors
"""
