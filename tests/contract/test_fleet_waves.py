"""Waves after the cursor has passed them, on every engine: a host that waited for its reboot lets
the next wave go, and what becomes of it afterwards counts again. And hosts that nobody may wait
for: retired ones, and late ones whose order nobody takes.

Promotion, dispatcher, queue and lanes work together; no event is fed by hand. The first of these
is what seed 1337 of the simulation found, the last one what seed 4347 did.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.contract.in_process_fleet import CANARY, REST, SOAK, Squadron
from tidegate.domain.fleet.slices import RetireHost, retire_host
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import ActivationDeferred, ActivationFailed, RollbackFailed
from tidegate.domain.hosts.refusals import WaveNotReached
from tidegate.domain.hosts.states import HostState, ProbeStatus
from tidegate.domain.rollouts.report_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.states import Clearance, RolloutState


def past_a_deferred_canary(squadron: Squadron) -> str:
    """e1 waits for its reboot, so the wave of e2 and e3 has come."""
    squadron.create("edge", CANARY, REST)
    squadron.enroll("e1", "e2", "e3", channel="edge")
    squadron.offer("web.1")
    rollout_id = squadron.promote("edge", "web.1")
    squadron.dispatch()
    squadron.ack("e1")
    squadron.say(ActivationDeferred, rollout_id, "e1", component="kernel")
    assert squadron.tally(rollout_id).current_wave == 1
    return rollout_id


def past_a_failure_of_late_hosts(squadron: Squadron) -> str:
    """e2 and e3 came after e1 was done; e2 failed and went back, nobody took the order of e3."""
    squadron.create("edge", REST)
    squadron.enroll("e1", channel="edge")
    squadron.offer("web.1", "web.2")
    rollout_id = squadron.promote("edge", "web.1")
    squadron.dispatch()
    squadron.reach(rollout_id, "e1")
    squadron.enroll("e2", "e3", channel="edge")
    assert squadron.dispatch(thorough=True).ordered == 2
    squadron.ack("e2")
    squadron.say(ActivationFailed, rollout_id, "e2", exit_code=1)
    squadron.revert(rollout_id, "e2")
    return rollout_id


def why(squadron: Squadron, rollout_id: str, host_id: str) -> str:
    state = squadron.control_plane.fleet_reader.state([rollout_id], squadron.clock())
    return explain(state, rollout_id, host_id).answer


def order_anyway(squadron: Squadron, rollout_id: str, host_id: str) -> object:
    """What the rows say to a dispatcher that did not ask the gates."""
    known = squadron.host(rollout_id, "e1")
    command = ReserveDispatch(
        rollout_id=rollout_id,
        host_id=host_id,
        target_closure=known.target_closure,
        wave=1,
        policy=known.policy,
        attempt=squadron.tally(rollout_id).attempt,
    )
    return squadron.control_plane.recorded(rollout_id, reserve_dispatch, command)


@pytest.mark.req("RO-12")
def test_a_host_that_failed_after_its_reboot_is_tried_again_before_later_waves(
    squadron: Squadron,
) -> None:
    rollout_id = past_a_deferred_canary(squadron)
    assert squadron.dispatch().ordered == 2
    squadron.reach(rollout_id, "e2")
    squadron.ack("e3")
    squadron.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    squadron.say(ActivationFailed, rollout_id, "e3", exit_code=1)
    squadron.revert(rollout_id, "e1")
    squadron.revert(rollout_id, "e3")
    assert squadron.state(rollout_id) is RolloutState.REVERTED
    squadron.clear(rollout_id, Clearance.RESUME)

    assert why(squadron, rollout_id, "e3") == "wave-promotion: wave 1 waits for wave 0"
    assert isinstance(order_anyway(squadron, rollout_id, "e3"), WaveNotReached)
    first = squadron.dispatch()
    again = squadron.dispatch(thorough=True)

    assert (first.ordered, first.lost, again.ordered, again.lost) == (1, 0, 0, 0)
    assert squadron.host(rollout_id, "e1").state is HostState.PENDING
    assert squadron.host(rollout_id, "e3").state is HostState.REVERTED
    assert squadron.tally(rollout_id).current_wave == 1, "the cursor never goes back"
    squadron.reach(rollout_id, "e1")
    assert squadron.dispatch().ordered == 1
    squadron.reach(rollout_id, "e3")
    assert squadron.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_orders_of_later_waves_wait_while_a_rebooted_host_soaks(squadron: Squadron) -> None:
    squadron.bound("*", 1)
    rollout_id = past_a_deferred_canary(squadron)
    assert squadron.dispatch().ordered == 1
    squadron.activate(rollout_id, "e1")

    squadron.reach(rollout_id, "e2")  # its order was out: it goes on

    assert squadron.dispatch().ordered == 0
    assert why(squadron, rollout_id, "e3") == "wave-promotion: wave 1 waits for wave 0"
    assert isinstance(order_anyway(squadron, rollout_id, "e3"), WaveNotReached)
    squadron.probe(rollout_id, "e1", ProbeStatus.PASS)
    squadron.wait(SOAK)
    squadron.converge(rollout_id, "e1")
    assert squadron.dispatch().ordered == 1
    squadron.reach(rollout_id, "e3")
    assert squadron.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_nobody_waits_for_an_earlier_host_that_was_waived(squadron: Squadron) -> None:
    squadron.bound("*", 1)
    rollout_id = past_a_deferred_canary(squadron)
    squadron.dispatch()
    squadron.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    squadron.revert(rollout_id, "e1")
    squadron.dispatch(thorough=True)
    assert squadron.state(rollout_id) is RolloutState.REVERTED
    squadron.clear(rollout_id, Clearance.WAIVE, "e1")
    squadron.lift(rollout_id)

    assert squadron.dispatch().ordered == 1
    squadron.reach(rollout_id, "e2")
    assert squadron.dispatch().ordered == 1
    squadron.reach(rollout_id, "e3")
    assert squadron.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("went_back", [True, False])
def test_nobody_waits_for_a_host_that_is_retired_before_it_is_tried_again(
    squadron: Squadron, went_back: bool
) -> None:
    squadron.create("edge", CANARY, REST)
    squadron.enroll("e1", "e2", channel="edge")
    squadron.offer("web.1")
    rollout_id = squadron.promote("edge", "web.1")
    squadron.dispatch()
    squadron.ack("e1")
    squadron.say(ActivationFailed, rollout_id, "e1", exit_code=1)
    if went_back:
        squadron.revert(rollout_id, "e1")
    else:
        squadron.say(RollbackFailed, rollout_id, "e1", exit_code=1, phase="switch")
    squadron.clear(rollout_id, Clearance.RESUME)
    squadron.execute(retire_host, RetireHost(host_id="e1", operator="user_1", reason="burnt"))

    assert squadron.dispatch(thorough=True).skipped == 1

    assert squadron.host(rollout_id, "e1").left == "skipped"
    assert squadron.tally(rollout_id).rollback_failed == 0
    assert squadron.tally(rollout_id).current_wave == 1
    assert squadron.dispatch().ordered == 1
    squadron.reach(rollout_id, "e2")
    assert squadron.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_takes_the_order_of_a_late_host_back_when_its_closure_is_quarantined(
    squadron: Squadron,
) -> None:
    first = past_a_failure_of_late_hosts(squadron)
    second = squadron.promote("edge", "web.2")
    squadron.dispatch()
    assert why(squadron, second, "e3") == f"host-busy: the host is busy with {first}"

    assert squadron.dispatch(thorough=True).cancelled == 1

    assert squadron.host(first, "e3").cancelled_at is not None
    assert squadron.dispatch().ordered == 1
    squadron.reach(second, "e1", "e2", "e3")
    assert squadron.state(second) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_orders_a_late_host_again_when_the_quarantine_is_lifted(squadron: Squadron) -> None:
    rollout_id = past_a_failure_of_late_hosts(squadron)
    assert squadron.dispatch(thorough=True).cancelled == 1
    assert squadron.dispatch(thorough=True).ordered == 0
    squadron.lift(rollout_id)

    assert squadron.dispatch(thorough=True).ordered == 1

    squadron.reach(rollout_id, "e3")
    assert squadron.host(rollout_id, "e3").state is HostState.CONVERGED


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("late", [True, False])
def test_is_not_pruned_while_a_host_that_does_not_count_goes_back(
    squadron: Squadron, late: bool
) -> None:
    """Pruned, it would refuse the host's reports and deadlines, and the host stay busy for ever."""
    spared = replace(REST, failures_max=1)
    squadron.create("edge", spared, retention_seconds=60)
    squadron.enroll("e1", *(() if late else ("e2",)), channel="edge")
    squadron.offer("web.1", "web.2")
    first = squadron.promote("edge", "web.1")
    squadron.dispatch()
    if late:
        squadron.reach(first, "e1")
        squadron.enroll("e2", channel="edge")
        squadron.dispatch(thorough=True)
    squadron.ack("e2")
    squadron.say(ActivationFailed, first, "e2", exit_code=1)
    if not late:
        squadron.reach(first, "e1")
    assert squadron.state(first) is RolloutState.TERMINAL

    squadron.wait(120)
    squadron.control_plane.due.tick()
    assert squadron.state(first) is RolloutState.TERMINAL

    squadron.revert(first, "e2")
    squadron.control_plane.due.tick()
    assert squadron.state(first) is RolloutState.PRUNED
    second = squadron.promote("edge", "web.2")
    assert squadron.dispatch().ordered == 2
    squadron.reach(second, "e1", "e2")
    assert squadron.state(second) is RolloutState.TERMINAL
