"""A rollout that halts: what still counts, what is taken back, and who is tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.domain.memory_fleet import MemoryFleet
from tidegate.domain.composition import FOLDS
from tidegate.domain.rollouts.machine import state_of_counts
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.domain.rollouts.states import OPEN, Clearance, RolloutState
from tidegate.kernel.codec import decode
from tidegate.kernel.replay import Replay, differences

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """Whatever a test does, the log says afterwards what the rows say."""
    played = MemoryFleet()
    yield played
    assert differences(played.store, FOLDS) == []


def check_state(fleet: MemoryFleet, rollout_id: str) -> RolloutState:
    """The state of the row, which the tally has, calls for, and has again after a rebuild."""
    tally = fleet.tally(rollout_id)
    replay = Replay(FOLDS)
    replay.follow(fleet.store)
    assert decode(replay.record(tally_key(rollout_id)).data, RolloutTally) == tally
    assert fleet.state(rollout_id) is tally.state
    assert tally.state not in OPEN or state_of_counts(tally) is tally.state
    return tally.state


# ── the state follows from the counts ─────────────────────────────────────────────────────────────


@pytest.mark.req("RO-3", **pure)
def test_has_the_state_of_its_tally_after_a_resume_and_a_new_failure(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2)
    fleet.order(rollout_id, "w0-0", "w0-1")
    fleet.ack(rollout_id, "w0-1")
    fleet.reject(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED

    fleet.clear(rollout_id, Clearance.RESUME)
    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE
    fleet.fail(rollout_id, "w0-1")

    assert check_state(fleet, rollout_id) is RolloutState.FAILED, "w0-0 still counts as failed"
    fleet.revert(rollout_id, "w0-1")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED


def test_stays_failed_when_a_host_that_was_given_up_comes_back(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.lose(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED

    fleet.revert(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED
    fleet.clear(rollout_id, Clearance.RESUME)
    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE
