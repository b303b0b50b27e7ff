"""What the noun rollouts declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.rollouts import (
    channel_deletion,
    clearance,
    facts,
    folds,
    promotion,
    report_slices,
    rows,
    slices,
    wave_slices,
)

FACTS = facts.FACTS
SLICES = (
    *slices.SLICES,
    *wave_slices.SLICES,
    *promotion.SLICES,
    *clearance.SLICES,
    *channel_deletion.SLICES,
    *report_slices.SLICES,
)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
