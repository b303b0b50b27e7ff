"""What the noun requests declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.requests import facts, folds, rows, slices

FACTS = facts.FACTS
SLICES = slices.SLICES
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
