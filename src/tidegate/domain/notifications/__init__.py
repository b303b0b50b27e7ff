"""Notifications: who is told of what, and what waits to be sent.

states.py       severities, kinds of targets
events.py       the catalogue: every event, with its severity
notices.py      one thing that happened, in the words of a message
from_facts.py   facts ──▶ notices, pure
facts.py … declarations.py, as in every noun
"""
