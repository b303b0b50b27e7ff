"""Waves after the cursor has passed them, on every engine: a host that waited for its reboot lets
the next wave start, and its later result counts again. Also hosts that a rollout must not wait for:
retired ones, and late ones whose order was not taken.

Promotion, dispatcher, queue and lanes work together; no event is fed by hand. Seed 1337 of the
simulation found the first of these cases, and seed 4347 the last one.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.contract.in_process_fleet import CANARY, REST, SOAK, InProcessFleet
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.composition import FOLDS
from tidegate.domain.fleet.refusals import BudgetExhausted
from tidegate.domain.fleet.rows import LIVENESS, Budget, Liveness, budget_key
from tidegate.domain.fleet.slices import NoteSilence, RetireHost, note_silence, retire_host
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import ActivationDeferred, ActivationFailed, RollbackFailed
from tidegate.domain.hosts.refusals import HostBusy, RolloutIsSuperseded, WaveNotReached
from tidegate.domain.hosts.rows import HostOrder, order_key
from tidegate.domain.hosts.states import HostState, ProbeStatus
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.skip_slices import SkipHostByHand, skip_host_by_hand
from tidegate.domain.rollouts.slices import AbortRollout, abort_rollout
from tidegate.domain.rollouts.states import Clearance, Outcome, RolloutState
from tidegate.domain.rollouts.wave_slices import (
    ContinueRollout,
    PromoteAll,
    SkipWave,
    continue_rollout,
    promote_all,
    skip_wave,
)
from tidegate.kernel.records.records import Records
from tidegate.kernel.replay import differences

pytestmark = pytest.mark.in_turn


def past_a_deferred_canary(fleet: InProcessFleet) -> str:
    """Start with e1 waiting for its reboot, so that the wave of e2 and e3 has begun."""
    fleet.create("edge", replace(CANARY, converged_min=0), REST)
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.ack("e1")
    fleet.say(ActivationDeferred, rollout_id, "e1", component="kernel")
    assert fleet.tally(rollout_id).current_wave == 1
    return rollout_id


def past_a_failure_of_late_hosts(fleet: InProcessFleet) -> str:
    """Start with e2 and e3 enrolled after e1 was done: e2 failed and rolled back, e3 did not take
    its order.
    """
    fleet.create("edge", REST)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1", "web.2")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(rollout_id, "e1")
    fleet.enroll("e2", "e3", channel="edge")
    assert fleet.dispatch(thorough=True).ordered == 2
    fleet.ack("e2")
    fleet.say(ActivationFailed, rollout_id, "e2", exit_code=1)
    fleet.revert(rollout_id, "e2")
    return rollout_id


def why(fleet: InProcessFleet, rollout_id: str, host_id: str) -> str:
    state = fleet.control_plane.fleet_reader.state([rollout_id], fleet.clock(), late=True)
    return explain(state, rollout_id, host_id).answer


def order_anyway(fleet: InProcessFleet, rollout_id: str, host_id: str) -> object:
    """Reserve an order as a dispatcher that did not ask the gates, and return the answer."""
    known = fleet.host(rollout_id, "e1")
    command = ReserveDispatch(
        rollout_id=rollout_id,
        host_id=host_id,
        target_closure=known.target_closure,
        wave=1,
        policy=known.policy,
        attempt=fleet.tally(rollout_id).attempt,
    )
    return fleet.control_plane.record(rollout_id, reserve_dispatch, command)


@pytest.mark.req("RO-12")
def test_a_host_that_failed_after_its_reboot_is_tried_again_before_later_waves(
    fleet: InProcessFleet,
) -> None:
    rollout_id = past_a_deferred_canary(fleet)
    assert fleet.dispatch().ordered == 2
    fleet.reach(rollout_id, "e2")
    fleet.ack("e3")
    fleet.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    fleet.say(ActivationFailed, rollout_id, "e3", exit_code=1)
    fleet.revert(rollout_id, "e1")
    fleet.revert(rollout_id, "e3")
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    fleet.clear(rollout_id, Clearance.RESUME)

    assert why(fleet, rollout_id, "e3") == "wave-promotion: wave rest waits for wave canary"
    assert isinstance(order_anyway(fleet, rollout_id, "e3"), WaveNotReached)
    first = fleet.dispatch()
    again = fleet.dispatch(thorough=True)

    assert (first.ordered, first.lost, again.ordered, again.lost) == (1, 0, 0, 0)
    assert fleet.host(rollout_id, "e1").state is HostState.PENDING
    assert fleet.host(rollout_id, "e3").state is HostState.REVERTED
    assert fleet.tally(rollout_id).current_wave == 1, "the cursor never goes back"
    fleet.reach(rollout_id, "e1")
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e3")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_orders_of_later_waves_wait_while_a_rebooted_host_soaks(fleet: InProcessFleet) -> None:
    fleet.bound("*", 1)
    rollout_id = past_a_deferred_canary(fleet)
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e2")

    fleet.activate(rollout_id, "e1")

    assert fleet.dispatch().ordered == 0
    assert why(fleet, rollout_id, "e3") == "wave-promotion: wave rest waits for wave canary"
    assert isinstance(order_anyway(fleet, rollout_id, "e3"), WaveNotReached)
    fleet.probe(rollout_id, "e1", ProbeStatus.PASS)
    fleet.wait(SOAK)
    fleet.converge(rollout_id, "e1")
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e3")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_later_waves_do_not_wait_for_a_waived_host(fleet: InProcessFleet) -> None:
    fleet.bound("*", 1)
    rollout_id = past_a_deferred_canary(fleet)
    fleet.dispatch()
    fleet.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    fleet.revert(rollout_id, "e1")
    fleet.dispatch(thorough=True)
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    fleet.clear(rollout_id, Clearance.WAIVE, "e1")
    fleet.lift(rollout_id)

    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e2")
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e3")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("went_back", [True, False])
def test_later_waves_do_not_wait_for_a_host_that_is_retired_before_its_retry(
    fleet: InProcessFleet, went_back: bool
) -> None:
    fleet.create("edge", replace(CANARY, converged_min=0), REST)
    fleet.enroll("e1", "e2", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.ack("e1")
    fleet.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    if went_back:
        fleet.revert(rollout_id, "e1")
    else:
        fleet.say(RollbackFailed, rollout_id, "e1", exit_code=1, phase="switch")
    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.execute(retire_host, RetireHost(host_id="e1", operator="user_1", reason="burnt"))

    assert fleet.dispatch(thorough=True).skipped == 1

    assert fleet.host(rollout_id, "e1").left == "skipped"
    assert fleet.tally(rollout_id).rollback_failed == 0
    assert fleet.tally(rollout_id).current_wave == 1
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e2")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_cancels_the_order_of_a_late_host_when_its_artifact_is_quarantined(
    fleet: InProcessFleet,
) -> None:
    first = past_a_failure_of_late_hosts(fleet)
    second = fleet.promote("edge", "web.2")
    fleet.dispatch()
    assert why(fleet, second, "e3") == f"host-busy: the host is busy with {first}"

    assert fleet.dispatch(thorough=True).cancelled == 1

    assert fleet.host(first, "e3").cancelled_at is not None
    assert fleet.dispatch().ordered == 1
    fleet.reach(second, "e1", "e2", "e3")
    assert fleet.state(second) is RolloutState.TERMINAL


@pytest.mark.req("RO-12", "OP-10")
@pytest.mark.parametrize("retired", [True, False])
def test_takes_the_order_of_a_late_host_back_that_can_not_report(
    fleet: InProcessFleet, retired: bool
) -> None:
    """Seed 2303 of the walks: a retired host held the only slot of its budget for ever."""
    fleet.create("edge", REST)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1", "web.2")
    first = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(first, "e1")
    fleet.bound("channel=edge", 1)
    fleet.enroll("e2", channel="edge")
    assert fleet.dispatch(thorough=True).ordered == 1
    if retired:
        fleet.execute(retire_host, RetireHost(host_id="e2", operator="user_1", reason="sold"))
    else:
        silence = NoteSilence(host_id="e2", last_seen_at=fleet.clock())
        fleet.execute(note_silence, silence)
    second = fleet.promote("edge", "web.2")
    assert fleet.dispatch().ordered == 0, "e2 holds the slot"

    assert fleet.dispatch(thorough=True).cancelled == 1

    assert fleet.host(first, "e2").cancelled_at is not None
    fleet.dispatch(thorough=True)
    fleet.reach(second, "e1")


@pytest.mark.req("RO-12")
def test_orders_a_late_host_again_when_the_one_that_failed_is_skipped(
    fleet: InProcessFleet,
) -> None:
    rollout_id = past_a_failure_of_late_hosts(fleet)
    assert fleet.dispatch(thorough=True).cancelled == 1
    assert fleet.dispatch(thorough=True).ordered == 0
    fleet.lift(rollout_id)
    assert fleet.dispatch(thorough=True).ordered == 0
    command = SkipHostByHand(
        rollout_id=rollout_id, host_id="e2", wave=0, operator="user_1", reason="its disk"
    )
    fleet.execute(skip_host_by_hand, command)

    assert fleet.dispatch(thorough=True).ordered == 1

    fleet.reach(rollout_id, "e3")
    assert fleet.host(rollout_id, "e3").state is HostState.CONVERGED


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("late", [True, False])
def test_is_not_pruned_while_an_uncounted_host_rolls_back(
    fleet: InProcessFleet, late: bool
) -> None:
    """If it were pruned, it would refuse the host's reports and deadlines, and the host would stay
    busy for ever.
    """
    spared = replace(REST, failures_max=1)
    fleet.create("edge", spared, retention_seconds=60)
    fleet.enroll("e1", *(() if late else ("e2",)), channel="edge")
    fleet.offer("web.1", "web.2")
    first = fleet.promote("edge", "web.1")
    fleet.dispatch()
    if late:
        fleet.reach(first, "e1")
        fleet.enroll("e2", channel="edge")
        fleet.dispatch(thorough=True)
    fleet.ack("e2")
    fleet.say(ActivationFailed, first, "e2", exit_code=1)
    if not late:
        fleet.reach(first, "e1")
    assert fleet.state(first) is RolloutState.TERMINAL

    fleet.wait(120)
    fleet.control_plane.due.tick()
    assert fleet.state(first) is RolloutState.TERMINAL

    fleet.revert(first, "e2")
    fleet.control_plane.due.tick()
    assert fleet.state(first) is RolloutState.PRUNED
    second = fleet.promote("edge", "web.2")
    assert fleet.dispatch().ordered == 2
    fleet.reach(second, "e1", "e2")
    assert fleet.state(second) is RolloutState.TERMINAL


# ── back from a reboot ────────────────────────────────────────────────────────────────────────────


def defer(fleet: InProcessFleet, rollout_id: str, host_id: str) -> None:
    fleet.ack(host_id)
    fleet.say(ActivationDeferred, rollout_id, host_id, component="kernel")


def reboot(fleet: InProcessFleet, rollout_id: str, host_id: str) -> None:
    """Reboot into the target. A heartbeat reports it before the host's own report does."""
    target = fleet.host(rollout_id, host_id).target_closure
    channel = fleet.tally(rollout_id).channel
    seen = Liveness(host_id=host_id, last_seen_at=fleet.clock(), current_closures={channel: target})
    Records(fleet.store, fleet.clock).save(LIVENESS.name, host_id, seen)


