"""What the noun releases declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.releases import facts, folds, registry, rows

FACTS = facts.FACTS
SLICES = registry.BUILT_IN.slices
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
