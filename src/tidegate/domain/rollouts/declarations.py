"""What the noun rollouts declares: its facts, commands, collections and folds."""

from __future__ import annotations

from tidegate.domain.rollouts import (
    channel_deletion,
    clearance,
    facts,
    folds,
    order_slices,
    promotion,
    report_slices,
    rows,
    skip_slices,
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
    *order_slices.SLICES,
    *skip_slices.SLICES,
)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS
