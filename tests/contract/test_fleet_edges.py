"""A channel edge makes a pipeline, on every engine: prod gets a release only after it succeeded on
dev, and only while nothing has happened there since that speaks against it.

Promotion, dispatcher, queue and lanes work together; no event is fed by hand.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.in_process_fleet import OLD, SOAK, InProcessFleet
from tidegate.control.operations.promotion_planning import RollBackChannel
from tidegate.control.queries.rollout_waits import list_gates
from tidegate.domain.channels.facts import ChannelEdge, EdgeRequires, WaveSpec
from tidegate.domain.channels.refusals import AlreadyPromoted, EdgeClosed, NothingToGoBackTo
from tidegate.domain.channels.slices import StartFreeze, start_freeze
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import GateVerdict
from tidegate.domain.hosts.facts import DispatchAck
from tidegate.domain.rollouts.rows import RolloutGates, gates_key
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Clearance, Outcome, OverridableGate, RolloutState

pytestmark = pytest.mark.in_turn

DEV, PROD = "dev@web.1", "prod@web.1"


def pipeline(fleet: InProcessFleet, **edge: Any) -> None:
    """dev, then prod: one host each, and two releases."""
    fleet.create("dev")
    fleet.create("prod", edges=(ChannelEdge("dev", **edge),))
    fleet.enroll("d1", channel="dev")
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1", "web.2")


def succeed(fleet: InProcessFleet, channel: str, release: str, host_id: str) -> str:
    rollout_id = fleet.promote(channel, release)
    fleet.dispatch()
    fleet.reach(rollout_id, host_id)
    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    return rollout_id


def fail(fleet: InProcessFleet, channel: str, release: str, host_id: str) -> str:
    rollout_id = fleet.promote(channel, release)
    fleet.dispatch()
    fleet.fail(rollout_id, host_id)
    fleet.revert(rollout_id, host_id)
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    return rollout_id


def abort(fleet: InProcessFleet, rollout_id: str) -> None:
    command = AbortRollout(rollout_id=rollout_id, operator="user_1", reason="enough")
    fleet.execute(abort_rollout, command)


def roll_back(fleet: InProcessFleet, channel: str, reason: str = "memory leak") -> None:
    asked = RollBackChannel(channel=channel, command_id="back", by="user_1", reason=reason)
    fleet.control_plane.promotions.rollback(asked)


def edge_gate(fleet: InProcessFleet, rollout_id: str = PROD) -> GateVerdict:
    """Return the gate's answer, after a pass that obeyed it."""
    state = fleet.control_plane.fleet_reader.state([rollout_id], fleet.clock())
    explained = explain(state, rollout_id)
    (verdict,) = (item for item in explained.verdicts if item.gate == "channel-edges")
    if not verdict.passed:
        assert verdict.reason in explained.answer
    fleet.dispatch()
    ordered = [host.host_id for host in fleet.hosts(rollout_id)]
    assert ordered == (["p1"] if verdict.passed else [])
    return verdict


def needs_person(fleet: InProcessFleet) -> bool:
    """Whether ``status`` shows prod's shut edge as an alarm."""
    reader, tally = fleet.control_plane.fleet_reader, fleet.tally(PROD)
    gates = list_gates(reader, tally, fleet.row(gates_key(PROD), RolloutGates))
    (shut,) = (gate.needs_person for gate in gates if gate.gate == "channel-edges")
    return shut


