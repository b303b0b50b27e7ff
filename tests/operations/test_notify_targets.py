"""Chat, alerts, annotations and mail: real receivers get the format of their kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.contract.webhook_receiver import reply
from tests.operations.notified_fleet import OPERATOR, NotifiedFleet, notify_fleet
from tests.operations.test_notice_queues import always, holds, more_holds, queue
from tests.servers.process import free_port
from tidegate.control.notifications.addresses import TargetAddress
from tidegate.control.notifications.targets import Targets
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.domain.notifications.refusals import InvalidSubscription
from tidegate.domain.notifications.states import TargetKind

REAL: dict[str, Any] = {"engines": None, "reason": "the store is not part of a message"}


class Inbox:
    """The messages that a mail server accepted, and how it answers."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.answer = "250 OK"
        self.unknown = ""  # a recipient that it refuses

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address == self.unknown:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=default))
        return self.answer


@contextmanager
def serve_mail() -> Iterator[tuple[Inbox, int]]:
    inbox, port = Inbox(), free_port()
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield inbox, port
    finally:
        controller.stop()


@pytest.fixture
def mailed(tmp_path: Path) -> Iterator[tuple[NotifiedFleet, Inbox]]:
    with (
        serve_mail() as (inbox, port),
        notify_fleet(
            tmp_path / "data",
            smtp_host="127.0.0.1",
            smtp_port=port,
            smtp_tls="none",
            smtp_from="tidegate@example.com",
        ) as notified,
    ):
        to = NewTarget(to=("ops@example.com", "ann@example.com"))
        notified.subscribe("mails", TargetKind.MAIL, target=to)
        yield notified, inbox


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[NotifiedFleet]:
    with notify_fleet(tmp_path / "data") as notified:
        yield notified


@pytest.mark.req("NT-2", **REAL)
def test_mail_arrives_at_a_real_server_and_is_one_thread_per_rollout(
    mailed: tuple[NotifiedFleet, Inbox],
) -> None:
    notified, inbox = mailed
    notified.fleet.sail()
    notified.fleet.fail("web-01")

    notified.run_round()

    halted = next(mail for mail in inbox.mails if "stopped in wave" in mail["Subject"])
    assert halted["Subject"] == "[tidegate] ✘ web-stable: web.1 stopped in wave 1 of 2"
    assert halted["To"] == "ops@example.com, ann@example.com"
    assert halted["From"] == "tidegate@example.com"
    assert halted["Auto-Submitted"] == "auto-generated"
    assert "web-01 failed its probe http." in str(halted.get_payload())
    rollout = [mail for mail in inbox.mails if mail["X-Tidegate-Event"].startswith("rollout.")]
    assert len(rollout) > 1
    assert len({mail["In-Reply-To"] for mail in rollout}) == 1
    assert len({mail["Message-ID"] for mail in rollout}) == len(rollout)


def test_more_than_twenty_waiting_mails_become_one(mailed: tuple[NotifiedFleet, Inbox]) -> None:
    notified, inbox = mailed
    inbox.answer = "451 try again"
    holds(notified, 37)
    notified.run_round()
    assert queue(notified, "mails").waiting == 37
    inbox.answer = "250 OK"

    notified.run_until(lambda: queue(notified, "mails").waiting == 0, hours=1)

    (digest,) = inbox.mails
    assert digest["Subject"] == "[tidegate] 37 events while this receiver was unreachable"
    lines = str(digest.get_payload()).splitlines()
    assert sum("web-stable: " in line for line in lines) == 20
    assert any("And 17 more." in line for line in lines)
    assert queue(notified, "mails").delivered == 37
    assert notified.differences() == []


def test_a_permanently_refused_mail_is_skipped(mailed: tuple[NotifiedFleet, Inbox]) -> None:
    notified, inbox = mailed
    inbox.answer = "554 no such thing here"
    holds(notified, 1)

    notified.run_until(lambda: queue(notified, "mails").waiting == 0, hours=1)

    assert queue(notified, "mails").dead == 1


def test_a_mail_that_one_recipient_cannot_get_is_delivered_with_a_warning(
    mailed: tuple[NotifiedFleet, Inbox],
) -> None:
    notified, inbox = mailed
    inbox.unknown = "ann@example.com"
    holds(notified, 1)

    notified.run_round()

    shown = notified.fleet.manager.get("/v1/subscriptions/mails").json()
    assert (len(inbox.mails), shown["delivered"], shown["failures"]) == (1, 1, 0)
    assert shown["last_error"] == "the mail server refused 1 of 2 recipients: 550"
    inbox.unknown = ""
    more_holds(notified, 2)
    notified.run_round()
    assert notified.fleet.manager.get("/v1/subscriptions/mails").json()["last_error"] == ""
    assert notified.differences() == []


def test_chat_gets_a_digest_and_a_webhook_gets_each(notified: NotifiedFleet) -> None:
    notified.subscribe("chat", TargetKind.SLACK)
    notified.subscribe("hook")
    notified.receiver.answer = always(503)
    holds(notified, 25)
    notified.run_round()
    notified.receiver.requests.clear()
    notified.receiver.answer = always(200)

    notified.run_until(
        lambda: queue(notified, "chat").waiting + queue(notified, "hook").waiting == 0, hours=1
    )

    paths = [path for path, _, _ in notified.receiver.requests]
    assert paths.count("/chat") == 1
    assert paths.count("/hook") == 25


