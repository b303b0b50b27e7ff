"""Queues of subscriptions on every engine: racing leaders, digests, and rows that can be
rebuilt.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.in_process_fleet import SOAK, FleetStores, InProcessFleet
from tidegate.control.leaders import Leader
from tidegate.control.notifications.notifier import Notifier
from tidegate.domain.channels.facts import ChannelEdge, WaveSpec
from tidegate.domain.channels.slices import HoldChannel, hold_channel
from tidegate.domain.composition import FOLDS
from tidegate.domain.notifications.facts import NoticeQueued
from tidegate.domain.notifications.notices import Notice
from tidegate.domain.notifications.rows import NoticeQueue, queue_key
from tidegate.domain.notifications.slices import (
    ENDED_MAX,
    LEADER,
    CreateSubscription,
    DeleteSubscription,
    QueueNotices,
    RecordDelivery,
    create_subscription,
    delete_subscription,
    queue_notices,
    record_delivery,
)
from tidegate.domain.notifications.states import Severity, TargetKind
from tidegate.domain.rollouts.wave_slices import ContinueRollout, continue_rollout
from tidegate.errors import LeaseLost
from tidegate.kernel.leases import Leases
from tidegate.kernel.replay import differences

SUBSCRIPTIONS = 20
CHANNELS = 4


def make_notifier(fleet: InProcessFleet, leader: Leader) -> Notifier:
    return Notifier(fleet.control_plane.control, leader, fleet.control_plane.fleet_reader)


def subscribe(fleet: InProcessFleet, name: str, event: str = "channel.held") -> None:
    command = CreateSubscription(
        name=name,
        operator="user_1",
        kind=TargetKind.WEBHOOK,
        events=(event,),
        min_severity=Severity.INFO,
        scopes=("*",),
        address_id="a",
    )
    fleet.execute(create_subscription, command)


def play_notifier(fleet: InProcessFleet, notifier: Notifier, *, seconds: float = 0) -> list[Notice]:
    """Let time pass and the notifier read the log; return what it queued. It keeps its lease."""
    before = fleet.head
    ends = fleet.clock() + timedelta(seconds=seconds)
    while True:
        while notifier.round():
            pass
        if fleet.clock() >= ends:
            break
        fleet.wait(min(10.0, (ends - fleet.clock()).total_seconds()))
    vocabulary = fleet.control_plane.control.folds.vocabulary
    queued = [event for event in fleet.log(before) if event.type == NoticeQueued.__name__]
    facts = [vocabulary.value(event) for event in queued]
    return [fact.notice for fact in facts if isinstance(fact, NoticeQueued)]


def leader_of(fleet: InProcessFleet) -> Leader:
    return Leader(
        Leases(fleet.store),
        LEADER,
        fleet.clock,
        monotonic=lambda: fleet.clock().timestamp(),
    )


def hold(fleet: InProcessFleet, channel: str) -> None:
    fleet.execute(hold_channel, HoldChannel(channel=channel, operator="user_1", reason="x"))


def queue_of(fleet: InProcessFleet, name: str) -> NoticeQueue:
    return fleet.row(queue_key(name), NoticeQueue)


@pytest.mark.req("NT-1")
def test_one_of_two_notifiers_queues_and_a_late_one_changes_nothing(
    fleet_stores: FleetStores,
) -> None:
    """The late one still believes that it leads. Each of its commits checks the lease."""
    fleet, other = (InProcessFleet(fleet_stores.open()) for _ in range(2))
    names = [f"s{number:02}" for number in range(SUBSCRIPTIONS)]
    for name in names:
        subscribe(fleet, name)
    for number in range(CHANNELS):
        fleet.create(f"c{number}")
        hold(fleet, f"c{number}")
    late, current = leader_of(fleet), leader_of(other)
    assert late.lead()
    term = late.token
    other.clock.now = fleet.clock() + timedelta(minutes=1)

    assert make_notifier(other, current).round() is False
    with pytest.raises(LeaseLost):
        fleet.execute(queue_notices, QueueNotices(term=term, items=()))

    queued = [event for event in fleet.log() if event.type == NoticeQueued.__name__]
    assert len(queued) == SUBSCRIPTIONS * CHANNELS
    assert all(queue_of(fleet, name).waiting == CHANNELS for name in names)
    assert differences(fleet.store, FOLDS) == []


def test_a_wave_that_waits_for_a_person_is_reported_after_a_minute(fleet: InProcessFleet) -> None:
    """Wrong version: the gate of the waves was never reported, because most waves go by
    themselves."""
    subscribe(fleet, "ops", "rollout.waiting")
    manual = [
        WaveSpec(name=name, count=1, soak_seconds=SOAK, manual=True) for name in ("rest", "last")
    ]
    fleet.create("prod", WaveSpec(name="canary", count=1, soak_seconds=SOAK), *manual)
    fleet.enroll("p1", "p2", "p3", channel="prod")
    fleet.offer("web.1")
    rollout = fleet.promote("prod", "web.1")
    notifier = make_notifier(fleet, leader_of(fleet))

    def waits(wave: str, *, seconds: float) -> list[str]:
        fleet.dispatch()
        return [notice.reason for notice in play_notifier(fleet, notifier, seconds=seconds)]

    assert waits("canary", seconds=2 * 3_600) == []
    fleet.reach(rollout, "p1")
    assert waits("rest", seconds=1) == []
    assert waits("rest", seconds=30) == []
    (said,) = waits("rest", seconds=45)
    assert said == "wave rest waits for an operator to continue it"
    assert waits("rest", seconds=3_600) == []
    command = ContinueRollout(rollout_id=rollout, operator="user_1")
    fleet.execute(continue_rollout, command)
    fleet.dispatch()
    fleet.reach(rollout, "p2")
    assert waits("last", seconds=1) == []
    (said,) = waits("last", seconds=75)
    assert said == "wave last waits for an operator to continue it"


def test_an_edge_that_no_time_opens_is_reported_after_a_minute(fleet: InProcessFleet) -> None:
    subscribe(fleet, "ops", "rollout.waiting")
    fleet.create("dev")
    fleet.create("prod", edges=(ChannelEdge("dev"),))
    fleet.enroll("d1", channel="dev")
    fleet.enroll("p1", channel="prod")
    fleet.offer("web.1")
    dev, prod = fleet.promote("dev", "web.1"), fleet.promote("prod", "web.1")
    notifier = make_notifier(fleet, leader_of(fleet))
    fleet.dispatch()
    play_notifier(fleet, notifier)
    assert play_notifier(fleet, notifier, seconds=600) == []  # it is rolling out on dev

    fleet.fail(dev, "d1")
    fleet.revert(dev, "d1")
    fleet.dispatch()

    assert play_notifier(fleet, notifier, seconds=15) == []
    (notice,) = play_notifier(fleet, notifier, seconds=75)
    assert (notice.rollout_id, notice.gate) == (prod, "channel-edges")
    assert "stopped on dev" in notice.reason


def test_a_digest_ends_the_maximum_of_notices_in_one_commit(fleet: InProcessFleet) -> None:
    subscribe(fleet, "ops")
    leader = leader_of(fleet)
    for number in range(ENDED_MAX + 1):
        fleet.create(f"c{number}")
        hold(fleet, f"c{number}")
    assert leader.lead()
    while make_notifier(fleet, leader).round():
        pass
    delivered = RecordDelivery(
        term=leader.token, name="ops", number=1, through=ENDED_MAX, is_delivered=True
    )

    fleet.execute(record_delivery, delivered)

    assert queue_of(fleet, "ops").waiting == 1
    fleet.execute(delete_subscription, DeleteSubscription(name="ops", operator="user_1"))
    assert fleet.store.range("notices", limit=1) == ()
