"""From a fact to a receiver: a host fails, and every subscriber is notified."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from tests.contract.webhook_receiver import verified
from tests.operations.notified_fleet import OPERATOR, NotifiedFleet, notify_fleet
from tests.operations.worker_loops import QUICK, until
from tidegate import main
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.control.worker import Worker
from tidegate.domain.notifications.states import TargetKind
from tidegate.public_addresses import DestinationRefused


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[NotifiedFleet]:
    with notify_fleet(tmp_path / "data") as notified:
        yield notified


@pytest.mark.req("NT-2", engines=None, reason="the store is not part of a message")
def test_a_halted_rollout_reaches_a_webhook_that_verifies_it(notified: NotifiedFleet) -> None:
    secret = notified.subscribe(events=("rollout.halted",)).secret
    notified.fleet.sail()
    notified.fleet.fail("web-01")

    notified.run_round()

    ((_, headers, body),) = notified.receiver.requests
    assert verified(secret, headers, body, notified.clock()) == json.loads(body)
    event = json.loads(body)
    log_id = notified.installation.log_id
    position = event["data"]["position"]
    assert event["specversion"] == "1.0"
    assert event["type"] == "dev.tidegate.rollout.halted.v1"
    assert event["id"] == headers["webhook-id"] == f"{log_id}.{position}.ops"
    assert headers["content-type"] == "application/cloudevents+json"
    said = event["data"]
    assert said["title"] == "✘ web-stable: web.1 stopped in wave 1 of 2"
    assert said["sentences"] == ["web-01 failed its probe http."]
    assert said["cause"]["host"] == "web-01"
    assert said["severity"] == "critical"
    assert said["wave"] == {"number": 1, "name": "canary", "of": 2}
    assert said["verbs"] == ["tidegate rollout explain web-stable@web.1"]
    assert notified.differences() == []


def test_a_changed_body_or_another_secret_does_not_verify(notified: NotifiedFleet) -> None:
    secret = notified.subscribe().secret
    notified.subscribe("other")
    notified.fleet.sail()
    notified.fleet.fail("web-01")

    notified.run_round()

    by_path = {path: (headers, body) for path, headers, body in notified.receiver.requests}
    headers, body = by_path["/ops"]
    now = notified.clock()
    with pytest.raises(WebhookVerificationError):
        verified(secret, headers, body + b" ", now)
    with pytest.raises(WebhookVerificationError):
        verified(secret, *by_path["/other"], now)


@pytest.mark.req("NT-2", engines=None, reason="the store is not part of a message")
def test_a_secret_rotates_without_a_gap(notified: NotifiedFleet) -> None:
    """For a day both secrets verify; then only the new one."""
    old = notified.subscribe(events=("rollout.halted",)).secret
    changed = notified.installation.subscriptions.edit(OPERATOR, "ops", rotate_secret=True)
    notified.fleet.sail()
    notified.fleet.fail("web-01")

    notified.run_round()

    ((_, headers, body),) = notified.receiver.requests
    for secret in (old, changed.secret):
        assert verified(secret, headers, body, notified.clock())
    notified.clock.advance(timedelta(hours=24))
    notified.installation.subscriptions.test(OPERATOR, "ops")
    _, headers, body = notified.receiver.requests[-1]
    assert verified(changed.secret, headers, body, notified.clock())
    with pytest.raises(WebhookVerificationError):
        verified(old, headers, body, notified.clock())


def test_no_fact_and_no_row_contains_the_address_of_a_subscription(notified: NotifiedFleet) -> None:
    secret = notified.subscribe().secret
    store = notified.installation.store
    kept = b"".join(event.body for event in store.feed(after=0, limit=10_000).events)
    for name in store.schema.collections:
        kept += b"".join(record.data for record in store.range(name, limit=1_000))

    assert notified.receiver.place.encode() not in kept
    assert secret.encode() not in kept
    assert secret.removeprefix("whsec_").encode() not in kept


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """The log of a server: what it wrote to stderr so far."""
    loggers = [logging.getLogger(name) for name in (None, "httpx2", "httpcore2")]
    handlers, levels = loggers[0].handlers[:], [logger.level for logger in loggers]
    main.log_to_stderr()
    yield lambda: capsys.readouterr().err
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_the_log_of_the_server_does_not_contain_the_address_of_a_subscription(
    notified: NotifiedFleet, logged: Callable[[], str]
) -> None:
    """The URL of a chat's webhook is its only secret."""
    notified.subscribe("team", TargetKind.SLACK)
    notified.installation.subscriptions.test(OPERATOR, "team")

    logging.getLogger("tidegate.worker").info("sent")

    assert len(notified.receiver.requests) == 1
    found = logged()
    assert "sent" in found
    assert notified.url("team") not in found


def test_a_private_address_is_refused_unless_the_settings_allow_it(
    notified: NotifiedFleet,
) -> None:
    with pytest.raises(DestinationRefused):
        notified.subscribe(target=NewTarget(url="http://127.0.0.1:1/x"))


def test_another_process_takes_over_and_sends_nothing_twice(notified: NotifiedFleet) -> None:
    notified.subscribe(events=("rollout.halted",))
    notified.fleet.sail()
    notified.fleet.fail("web-01")
    with patch.object(notified.notifier, "_store_position"):  # it dies before it could
        notified.run_round()

    second = NotifiedFleet(notified.fleet, notified.receiver)
    assert not second.leader.lead()
    notified.clock.advance(timedelta(minutes=1))
    second.run_round()

    assert notified.events() == ["rollout.halted"]
    second.sender.close()


def test_the_worker_sends_notifications(notified: NotifiedFleet) -> None:
    notified.subscribe(events=("rollout.halted",))
    notified.fleet.sail()
    with Worker(notified.installation, pace=QUICK):
        notified.fleet.fail("web-01")
        until(lambda: notified.events() == ["rollout.halted"])
