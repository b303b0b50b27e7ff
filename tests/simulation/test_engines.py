"""The same simulation on every engine: seeds, faults and invariants as on memory, few and small."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.conftest import address_of
from tidegate.domain.folds import FOLDS
from tidegate.domain.rollouts.states import RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.store import Store
from tidegate.simulate.rates import ROUGH
from tidegate.simulate.scenario import Scenario, drawn
from tidegate.simulate.world import World

SEEDS = (19, 30)
HOSTS = 6
SICKLY = replace(ROUGH, probe_fails=0.2)


def small(seed: int) -> Scenario:
    return replace(drawn(seed), hosts=HOSTS, releases=1, hours=0.2, rates=SICKLY)


def opened(request: pytest.FixtureRequest, engine: str, home: Path) -> Store:
    address = address_of(request, engine, home)
    return MemoryStore(FOLDS.schema) if address is None else address.open(FOLDS.schema)


@pytest.mark.req("RO-3", "RO-7", "RO-10", "RO-11", "RO-12", "RO-14")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_settles_on_the_engine_as_it_does_in_memory(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, seed: int
) -> None:
    scenario = small(seed)

    with closing(opened(request, engine, tmp_path)) as store:
        ended = World(scenario, store).run()

    wanted = World(scenario).run()
    assert ended.states == wanted.states
    assert ended.trace == wanted.trace
    assert ended.entered >= {RolloutState.REVERTED, RolloutState.TERMINAL}
    assert ended.types >= {"RollbackComplete", "OperatorClearance", "WaveAdvanced"}
