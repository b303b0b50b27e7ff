"""Requests: what one person asks for on a protected channel, and others approve.

facts.py, rows.py   what happens to a request, and where it stands
states.py           its states, and what may follow which
folds.py            the row of a request
slices.py           make, approve, carry out, reject, withdraw
deadlines.py        expire, remind of a review
protection.py       act alone where nothing is protected
break_glass.py      act alone where something is, and review that
changes.py          what makes an open request void
request_commands.py what these commands have in common
subjects.py         the rows that a request names
words.py            requests in words
refusals.py         the errors
"""
