"""A promotion may name the time before which no order goes out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.domain.memory_fleet import MemoryFleet
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.refusals import WaveNotReached
from tidegate.domain.rollouts.slices import OverrideGate, override_gate
from tidegate.domain.rollouts.states import OverridableGate
from tidegate.domain.rollouts.wave_slices import SkipWave, skip_wave
from tidegate.errors import InvalidInput
from tidegate.kernel.replay import differences

HOUR = timedelta(hours=1)


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    played = MemoryFleet()
    yield played
    assert differences(played.store, FOLDS) == []


def test_orders_no_host_before_its_time(fleet: MemoryFleet) -> None:
    start_at = fleet.clock.now + HOUR
    rollout_id = fleet.promote("web.1", 1, 1, start_at=start_at)
    assert fleet.tally(rollout_id).start_at == start_at
    with pytest.raises(WaveNotReached, match="starts at 20"):
        fleet.order(rollout_id, "w0-0")

    fleet.clock.now = start_at
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 1


def test_starts_earlier_if_a_person_overrides_it(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, start_at=fleet.clock.now + HOUR)
    command = OverrideGate(
        rollout_id=rollout_id,
        gate=OverridableGate.START_AT,
        operator="user_1",
        reason="it can't wait",
    )
    fleet.execute(override_gate, command)
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).outcome == "succeeded"


def test_orders_no_late_host_before_its_time_although_the_rollout_has_ended(
    fleet: MemoryFleet,
) -> None:
    start_at = fleet.clock.now + HOUR
    rollout_id = fleet.promote("web.1", 1, start_at=start_at)
    skipped = SkipWave(rollout_id=rollout_id, wave="w0", operator="user_1", reason="no use")
    fleet.execute(skip_wave, skipped)
    assert fleet.tally(rollout_id).outcome == "empty"
    with pytest.raises(WaveNotReached, match="starts at 20"):
        fleet.order(rollout_id, "w0-new", late=True)

    fleet.clock.now = start_at
    fleet.order(rollout_id, "w0-new", late=True)
    fleet.ack(rollout_id, "w0-new")


def test_starts_after_the_delay_of_its_first_wave(fleet: MemoryFleet) -> None:
    late: dict[str, Any] = {"members": {"delay_seconds": 7_200}}
    now = fleet.clock.now
    rollout_id = fleet.promote("web.1", 1, start_at=now + HOUR, **late)
    start_at = fleet.tally(rollout_id).start_at
    assert start_at is not None
    assert start_at - now >= 2 * HOUR


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(minutes=-20), "start_at is 20 min ago; leave it out to start now"),
        (timedelta(0), "start_at is 0 s ago"),
        (timedelta(days=400), "start_at is 400 d ahead; allowed are 366 d"),
    ],
)
def test_refuses_a_time_at_which_nothing_can_start(
    fleet: MemoryFleet, ahead: timedelta, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        fleet.promote("web.1", 1, start_at=fleet.clock.now + ahead)


def test_a_refresh_cannot_have_a_start_time(fleet: MemoryFleet) -> None:
    fleet.promote("web.1", 1)
    with pytest.raises(InvalidInput, match="a refresh opens no rollout"):
        fleet.promote("web.1", refresh=True, start_at=fleet.clock.now + HOUR)
