"""What the noun requests declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.requests import break_glass, deadlines, facts, folds, protection, rows, slices

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *deadlines.SLICES, *protection.SLICES, *break_glass.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
