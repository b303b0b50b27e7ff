"""A rollout that a failure halts, on every engine: which hosts are withdrawn, which are skipped,
and the answer to a host that comes back from its reboot.
"""

from __future__ import annotations

import pytest

from tests.contract.in_process_fleet import SOAK, InProcessFleet
from tidegate.domain.fleet.slices import RetireHost, retire_host
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import ActivationCompleted, ActivationDeferred, ActivationFailed
from tidegate.domain.hosts.refusals import OrderCancelled
from tidegate.domain.hosts.states import HostState, ProbeStatus
from tidegate.domain.rollouts.states import Clearance, RolloutState


def halt_beside_a_deferred_host(fleet: InProcessFleet) -> str:
    """Start with e1 waiting for its reboot, e2 failed and rolled back, and e3 with an order that it
    did not take.
    """
    fleet.create("edge")
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.ack("e1", "e2")
    fleet.say(ActivationDeferred, rollout_id, "e1", component="kernel")
    fleet.say(ActivationFailed, rollout_id, "e2", exit_code=1)
    fleet.revert(rollout_id, "e2")
    return rollout_id


@pytest.mark.req("RO-12", "RO-23")
def test_cancels_the_order_of_a_host_that_waits_for_a_reboot_and_informs_it(
    fleet: InProcessFleet,
) -> None:
    rollout_id = halt_beside_a_deferred_host(fleet)
    assert fleet.state(rollout_id) is RolloutState.REVERTED

    assert fleet.dispatch(thorough=True).cancelled == 2

    assert fleet.host(rollout_id, "e1").cancelled_at is not None
    assert fleet.control_plane.is_withdrawn(rollout_id, "e1")
    target = fleet.host(rollout_id, "e1").target_closure
    with pytest.raises(OrderCancelled):
        fleet.say(ActivationCompleted, rollout_id, "e1", observed_current_closure=target)
    fleet.clear(rollout_id, Clearance.RESUME)
    assert fleet.dispatch().ordered == 3
    fleet.reach(rollout_id, "e1", "e2", "e3")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("RO-12")
def test_a_deadline_that_passes_before_the_order_is_cancelled_changes_nothing(
    fleet: InProcessFleet,
) -> None:
    """As after a stop of the workers: the timers run first, and the next pass cancels the order."""
    rollout_id = halt_beside_a_deferred_host(fleet)
    fleet.wait(fleet.host(rollout_id, "e1").policy.deferral_seconds + 1)

    fleet.control_plane.due.tick()
    assert fleet.host(rollout_id, "e1").state is HostState.DEFERRED
    assert fleet.state(rollout_id) is RolloutState.REVERTED

    fleet.dispatch(thorough=True)
    assert fleet.host(rollout_id, "e1").cancelled_at is not None
    assert fleet.state(rollout_id) is RolloutState.REVERTED


@pytest.mark.req("RO-12")
def test_skips_a_retired_host_while_a_failure_halts_it(fleet: InProcessFleet) -> None:
    rollout_id = halt_beside_a_deferred_host(fleet)
    for host_id in ("e1", "e2"):
        fleet.execute(retire_host, RetireHost(host_id=host_id, operator="user_1", reason="gone"))

    assert fleet.dispatch(thorough=True).skipped == 1

    assert fleet.host(rollout_id, "e1").left == "skipped"
    assert fleet.host(rollout_id, "e2").left is None, "a failed host is cleared by a person"
    assert fleet.host(rollout_id, "e2").state is HostState.REVERTED
    assert fleet.state(rollout_id) is RolloutState.REVERTED


@pytest.mark.req("RO-12", "RO-18")
def test_a_retried_host_may_reboot_although_another_failed(fleet: InProcessFleet) -> None:
    fleet.create("edge")
    fleet.enroll("e1", "e2", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.ack("e1", "e2")
    for host_id in ("e1", "e2"):
        fleet.say(ActivationFailed, rollout_id, host_id, exit_code=1)
        fleet.revert(rollout_id, host_id)
    fleet.clear(rollout_id, Clearance.RESUME, "e1")
    assert fleet.dispatch().ordered == 1
    fleet.ack("e1")
    fleet.say(ActivationDeferred, rollout_id, "e1", component="kernel")

    assert fleet.dispatch(thorough=True).cancelled == 0
    assert not fleet.control_plane.is_withdrawn(rollout_id, "e1")
    said = explain(fleet.control_plane.fleet_reader.state([rollout_id], fleet.clock()), rollout_id)
    assert [wait.code for wait in said.waits] == ["deferred", "reverted", "dispatchable"]
    fleet.activate(rollout_id, "e1")
    fleet.probe(rollout_id, "e1", ProbeStatus.PASS)
    fleet.wait(SOAK)
    fleet.converge(rollout_id, "e1")

    assert fleet.host(rollout_id, "e1").state is HostState.CONVERGED
    assert fleet.tally(rollout_id).halted_at is not None, "e2 was not tried again"
