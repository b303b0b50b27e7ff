"""The same simulation on every engine: seeds, faults and invariants as on memory, but few and
small.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache
from itertools import count, islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.address import address_of
from tidegate.domain.composition import FOLDS
from tidegate.domain.rollouts.states import RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.store import Store
from tidegate.simulate.rates import ROUGH
from tidegate.simulate.scenario import Scenario, SimulationResult, draw_scenario
from tidegate.simulate.world import World

SEEDS = 2
SEEDS_MAX = 100  # that are searched to find them
EVENTS_MAX = 190  # of one seed: some engines take a while for each
HOSTS = 6
SICKLY = replace(ROUGH, probe_fails=0.2)
STATES = {RolloutState.REVERTED, RolloutState.SUPERSEDED, RolloutState.TERMINAL}
TYPES = {"RollbackComplete", "OperatorClearance", "WaveAdvanced"}


def small(seed: int) -> Scenario:
    return replace(draw_scenario(seed), hosts=HOSTS, releases=1, hours=0.2, rates=SICKLY)


@cache
def find_eventful_seeds() -> list[SimulationResult]:
    """Return the first seeds in which enough happens, found on memory."""
    ended = (World(small(seed)).run() for seed in islice(count(), SEEDS_MAX))
    brief = (item for item in ended if item.events <= EVENTS_MAX)
    rich = (item for item in brief if item.entered >= STATES and item.types >= TYPES)
    return list(islice(rich, SEEDS))


def opened(request: pytest.FixtureRequest, engine: str, home: Path) -> Store:
    address = address_of(request, engine, home)
    return MemoryStore(FOLDS.schema) if address is None else address.open(FOLDS.schema)


@pytest.mark.req("RO-3", "RO-7", "RO-10", "RO-11", "RO-12", "RO-14")
@pytest.mark.parametrize("nth", range(SEEDS))
def test_a_fleet_completes_with_the_same_facts_as_in_memory(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, nth: int
) -> None:
    wanted = find_eventful_seeds()[nth]

    with closing(opened(request, engine, tmp_path)) as store:
        ended = World(small(wanted.seed), store).run()

    assert ended == wanted
