"""``channel rollback --now`` on every engine: all hosts at once, in spite of what stops a channel.

Hosts of the replaced rollout that only soak are released; one that switches finishes first. A host
that fails does not stop the others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.in_process_fleet import CANARY, REST, InProcessFleet
from tidegate.control.operations.promotion_planning import RollBackChannel
from tidegate.domain.channels.slices import HoldChannel, StartFreeze, hold_channel, start_freeze
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.refusals import ClosureQuarantined
from tidegate.domain.hosts.rows import HostOrder, order_key
from tidegate.domain.hosts.states import HostState, OnFailure, ProbeStatus
from tidegate.domain.rollouts.promotion import PromotionResult
from tidegate.domain.rollouts.states import Outcome, OverridableGate, RolloutState
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.slices import CreateWindow, create_window
from tidegate.errors import InvalidInput
from tidegate.kernel import codec
from tidegate.kernel.replay import differences

pytestmark = pytest.mark.in_turn

PROD = "prod"
HOSTS = ("p1", "p2", "p3")


def begin(fleet: InProcessFleet, **policy: Any) -> None:
    """Start with three hosts in two waves with a soak; web.1 and web.2 succeeded."""
    fleet.create(PROD, CANARY, REST, **policy)
    fleet.enroll(*HOSTS, channel=PROD)
    fleet.offer(*(f"web.{number}" for number in range(1, 6)))
    for release in ("web.1", "web.2"):
        rollout_id = fleet.promote(PROD, release)
        fleet.dispatch()
        fleet.reach(rollout_id, "p1")
        fleet.dispatch()
        fleet.reach(rollout_id, "p2", "p3")
        assert fleet.state(rollout_id) is RolloutState.TERMINAL


def roll_back(fleet: InProcessFleet, *, now: bool = True, **said: Any) -> str:
    fleet.asked += 1
    asked = RollBackChannel(
        channel=PROD,
        command_id=f"back-{fleet.asked}",
        by="bob",
        now=now,
        **({"reason": "checkout is down"} | said),
    )
    done = fleet.control_plane.promotions.rollback(asked)
    rollout_id = codec.decode(done.answer, PromotionResult).rollout_id
    assert rollout_id is not None
    return rollout_id


def finish(fleet: InProcessFleet, rollout_id: str, *host_ids: str) -> None:
    """Take the hosts from the order to Converged, without any delay."""
    fleet.ack(*host_ids)
    fleet.activate(rollout_id, *host_ids)
    for host_id in host_ids:
        fleet.probe(rollout_id, host_id, ProbeStatus.PASS)
    fleet.converge(rollout_id, *host_ids)


def stop(fleet: InProcessFleet) -> None:
    """Stop the channel by a freeze and a hold."""
    frozen = StartFreeze(freeze_id="xmas", operator="ann", reason="holidays", channels=(PROD,))
    fleet.execute(start_freeze, frozen)
    fleet.execute(hold_channel, HoldChannel(channel=PROD, operator="ann", reason="audit"))


@pytest.mark.req("OP-4")
def test_reaches_all_hosts_at_once_in_spite_of_a_freeze_and_a_hold(fleet: InProcessFleet) -> None:
    begin(fleet)
    stop(fleet)

    back = roll_back(fleet)

    opened = fleet.tally(back)
    assert [(wave.name, wave.hosts, wave.soak_seconds) for wave in opened.waves] == [("now", 3, 0)]
    gates = {item.gate for item in opened.overrides}
    assert gates == {OverridableGate.FREEZE, OverridableGate.HOLD}, "the closed gates are named"
    assert fleet.dispatch().ordered == 3
    finish(fleet, back, *HOSTS)
    assert fleet.tally(back).outcome is Outcome.SUCCEEDED
    assert fleet.channel(PROD).held_by == "ann", "the hold stays"
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-4")
def test_without_now_it_waits_for_both(fleet: InProcessFleet) -> None:
    begin(fleet)
    stop(fleet)

    back = roll_back(fleet, now=False)

    assert fleet.dispatch().ordered == 0
    assert [wave.name for wave in fleet.tally(back).waves] == ["canary", "rest"]
    state = fleet.control_plane.fleet_reader.state([back], fleet.clock())
    shut = {item.gate for item in explain(state, back).verdicts if not item.passed}
    assert {"freeze", "hold"} <= shut


@pytest.mark.req("OP-4")
def test_passes_stops_that_are_set_later(fleet: InProcessFleet) -> None:
    begin(fleet)
    back = roll_back(fleet)
    stop(fleet)

    assert fleet.dispatch().ordered == 3
    finish(fleet, back, *HOSTS)
    state = fleet.control_plane.fleet_reader.state([back], fleet.clock())
    assert explain(state, back).verdicts


@pytest.mark.req("OP-4")
def test_releases_soaking_hosts_and_cancels_unacknowledged_orders(
    fleet: InProcessFleet,
) -> None:
    """Of web.3: p1 soaks, p2 switches, p3 has its order."""
    begin(fleet)
    bad = fleet.promote(PROD, "web.3")
    fleet.dispatch()
    fleet.reach(bad, "p1")
    fleet.dispatch()
    fleet.ack("p2")
    assert fleet.host(bad, "p3").state is HostState.PENDING
    fleet.promote(PROD, "web.4")
    fleet.dispatch()
    fleet.ack("p1")
    fleet.activate("prod@web.4", "p1")
    assert fleet.host("prod@web.4", "p1").state is HostState.SOAKING

    back = roll_back(fleet, to="web.2")
    fleet.dispatch()

    assert fleet.host("prod@web.4", "p1").left == "skipped"
    assert fleet.host("prod@web.4", "p1").due_at is None
    assert fleet.row(order_key("p1"), HostOrder).rollout_id == back
    assert fleet.host(back, "p1").policy.preempts
    fleet.ack("p1")
    fleet.control_plane.due.tick()
    fleet.check_invariants()
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-4")
def test_a_host_that_switches_finishes_first(fleet: InProcessFleet) -> None:
    begin(fleet)
    bad = fleet.promote(PROD, "web.3")
    fleet.dispatch()
    fleet.ack("p1")

    back = roll_back(fleet)
    assert fleet.dispatch().ordered == 2
    fleet.activate(bad, "p1")
    assert fleet.dispatch().ordered == 1

    finish(fleet, back, *HOSTS)
    assert fleet.tally(back).outcome is Outcome.SUCCEEDED
    assert fleet.tally(bad).outcome is Outcome.REPLACED
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-4", "OP-1")
@pytest.mark.parametrize(
    ("failing", "outcome"), [(1, Outcome.SUCCEEDED), (2, Outcome.FAILED), (3, Outcome.FAILED)]
)
def test_a_failing_host_does_not_stop_the_others(
    fleet: InProcessFleet, failing: int, outcome: Outcome
) -> None:
    begin(fleet, on_failure=OnFailure.ROLLBACK)
    back = roll_back(fleet)
    fleet.dispatch()
    for host_id in HOSTS[:failing]:
        fleet.fail(back, host_id)
        assert fleet.tally(back).halted_at is None
    for host_id in HOSTS[failing:]:
        finish(fleet, back, host_id)

    assert fleet.state(back) is RolloutState.TERMINAL
    assert fleet.tally(back).outcome is outcome
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-4")
def test_keeps_budgets_unless_they_are_ignored(fleet: InProcessFleet) -> None:
    begin(fleet)
    fleet.bound("*", 1)
    roll_back(fleet)
    assert fleet.dispatch().ordered == 1

    back = roll_back(fleet, to="web.2", ignore_budgets=True)
    fleet.dispatch()

    ordered = [host.host_id for host in fleet.hosts(back)]
    assert ordered == list(HOSTS)


@pytest.mark.req("OP-4")
def test_lifts_the_quarantine_of_a_release_that_is_named(fleet: InProcessFleet) -> None:
    begin(fleet)
    bad = fleet.promote(PROD, "web.1")
    fleet.dispatch()
    fleet.fail(bad, "p1")
    fleet.revert(bad, "p1")
    fleet.promote(PROD, "web.3")

    with pytest.raises(ClosureQuarantined):
        roll_back(fleet, to="web.1")
    back = roll_back(fleet, to="web.1", lift_quarantine=True)

    assert fleet.quarantine(back) is None
    assert "QuarantineLifted" in fleet.types()
    assert fleet.dispatch().ordered == 3
    with pytest.raises(InvalidInput, match="needs a reason"):
        roll_back(fleet, reason=" ")


@pytest.mark.req("OP-4")
def test_a_window_holds_a_rollback_and_now_passes_it(fleet: InProcessFleet) -> None:
    begin(fleet)
    start = fleet.clock() + timedelta(hours=5)
    window = WindowSpec(
        window_id="nightly",
        kind=WindowKind.ALLOW,
        channels=(PROD,),
        start=f"{start:%Y-%m-%dT%H:%M}",
        duration_seconds=3_600,
    )
    fleet.execute(create_window, CreateWindow(window=window, operator="ann", reason="quiet"))

    waiting = roll_back(fleet, now=False)

    assert fleet.dispatch().ordered == 0
    (said,) = fleet.control_plane.promotions.waits(PROD, waiting)
    assert "nightly" in said
    back = roll_back(fleet)
    assert fleet.control_plane.promotions.waits(PROD, back) == ()
    assert fleet.dispatch().ordered == 3
    finish(fleet, back, *HOSTS)


@pytest.mark.req("OP-4", "OP-10")
def test_a_rollback_that_waits_for_a_soak_names_the_one_that_does_not(
    fleet: InProcessFleet,
) -> None:
    begin(fleet)
    bad = fleet.promote(PROD, "web.3")
    fleet.dispatch()
    fleet.ack("p1")
    fleet.activate(bad, "p1")
    back = roll_back(fleet, now=False)
    assert fleet.dispatch().ordered == 0

    state = fleet.control_plane.fleet_reader.state([back], fleet.clock())
    (wait,) = (item for item in explain(state, back).waits if item.code == "host-busy")

    hasten = "tidegate channel rollback prod --to web.2 --now --reason …"
    assert wait.remedies[0].command == hasten
    again = roll_back(fleet, to="web.2")
    assert fleet.dispatch().ordered == 3
    assert fleet.row(order_key("p1"), HostOrder).rollout_id == again


@pytest.mark.req("OP-4")
def test_now_speeds_up_a_waiting_rollback(fleet: InProcessFleet) -> None:
    """An operator who rolled back in a freeze and then asks for it now does not mean an older
    release.
    """
    begin(fleet)
    stop(fleet)
    waiting = roll_back(fleet, now=False)
    assert fleet.dispatch().ordered == 0

    back = roll_back(fleet)

    assert (waiting, back) == ("prod@web.1~2", "prod@web.1~3")
    assert fleet.tally(back).rollback_of == "web.2", (
        "the release that is rolled back does not change"
    )
    assert fleet.channel(PROD).ladder[-1].left_at is None, "web.1 is not rolled back"
    assert fleet.dispatch().ordered == 3
    finish(fleet, back, *HOSTS)
    assert fleet.tally(back).outcome is Outcome.SUCCEEDED
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("OP-4", "OP-10")
def test_ignoring_budgets_speeds_up_a_rollback_that_is_an_emergency_already(
    fleet: InProcessFleet,
) -> None:
    begin(fleet)
    fleet.bound("*", 1)
    slow = roll_back(fleet)
    assert fleet.dispatch().ordered == 1
    state = fleet.control_plane.fleet_reader.state([slow], fleet.clock())
    (wait,) = (item for item in explain(state, slow).waits if item.code == "disruption-budget")
    assert wait.remedies[0].command == (
        "tidegate channel rollback prod --to web.1 --now --ignore-budgets --reason …"
    )

    back = roll_back(fleet, to="web.1", ignore_budgets=True)

    assert (slow, back) == ("prod@web.1~2", "prod@web.1~3")
    assert fleet.tally(back).rollback_of == "web.2"
    fleet.dispatch()
    assert [host.host_id for host in fleet.hosts(back)] == list(HOSTS)
    finish(fleet, back, *HOSTS)
    assert differences(fleet.store, FOLDS) == []