@pytest.mark.req("RO-12", "RO-23")
def test_a_host_back_from_its_reboot_waits_for_a_slot_of_its_budget(fleet: InProcessFleet) -> None:
    fleet.bound("*", 1)
    fleet.create("edge", REST)
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    defer(fleet, rollout_id, "e1")
    assert fleet.dispatch().ordered == 1
    fleet.ack("e2")
    reboot(fleet, rollout_id, "e1")

    with pytest.raises(BudgetExhausted):
        fleet.activate(rollout_id, "e1")
    assert fleet.host(rollout_id, "e1").state is HostState.DEFERRED
    fleet.activate(rollout_id, "e2")
    fleet.probe(rollout_id, "e2", ProbeStatus.PASS)
    fleet.wait(SOAK)
    fleet.converge(rollout_id, "e2")
    assert fleet.dispatch().ordered == 0, "e1 comes before e3"
    fleet.activate(rollout_id, "e1")
    assert fleet.row(budget_key("few"), Budget).in_flight == 1
    assert fleet.dispatch().ordered == 0
    fleet.probe(rollout_id, "e1", ProbeStatus.PASS)
    fleet.wait(SOAK)
    fleet.converge(rollout_id, "e1")
    assert fleet.row(budget_key("few"), Budget).in_flight == 0
    assert fleet.dispatch().ordered == 1


