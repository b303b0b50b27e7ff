"""What is owed to the world: intents in the commit that owes them, attempts and outcomes after it.

names.py            ids and idempotency keys
secrecy.py          what may be written, and what an error may say
facts.py            what happens; ``owe``, by which another slice adds an intent to its own facts
rows.py, folds.py   intents, deliveries, queues, drifts
attempts.py         request, record an attempt, redrive
reconciliation.py   what a look at the world means
shown.py            an intent and its attempts as one document
"""

from __future__ import annotations

from tidegate.domain.outbox import facts, folds, reconciliation, rows, slices
from tidegate.domain.outbox.facts import IntentRequested, owe
from tidegate.domain.outbox.redaction import RequestedState

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *reconciliation.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS

__all__ = ["COLLECTIONS", "FACTS", "FOLDS", "SLICES", "IntentRequested", "RequestedState", "owe"]
