"""Rollouts: a release on its way to the hosts of a channel, wave by wave.

states.py, facts.py, identity.py   the words; ``channel@ref`` and ``channel@ref~n``
table.py, machine.py               which events a state accepts, and what they do: ``step``
tallies.py                         hosts counted by wave and state
effects.py                         the seed's four effects, and what they come to
rows.py, folds.py                  rollouts, tallies, gates; quarantine is folded by channels
slices.py                          pause, resume, prune, gates
stops.py                           what stops a channel; folded by channels
reports.py                         what agents report into it, and the orders that go out
refusals.py                        what is said no with
"""

from __future__ import annotations

from tidegate.domain.rollouts import facts, folds, report_slices, rows, slices
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.names import rollout_id
from tidegate.domain.rollouts.transitions import TABLE, RolloutEvent

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *report_slices.SLICES)
COLLECTIONS = rows.COLLECTIONS
FOLDS = folds.FOLDS

__all__ = [
    "COLLECTIONS",
    "FACTS",
    "FOLDS",
    "SLICES",
    "TABLE",
    "RolloutEvent",
    "rollout_id",
    "step",
]
