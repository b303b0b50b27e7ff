"""Defects of the system before us that lay between its parts, each looked for in ours where the
parts work together: promotion, dispatcher, queue, lanes and timers, on every engine.

The numbers are those of the list in the reference; no event is fed by hand.
"""

from __future__ import annotations

import pytest

from tests.contract.in_process_fleet import CANARY, HTTP, OLD, REST, SOAK, Berth, Squadron
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
    ProbeTopologyDeclared,
)
from tidegate.domain.hosts.rows import HOST_RECORDS, PROBE_FAILURES
from tidegate.domain.hosts.states import HostState, OnFailure, ProbeStatus
from tidegate.domain.rollouts.rows import ROLLOUTS
from tidegate.domain.rollouts.states import Clearance, RolloutState
from tidegate.errors import IllegalTransition
from tidegate.kernel.replay import rebuild
from tidegate.simulate.control_plane import CommitFate


def under_way(squadron: Squadron, *waves: WaveSpec, hosts: int = 3, **policy: object) -> str:
    squadron.create("edge", *waves, **policy)
    squadron.enroll(*(f"e{number}" for number in range(1, hosts + 1)), channel="edge")
    squadron.offer("web.1", "web.2")
    return squadron.promote("edge", "web.1")


def busy(squadron: Squadron, rollout_id: str) -> list[str]:
    return [host.host_id for host in squadron.hosts(rollout_id) if host.busy]


@pytest.mark.req("RO-12")
def test_d03_the_dispatcher_sends_nothing_more_after_a_failure(squadron: Squadron) -> None:
    squadron.bound("*", 1)
    rollout_id = under_way(squadron, on_failure=OnFailure.HALT)
    squadron.dispatch()
    squadron.fail(rollout_id, "e1")

    passes = [squadron.dispatch(thorough=thorough) for thorough in (False, True, False, True)]

    assert [done.ordered for done in passes] == [0, 0, 0, 0]
    assert [host.host_id for host in squadron.hosts(rollout_id)] == ["e1"]
    assert squadron.control_plane.deliveries.poll("e2") is None
    assert squadron.state(rollout_id) is RolloutState.FAILED


@pytest.mark.req("RO-10")
def test_d04_the_dispatcher_loads_what_is_quarantined_also_after_a_restart(
    squadron: Squadron,
) -> None:
    squadron.bound("*", 1)
    rollout_id = under_way(squadron)
    squadron.dispatch()
    squadron.fail(rollout_id, "e1")
    squadron.revert(rollout_id, "e1")
    squadron.clear(rollout_id, Clearance.WAIVE, "e1")
    assert squadron.state(rollout_id) is RolloutState.ACTIVE

    passes = [squadron.dispatch(thorough=True), squadron.dispatch()]
    squadron.control_plane.restart()
    passes.append(squadron.dispatch())

    assert [(done.ordered, done.lost) for done in passes] == [(0, 0)] * 3
    said = explain(
        squadron.control_plane.fleet_reader.state([rollout_id], squadron.clock()), rollout_id
    )
    assert said.answer.startswith("quarantine holds 2 of 2 hosts")
    squadron.lift(rollout_id)
    assert squadron.dispatch().ordered == 1


@pytest.mark.req("RO-12")
def test_d09_orders_that_nobody_fetched_yet_hold_their_slots_from_pass_to_pass(
    squadron: Squadron,
) -> None:
    squadron.bound("*", 2)
    rollout_id = under_way(squadron, hosts=4)

    ordered = [squadron.dispatch().ordered for _ in range(3)]

    assert ordered == [2, 0, 0]
    assert busy(squadron, rollout_id) == ["e1", "e2"]
    squadron.reach(rollout_id, "e1")
    assert [squadron.dispatch().ordered for _ in range(2)] == [1, 0]
    assert busy(squadron, rollout_id) == ["e2", "e3"]


@pytest.mark.req("RO-7", "RO-14")
def test_d10_every_view_of_a_rollout_comes_back_from_the_log(squadron: Squadron) -> None:
    rollout_id = under_way(squadron, CANARY, REST)
    squadron.dispatch()
    squadron.ack("e1")
    squadron.activate(rollout_id, "e1")
    squadron.probe(rollout_id, "e1", ProbeStatus.FAIL)
    squadron.wait(SOAK)
    squadron.probe(rollout_id, "e1", ProbeStatus.PASS)
    squadron.converge(rollout_id, "e1")
    squadron.dispatch()
    squadron.ack("e2")
    squadron.activate(rollout_id, "e2")
    squadron.probe(rollout_id, "e2", ProbeStatus.FAIL)
    squadron.fail(rollout_id, "e3")
    squadron.revert(rollout_id, "e3")
    views = (ROLLOUTS, HOST_RECORDS, PROBE_FAILURES, QUARANTINE)
    before = {view.name: squadron.store.range(view.name, limit=100) for view in views}
    assert all(before.values())

    for view in views:
        squadron.store.restore(view.name, ())
    rebuild(squadron.store, FOLDS, *(f for f in FOLDS.folds if f.collection in views))

    assert {view.name: squadron.store.range(view.name, limit=100) for view in views} == before


