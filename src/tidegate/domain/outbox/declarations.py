"""What the noun outbox declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.outbox import facts, folds, reconciliation, rows, slices

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *reconciliation.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
