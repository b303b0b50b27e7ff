"""The queue of a subscription, with a receiver that is down, refuses, is gone, or comes back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.contract.webhook_receiver import Answer, reply, serve_webhooks
from tests.operations.notified_fleet import OPERATOR, NotifiedFleet, notify_fleet
from tests.operations.worker_loops import until
from tests.servers.process import free_port
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.domain.notifications.refusals import NothingWaits, SubscriptionNotFound
from tidegate.domain.notifications.rows import NoticeQueue
from tidegate.errors import LeaseLost

REAL: dict[str, Any] = {"engines": None, "reason": "engines are compared by the contract"}


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[NotifiedFleet]:
    with notify_fleet(tmp_path / "data") as notified:
        yield notified


def always(status: int) -> Answer:
    return lambda handler: reply(handler, status)


def holds(notified: NotifiedFleet, count: int) -> list[str]:
    """Create a channel, hold and release it this many times in total, and return the events."""
    notified.fleet.create()
    return more_holds(notified, count)


def more_holds(notified: NotifiedFleet, count: int) -> list[str]:
    """Do the same as ``holds`` on a channel that exists."""
    path = "/v1/channels/web-stable/{}"
    told = []
    for number in range(count):
        verb = "hold" if number % 2 == 0 else "unhold"
        done = notified.fleet.operator.post(path.format(verb), json={"reason": f"no {number}"})
        assert done.status_code == 200, done.text
        told.append("channel.held" if verb == "hold" else "channel.released")
    return told


def queue(notified: NotifiedFleet, name: str = "ops") -> NoticeQueue:
    return notified.installation.subscriptions.queue(name)


@pytest.mark.req("NT-1", **REAL)
def test_a_receiver_that_was_down_for_an_hour_gets_everything_in_order(
    notified: NotifiedFleet,
) -> None:
    """Wrong version: an intent of the outbox dies after twelve attempts, and newer ones supersede
    older ones.
    """
    notified.subscribe()
    notified.receiver.answer = always(503)
    told = holds(notified, 30)
    back_at = notified.clock() + timedelta(hours=1)
    notified.run_until(lambda: notified.clock() >= back_at)
    assert queue(notified).failures > 12
    assert queue(notified).waiting == 30
    tried = len(notified.receiver.requests)
    notified.receiver.answer = always(204)

    notified.run_until(lambda: queue(notified).waiting == 0, hours=1)

    arrived = notified.receiver.requests[tried:]
    assert notified.events()[tried:] == told
    reasons = [item["reason"] for item in notified.received()[tried:]]
    assert reasons == [f"no {number}" for number in range(30)]
    first = {headers["webhook-id"] for _, headers, _ in notified.receiver.requests[:tried]}
    assert first == {arrived[0][1]["webhook-id"]}  # the same at every attempt
    assert notified.differences() == []


@pytest.mark.req("NT-1", **REAL)
def test_events_during_an_outage_arrive_later_in_order(tmp_path: Path) -> None:
    """The receiver's process is gone for an hour, and events keep happening meanwhile."""
    port = free_port()
    place = f"127.0.0.1:{port}"
    with notify_fleet(tmp_path / "data", more_allowed=(place,)) as notified:
        notified.subscribe(target=NewTarget(url=f"http://{place}/ops"))
        told = holds(notified, 10)
        half_way = notified.clock() + timedelta(minutes=30)
        notified.run_until(lambda: notified.clock() >= half_way)
        told += more_holds(notified, 10)
        notified.run_until(lambda: notified.clock() >= half_way + timedelta(minutes=30))
        assert queue(notified).last_error == "no answer: ConnectError"
        assert queue(notified).waiting == 20

        with serve_webhooks(port) as notified.receiver:
            notified.run_until(lambda: queue(notified).waiting == 0, hours=1)

        assert notified.events() == told
        positions = [item["position"] for item in notified.received()]
        assert positions == sorted(set(positions))
        assert notified.differences() == []


@pytest.mark.req("NT-1", **REAL)
def test_a_message_sent_and_not_recorded_is_sent_again_under_its_id(
    notified: NotifiedFleet,
) -> None:
    """While the receiver answers, another process takes over: the first one must not record
    anything.
    """
    notified.subscribe()
    told = holds(notified, 2)
    second = NotifiedFleet(notified.fleet, notified.receiver)
    taken_over: list[bool] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not taken_over:
            notified.clock.advance(timedelta(minutes=1))
            taken_over.append(second.leader.lead())
        reply(handler, 204)

    notified.receiver.answer = answer
    with pytest.raises(LeaseLost):
        notified.run_round()
    assert taken_over == [True]
    assert queue(notified).waiting == 2

    second.run_round()

    ids = [headers["webhook-id"] for _, headers, _ in notified.receiver.requests]
    assert ids == [ids[0], ids[0], ids[2]]
    assert notified.events()[1:] == told
    assert queue(notified).delivered == 2
    assert notified.differences() == []
    second.sender.close()


