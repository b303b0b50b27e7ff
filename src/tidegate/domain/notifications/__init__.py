"""Notifications: subscriptions, and the messages that wait to be sent to them.

states.py       severities, kinds of targets
events.py       the catalogue: every event, with its severity
notices.py      the content of a message about one event
from_facts.py   facts ──▶ notices
bursts.py       many facts, or a fact and some time ──▶ notices
facts.py … declarations.py, as in every noun
"""