@pytest.mark.req("RO-12")
def test_a_host_back_from_its_reboot_gets_no_second_order(fleet: InProcessFleet) -> None:
    fleet.create("edge", REST)
    fleet.create("spare", REST, package="default/api", selector="channel=edge")
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1", "api.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    defer(fleet, rollout_id, "e1")
    other = fleet.promote("spare", "api.1")
    assert fleet.dispatch().ordered == 1, "it is free until its reboot"
    reboot(fleet, rollout_id, "e1")

    with pytest.raises(HostBusy):
        fleet.activate(rollout_id, "e1")
    assert fleet.dispatch(thorough=True).cancelled == 1, (
        "an order that it did not acknowledge is cancelled"
    )
    fleet.activate(rollout_id, "e1")

    assert fleet.row(order_key("e1"), HostOrder).rollout_id == rollout_id
    assert fleet.dispatch(thorough=True).ordered == 0
    fleet.probe(rollout_id, "e1", ProbeStatus.PASS)
    fleet.wait(SOAK)
    fleet.converge(rollout_id, "e1")
    assert fleet.dispatch().ordered == 1
    assert fleet.row(order_key("e1"), HostOrder).rollout_id == other


@pytest.mark.req("RO-12")
def test_a_reboot_into_a_replaced_release_does_not_delay_a_newer_order(
    fleet: InProcessFleet,
) -> None:
    fleet.create("edge", REST)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1", "web.2")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    defer(fleet, rollout_id, "e1")
    newer = fleet.promote("edge", "web.2")
    assert fleet.dispatch().ordered == 1
    reboot(fleet, rollout_id, "e1")

    with pytest.raises(RolloutIsSuperseded):
        fleet.activate(rollout_id, "e1")
    fleet.reach(newer, "e1")
    assert fleet.state(newer) is RolloutState.TERMINAL


