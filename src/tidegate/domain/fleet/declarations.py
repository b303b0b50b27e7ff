"""What the noun fleet declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.fleet import credentials, facts, folds, joins, rows, slices

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *credentials.SLICES, *joins.SLICES)
COLLECTIONS = (*rows.COLLECTIONS, *credentials.COLLECTIONS, *joins.COLLECTIONS)
FOLDS = folds.FOLDS
