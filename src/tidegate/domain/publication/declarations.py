"""What the noun publication declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.publication import expiry, facts, folds, rows, slices

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *expiry.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