@pytest.mark.req("RO-10", "OP-4")
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_reboot_that_never_came_quarantines_no_release(
    fleet: InProcessFleet, is_replaced: bool
) -> None:
    """The host never ran the release, so nothing is known against it. The order of a replaced
    release is cancelled; a late host of the current release fails.
    """
    fleet.create("edge", REST)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1", "web.2")
    first = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(first, "e1")
    fleet.enroll("e2", channel="edge")
    fleet.dispatch(thorough=True)
    defer(fleet, first, "e2")
    if is_replaced:
        second = fleet.promote("edge", "web.2")
        fleet.dispatch()
        fleet.reach(second, "e1", "e2")
    policy = fleet.host(first, "e2").policy

    fleet.wait(policy.deferral_seconds)
    assert fleet.control_plane.due.tick().deadlines == 1
    assert fleet.control_plane.is_withdrawn(first, "e2"), "the agent removes what is staged"
    fleet.wait(policy.rollback_seconds)
    assert fleet.control_plane.due.tick().deadlines == (0 if is_replaced else 1)

    record = fleet.host(first, "e2")
    assert record.due_at is None
    assert record.state is (HostState.PENDING if is_replaced else HostState.FAILED)
    assert (record.cancelled_at is not None) is is_replaced
    assert fleet.tally(first).degraded is not is_replaced
    assert fleet.quarantine(first) is None
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-9")
def test_sends_a_release_that_no_host_ran_to_one_new_host_at_a_time(fleet: InProcessFleet) -> None:
    fleet.create("edge", CANARY, REST)
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    assert fleet.tally(rollout_id).outcome is Outcome.EMPTY
    fleet.enroll("e1", "e2", "e3", channel="edge")

    assert fleet.dispatch(thorough=True).ordered == 1
    assert fleet.dispatch(thorough=True).ordered == 0
    assert "late hosts go one at a time" in why(fleet, rollout_id, "e2")

    fleet.reach(rollout_id, "e1")
    assert fleet.dispatch(thorough=True).ordered == 2
    assert fleet.tally(rollout_id).outcome is Outcome.EMPTY, "an outcome never changes"


@pytest.mark.req("OP-9")
@pytest.mark.parametrize("freshness_seconds", [None, 3_600])
def test_sends_new_hosts_the_newest_success_and_no_aborted_or_untried_release(
    fleet: InProcessFleet, freshness_seconds: int | None
) -> None:
    """That it succeeded is evidence enough: its pin is gone, and cannot be renewed."""
    fleet.create("edge", REST, freshness_seconds=freshness_seconds)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1")
    first = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(first, "e1")
    fleet.offer("web.2")
    second = fleet.promote("edge", "web.2")
    abort = AbortRollout(rollout_id=second, operator="user_1", reason="not this one")
    fleet.execute(abort_rollout, abort)
    fleet.enroll("e2", channel="edge")

    assert fleet.dispatch(thorough=True).ordered == 1

    fleet.reach(first, "e2")
    assert fleet.host(first, "e2").late


