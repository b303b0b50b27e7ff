"""Queues of subscriptions on every engine: racing leaders, digests, and rows that can be
rebuilt.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.in_process_fleet import FleetStores, InProcessFleet
from tidegate.control.leaders import Leader
from tidegate.control.notifications.notifier import Notifier
from tidegate.domain.channels.slices import HoldChannel, hold_channel
from tidegate.domain.composition import FOLDS
from tidegate.domain.notifications.facts import NoticeQueued
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
from tidegate.errors import LeaseLost
from tidegate.kernel.leases import Leases
from tidegate.kernel.replay import differences

SUBSCRIPTIONS = 20
CHANNELS = 4


def subscribe(fleet: InProcessFleet, name: str) -> None:
    command = CreateSubscription(
        name=name,
        operator="user_1",
        kind=TargetKind.WEBHOOK,
        events=("channel.held",),
        min_severity=Severity.INFO,
        scopes=("*",),
        address_id="a",
    )
    fleet.execute(create_subscription, command)


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

    assert Notifier(other.control_plane.control, current).round() is False
    with pytest.raises(LeaseLost):
        fleet.execute(queue_notices, QueueNotices(term=term, items=()))

    queued = [event for event in fleet.log() if event.type == NoticeQueued.__name__]
    assert len(queued) == SUBSCRIPTIONS * CHANNELS
    assert all(queue_of(fleet, name).waiting == CHANNELS for name in names)
    assert differences(fleet.store, FOLDS) == []


def test_a_digest_ends_the_maximum_of_notices_in_one_commit(fleet: InProcessFleet) -> None:
    subscribe(fleet, "ops")
    leader = leader_of(fleet)
    for number in range(ENDED_MAX + 1):
        fleet.create(f"c{number}")
        hold(fleet, f"c{number}")
    assert leader.lead()
    while Notifier(fleet.control_plane.control, leader).round():
        pass
    delivered = RecordDelivery(
        term=leader.token, name="ops", number=1, through=ENDED_MAX, is_delivered=True
    )

    fleet.execute(record_delivery, delivered)

    assert queue_of(fleet, "ops").waiting == 1
    fleet.execute(delete_subscription, DeleteSubscription(name="ops", operator="user_1"))
    assert fleet.store.range("notices", limit=1) == ()
