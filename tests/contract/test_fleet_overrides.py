"""A person with the permission emergency lets one rollout pass a gate, on every engine.

The override is a fact and is kept in the tally, and ``explain`` reports its author and reason. It
passes the gate at reservation, hand-out and acknowledgement, and passes no other gate.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.in_process_fleet import OLD, InProcessFleet
from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.channels.refusals import ChannelFrozen
from tidegate.domain.channels.slices import HoldChannel, StartFreeze, hold_channel, start_freeze
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import GateVerdict
from tidegate.domain.hosts.facts import DispatchAck
from tidegate.domain.hosts.refusals import WaveNotReached
from tidegate.domain.rollouts.slices import OverrideGate, PauseRollout, override_gate, pause_rollout
from tidegate.domain.rollouts.states import OverridableGate, RolloutState
from tidegate.domain.rollouts.wave_slices import SkipWave, skip_wave
from tidegate.errors import IllegalTransition, InvalidInput
from tidegate.kernel.replay import differences

pytestmark = pytest.mark.in_turn

ROLLOUT = "prod@web.1"


def begin(fleet: InProcessFleet, **policy: Any) -> None:
    fleet.create("dev")
    fleet.create("prod", **policy)
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1", "web.2")


def freeze(fleet: InProcessFleet) -> None:
    started = StartFreeze(freeze_id="xmas", operator="ann", reason="holidays", channels=("prod",))
    fleet.execute(start_freeze, started)


def override(fleet: InProcessFleet, gate: OverridableGate, **said: Any) -> None:
    command = OverrideGate(
        rollout_id=ROLLOUT, gate=gate, operator="bob", reason="hotfix for INC-7", **said
    )
    fleet.execute(override_gate, command)


def verdict(fleet: InProcessFleet, gate: str) -> GateVerdict:
    state = fleet.control_plane.fleet_reader.state([ROLLOUT], fleet.clock())
    (found,) = (item for item in explain(state, ROLLOUT).verdicts if item.gate == gate)
    return found


@pytest.mark.req("OP-3")
def test_passes_a_freeze_at_reservation_hand_out_and_acknowledgement(
    fleet: InProcessFleet,
) -> None:
    begin(fleet)
    freeze(fleet)
    fleet.promote("prod", "web.1")
    assert fleet.dispatch().ordered == 0
    assert not verdict(fleet, "freeze").passed

    override(fleet, OverridableGate.FREEZE)

    found = verdict(fleet, "freeze")
    assert found.passed
    assert (
        "overridden by bob at 2026-05-01 06:00 UTC until the rollout ends: hotfix for INC-7"
        in found.reason
    )
    assert fleet.dispatch().ordered == 1
    fleet.reach(ROLLOUT, "p1")
    assert fleet.state(ROLLOUT) is RolloutState.TERMINAL
    assert fleet.types().count("GateOverridden") == 1
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-3")
def test_passes_an_edge_and_a_hold(fleet: InProcessFleet) -> None:
    begin(fleet, edges=(ChannelEdge("dev"),))
    fleet.promote("prod", "web.1")
    fleet.dispatch()
    fleet.execute(hold_channel, HoldChannel(channel="prod", operator="ann", reason="audit"))
    override(fleet, OverridableGate.EDGES)
    assert fleet.dispatch().ordered == 0, "the hold still applies"

    override(fleet, OverridableGate.HOLD)

    assert fleet.dispatch().ordered == 1
    fleet.reach(ROLLOUT, "p1")
    assert fleet.channel("prod").held_by == "ann", "the hold stays"


@pytest.mark.req("OP-3")
def test_an_override_ends_at_its_time_or_with_its_rollout(fleet: InProcessFleet) -> None:
    begin(fleet)
    fleet.promote("prod", "web.1")
    until = fleet.clock() + timedelta(minutes=5)
    override(fleet, OverridableGate.FREEZE, until=until)
    override(fleet, OverridableGate.FREEZE, until=until)
    freeze(fleet)
    assert fleet.dispatch().ordered == 1
    fleet.wait(301)

    assert fleet.control_plane.deliveries.poll("p1") is None
    with pytest.raises(ChannelFrozen):
        acknowledge(fleet)

    assert not verdict(fleet, "freeze").passed
    assert fleet.types().count("GateOverridden") == 1, "a repeat changes nothing"
    with pytest.raises(InvalidInput, match="over already"):
        override(fleet, OverridableGate.FREEZE, until=fleet.clock())


def acknowledge(fleet: InProcessFleet) -> None:
    """Acknowledge the order that the agent received before."""
    target = fleet.tally(ROLLOUT).target_closure
    said = {"target_closure": target, "current_closure_at_dispatch": OLD}
    fleet.say(DispatchAck, ROLLOUT, "p1", **said)


@pytest.mark.req("OP-3")
def test_passes_neither_a_pause_nor_the_end_of_a_rollout(fleet: InProcessFleet) -> None:
    begin(fleet)
    fleet.promote("prod", "web.1")
    for gate in OverridableGate:
        override(fleet, gate)
    fleet.execute(pause_rollout, PauseRollout(rollout_id=ROLLOUT, operator="ann", reason="look"))

    assert fleet.dispatch().ordered == 0
    fleet.promote("prod", "web.2")
    with pytest.raises(IllegalTransition):
        override(fleet, OverridableGate.FREEZE, until=fleet.clock() + timedelta(hours=1))
    assert fleet.tally("prod@web.2").overrides == (), "it was for that rollout alone"


@pytest.mark.req("OP-3")
def test_a_promotion_overrides_edges_in_its_own_commit(fleet: InProcessFleet) -> None:
    begin(fleet, edges=(ChannelEdge("dev"),))

    fleet.promote("prod", "web.1", overrides=(OverridableGate.EDGES,), reason="INC-7")

    (known,) = fleet.tally(ROLLOUT).overrides
    assert (known.gate, known.operator, known.reason) == (OverridableGate.EDGES, "user_1", "INC-7")
    assert fleet.dispatch().ordered == 1
    with pytest.raises(InvalidInput, match="needs a reason"):
        fleet.promote("prod", "web.2", overrides=(OverridableGate.EDGES,))


@pytest.mark.req("OP-3")
@pytest.mark.parametrize("skipped", [True, False], ids=["its only wave skipped", "overridden"])
def test_late_hosts_wait_for_the_start_of_a_rollout_that_had_ended(
    fleet: InProcessFleet, skipped: bool
) -> None:
    """An override ends with its rollout, and a skipped wave started no host."""
    begin(fleet)
    start_at = fleet.clock() + timedelta(hours=1)
    fleet.promote("prod", "web.1", start_at=start_at)
    if skipped:
        command = SkipWave(rollout_id=ROLLOUT, wave="rest", operator="bob", reason="no use")
        fleet.execute(skip_wave, command)
    else:
        override(fleet, OverridableGate.START_AT)
        assert fleet.dispatch().ordered == 1
        fleet.reach(ROLLOUT, "p1")
    assert fleet.state(ROLLOUT) is RolloutState.TERMINAL
    fleet.enroll("p2", channel="prod")

    assert fleet.dispatch(thorough=True).ordered == 0
    state = fleet.control_plane.fleet_reader.state([ROLLOUT], fleet.clock(), late=True)
    assert explain(state, ROLLOUT, "p2").answer == "start-at: starts at 2026-05-01 07:00 UTC"

    fleet.clock.now = start_at
    assert fleet.dispatch(thorough=True).ordered == 1
    fleet.reach(ROLLOUT, "p2")
    assert fleet.host(ROLLOUT, "p2").late
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-3", "RO-12")
def test_an_early_order_is_taken_back_when_its_override_ends(fleet: InProcessFleet) -> None:
    """Otherwise it would hold its host and its budget slots until the start."""
    begin(fleet)
    fleet.bound("*", 1)
    start_at = fleet.clock() + timedelta(hours=1)
    fleet.promote("prod", "web.1", start_at=start_at)
    override(fleet, OverridableGate.START_AT, until=fleet.clock() + timedelta(minutes=5))
    assert fleet.dispatch().ordered == 1
    assert fleet.dispatch(thorough=True).cancelled == 0
    fleet.wait(301)

    state = fleet.control_plane.fleet_reader.state([ROLLOUT], fleet.clock())
    reason = "starts at 2026-05-01 07:00 UTC"
    assert explain(state, ROLLOUT).answer == f"start-at holds 1 of 1 hosts: {reason}"
    of_host = explain(state, ROLLOUT, "p1").answer
    assert of_host == f"start-at: {reason}; the host has its order and may not use it now"
    assert fleet.control_plane.deliveries.poll("p1") is None, "its acknowledgement is refused"
    with pytest.raises(WaveNotReached):
        acknowledge(fleet)
    assert fleet.dispatch(thorough=True).cancelled == 1
    assert not fleet.host(ROLLOUT, "p1").busy

    fleet.clock.now = start_at
    assert fleet.dispatch().ordered == 1
    fleet.reach(ROLLOUT, "p1")
    assert fleet.state(ROLLOUT) is RolloutState.TERMINAL
    assert differences(fleet.store, FOLDS) == []