@pytest.mark.req("OP-9", "OP-10")
def test_explains_what_a_host_that_came_late_waits_for(fleet: InProcessFleet) -> None:
    fleet.create("edge", REST, retention_seconds=60)
    fleet.enroll("e1", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.enroll("e2", channel="edge")
    fleet.enroll("x1", channel="other")

    assert why(fleet, rollout_id, "e2") == (
        "wave-promotion: the host came after the plan was made; it gets the newest success of edge "
        "when edge@web.1 ends"
    )
    assert "no wave of the plan takes the host" in why(fleet, rollout_id, "x1")
    fleet.reach(rollout_id, "e1")
    fleet.wait(60)
    assert fleet.control_plane.due.tick().retentions == 1
    assert why(fleet, rollout_id, "e2") == (
        "dispatchable: edge@web.1 is past its retention, so no late host joins it. Promote its "
        "release again: tidegate channel promote edge web.1"
    )
    again = fleet.promote("edge", "web.1")
    assert fleet.dispatch().ordered == 2
    fleet.reach(again, "e1", "e2")


@pytest.mark.req("RO-12", "OP-9")
def test_starts_a_wave_by_its_timer_when_its_delay_is_over(fleet: InProcessFleet) -> None:
    fleet.create("edge", CANARY, replace(REST, delay_seconds=60))
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(rollout_id, "e1")
    assert fleet.dispatch(thorough=True).ordered == 0
    assert fleet.control_plane.due.tick().waves == 0

    fleet.clock.now += timedelta(seconds=61)
    assert fleet.control_plane.due.tick().waves == 1
    assert fleet.control_plane.due.tick().waves == 0

    assert fleet.dispatch().ordered == 2
    fleet.reach(rollout_id, "e2", "e3")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


@pytest.mark.req("RO-12", "OP-9")
def test_proceeds_after_a_share_of_a_wave_and_halts_when_another_host_of_it_fails(
    fleet: InProcessFleet,
) -> None:
    fleet.create("edge", replace(CANARY, count=2, percent=None, success_percent=50), REST)
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    assert fleet.dispatch().ordered == 2
    fleet.ack("e2")
    fleet.reach(rollout_id, "e1")
    row = fleet.rollout(rollout_id)
    assert (row.state, row.current_wave) == (RolloutState.ACTIVE, 1)
    assert fleet.dispatch().ordered == 1

    fleet.say(ActivationFailed, rollout_id, "e2", exit_code=1)

    assert fleet.tally(rollout_id).halted_at is not None


# ── sent twice ────────────────────────────────────────────────────────────────────────────────────


def four_waves(fleet: InProcessFleet) -> str:
    """Start with one host in each of four waves. From the second wave on, each waits for a
    person.
    """
    by_hand = [
        WaveSpec(name=name, count=1, soak_seconds=SOAK, manual=True) for name in ("b", "c", "d")
    ]
    fleet.create("edge", CANARY, *by_hand)
    fleet.enroll("e1", "e2", "e3", "e4", channel="edge")
    fleet.offer("web.1")
    return fleet.promote("edge", "web.1")


@pytest.mark.req("OP-9")
def test_continue_sent_twice_starts_one_wave(fleet: InProcessFleet) -> None:
    rollout_id = four_waves(fleet)
    fleet.dispatch()
    fleet.reach(rollout_id, "e1")
    command = ContinueRollout(rollout_id=rollout_id, operator="user_1")

    first = fleet.execute(continue_rollout, command)
    second = fleet.execute(continue_rollout, command)

    assert (bool(first.facts), bool(second.facts)) == (True, False)
    assert fleet.tally(rollout_id).current_wave == 1
    assert not fleet.tally(rollout_id).waves[2].continued
    assert fleet.dispatch().ordered == 1


@pytest.mark.req("OP-9")
def test_skip_wave_sent_twice_skips_one_wave(fleet: InProcessFleet) -> None:
    rollout_id = four_waves(fleet)
    for wave in ("canary", "1"):  # by its name, or by its number
        command = SkipWave(rollout_id=rollout_id, wave=wave, operator="user_1", reason="no use")
        fleet.execute(skip_wave, command)

    assert [wave.skipped for wave in fleet.tally(rollout_id).waves] == [True, False, False, False]
    assert fleet.types().count("WaveSkipped") == 1


@pytest.mark.req("OP-9")
def test_promote_all_sent_twice_forces_each_wave_once(fleet: InProcessFleet) -> None:
    rollout_id = four_waves(fleet)
    command = PromoteAll(rollout_id=rollout_id, operator="user_1", reason="a hurry")

    fleet.execute(promote_all, command)
    again = fleet.execute(promote_all, command)

    assert not again.facts
    assert fleet.types().count("WaveAdvanced") == 3
    assert fleet.dispatch().ordered == 4