@pytest.mark.parametrize("kind", [TargetKind.SLACK, TargetKind.TEAMS])
def test_chat_gets_json_without_a_signature(notified: NotifiedFleet, kind: TargetKind) -> None:
    notified.subscribe("chat", kind)
    holds(notified, 1)

    notified.run_round()

    ((path, headers, body),) = notified.receiver.requests
    assert path == "/chat"
    assert headers["content-type"] == "application/json"
    assert "webhook-signature" not in headers
    assert "web-stable: held" in json.dumps(json.loads(body), ensure_ascii=False).replace("\\", "")


def test_pagerduty_gets_critical_events_and_their_end_under_one_key(
    notified: NotifiedFleet,
) -> None:
    target = NewTarget(url=notified.url("pd"), secret="R0UT1NG")
    notified.subscribe("pd", TargetKind.PAGERDUTY, target=target)
    notified.receiver.answer = lambda handler: reply(handler, 202)
    notified.fleet.sail()
    notified.fleet.fail("web-01")
    notified.run_round()
    path = "/v1/rollouts/web-stable@web.1/abort"
    done = notified.fleet.operator.post(path, json={"reason": "no"})
    assert done.status_code == 200, done.text
    notified.run_round()

    sent = [json.loads(body) for _, _, body in notified.receiver.requests]
    assert sent[-1]["event_action"] == "resolve"
    triggers = [item for item in sent if item["event_action"] == "trigger"]
    assert triggers
    assert {item["dedup_key"] for item in triggers} == {sent[-1]["dedup_key"]}
    assert {item["routing_key"] for item in sent} == {"R0UT1NG"}


def test_grafana_gets_an_annotation_with_a_token(notified: NotifiedFleet) -> None:
    target = NewTarget(url=notified.url("grafana"), secret="glsa_x")
    notified.subscribe("grafana", TargetKind.GRAFANA, target=target)
    holds(notified, 1)

    notified.run_round()

    ((path, headers, body),) = notified.receiver.requests
    assert path == "/grafana/api/annotations"
    assert headers["authorization"] == "Bearer glsa_x"
    assert json.loads(body)["tags"] == ["tidegate", "web-stable", "channel.held"]


def test_a_target_that_cannot_work_is_refused_with_its_requirements(
    notified: NotifiedFleet,
) -> None:
    with pytest.raises(InvalidSubscription, match="smtp_host"):
        notified.subscribe("m", TargetKind.MAIL, target=NewTarget(to=("a@example.com",)))
    with pytest.raises(InvalidSubscription, match="integration key"):
        notified.subscribe("p", TargetKind.PAGERDUTY)
    with pytest.raises(InvalidSubscription, match="no mail addresses"):
        notified.subscribe("s", TargetKind.SLACK, target=NewTarget(to=("a@example.com",)))


def test_a_secret_that_no_header_can_carry_is_refused(notified: NotifiedFleet) -> None:
    target = NewTarget(url=notified.url("grafana"), secret="glü")
    with pytest.raises(InvalidSubscription, match="printable ASCII"):
        notified.subscribe("grafana", TargetKind.GRAFANA, target=target)


def test_a_secret_is_not_sent_to_another_address(notified: NotifiedFleet) -> None:
    target = NewTarget(url=notified.url("grafana"), secret="glsa_x")
    notified.subscribe("grafana", TargetKind.GRAFANA, target=target)
    edit = notified.installation.subscriptions.edit

    with pytest.raises(InvalidSubscription, match="needs the secret of grafana again"):
        edit(OPERATOR, "grafana", target=NewTarget(url=notified.url("elsewhere")))
    edit(OPERATOR, "grafana", target=NewTarget(url=notified.url("elsewhere"), secret="glsa_y"))


def test_a_message_that_cannot_be_built_stops_no_other(
    mailed: tuple[NotifiedFleet, Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    notified, inbox = mailed
    usual = Targets.send

    def send(self: Targets, kind: TargetKind, address: TargetAddress, message: Any) -> Any:
        if address.to == ("odd@example.com",):
            raise TypeError("no such header")
        return usual(self, kind, address, message)

    monkeypatch.setattr(Targets, "send", send)
    for name in ("odd", "usual"):
        target = NewTarget(to=(f"{name}@example.com",))
        notified.subscribe(name, TargetKind.MAIL, target=target)
    holds(notified, 1)

    notified.run_round()

    assert "usual@example.com" in [mail["To"] for mail in inbox.mails]
    assert queue(notified, "odd").waiting == 1, "it is tried again, and then given up"


def test_a_malformed_mail_address_is_refused(mailed: tuple[NotifiedFleet, Inbox]) -> None:
    notified, _ = mailed
    for recipient in ("ops", "a@b\r\nBcc: c@d", "<a@b>", ""):
        with pytest.raises(InvalidSubscription):
            notified.subscribe("m", TargetKind.MAIL, target=NewTarget(to=(recipient,)))


def test_a_test_message_is_marked_as_one(mailed: tuple[NotifiedFleet, Inbox]) -> None:
    notified, inbox = mailed

    answer = notified.installation.subscriptions.test(OPERATOR, "mails")

    assert answer.is_delivered
    assert inbox.mails[0]["Subject"] == "[tidegate] ✔ This is a test"
