"""A rollout that halts: what still counts, which orders are cancelled, and which hosts are
retried.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.domain.memory_fleet import MemoryFleet
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.facts import DispatchCancelled, HostSkipped
from tidegate.domain.hosts.refusals import OrderCancelled, RolloutIsHalted
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.counted_state import state_of_counts
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.domain.rollouts.states import OPEN, Clearance, RolloutState
from tidegate.errors import IllegalTransition, InvalidInput
from tidegate.kernel.codec import decode
from tidegate.kernel.replay import Replay, differences

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    played = MemoryFleet()
    yield played
    assert differences(played.store, FOLDS) == []


def check_state(fleet: MemoryFleet, rollout_id: str) -> RolloutState:
    """Check the state of the row: it is that of the tally, now and after a rebuild."""
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


def test_stays_failed_when_a_lost_host_comes_back(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.lose(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED

    fleet.revert(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.FAILED
    fleet.clear(rollout_id, Clearance.RESUME)
    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE


# ── a host that waits for its reboot ──────────────────────────────────────────────────────────────


def halt_beside_a_deferred_host(fleet: MemoryFleet) -> str:
    rollout_id = fleet.promote("web.1", 2, converged_min=0)
    fleet.start(rollout_id, "w0-0", "w0-1")
    fleet.defer(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-1")
    fleet.revert(rollout_id, "w0-1")
    return rollout_id


@pytest.mark.req("RO-23", **pure)
def test_is_reverted_although_a_host_waits_for_its_reboot(fleet: MemoryFleet) -> None:
    rollout_id = halt_beside_a_deferred_host(fleet)

    assert check_state(fleet, rollout_id) is RolloutState.REVERTED
    fleet.clear(rollout_id, Clearance.WAIVE, "w0-1")
    assert check_state(fleet, rollout_id) is RolloutState.CONVERGING


def test_cancels_the_order_of_a_deferred_host_while_it_is_halted(fleet: MemoryFleet) -> None:
    rollout_id = halt_beside_a_deferred_host(fleet)
    fleet.cancel(rollout_id, "w0-0")

    assert check_state(fleet, rollout_id) is RolloutState.REVERTED
    assert fleet.tally(rollout_id).waves[0].states == {HostState.REVERTED: 1}
    assert [fact.host_id for fact in fleet.events(DispatchCancelled)] == ["w0-0"]
    with pytest.raises(OrderCancelled):
        fleet.activate(rollout_id, "w0-0")
    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.reach(rollout_id, "w0-0", "w0-1")
    assert check_state(fleet, rollout_id) is RolloutState.TERMINAL


def test_refuses_a_reboot_into_the_target_while_it_is_halted(fleet: MemoryFleet) -> None:
    rollout_id = halt_beside_a_deferred_host(fleet)

    with pytest.raises(RolloutIsHalted):
        fleet.activate(rollout_id, "w0-0")
    fleet.observe(rollout_id, "w0-0")
    with pytest.raises(RolloutIsHalted):
        fleet.fail(rollout_id, "w0-0")
    record = fleet.record(rollout_id, "w0-0")
    assert record is not None
    assert record.state is HostState.DEFERRED
    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.activate(rollout_id, "w0-0")
    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE


def test_accepts_the_reboot_into_a_target_that_was_replaced_after_the_halt(
    fleet: MemoryFleet,
) -> None:
    """Its order will not be cancelled any more, so its report must not wait for that."""
    rollout_id = halt_beside_a_deferred_host(fleet)
    fleet.promote("web.2", 2)

    fleet.activate(rollout_id, "w0-0")

    assert fleet.counts(rollout_id)[HostState.SOAKING] == 1


@pytest.mark.parametrize("ordered", ["nobody", "pending", "deferred"])
def test_skips_a_host_that_waits_while_it_is_halted(fleet: MemoryFleet, ordered: str) -> None:
    rollout_id = fleet.promote("web.1", 2)
    if ordered != "nobody":
        fleet.order(rollout_id, "w0-0")
    if ordered == "deferred":
        fleet.ack(rollout_id, "w0-0")
        fleet.defer(rollout_id, "w0-0")
    fleet.start(rollout_id, "w0-1")
    fleet.fail(rollout_id, "w0-1")
    fleet.revert(rollout_id, "w0-1")
    fleet.skip(rollout_id, "w0-0")

    assert check_state(fleet, rollout_id) is RolloutState.REVERTED
    assert [fact.host_id for fact in fleet.events(HostSkipped)] == ["w0-0"]
    with pytest.raises(IllegalTransition):
        fleet.skip(rollout_id, "w0-1")


# ── trying some hosts again ───────────────────────────────────────────────────────────────────────


def fail_two(fleet: MemoryFleet) -> str:
    """Let w0-0 and w0-1 fail and roll back, and leave w0-2 without an order."""
    rollout_id = fleet.promote("web.1", 3, 1)
    fleet.start(rollout_id, "w0-0", "w0-1")
    fleet.fail(rollout_id, "w0-0", "w0-1")
    fleet.revert(rollout_id, "w0-0", "w0-1")
    return rollout_id


@pytest.mark.req("RO-18", **pure)
def test_retries_only_the_hosts_that_the_operator_names(fleet: MemoryFleet) -> None:
    rollout_id = fail_two(fleet)
    fleet.clear(rollout_id, Clearance.RESUME, "w0-1")
    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE

    for host_id in ("w0-0", "w0-2"):
        with pytest.raises(RolloutIsHalted):
            fleet.order(rollout_id, host_id)
    with pytest.raises(IllegalTransition):
        fleet.skip(rollout_id, "w0-0")
    fleet.reach(rollout_id, "w0-1")

    # The host that was not named still counts as failed, so the rollout stops again.
    assert check_state(fleet, rollout_id) is RolloutState.REVERTED
    assert fleet.tally(rollout_id).halted_by == "w0-0"
    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.reach(rollout_id, "w0-0", "w0-2")
    fleet.reach(rollout_id, "w1-0")
    assert check_state(fleet, rollout_id) is RolloutState.TERMINAL


def test_stops_again_when_a_retried_host_fails(fleet: MemoryFleet) -> None:
    rollout_id = fail_two(fleet)
    fleet.clear(rollout_id, Clearance.RESUME, "w0-1")
    fleet.start(rollout_id, "w0-1")
    fleet.fail(rollout_id, "w0-1")
    fleet.revert(rollout_id, "w0-1")

    assert check_state(fleet, rollout_id) is RolloutState.REVERTED
    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.reach(rollout_id, "w0-0", "w0-1", "w0-2")
    assert fleet.tally(rollout_id).current_wave == 1


def test_continues_when_every_failed_host_was_named_and_converged(fleet: MemoryFleet) -> None:
    rollout_id = fail_two(fleet)
    fleet.clear(rollout_id, Clearance.RESUME, "w0-0", "w0-1")
    fleet.reach(rollout_id, "w0-0", "w0-1")

    assert check_state(fleet, rollout_id) is RolloutState.ACTIVE
    fleet.reach(rollout_id, "w0-2")
    assert fleet.tally(rollout_id).current_wave == 1


def test_retries_no_host_that_did_not_fail(fleet: MemoryFleet) -> None:
    rollout_id = fail_two(fleet)
    with pytest.raises(InvalidInput, match="w0-2"):
        fleet.clear(rollout_id, Clearance.RESUME, "w0-2")


def retry_into_a_reboot(fleet: MemoryFleet) -> str:
    """Let w0-1 be retried alone, and wait for its reboot, while w0-0 is still failed."""
    rollout_id = fail_two(fleet)
    fleet.clear(rollout_id, Clearance.RESUME, "w0-1")
    fleet.start(rollout_id, "w0-1")
    fleet.defer(rollout_id, "w0-1")
    return rollout_id


def test_a_retry_lasts_while_its_host_waits_for_a_reboot(fleet: MemoryFleet) -> None:
    rollout_id = retry_into_a_reboot(fleet)
    assert fleet.tally(rollout_id).halted_at is None
    with pytest.raises(RolloutIsHalted):
        fleet.order(rollout_id, "w0-2")

    fleet.activate(rollout_id, "w0-1")
    fleet.declare(rollout_id, "w0-1")
    assert fleet.tally(rollout_id).halted_at is None
    fleet.converge(rollout_id, "w0-1")

    assert fleet.tally(rollout_id).halted_by == "w0-0"
    assert check_state(fleet, rollout_id) is RolloutState.REVERTED


@pytest.mark.parametrize("end", ["expire", "skip"])
def test_a_retry_ends_when_its_host_is_not_rebooted(fleet: MemoryFleet, end: str) -> None:
    rollout_id = retry_into_a_reboot(fleet)

    {"expire": fleet.expire, "skip": fleet.skip_by_hand}[end](rollout_id, "w0-1")

    tally = fleet.tally(rollout_id)
    assert tally.halted_at is not None
    assert tally.retried == ()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_retry_waits_for_no_reboot_when_no_failed_host_remains(
    fleet: MemoryFleet, is_first: bool
) -> None:
    rollout_id = fail_two(fleet)
    fleet.clear(rollout_id, Clearance.RESUME, "w0-1", "w0-0")
    fleet.start(rollout_id, "w0-1")
    if is_first:
        fleet.defer(rollout_id, "w0-1")
        fleet.reach(rollout_id, "w0-0")
    else:
        fleet.reach(rollout_id, "w0-0")
        fleet.defer(rollout_id, "w0-1")

    assert fleet.tally(rollout_id).retried == ()
    fleet.reach(rollout_id, "w0-2")
    assert fleet.tally(rollout_id).halted_at is None
    assert fleet.tally(rollout_id).current_wave == 1