@pytest.mark.req("OP-2")
def test_aborting_a_failed_release_on_dev_does_not_open_prod(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    abort(fleet, fail(fleet, "dev", "web.1", "d1"))
    fleet.promote("prod", "web.1")

    gate = edge_gate(fleet)

    assert not gate.passed
    assert "web.1 failed on dev" in gate.reason
    assert "d1" in gate.reason


@pytest.mark.req("OP-2")
def test_a_release_that_never_ran_on_dev_is_held_on_prod(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    fleet.promote("prod", "web.1")

    gate = edge_gate(fleet)

    assert not gate.passed
    assert gate.reason == (
        "web.1 was never rolled out on dev. "
        "Promote it there first: tidegate channel promote dev web.1"
    )


@pytest.mark.req("OP-2")
def test_a_release_that_succeeded_on_dev_goes_to_prod(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.1", "d1")
    fleet.promote("prod", "web.1")

    assert edge_gate(fleet).passed
    fleet.reach(PROD, "p1")
    assert fleet.state(PROD) is RolloutState.TERMINAL


@pytest.mark.req("OP-2")
def test_rolling_dev_back_from_a_release_shuts_prod_for_it(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.1", "d1")
    succeed(fleet, "dev", "web.2", "d1")
    roll_back(fleet, "dev")
    fleet.promote("prod", "web.2")

    gate = edge_gate(fleet, "prod@web.2")

    assert not gate.passed
    assert "rolled dev back from web.2" in gate.reason
    assert "memory leak" in gate.reason


@pytest.mark.req("OP-2")
def test_a_release_that_is_rolling_out_on_dev_must_succeed_first(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    fleet.promote("dev", "web.1")
    fleet.dispatch()
    fleet.promote("prod", "web.1")

    assert edge_gate(fleet).reason == (
        "web.1 is still rolling out on dev (0 of 1 hosts); prod waits for its success"
    )


@pytest.mark.req("OP-2")
def test_a_release_that_stopped_on_dev_may_follow_once_a_retry_succeeded(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    stopped = fail(fleet, "dev", "web.1", "d1")
    fleet.promote("prod", "web.1")
    assert edge_gate(fleet).reason == (
        "web.1 stopped on dev: d1 failed, activation. It must succeed there before prod gets it"
    )

    fleet.clear(stopped, Clearance.RESUME)
    assert not edge_gate(fleet).passed, "a second try is no success"
    fleet.reach(stopped, "d1")
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-2")
@pytest.mark.parametrize("how", ["aborted", "replaced"])
def test_a_release_that_ended_before_it_succeeded_is_held(fleet: InProcessFleet, how: str) -> None:
    pipeline(fleet)
    rollout_id = fleet.promote("dev", "web.1")
    if how == "aborted":
        abort(fleet, rollout_id)
    else:
        fleet.promote("dev", "web.2")
    fleet.promote("prod", "web.1")

    by = "" if how == "aborted" else " by web.2"
    assert edge_gate(fleet).reason == f"web.1 was {how}{by} on dev before it succeeded"


@pytest.mark.req("OP-2")
def test_a_release_that_no_host_of_dev_ran_is_held(fleet: InProcessFleet) -> None:
    fleet.create("dev")
    fleet.create("prod", edges=(ChannelEdge("dev"),))
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1")
    assert fleet.state(fleet.promote("dev", "web.1")) is RolloutState.TERMINAL
    fleet.promote("prod", "web.1")

    assert edge_gate(fleet).reason == ("No host ran web.1 on dev, so it has not succeeded there")


@pytest.mark.req("OP-2")
def test_trying_an_older_release_on_dev_does_not_count_against_the_newer_one(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.1", "d1")
    succeed(fleet, "dev", "web.2", "d1")
    abort(fleet, fleet.promote("dev", "web.1"))
    fleet.promote("prod", "web.2")

    assert edge_gate(fleet, "prod@web.2").passed


@pytest.mark.req("OP-2")
def test_a_quarantine_on_dev_shuts_prod_until_it_is_lifted(fleet: InProcessFleet) -> None:
    """A host that came late failed there: the release had succeeded, and remains a success."""
    pipeline(fleet)
    succeed(fleet, "dev", "web.1", "d1")
    fleet.enroll("d2", channel="dev")
    fleet.dispatch(thorough=True)
    fleet.fail(DEV, "d2")
    fleet.revert(DEV, "d2")
    fleet.promote("prod", "web.1")

    gate = edge_gate(fleet)
    assert gate.reason.startswith("web.1 is quarantined on dev since 2026-05-01 06:01 UTC (d2: ")
    assert gate.evidence is not None
    assert gate.evidence.collection == "quarantined_closures"
    fleet.lift(DEV)
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-2", "OP-3")
def test_an_open_edge_says_if_the_channel_before_ignored_its_own(fleet: InProcessFleet) -> None:
    fleet.create("qa")
    fleet.create("dev", edges=(ChannelEdge("qa"),))
    fleet.create("prod", edges=(ChannelEdge("dev"),))
    fleet.enroll("d1", channel="dev")
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1")
    passed = fleet.promote(
        "dev", "web.1", overrides=(OverridableGate.EDGES,), reason="hotfix for INC-7"
    )
    fleet.dispatch()
    fleet.reach(passed, "d1")
    fleet.promote("prod", "web.1")

    gate = edge_gate(fleet)

    assert gate.passed
    assert gate.reason.endswith("(user_1 overrode the edges of dev: hotfix for INC-7)")


@pytest.mark.req("OP-2")
def test_a_soak_ends_by_itself_and_reports_when(fleet: InProcessFleet) -> None:
    pipeline(fleet, soak_seconds=3_600)
    succeed(fleet, "dev", "web.1", "d1")
    began = fleet.clock()
    fleet.promote("prod", "web.1")
    fleet.wait(600)

    gate = edge_gate(fleet)
    assert gate.until == began + timedelta(hours=1)
    assert gate.reason == (
        "web.1 has run on dev for 10 min of 1 h; the edge opens at 2026-05-01 07:01 UTC"
    )
    fleet.wait(2_999)
    assert not edge_gate(fleet).passed
    fleet.wait(1)
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-2")
def test_promoting_a_release_again_for_a_host_without_it_keeps_its_soak(
    fleet: InProcessFleet,
) -> None:
    fleet.create("dev", WaveSpec(failures_max=1, soak_seconds=SOAK))
    fleet.create("prod", edges=(ChannelEdge("dev", soak_seconds=3_600),))
    fleet.enroll("d1", "d2", channel="dev")
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1")
    first = fleet.promote("dev", "web.1")
    fleet.dispatch()
    fleet.fail(first, "d1")
    fleet.revert(first, "d1")
    fleet.reach(first, "d2")
    assert fleet.tally(first).outcome is Outcome.SUCCEEDED
    fleet.promote("prod", "web.1")
    fleet.wait(1_800)

    again = fleet.promote("dev", "web.1")
    assert "has run on dev for 30 min of 1 h" in edge_gate(fleet).reason
    fleet.reach(again, "d1", "d2")
    fleet.wait(1_800)

    assert fleet.tally(again).outcome is Outcome.SUCCEEDED
    assert edge_gate(fleet).passed
    with pytest.raises(AlreadyPromoted):
        fleet.promote("dev", "web.1")


@pytest.mark.req("OP-2")
def test_a_release_that_dev_replaced_before_its_soak_ended_is_held(fleet: InProcessFleet) -> None:
    pipeline(fleet, soak_seconds=3_600)
    succeed(fleet, "dev", "web.1", "d1")
    fleet.wait(300)
    succeed(fleet, "dev", "web.2", "d1")
    fleet.promote("prod", "web.1")
    fleet.wait(7_200)

    gate = edge_gate(fleet)
    assert gate.until is None
    assert gate.reason == (
        "web.1 ran on dev for 5 min of the 1 h asked for, then dev moved on to web.2. "
        "Promote it there again"
    )

    again = fleet.promote("dev", "web.1")
    fleet.dispatch()

    gate = edge_gate(fleet)
    assert gate.reason == (
        "web.1 is rolling out on dev again; before, it ran there for 5 min of the 1 h asked for"
    )
    fleet.dispatch(thorough=True)
    assert not needs_person(fleet), "it succeeds, and soaks"
    fleet.reach(again, "d1")
    fleet.wait(3_600)
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-2")
def test_rolling_back_to_a_success_on_prod_waits_for_no_edge(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    for release in ("web.1", "web.2"):
        succeed(fleet, "dev", release, "d1")
        rollout_id = fleet.promote("prod", release)
        fleet.dispatch()
        fleet.reach(rollout_id, "p1")
    fail(fleet, "dev", "web.1", "d1")

    roll_back(fleet, "prod")

    back = "prod@web.1~2"
    fleet.dispatch()
    assert [host.host_id for host in fleet.hosts(back)] == ["p1"]
    assert fleet.tally(back).rollback_of == "web.2"


@pytest.mark.req("OP-2", "OP-4")
def test_does_not_roll_back_to_a_release_that_never_succeeded_on_prod(
    fleet: InProcessFleet,
) -> None:
    """Otherwise a release that never ran on dev would reach prod by a promotion and a rollback."""
    pipeline(fleet)
    fleet.promote("prod", "web.1")
    fleet.promote("prod", "web.2")

    with pytest.raises(NothingToGoBackTo):
        roll_back(fleet, "prod")


@pytest.mark.req("OP-2", "RO-5")
def test_an_idle_edge_requires_only_the_order(fleet: InProcessFleet) -> None:
    pipeline(fleet, require=EdgeRequires.IDLE)
    fleet.promote("prod", "web.1")
    stopped = fail(fleet, "dev", "web.2", "d1")

    assert edge_gate(fleet).reason == "prod waits until dev is idle: dev@web.2 has rolled back"
    abort(fleet, stopped)
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-1")
def test_the_outcome_is_recorded_right_after_the_transition_that_ended_the_rollout(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.1", "d1")
    abort(fleet, fail(fleet, "dev", "web.2", "d1"))

    types = fleet.types()
    ends = [number for number, name in enumerate(types) if name == "RolloutConcluded"]
    assert [types[number - 1] for number in ends] == ["RolloutTransitioned"] * 2
    assert fleet.tally(DEV).outcome is Outcome.SUCCEEDED
    assert fleet.tally("dev@web.2").outcome is Outcome.ROLLED_BACK


def test_promotes_a_release_again_that_no_host_ran(fleet: InProcessFleet) -> None:
    """Otherwise prod could never get the only release that exists, once dev had no host for it."""
    fleet.create("dev")
    fleet.create("prod", edges=(ChannelEdge("dev"),))
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1")
    fleet.promote("dev", "web.1")
    fleet.promote("prod", "web.1")
    assert not edge_gate(fleet).passed
    fleet.enroll("d1", channel="dev")

    again = succeed(fleet, "dev", "web.1", "d1")

    assert again == "dev@web.1~2"
    assert edge_gate(fleet).passed


@pytest.mark.req("OP-2", "OP-7")
def test_an_edge_that_shuts_stops_an_order_that_was_not_acknowledged(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.2", "d1")
    succeed(fleet, "dev", "web.1", "d1")
    rollout_id = fleet.promote("prod", "web.1")
    assert fleet.dispatch().ordered == 1
    order = fleet.control_plane.deliveries.poll("p1")
    assert order is not None
    roll_back(fleet, "dev")
    fleet.dispatch()

    said = {"target_closure": order.target_closure, "current_closure_at_dispatch": OLD}
    with pytest.raises(EdgeClosed):
        fleet.say(DispatchAck, rollout_id, "p1", **said)
    fleet.wait(60)
    assert fleet.control_plane.deliveries.poll("p1") is None
    assert fleet.dispatch(thorough=True).cancelled == 1
    assert fleet.dispatch().ordered == 0

    abort(fleet, "dev@web.2~2")
    fleet.dispatch(thorough=True)
    succeed(fleet, "dev", "web.1", "d1")
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "p1")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


@pytest.mark.req("OP-2", "OP-7")
@pytest.mark.parametrize("how", ["pause", "freeze"])
def test_an_edge_that_shuts_behind_another_stop_still_holds_when_that_ends(
    fleet: InProcessFleet, how: str
) -> None:
    """Between the end of the stop and the next pass, an agent may acknowledge its order."""
    pipeline(fleet)
    succeed(fleet, "dev", "web.2", "d1")
    succeed(fleet, "dev", "web.1", "d1")
    rollout_id = fleet.promote("prod", "web.1")
    assert fleet.dispatch().ordered == 1
    named: dict[str, Any] = {"rollout_id": rollout_id, "operator": "user_1", "reason": "looking"}
    until = fleet.clock() + timedelta(seconds=5)
    if how == "pause":
        fleet.execute(pause_rollout, PauseRollout(**named))
    else:
        frozen = StartFreeze(freeze_id="f", operator="ann", reason="x", until=until)
        fleet.execute(start_freeze, frozen)
    fleet.dispatch()
    roll_back(fleet, "dev")
    fleet.dispatch()

    fleet.wait(5)
    if how == "pause":
        fleet.execute(resume_rollout, ResumeRollout(**named))

    said = {"target_closure": fleet.host(rollout_id, "p1").target_closure}
    with pytest.raises(EdgeClosed):
        fleet.say(DispatchAck, rollout_id, "p1", **said, current_closure_at_dispatch=OLD)
    assert fleet.control_plane.deliveries.poll("p1") is None


@pytest.mark.req("OP-2")
def test_holds_a_late_host_while_its_release_no_longer_counts_as_a_success_on_dev(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.2", "d1")
    succeed(fleet, "dev", "web.1", "d1")
    rollout_id = succeed(fleet, "prod", "web.1", "p1")
    roll_back(fleet, "dev")
    fleet.enroll("p2", channel="prod")

    fleet.dispatch(thorough=True)
    assert [host.host_id for host in fleet.hosts(rollout_id)] == ["p1"]

    abort(fleet, "dev@web.2~2")
    fleet.dispatch(thorough=True)
    succeed(fleet, "dev", "web.1", "d1")
    fleet.dispatch(thorough=True)
    fleet.reach(rollout_id, "p2")


@pytest.mark.req("OP-2")
def test_an_edge_that_shuts_stops_the_order_of_a_late_host(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    succeed(fleet, "dev", "web.2", "d1")
    succeed(fleet, "dev", "web.1", "d1")
    rollout_id = succeed(fleet, "prod", "web.1", "p1")
    fleet.enroll("p2", "p3", channel="prod")
    assert fleet.dispatch(thorough=True).ordered == 2
    order = fleet.control_plane.deliveries.poll("p2")
    assert order is not None
    roll_back(fleet, "dev")
    cancelled = fleet.dispatch(thorough=True).cancelled  # the pass that finds the edge shut

    said = {"target_closure": order.target_closure, "current_closure_at_dispatch": OLD}
    with pytest.raises(EdgeClosed, match=r"rolled dev back from web\.1"):
        fleet.say(DispatchAck, rollout_id, "p2", **said)
    assert fleet.control_plane.deliveries.poll("p3") is None
    assert cancelled + fleet.dispatch(thorough=True).cancelled == 2
    assert fleet.dispatch(thorough=True).ordered == 0

    abort(fleet, "dev@web.2~2")
    fleet.dispatch(thorough=True)
    succeed(fleet, "dev", "web.1", "d1")
    assert fleet.dispatch(thorough=True).ordered == 2
    fleet.reach(rollout_id, "p2", "p3")
