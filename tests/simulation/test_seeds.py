"""Seeded fleets with faults of all kinds: no invariant is violated, and all of them come to an end.

Each commit is folded a second time and its rows are compared; each seed ends with a replay from an
empty store (``World.run``). ``python -m bench simulate`` runs more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import pytest

from tests.quick import more
from tidegate.domain.hosts.facts import HostEvent, HostJoined, HostStateChanged
from tidegate.domain.rollouts.states import RolloutState
from tidegate.domain.rollouts.transitions import RolloutEvent
from tidegate.simulate.scenario import SimulationResult, draw_scenario
from tidegate.simulate.world import World

SEEDS = more(40, long=500)
CHUNK = 10
HOST_EVENTS = 120  # of a seed, on average
# Together these reached all states and events when this was last measured.
MET_IN = (1_010, 1_009, 1_003, 1_015, 1_001, 1_006, 1_011)

PURE = "the machines and folds are the same on every engine; engines run some seeds of their own"


def run(seeds: Iterable[int]) -> list[SimulationResult]:
    return [World(draw_scenario(seed)).run() for seed in seeds]


@pytest.mark.req("RO-3", engines=None, reason=PURE)
@pytest.mark.req("RO-12", engines=None, reason=PURE)
@pytest.mark.req("OP-10", engines=None, reason=PURE)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_invariant_is_violated_and_every_fleet_completes(first: int) -> None:
    ended = run(range(first, first + CHUNK))

    assert sum(item.host_events for item in ended) >= HOST_EVENTS * CHUNK


def test_the_same_seed_gives_the_same_trace() -> None:
    assert run([7])[0].trace == run([7])[0].trace
    assert run([7])[0].trace != run([8])[0].trace


@pytest.mark.req("RO-2", engines=None, reason=PURE)
@pytest.mark.req("RO-6", engines=None, reason=PURE)
def test_the_simulation_reaches_every_state_and_every_event() -> None:
    states = set(RolloutState) - {RolloutState.OPENING}
    events = {kind.__name__ for kind in (*get_args(HostEvent), *get_args(RolloutEvent))}
    events |= {HostJoined.__name__, HostStateChanged.__name__, "GateChanged"}
    for seed in dict.fromkeys((*MET_IN, *range(1_000, 1_120))):  # as many as needed
        (ended,) = run([seed])
        states -= ended.entered
        events -= ended.types
        if not states and not events:
            break

    assert (states, events) == (set(), set())
