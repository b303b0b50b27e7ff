"""Defects of the previous system that lay between its parts, tested here where the parts work
together: promotion, dispatcher, queue, lanes and timers, on every engine.

The numbers are those of the list in the reference; no event is fed by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.in_process_fleet import (
    CANARY,
    HTTP,
    OLD,
    REST,
    SOAK,
    FleetStores,
    InProcessFleet,
)
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.channels.facts import ChannelPolicy, WaveSpec
from tidegate.domain.channels.rows import QUARANTINE
from tidegate.domain.channels.slices import (
    EditChannel,
    HoldChannel,
    UnholdChannel,
    edit_channel,
    hold_channel,
    unhold_channel,
)
from tidegate.domain.composition import FOLDS
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationStarted,
    Converged,
    Failed,
    ProbeResult,
    ProbeTopologyDeclared,
)
from tidegate.domain.hosts.rows import HOST_RECORDS, PROBE_FAILURES
from tidegate.domain.hosts.states import HostState, OnFailure, ProbeMode, ProbeStatus
from tidegate.domain.rollouts.rows import ROLLOUTS
from tidegate.domain.rollouts.states import Clearance, RolloutState
from tidegate.errors import IllegalTransition
from tidegate.kernel.replay import rebuild
from tidegate.simulate.control_plane import CommitFate

pytestmark = pytest.mark.in_turn


def under_way(fleet: InProcessFleet, *waves: WaveSpec, hosts: int = 3, **policy: Any) -> str:
    fleet.create("edge", *waves, **policy)
    fleet.enroll(*(f"e{number}" for number in range(1, hosts + 1)), channel="edge")
    fleet.offer("web.1", "web.2")
    return fleet.promote("edge", "web.1")


def busy(fleet: InProcessFleet, rollout_id: str) -> list[str]:
    return [host.host_id for host in fleet.hosts(rollout_id) if host.busy]


@pytest.mark.req("RO-12")
def test_d03_the_dispatcher_sends_nothing_more_after_a_failure(fleet: InProcessFleet) -> None:
    fleet.bound("*", 1)
    rollout_id = under_way(fleet, on_failure=OnFailure.HALT)
    fleet.dispatch()
    fleet.fail(rollout_id, "e1")

    passes = [fleet.dispatch(thorough=thorough) for thorough in (False, True, False, True)]

    assert [done.ordered for done in passes] == [0, 0, 0, 0]
    assert [host.host_id for host in fleet.hosts(rollout_id)] == ["e1"]
    assert fleet.control_plane.deliveries.poll("e2") is None
    assert fleet.state(rollout_id) is RolloutState.FAILED


@pytest.mark.req("RO-10")
def test_d04_the_dispatcher_loads_quarantines_after_a_restart(
    fleet: InProcessFleet,
) -> None:
    fleet.bound("*", 1)
    rollout_id = under_way(fleet)
    fleet.dispatch()
    fleet.fail(rollout_id, "e1")
    fleet.revert(rollout_id, "e1")
    fleet.clear(rollout_id, Clearance.WAIVE, "e1")
    assert fleet.state(rollout_id) is RolloutState.ACTIVE

    passes = [fleet.dispatch(thorough=True), fleet.dispatch()]
    fleet.control_plane.restart()
    passes.append(fleet.dispatch())

    assert [(done.ordered, done.lost) for done in passes] == [(0, 0)] * 3
    said = explain(fleet.control_plane.fleet_reader.state([rollout_id], fleet.clock()), rollout_id)
    assert said.answer.startswith("quarantine holds 2 of 2 hosts")
    fleet.lift(rollout_id)
    assert fleet.dispatch().ordered == 1


@pytest.mark.req("RO-12")
def test_d09_unfetched_orders_hold_their_slots_from_pass_to_pass(
    fleet: InProcessFleet,
) -> None:
    fleet.bound("*", 2)
    rollout_id = under_way(fleet, hosts=4)

    ordered = [fleet.dispatch().ordered for _ in range(3)]

    assert ordered == [2, 0, 0]
    assert busy(fleet, rollout_id) == ["e1", "e2"]
    fleet.reach(rollout_id, "e1")
    assert [fleet.dispatch().ordered for _ in range(2)] == [1, 0]
    assert busy(fleet, rollout_id) == ["e2", "e3"]


@pytest.mark.req("RO-7", "RO-14")
def test_d10_every_view_of_a_rollout_can_be_rebuilt_from_the_log(fleet: InProcessFleet) -> None:
    rollout_id = under_way(fleet, CANARY, REST)
    fleet.dispatch()
    fleet.ack("e1")
    fleet.activate(rollout_id, "e1")
    fleet.probe(rollout_id, "e1", ProbeStatus.FAIL)
    fleet.wait(SOAK)
    fleet.probe(rollout_id, "e1", ProbeStatus.PASS)
    fleet.converge(rollout_id, "e1")
    fleet.dispatch()
    fleet.ack("e2")
    fleet.activate(rollout_id, "e2")
    fleet.probe(rollout_id, "e2", ProbeStatus.FAIL)
    fleet.fail(rollout_id, "e3")
    fleet.revert(rollout_id, "e3")
    views = (ROLLOUTS, HOST_RECORDS, PROBE_FAILURES, QUARANTINE)
    before = {view.name: fleet.store.range(view.name, limit=100) for view in views}
    assert all(before.values())

    for view in views:
        fleet.store.restore(view.name, ())
    rebuild(fleet.store, FOLDS, *(f for f in FOLDS.folds if f.collection in views))

    assert {view.name: fleet.store.range(view.name, limit=100) for view in views} == before


@pytest.mark.req("RO-11")
def test_d11_a_report_is_answered_once_others_can_read_it_and_a_refusal_is_reported(
    fleet: InProcessFleet, fleet_stores: FleetStores
) -> None:
    rollout_id = under_way(fleet)
    fleet.dispatch()
    fleet.ack("e1")
    elsewhere = fleet_stores.open()
    head = fleet.head

    taken = fleet.say(ActivationStarted, rollout_id, "e1")

    assert taken.receipt is not None
    seen = elsewhere.feed(after=head, limit=10).events
    assert (seen[0].type, seen[0].position) == ("ActivationStarted", taken.receipt.first)

    # An event that does not fit the state is answered with the state, and gets no number.
    with pytest.raises(IllegalTransition) as refused:
        fleet.say(Converged, rollout_id, "e1", current_closure=OLD)
    assert refused.value.facts["state"] == "Activating"
    assert fleet.log(after=taken.receipt.last) == ()
    target = fleet.host(rollout_id, "e1").target_closure
    fleet.say(ActivationCompleted, rollout_id, "e1", observed_current_closure=target)

    # If the server dies during a report there is no answer. The agent's repeat is recorded once.
    topology = fleet.event(ProbeTopologyDeclared, rollout_id, "e1", probes=(HTTP,))
    for fate, is_there in ((CommitFate.DIES_BEFORE, False), (CommitFate.DIES_AFTER, True)):
        head = fleet.head
        fleet.fate = fate
        assert fleet.control_plane.report(topology) == [None]
        assert fleet.control_plane.crashed
        assert (fleet.head > head) is is_there
        fleet.fate = CommitFate.LIVES
        fleet.control_plane.restart()
    (again,) = fleet.control_plane.report(topology)
    assert isinstance(again, CommandOutcome)
    assert (again.facts, again.receipt) == ((), None)
    assert fleet.types().count("ProbeTopologyDeclared") == 1


@pytest.mark.req("RO-12")
def test_d15_no_order_of_a_superseded_rollout_is_handed_out(fleet: InProcessFleet) -> None:
    first = under_way(fleet)
    assert fleet.dispatch().ordered == 3
    fleet.wait(1)
    second = fleet.promote("edge", "web.2")
    fleet.dispatch(thorough=True)
    fleet.dispatch(thorough=True)

    orders = [fleet.control_plane.deliveries.poll(f"e{number}") for number in (1, 2, 3)]

    assert [order and order.rollout_id for order in orders] == [second] * 3
    assert busy(fleet, first) == []


def test_d16_passes_over_a_waiting_fleet_do_not_change_the_log(
    fleet: InProcessFleet,
) -> None:
    fleet.bound("*", 1)
    rollout_id = under_way(fleet)
    said = {"channel": "edge", "operator": "user_1", "reason": "lunch"}
    fleet.execute(hold_channel, HoldChannel(**said))
    fleet.dispatch(thorough=True)
    head = fleet.head

    for _ in range(5):
        fleet.wait(15)
        fleet.dispatch(thorough=True)
        fleet.dispatch()
        fleet.control_plane.restart()

    assert fleet.head == head
    assert fleet.log()[-1].type == "GateChanged"
    fleet.execute(unhold_channel, UnholdChannel(**said))
    fleet.dispatch()
    assert busy(fleet, rollout_id) == ["e1"]


def test_d20_a_rollout_follows_the_plan_that_it_opened_with(fleet: InProcessFleet) -> None:
    rollout_id = under_way(fleet, CANARY, REST, on_failure=OnFailure.HALT)
    (fleet_row,) = fleet.store.get(fleet_key())
    assert fleet_row is not None
    edit = EditChannel(
        channel="edge",
        selector="channel=nowhere",
        policy=ChannelPolicy(on_failure=OnFailure.ROLLBACK),
        operator="user_1",
        fleet_version=fleet_row.version,
    )
    fleet.execute(edit_channel, edit)

    assert fleet.dispatch().ordered == 1
    host = fleet.host(rollout_id, "e1")
    assert (host.policy.soak_seconds, host.policy.on_failure) == (SOAK, OnFailure.HALT)
    fleet.reach(rollout_id, "e1")
    assert fleet.dispatch().ordered == 2
    fleet.fail(rollout_id, "e2")
    assert fleet.state(rollout_id) is RolloutState.FAILED


@pytest.mark.parametrize("came", [("e3", "e1", "e4", "e2"), ("e4", "e3", "e2", "e1")])
def test_d21_the_order_in_which_hosts_enrolled_decides_nothing(
    fleet: InProcessFleet, came: tuple[str, ...]
) -> None:
    fleet.bound("*", 2)
    fleet.create("edge", WaveSpec(name="some", count=3), WaveSpec(name="rest"))
    fleet.enroll(*came, channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")

    fleet.dispatch()

    assert busy(fleet, rollout_id) == ["e1", "e2"]
    plan = fleet.control_plane.fleet_reader.chart(fleet.tally(rollout_id).plan_digest).plan
    assert [wave.hosts for wave in plan.waves] == [("e1", "e2", "e3"), ("e4",)]


@pytest.mark.req("RO-12")
def test_d24_a_wave_that_names_hosts_of_another_channel_completes_without_them(
    fleet: InProcessFleet,
) -> None:
    fleet.create("core")
    fleet.enroll("c1", "c2", channel="core")
    rollout_id = under_way(
        fleet, WaveSpec(name="all of both", selector="channel in (core, edge)"), REST, hosts=2
    )

    fleet.dispatch()
    fleet.reach(rollout_id, "e1", "e2")

    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    assert [host.state for host in fleet.hosts(rollout_id)] == [HostState.CONVERGED] * 2


def test_d14_a_channel_can_return_to_an_earlier_release(fleet: InProcessFleet) -> None:
    first = under_way(fleet, hosts=1)
    fleet.dispatch()
    fleet.reach(first, "e1")
    second = fleet.promote("edge", "web.2")
    fleet.dispatch()
    fleet.reach(second, "e1")

    again = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(again, "e1")

    assert again == f"{first}~2"
    assert fleet.host(again, "e1").current_closure == fleet.tally(first).target_closure
    assert fleet.state(again) is RolloutState.TERMINAL


@pytest.mark.req("RO-7")
def test_explain_and_the_notification_describe_a_failed_probe_alike(
    fleet: InProcessFleet,
) -> None:
    rollout_id = under_way(fleet, CANARY, REST)
    fleet.dispatch()
    fleet.ack("e1")
    fleet.activate(rollout_id, "e1")
    fleet.say(
        ProbeResult,
        rollout_id,
        "e1",
        probe_name="http",
        mode=ProbeMode.ENFORCE,
        status=ProbeStatus.FAIL,
        failure_reason="exit code 1, expected 0",
    )
    fleet.wait(SOAK)
    fleet.wait(SOAK)
    fleet.say(
        Failed,
        rollout_id,
        "e1",
        sustained_duration_secs=120,
        failing_probes=("http",),
        policy_applied=OnFailure.ROLLBACK,
    )
    fleet.revert(rollout_id, "e1")
    reader = FleetReader(fleet.store, fleet.blobs)
    found = explain(reader.state((rollout_id,), fleet.clock()), rollout_id)
    told = "e1 failed its probe http: exit code 1, expected 0"
    assert told in found.waits[0].sentence
    told = "e1 failed its probe http (exit code 1, expected 0), and rolled back"
    assert any(wait.sentence == told for wait in found.waits)
    first = found.waits[0].remedies[0]
    assert first.command == "tidegate channel rollback edge --reason …"
    quarantined = next(wait for wait in found.waits if wait.code == "quarantine")
    release = rollout_id.partition("@")[2]
    assert quarantined.sentence.startswith(f"{release} is quarantined on edge")
    (lift,) = quarantined.remedies
    assert lift.command == f"tidegate quarantine lift edge {release} --reason …"
