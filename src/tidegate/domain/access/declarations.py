"""What the noun access declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.access import erasable_rows, facts, folds, rows, slices

FACTS = facts.FACTS
SLICES = slices.SLICES
COLLECTIONS = (*rows.COLLECTIONS, *erasable_rows.COLLECTIONS)
FOLDS = folds.FOLDS
