"""Channels: which hosts a package reaches, how, and which of its rollouts counts now.

facts.py, rows.py   what happens, what stands
machine.py          ``step``: the channel's newest rollout, holds; SupersessionExpected
folds.py            channels, incarnations, freezes, stops, quarantined closures
slices.py           create, edit, hold, freeze, lift a quarantine
promotion.py        promote a release: pin and rollout in one commit
clearance.py        resume, waive or abandon a rollout that was stopped
refusals.py         what is said no with
"""

from __future__ import annotations

from tidegate.domain.channels import facts, folds, rows, slices
from tidegate.domain.channels.machine import TABLE, ChannelEvent, ChannelState, state_of, step
from tidegate.domain.rollouts import clearance, promotion
from tidegate.domain.rollouts.promotion import promotion_under

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *promotion.SLICES, *clearance.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS

__all__ = [
    "COLLECTIONS",
    "FACTS",
    "FOLDS",
    "SLICES",
    "TABLE",
    "ChannelEvent",
    "ChannelState",
    "promotion_under",
    "state_of",
    "step",
]