@pytest.mark.req("RO-11")
def test_d11_a_report_is_answered_when_others_can_read_it_and_a_refused_one_is_told_so(
    squadron: Squadron, berth: Berth
) -> None:
    rollout_id = under_way(squadron)
    squadron.dispatch()
    squadron.ack("e1")
    elsewhere = berth.open()
    head = squadron.head

    taken = squadron.say(ActivationStarted, rollout_id, "e1")

    assert taken.receipt is not None
    seen = elsewhere.feed(after=head, limit=10).events
    assert (seen[0].type, seen[0].position) == ("ActivationStarted", taken.receipt.first)

    # What has no place in the state is answered with the state, and takes no number.
    with pytest.raises(IllegalTransition) as refused:
        squadron.say(Converged, rollout_id, "e1", current_closure=OLD)
    assert refused.value.facts["state"] == "Activating"
    assert squadron.log(after=taken.receipt.last) == ()
    target = squadron.host(rollout_id, "e1").target_closure
    squadron.say(ActivationCompleted, rollout_id, "e1", observed_current_closure=target)

    # A server that dies over a report answers nothing; the agent's repeat is taken once.
    topology = squadron.event(ProbeTopologyDeclared, rollout_id, "e1", probes=(HTTP,))
    for fate, is_there in ((CommitFate.DIES_BEFORE, False), (CommitFate.DIES_AFTER, True)):
        head = squadron.head
        squadron.fate = fate
        assert squadron.control_plane.report(topology) == [None]
        assert squadron.control_plane.crashed
        assert (squadron.head > head) is is_there
        squadron.fate = CommitFate.LIVES
        squadron.control_plane.restart()
    (again,) = squadron.control_plane.report(topology)
    assert isinstance(again, CommandOutcome)
    assert (again.facts, again.receipt) == ((), None)
    assert squadron.types().count("ProbeTopologyDeclared") == 1


@pytest.mark.req("RO-12")
def test_d15_no_order_of_a_superseded_rollout_is_handed_out(squadron: Squadron) -> None:
    first = under_way(squadron)
    assert squadron.dispatch().ordered == 3
    squadron.wait(1)
    second = squadron.promote("edge", "web.2")
    squadron.dispatch(thorough=True)
    squadron.dispatch(thorough=True)

    orders = [squadron.control_plane.deliveries.poll(f"e{number}") for number in (1, 2, 3)]

    assert [order and order.rollout_id for order in orders] == [second] * 3
    assert busy(squadron, first) == []


def test_d16_passes_over_a_fleet_that_waits_leave_the_log_as_it_is(squadron: Squadron) -> None:
    squadron.bound("*", 1)
    rollout_id = under_way(squadron)
    said = {"channel": "edge", "operator": "user_1", "reason": "lunch"}
    squadron.execute(hold_channel, HoldChannel(**said))
    squadron.dispatch(thorough=True)
    head = squadron.head

    for _ in range(5):
        squadron.wait(15)
        squadron.dispatch(thorough=True)
        squadron.dispatch()
        squadron.control_plane.restart()

    assert squadron.head == head
    assert squadron.log()[-1].type == "GateChanged"
    squadron.execute(unhold_channel, UnholdChannel(**said))
    squadron.dispatch()
    assert busy(squadron, rollout_id) == ["e1"]


def test_d20_a_rollout_follows_the_plan_that_it_opened_with(squadron: Squadron) -> None:
    rollout_id = under_way(squadron, CANARY, REST, on_failure=OnFailure.HALT)
    (fleet,) = squadron.store.get(fleet_key())
    assert fleet is not None
    edit = EditChannel(
        channel="edge",
        selector="channel=nowhere",
        policy=ChannelPolicy(on_failure=OnFailure.ROLLBACK),
        operator="user_1",
        fleet_version=fleet.version,
    )
    squadron.execute(edit_channel, edit)

    assert squadron.dispatch().ordered == 1
    host = squadron.host(rollout_id, "e1")
    assert (host.policy.soak_seconds, host.policy.on_failure) == (SOAK, OnFailure.HALT)
    squadron.reach(rollout_id, "e1")
    assert squadron.dispatch().ordered == 2
    squadron.fail(rollout_id, "e2")
    assert squadron.state(rollout_id) is RolloutState.FAILED


@pytest.mark.parametrize("came", [("e3", "e1", "e4", "e2"), ("e4", "e3", "e2", "e1")])
def test_d21_the_order_in_which_hosts_came_decides_nothing(
    squadron: Squadron, came: tuple[str, ...]
) -> None:
    squadron.bound("*", 2)
    squadron.create("edge", WaveSpec(name="some", count=3), WaveSpec(name="rest"))
    squadron.enroll(*came, channel="edge")
    squadron.offer("web.1")
    rollout_id = squadron.promote("edge", "web.1")

    squadron.dispatch()

    assert busy(squadron, rollout_id) == ["e1", "e2"]
    plan = squadron.control_plane.fleet_reader.chart(squadron.tally(rollout_id).plan_digest).plan
    assert [wave.hosts for wave in plan.waves] == [("e1", "e2", "e3"), ("e4",)]


@pytest.mark.req("RO-12")
def test_d24_a_wave_that_names_hosts_of_another_channel_settles_without_them(
    squadron: Squadron,
) -> None:
    squadron.create("core")
    squadron.enroll("c1", "c2", channel="core")
    rollout_id = under_way(
        squadron, WaveSpec(name="all of both", selector="channel in (core, edge)"), REST, hosts=2
    )

    squadron.dispatch()
    squadron.reach(rollout_id, "e1", "e2")

    assert squadron.state(rollout_id) is RolloutState.TERMINAL
    assert [host.state for host in squadron.hosts(rollout_id)] == [HostState.CONVERGED] * 2


def test_d14_the_channel_comes_back_to_a_release_that_it_had(squadron: Squadron) -> None:
    first = under_way(squadron, hosts=1)
    squadron.dispatch()
    squadron.reach(first, "e1")
    second = squadron.promote("edge", "web.2")
    squadron.dispatch()
    squadron.reach(second, "e1")

    again = squadron.promote("edge", "web.1")
    squadron.dispatch()
    squadron.reach(again, "e1")

    assert again == f"{first}~2"
    assert squadron.host(again, "e1").current_closure == squadron.tally(first).target_closure
    assert squadron.state(again) is RolloutState.TERMINAL
