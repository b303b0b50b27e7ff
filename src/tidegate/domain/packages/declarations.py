"""What the noun packages declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.packages import approvals, bulk, deletions, facts, folds, rows, slices, updates

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *updates.SLICES, *approvals.SLICES, *deletions.SLICES, *bulk.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
