"""Requests: what one person asks for on a protected channel, and others approve.

facts.py, rows.py   the facts and the row of a request
states.py           its states, and what may follow which
folds.py            how facts change the row
slices.py           make, approve, carry out, reject, withdraw
deadlines.py        expire, remind of a review
protection.py       check that a person may act without a request
break_glass.py      act alone on a protected channel, and the review of it
changes.py          what makes an open request void
request_commands.py what these commands have in common
subjects.py         the rows that a request names
words.py            requests in words
refusals.py         the errors
"""
