"""Freezes and holds on every engine: they also stop orders that are already out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.contract.in_process_fleet import OLD, FleetStores, InProcessFleet
from tests.domain.registry import digest_of
from tidegate.control.fleet.order_queue import NOTHING
from tidegate.control.lanes import Lanes
from tidegate.domain.channels.folds import FREEZES_MAX
from tidegate.domain.channels.refusals import ChannelFrozen, ChannelNotFound, ChannelOnHold
from tidegate.domain.channels.rows import Freeze, freeze_key
from tidegate.domain.channels.slices import (
    FROZEN_MAX,
    EndFreeze,
    HoldChannel,
    StartFreeze,
    UnholdChannel,
    end_freeze,
    hold_channel,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.channels.stops import EVERYWHERE, stops_keys
from tidegate.domain.composition import FOLDS
from tidegate.domain.fleet.rows import Budget, budget_key
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts import agent_side
from tidegate.domain.hosts.facts import ActivationFailed, DispatchAck, RollbackComplete
from tidegate.domain.hosts.refusals import ClosureQuarantined, RolloutIsPaused
from tidegate.domain.hosts.states import HostPolicy, HostState
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.domain.rollouts.rows import RolloutGates, gates_key
from tidegate.domain.rollouts.skip_slices import SkipHostByHand, skip_host_by_hand
from tidegate.domain.rollouts.slices import (
    PauseRollout,
    ResumeRollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.occurrences import START_FORM
from tidegate.domain.windows.refusals import WindowClosed
from tidegate.domain.windows.slices import CreateWindow, DeleteWindow, create_window, delete_window
from tidegate.errors import LimitExceeded, Refused, TidegateError
from tidegate.kernel.model import Commit, Receipt
from tidegate.kernel.replay import differences
from tidegate.simulate.control_plane import InlineExecutor

pytestmark = pytest.mark.in_turn

ROLLOUT = "edge@web.1"
TARGET = digest_of("web.1")
NIGHT = timedelta(hours=8)


def freeze(fleet: InProcessFleet, *channels: str, until: datetime | None = None) -> None:
    command = StartFreeze(
        freeze_id="sale", operator="user_1", reason="a sale", channels=channels, until=until
    )
    fleet.execute(start_freeze, command)


def thaw(fleet: InProcessFleet) -> None:
    command = EndFreeze(freeze_id="sale", operator="user_1", reason="over")
    fleet.execute(end_freeze, command)


def hold(fleet: InProcessFleet) -> None:
    command = HoldChannel(channel="edge", operator="user_1", reason="a look")
    fleet.execute(hold_channel, command)


def unhold(fleet: InProcessFleet) -> None:
    command = UnholdChannel(channel="edge", operator="user_1", reason="fine")
    fleet.execute(unhold_channel, command)


def deny(fleet: InProcessFleet, *channels: str) -> None:
    """Create a deny window that began an hour ago and lasts for a week."""
    window = WindowSpec(
        window_id="stocktaking",
        kind=WindowKind.DENY,
        start=f"{fleet.clock() - timedelta(hours=1):{START_FORM}}",
        duration_seconds=604_800,
        channels=channels,
    )
    fleet.execute(create_window, CreateWindow(window=window, operator="user_1", reason="a count"))


def end_window(fleet: InProcessFleet) -> None:
    command = DeleteWindow(window_id="stocktaking", operator="user_1", reason="counted")
    fleet.execute(delete_window, command)


Stop = tuple[Callable[[InProcessFleet], None], Callable[[InProcessFleet], None], type[Refused]]
STOPS: dict[str, Stop] = {
    "a freeze of the channel": (lambda at: freeze(at, "edge"), thaw, ChannelFrozen),
    "a freeze of all channels": (freeze, thaw, ChannelFrozen),
    "a hold": (hold, unhold, ChannelOnHold),
    "a window of the channel": (lambda at: deny(at, "edge"), end_window, WindowClosed),
    "a window of all channels": (deny, end_window, WindowClosed),
}
each_stop = pytest.mark.parametrize("stop", STOPS)
each_stop_of_all_hosts = pytest.mark.parametrize(
    "stop", [name for name, (_, _, refusal) in STOPS.items() if refusal is not WindowClosed]
)


def ordered(fleet: InProcessFleet, *hosts: str) -> None:
    """Promote a release, and order these hosts."""
    fleet.create("edge")
    fleet.enroll(*hosts, channel="edge")
    fleet.offer("web.1")
    assert fleet.promote("edge", "web.1") == ROLLOUT
    assert fleet.dispatch().ordered == len(hosts)


def acknowledge(fleet: InProcessFleet, host_id: str) -> None:
    fleet.say(DispatchAck, ROLLOUT, host_id, target_closure=TARGET, current_closure_at_dispatch=OLD)


# ── hand-out ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("OP-7")
@each_stop
def test_hands_out_no_reserved_order_until_the_stop_ends(fleet: InProcessFleet, stop: str) -> None:
    start, end, _ = STOPS[stop]
    ordered(fleet, "h1")

    start(fleet)
    polled, handed = (
        fleet.control_plane.deliveries.poll("h1"),
        fleet.control_plane.deliveries.hand_out("h1"),
    )
    fleet.wait(3_600)
    fleet.control_plane.due.tick()  # the time to acknowledge has passed
    end(fleet)

    assert (polled, handed) == (None, NOTHING)
    host = fleet.host(ROLLOUT, "h1")
    assert (host.attempt, host.busy, host.state) == (1, True, HostState.PENDING)
    fleet.reach(ROLLOUT, "h1")


@each_stop
def test_hands_out_an_order_again_after_its_acknowledgement_was_refused(
    fleet: InProcessFleet, stop: str
) -> None:
    """At once, although its lease has time left: the lease is from before the stop."""
    start, end, _ = STOPS[stop]
    ordered(fleet, "h1")
    assert fleet.control_plane.deliveries.poll("h1") is not None
    assert fleet.control_plane.deliveries.poll("h1") is None, "it is leased"

    start(fleet)
    assert fleet.control_plane.deliveries.poll("h1") is None
    end(fleet)

    assert fleet.control_plane.deliveries.next_look("h1") == 0
    assert fleet.control_plane.deliveries.poll("h1") is not None
    assert fleet.control_plane.deliveries.poll("h1") is None, "it is leased again"


def pause(fleet: InProcessFleet) -> None:
    fleet.execute(pause_rollout, PauseRollout(rollout_id=ROLLOUT, operator="user_1", reason="look"))


def resume(fleet: InProcessFleet) -> None:
    done = ResumeRollout(rollout_id=ROLLOUT, operator="user_1", reason="fine")
    fleet.execute(resume_rollout, done)


@pytest.mark.req("OP-7")
def test_a_pause_stops_reservation_hand_out_and_acknowledgement(fleet: InProcessFleet) -> None:
    fleet.create("edge")
    fleet.enroll("h1", "h2", channel="edge")
    fleet.offer("web.1")
    fleet.promote("edge", "web.1")
    pause(fleet)
    assert fleet.dispatch().ordered == 0
    resume(fleet)
    assert fleet.dispatch().ordered == 2
    assert fleet.control_plane.deliveries.poll("h1") is not None

    pause(fleet)
    with pytest.raises(RolloutIsPaused):
        acknowledge(fleet, "h1")
    assert fleet.control_plane.deliveries.hand_out("h2") == NOTHING

    resume(fleet)
    acknowledge(fleet, "h1")
    fleet.reach(ROLLOUT, "h2")


@pytest.mark.req("OP-7")
def test_a_quarantine_stops_reservation_hand_out_and_acknowledgement(
    fleet: InProcessFleet,
) -> None:
    """A late host fails: the rollout has ended, and the failure counts for other rollouts."""
    fleet.create("edge")
    fleet.enroll("h1", channel="edge")
    fleet.offer("web.1")
    fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(ROLLOUT, "h1")
    fleet.enroll("h2", "h3", "h4", channel="edge")
    assert fleet.dispatch(thorough=True).ordered == 3
    assert fleet.control_plane.deliveries.poll("h3") is not None
    fleet.fail(ROLLOUT, "h2")
    fleet.revert(ROLLOUT, "h2")
    skipped = SkipHostByHand(  # otherwise its failure alone would stop the others
        rollout_id=ROLLOUT, host_id="h2", wave=0, operator="user_1", reason="its disk"
    )
    fleet.execute(skip_host_by_hand, skipped)

    with pytest.raises(ClosureQuarantined):
        acknowledge(fleet, "h3")
    assert fleet.control_plane.deliveries.hand_out("h4") == NOTHING
    fleet.enroll("h5", channel="edge")
    assert fleet.dispatch(thorough=True).ordered == 0


# ── acknowledgement ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("OP-7")
@each_stop
def test_refuses_the_acknowledgement_of_an_order_that_was_handed_out_before(
    fleet: InProcessFleet, stop: str
) -> None:
    start, end, refusal = STOPS[stop]
    ordered(fleet, "h1")
    assert fleet.control_plane.deliveries.poll("h1") is not None

    start(fleet)
    with pytest.raises(refusal) as refused:
        acknowledge(fleet, "h1")

    assert refused.value.facts["channel"] == "edge"
    assert refused.value.code not in agent_side.WAITS, "a waiting agent polls no more"
    assert fleet.host(ROLLOUT, "h1").state is HostState.PENDING
    end(fleet)
    fleet.reach(ROLLOUT, "h1")


@each_stop
def test_never_interrupts_a_switch_or_a_rollback(fleet: InProcessFleet, stop: str) -> None:
    start, _, _ = STOPS[stop]
    ordered(fleet, "h1", "h2")
    fleet.ack("h1", "h2")

    start(fleet)
    fleet.activate(ROLLOUT, "h1")
    fleet.say(ActivationFailed, ROLLOUT, "h2", exit_code=1)
    fleet.say(RollbackComplete, ROLLOUT, "h2", reverted_to_closure=OLD)

    assert fleet.host(ROLLOUT, "h1").state is HostState.SOAKING
    assert fleet.host(ROLLOUT, "h2").state is HostState.REVERTED


def test_stops_the_channels_that_it_names_and_no_other(fleet: InProcessFleet) -> None:
    ordered(fleet, "h1")
    fleet.create("core")

    freeze(fleet, "core")

    fleet.reach(ROLLOUT, "h1")


def test_a_freeze_ends_by_itself_at_its_time(fleet: InProcessFleet) -> None:
    """The row is judged by the time, whether or not the timer has run."""
    ordered(fleet, "h1", "h2")
    until = fleet.clock() + NIGHT
    freeze(fleet, until=until)

    fleet.wait(NIGHT.total_seconds() - 1)
    with pytest.raises(ChannelFrozen) as refused:
        acknowledge(fleet, "h1")
    fleet.wait(1)

    assert refused.value.facts["until"] == until.isoformat()
    fleet.ack("h1")
    assert fleet.control_plane.due.tick().freezes == 1
    fleet.ack("h2")


def test_a_channel_is_stopped_until_its_last_stop_ends(fleet: InProcessFleet) -> None:
    ordered(fleet, "h1")
    freeze(fleet, "edge")
    hold(fleet)
    fleet.execute(
        start_freeze, StartFreeze(freeze_id="audit", operator="user_1", reason="an audit")
    )

    thaw(fleet)
    assert fleet.control_plane.deliveries.poll("h1") is None
    unhold(fleet)
    assert fleet.control_plane.deliveries.poll("h1") is None
    with pytest.raises(ChannelFrozen) as refused:
        acknowledge(fleet, "h1")
    fleet.execute(end_freeze, EndFreeze(freeze_id="audit", operator="user_1", reason="over"))

    assert refused.value.facts["freeze_id"] == "audit"
    fleet.reach(ROLLOUT, "h1")


def test_a_channel_that_is_created_under_a_freeze_is_frozen(fleet: InProcessFleet) -> None:
    freeze(fleet)

    fleet.create("edge")
    fleet.enroll("h1", channel="edge")
    fleet.offer("web.1")
    fleet.promote("edge", "web.1")

    assert fleet.dispatch().ordered == 0
    order = ReserveDispatch(
        rollout_id=ROLLOUT, host_id="h1", target_closure=TARGET, wave=0, policy=HostPolicy()
    )
    answer = fleet.control_plane.record(ROLLOUT, reserve_dispatch, order)
    assert isinstance(answer, ChannelFrozen), "a dispatcher that did not see the freeze"
    thaw(fleet)
    assert fleet.dispatch().ordered == 1
    fleet.reach(ROLLOUT, "h1")


# ── races ─────────────────────────────────────────────────────────────────────────────────────────


def _lanes_that_wait(fleet: InProcessFleet, meanwhile: Callable[[], None]) -> Lanes:
    """Lanes of a second server that run ``meanwhile`` between the first decision and the commit."""
    once = [meanwhile]

    def submit(commit: Commit) -> Future[Receipt]:
        if once:
            once.pop()()
        return fleet.control_plane.submit(commit)

    return Lanes(
        fleet.store,
        FOLDS,
        submit,
        clock=fleet.clock,
        sleep=lambda seconds: None,
        threads=InlineExecutor(),
    )


def _taken(lanes: Lanes, item: Any, command: Any) -> TidegateError | None:
    try:
        lanes.record(ROLLOUT, item, command).result()
    except TidegateError as error:
        return error
    return None


@pytest.mark.req("OP-7")
@each_stop
def test_a_stop_that_was_answered_before_the_acknowledgement_commits_wins(
    fleet_stores: FleetStores, stop: str
) -> None:
    start, end, refusal = STOPS[stop]
    one, other = InProcessFleet(fleet_stores.open()), InProcessFleet(fleet_stores.open())
    ordered(one, "h1", "h2")
    said = {"target_closure": TARGET, "current_closure_at_dispatch": OLD}
    acks = [
        ReportEvent(
            rollout_id=ROLLOUT,
            host_id=host_id,
            event=one.event(DispatchAck, ROLLOUT, host_id, **said),
        )
        for host_id in ("h1", "h2")
    ]
    decided: list[str] = []

    def meanwhile() -> None:
        decided.append("the acknowledgement")
        start(other)

    lanes = _lanes_that_wait(one, meanwhile)

    first = _taken(lanes, report_event, acks[0])
    second = _taken(lanes, report_event, acks[1])  # by the rows that the lane has cached

    assert decided, "the stop came between decision and commit"
    assert [type(first), type(second)] == [refusal, refusal]
    assert one.host(ROLLOUT, "h1").state is HostState.PENDING
    end(other)
    assert _taken(lanes, report_event, acks[0]) is None
    assert differences(one.store, FOLDS) == []


@pytest.mark.req("OP-7")
def test_acknowledgements_of_two_channels_depend_on_no_row_in_common(fleet: InProcessFleet) -> None:
    """One row for all channels would make every transaction conflict with every other."""
    names = [f"rim{number}" for number in range(200)]
    assert {stops_keys(name)[1].id for name in names} == {*EVERYWHERE}
    other = next(name for name in names if stops_keys(name)[1] != stops_keys("edge")[1])
    ordered(fleet, "h1")
    fleet.create(other)
    fleet.enroll("h2", channel=other)
    rollouts = {"h1": ROLLOUT, "h2": fleet.promote(other, "web.1")}
    assert fleet.dispatch().ordered == 1
    commits: list[Commit] = []

    def submit(commit: Commit) -> Future[Receipt]:
        commits.append(commit)
        return fleet.control_plane.submit(commit)

    lanes = Lanes(fleet.store, FOLDS, submit, clock=fleet.clock, threads=InlineExecutor())
    said = {"target_closure": TARGET, "current_closure_at_dispatch": OLD}
    for host_id, rollout_id in rollouts.items():
        event = fleet.event(DispatchAck, rollout_id, host_id, **said)
        ack = ReportEvent(rollout_id=rollout_id, host_id=host_id, event=event)
        lanes.record(rollout_id, report_event, ack).result()

    first, second = ({write.key for write in commit.writes} for commit in commits)
    assert {*stops_keys("edge")} <= first
    assert {*stops_keys(other)} <= second
    assert first & second == set()


@pytest.mark.req("OP-7")
@each_stop
def test_a_stop_that_was_answered_before_a_reservation_commits_wins(
    fleet_stores: FleetStores, stop: str
) -> None:
    start, _, refusal = STOPS[stop]
    one, other = InProcessFleet(fleet_stores.open()), InProcessFleet(fleet_stores.open())
    one.create("edge")
    one.enroll("h1", channel="edge")
    one.offer("web.1")
    one.promote("edge", "web.1")
    order = ReserveDispatch(
        rollout_id=ROLLOUT, host_id="h1", target_closure=TARGET, wave=0, policy=HostPolicy()
    )

    lanes = _lanes_that_wait(one, partial(start, other))

    assert isinstance(_taken(lanes, reserve_dispatch, order), refusal)
    assert list(one.hosts(ROLLOUT)) == []


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def test_a_freeze_of_as_many_channels_as_it_may_name_fits_into_a_commit(
    fleet: InProcessFleet,
) -> None:
    names = [f"c{number}" for number in range(FROZEN_MAX)]
    for name in names:
        fleet.create(name)

    freeze(fleet, *names)

    assert fleet.row(freeze_key("sale"), Freeze).channels == tuple(names)
    thaw(fleet)
    with pytest.raises(ChannelNotFound):
        freeze(fleet, "c0", "nowhere")
    with pytest.raises(LimitExceeded):
        freeze(fleet, *names, "one-more")


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_limits_how_many_freezes_cover_a_channel(engine: str, fleet: InProcessFleet) -> None:
    fleet.create("edge")
    for number in range(FREEZES_MAX):
        start = StartFreeze(freeze_id=f"f{number}", operator="user_1", reason="one of many")
        fleet.execute(start_freeze, start)

    with pytest.raises(LimitExceeded):
        freeze(fleet)


# ── what is reported ──────────────────────────────────────────────────────────────────────────────


@each_stop_of_all_hosts
def test_evaluates_the_gates_of_a_rollout_whose_hosts_all_have_orders(
    fleet: InProcessFleet, stop: str
) -> None:
    start, end, _ = STOPS[stop]
    gate = "hold" if stop == "a hold" else "freeze"
    ordered(fleet, "h1", "h2")

    start(fleet)
    fleet.dispatch()

    blocked = fleet.row(gates_key(ROLLOUT), RolloutGates).blocked
    assert [item.gate for item in blocked] == [gate]
    fleet.dispatch()
    fleet.dispatch(thorough=True)
    assert fleet.types().count("GateChanged") == 1, "it is reported once"
    end(fleet)
    fleet.dispatch()
    assert fleet.store.get(gates_key(ROLLOUT)) == (None,), "no gate is closed"
    assert fleet.types().count("GateChanged") == 2


@each_stop_of_all_hosts
def test_explains_that_a_stop_keeps_a_host_from_its_order(fleet: InProcessFleet, stop: str) -> None:
    start, end, _ = STOPS[stop]
    gate = "hold" if stop == "a hold" else "freeze"
    ordered(fleet, "h1", "h2")
    fleet.ack("h2")
    start(fleet)

    state = fleet.control_plane.fleet_reader.state([ROLLOUT], fleet.clock())
    host, switching, whole = (
        explain(state, ROLLOUT, "h1"),
        explain(state, ROLLOUT, "h2"),
        explain(state, ROLLOUT),
    )
    end(fleet)
    after = explain(fleet.control_plane.fleet_reader.state([ROLLOUT], fleet.clock()), ROLLOUT, "h1")

    assert host.answer.startswith(f"{gate}: ")
    assert switching.answer.startswith("the host had its order and is activating: ")
    assert whole.answer.startswith(f"{gate} holds 1 of 1 hosts: ")
    assert [(item.gate, item.hosts) for item in whole.verdicts if not item.passed] == [(gate, 1)]
    assert after.answer.startswith("the host had its order and is pending: ")


@pytest.mark.req("RO-12")
@each_stop
def test_an_order_of_a_stopped_channel_occupies_no_host_and_no_slot(
    fleet: InProcessFleet, stop: str
) -> None:
    """Another channel may need both. When the stop ends, the order is sent again."""
    fleet.bound("*", 1)
    ordered(fleet, "e1")
    begin, end, _ = STOPS[stop]
    begin(fleet)

    assert fleet.dispatch(thorough=True).cancelled == 1

    assert fleet.row(budget_key("few"), Budget).in_flight == 0
    assert fleet.dispatch(thorough=True).ordered == 0
    end(fleet)
    assert fleet.dispatch().ordered == 1