def test_waits_are_a_second_and_five_minutes_at_most(notified: NotifiedFleet) -> None:
    notified.subscribe()
    notified.receiver.answer = always(500)
    holds(notified, 1)
    waits = []
    for _ in range(12):
        notified.run_round()
        next_at = queue(notified).next_attempt_at
        assert next_at is not None
        waits.append((next_at - notified.clock()).total_seconds())
        notified.clock.advance(next_at - notified.clock())

    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_after_72_hours_a_message_is_dead_and_the_next_one_is_sent(
    notified: NotifiedFleet,
) -> None:
    notified.subscribe()
    notified.subscribe("others", events=("notify.dead",))
    notified.receiver.answer = lambda handler: reply(
        handler, 503 if handler.path == "/ops" else 204
    )
    holds(notified, 1)

    notified.run_until(lambda: queue(notified).dead)

    (letter,) = queue(notified).dead_letters
    assert letter.event == "channel.held"
    assert letter.reason.startswith("tried for 72 hours")
    notified.run_round()
    (told,) = notified.received("others")
    assert told["title"] == "✘ 1 message to ops given up"
    assert told["verbs"] == ["tidegate notify show ops"]
    assert queue(notified).waiting == 0  # and nothing about its own failure


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_message_that_is_refused_three_times_is_skipped(
    notified: NotifiedFleet, status: int
) -> None:
    notified.subscribe()
    refused: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        id = handler.headers["webhook-id"]
        if not refused or id == refused[0]:
            refused.append(id)
            reply(handler, status)
        else:
            reply(handler, 204)

    notified.receiver.answer = answer
    holds(notified, 2)

    notified.run_until(lambda: queue(notified).waiting == 0, hours=1)

    assert len(refused) == 3
    assert notified.events()[3:] == ["channel.released"]
    assert queue(notified).dead == 1
    assert queue(notified).delivered == 1


def test_a_receiver_that_is_gone_disables_its_subscription_and_the_others_are_notified(
    notified: NotifiedFleet,
) -> None:
    notified.subscribe()
    notified.subscribe("others", events=("target.disabled",))
    notified.receiver.answer = lambda handler: reply(
        handler, 410 if handler.path == "/ops" else 204
    )
    holds(notified, 1)

    notified.run_round()
    notified.run_round()

    found, waiting = notified.installation.subscriptions.get(OPERATOR, "ops")
    assert found.row.disabled_at == notified.clock()
    assert waiting.waiting == 1
    assert notified.events("others") == ["target.disabled"]
    tried = len(notified.receiver.requests)
    notified.clock.advance(timedelta(hours=1))
    notified.run_round()
    assert len(notified.receiver.requests) == tried
    notified.receiver.answer = always(204)
    notified.installation.subscriptions.edit(
        OPERATOR, "ops", target=NewTarget(url=notified.url("ops"))
    )
    notified.run_round()
    assert queue(notified).waiting == 0
    assert notified.differences() == []


def test_an_operator_skips_the_first_message(notified: NotifiedFleet) -> None:
    notified.subscribe()
    with pytest.raises(NothingWaits):
        notified.installation.subscriptions.skip(OPERATOR, "ops", "x")
    notified.receiver.answer = always(500)
    holds(notified, 2)
    notified.run_round()
    notified.installation.subscriptions.skip(OPERATOR, "ops", "it chokes on it")
    notified.receiver.answer = always(204)

    notified.run_round()

    assert notified.events()[-1] == "channel.released"
    assert queue(notified).dead_letters[0].reason == "it chokes on it"


@pytest.mark.req("NT-1", **REAL)
def test_a_replay_sends_again_the_events_after_a_position(notified: NotifiedFleet) -> None:
    """With the same ids, so that a receiver drops repeats; also from before it subscribed."""
    told = holds(notified, 3)
    notified.subscribe()
    notified.run_round()
    assert notified.received() == []

    notified.installation.subscriptions.replay(OPERATOR, "ops", 0)
    notified.run_round()

    mine = [item for item in notified.received() if item["event"].startswith("channel.")]
    assert [item["event"] for item in mine] == told
    assert all(item["replayed"] for item in mine)
    assert queue(notified).replay_after is None
    before = [headers["webhook-id"] for _, headers, _ in notified.receiver.requests]
    of_mine = [id for id, item in zip(before, notified.received(), strict=True) if item in mine]
    for first in range(3):  # only events after the position, not the one at it
        sent = len(notified.receiver.requests)
        notified.installation.subscriptions.replay(OPERATOR, "ops", mine[first]["position"])
        notified.run_round()
        again = [headers["webhook-id"] for _, headers, _ in notified.receiver.requests[sent:]]
        assert again == of_mine[first + 1 :]
    assert notified.differences() == []


def test_a_deleted_subscription_leaves_no_message_and_no_address(
    notified: NotifiedFleet,
) -> None:
    notified.subscribe()
    notified.receiver.answer = always(500)
    holds(notified, 70)
    notified.run_round()

    notified.installation.subscriptions.delete(OPERATOR, "ops")

    store = notified.installation.store
    for name in ("subscriptions", "notice_queues", "notices", "subscription_addresses"):
        assert store.range(name, limit=10) == (), name
    with pytest.raises(SubscriptionNotFound):
        notified.installation.subscriptions.get(OPERATOR, "ops")
    assert notified.differences() == []


def test_a_slow_receiver_delays_no_other(notified: NotifiedFleet) -> None:
    """The threads of the sender: one target hangs, and the other still gets its message."""
    notified.subscribe("slow")
    notified.subscribe("quick")
    release = Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/slow":
            release.wait(5)
        reply(handler, 204)

    notified.receiver.answer = answer
    holds(notified, 1)
    assert notified.leader.lead()
    notified.notifier.round()
    notified.sender.round()
    until(lambda: queue(notified, "quick").delivered == 1)
    assert queue(notified, "slow").delivered == 0
    release.set()
    until(lambda: queue(notified, "slow").delivered == 1)
