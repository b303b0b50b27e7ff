"""Subscriptions over HTTP: form, secrets that are shown once, versions, permissions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.accounts import signed_in
from tests.api.served_fleet import CHANNEL
from tests.operations.notified_fleet import NotifiedFleet, notify_fleet
from tests.operations.test_notice_queues import always, holds, more_holds
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role

ADMIN = Caller(principal=Principal("user_admin", "session", (Grant(Role.VIEWER),)))
PASSWORD = "correct horse battery"


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[NotifiedFleet]:
    with notify_fleet(tmp_path / "data") as notified:
        yield notified


def created(notified: NotifiedFleet, name: str = "ops", **members: Any) -> httpx2.Response:
    body = {"name": name, "kind": "webhook", "url": notified.url(name), **members}
    return notified.fleet.operator.post("/v1/subscriptions", json=body)


def test_shows_a_webhooks_secret_once_and_its_address_never(
    notified: NotifiedFleet,
) -> None:
    answer = created(notified)

    assert answer.status_code == 201, answer.text
    assert answer.json()["secret"].startswith("whsec_")
    shown = notified.fleet.operator.get("/v1/subscriptions/ops")
    assert shown.json()["secret"] is None
    assert notified.receiver.place not in answer.text + shown.text
    assert shown.headers["etag"].startswith(f'"{shown.json()["version"]}-')
    assert shown.json()["scopes"] == ["*"]


def test_a_repeat_with_the_same_key_gives_the_same_secret(notified: NotifiedFleet) -> None:
    body = {"name": "ops", "kind": "webhook", "url": notified.url("ops")}
    headers = {"idempotency-key": "k1"}
    post = notified.fleet.operator.post
    first = post("/v1/subscriptions", json=body, headers=headers)
    again = post("/v1/subscriptions", json=body, headers=headers)
    other = post(
        "/v1/subscriptions", json={**body, "url": notified.url("elsewhere")}, headers=headers
    )

    assert first.json()["secret"] == again.json()["secret"]
    assert other.json()["code"] == "idempotency_mismatch"


def test_a_repeated_rotation_under_its_key_gives_the_same_secret(notified: NotifiedFleet) -> None:
    created(notified)
    headers = {"idempotency-key": "k2"}
    patch = notified.fleet.operator.patch
    first = patch("/v1/subscriptions/ops", json={"rotate_secret": True}, headers=headers)
    notified.fleet.wait(5)
    again = patch("/v1/subscriptions/ops", json={"rotate_secret": True}, headers=headers)
    other = patch("/v1/subscriptions/ops", json={"min_severity": "info"}, headers=headers)

    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.json()["secret"] == again.json()["secret"]
    assert other.json()["code"] == "idempotency_mismatch"


def test_a_new_url_in_the_overlap_of_a_rotation_keeps_the_previous_secret(
    notified: NotifiedFleet,
) -> None:
    before = created(notified).json()["secret"]
    patch = notified.fleet.operator.patch
    patch("/v1/subscriptions/ops", json={"rotate_secret": True})
    moved = patch("/v1/subscriptions/ops", json={"url": notified.url("elsewhere")})

    installation = notified.fleet.installation
    (row,) = [item.row for item in installation.subscriptions.list_readable(ADMIN)]
    address = installation.addresses.open(row.address_id)
    assert moved.status_code == 200, moved.text
    assert address.previous_secret == before
    assert address.secret != before


def test_two_edits_at_once_leave_an_address_that_can_be_opened(notified: NotifiedFleet) -> None:
    created(notified)
    patch = notified.fleet.operator.patch
    bodies = [{"rotate_secret": True}, {"min_severity": "warning"}] * 4

    with ThreadPoolExecutor(len(bodies)) as pool:
        done = list(pool.map(lambda body: patch("/v1/subscriptions/ops", json=body), bodies))

    installation = notified.fleet.installation
    (row,) = [item.row for item in installation.subscriptions.list_readable(ADMIN)]
    assert {answer.status_code for answer in done} <= {200, 409}
    assert installation.addresses.open(row.address_id).secret


def test_an_edit_changes_only_what_it_names_at_the_version_that_was_read(
    notified: NotifiedFleet,
) -> None:
    version = created(notified, events=["rollout.halted"]).json()["version"]
    path = "/v1/subscriptions/ops"
    patch = notified.fleet.operator.patch

    changed = patch(path, json={"min_severity": "critical"}, headers={"if-match": f'"{version}"'})
    stale = patch(path, json={"min_severity": "info"}, headers={"if-match": f'"{version}"'})
    rotated = patch(path, json={"rotate_secret": True})

    assert changed.json()["events"] == ["rollout.halted"]
    assert changed.json()["min_severity"] == "critical"
    assert stale.status_code == 409
    assert rotated.json()["secret"].startswith("whsec_")


def test_explains_why_it_refuses_an_invalid_subscription(notified: NotifiedFleet) -> None:
    unknown = created(notified, events=["rollout.exploded"])
    scope = created(notified, scopes=["planet:earth"])
    name = created(notified, name="Ops!")

    assert unknown.json()["code"] == "invalid_subscription"
    assert "There is no event 'rollout.exploded'" in unknown.json()["detail"]
    assert scope.json()["code"] == "invalid_scope"
    assert "small letters" in name.json()["detail"]


def test_shows_waiting_and_dead_messages(notified: NotifiedFleet) -> None:
    created(notified)
    notified.receiver.answer = always(400)
    holds(notified, 2)
    notified.run_round()
    shown = notified.fleet.operator.get("/v1/subscriptions/ops").json()
    assert (shown["waiting"], shown["failures"], shown["last_error"]) == (2, 1, "status 400")

    notified.run_until(lambda: notified.installation.subscriptions.queue("ops").dead, hours=1)

    (letter,) = notified.fleet.operator.get("/v1/subscriptions/ops").json()["dead_letters"]
    assert letter["event"] == "channel.held"
    text = notified.fleet.operator.get("/metrics").text
    assert 'tidegate_notify_queue{target="ops"} 1.0' in text
    assert 'tidegate_notify_dead_total{target="ops"} 1.0' in text
    assert 'tidegate_notify_oldest_seconds{target="ops"}' in text


def test_lists_only_subscriptions_that_the_caller_may_read(notified: NotifiedFleet) -> None:
    notified.fleet.create()
    other = {"channel": "other", "package": "default/web", "selector": "app=other"}
    assert notified.fleet.manager.post("/v1/channels", json=other).status_code == 201
    created(notified, "all")
    created(notified, "mine", scopes=[f"channel:{CHANNEL}", "channel:other"])
    created(notified, "theirs", scopes=["channel:other"])
    reader = notified.fleet.served.as_role(Grant(Role.VIEWER, f"channel:{CHANNEL}"))

    listed = reader.get("/v1/subscriptions").json()["items"]

    assert [item["name"] for item in listed] == ["mine"]
    assert reader.get("/v1/subscriptions/mine").status_code == 200
    assert reader.get("/v1/subscriptions/theirs").json()["code"] == "missing_permission"


def test_keeps_the_scope_of_a_channel_that_was_deleted(notified: NotifiedFleet) -> None:
    notified.fleet.create()
    created(notified, scopes=[f"channel:{CHANNEL}"])
    body = {"reason": "it moved"}
    gone = notified.fleet.manager.post(f"/v1/channels/{CHANNEL}/delete", json=body)
    change = {"min_severity": "critical", "scopes": ["*", f"channel:{CHANNEL}"]}
    edited = notified.fleet.operator.patch("/v1/subscriptions/ops", json=change)
    refused = created(notified, "late", scopes=[f"channel:{CHANNEL}"])

    assert (gone.status_code, edited.status_code) == (200, 200), edited.text
    assert (refused.status_code, refused.json()["code"]) == (404, "channel_not_found")


def test_a_test_message_returns_the_receivers_response(notified: NotifiedFleet) -> None:
    created(notified)
    good = notified.fleet.operator.post("/v1/subscriptions/ops/test")
    notified.receiver.answer = always(500)
    bad = notified.fleet.operator.post("/v1/subscriptions/ops/test")

    assert good.json() == {"name": "ops", "ok": True, "detail": "status 204"}
    assert bad.json() == {"name": "ops", "ok": False, "detail": "status 500"}


def test_the_settings_page_shows_whether_messages_arrive(notified: NotifiedFleet) -> None:
    notified.fleet.create()
    created(notified, events=["channel.held"], scopes=[f"channel:{CHANNEL}"])
    notified.receiver.answer = always(503)
    more_holds(notified, 1)
    notified.run_round()

    called = PersonNames("ann", "Ann")
    notified.fleet.served.add_person(
        "user_ann0000000", called, PASSWORD, Grant(Role.FLEET_OPERATOR)
    )
    page = signed_in(notified.fleet.served, "ann", PASSWORD).get("/settings")

    assert page.status_code == 200, page.text
    assert "Subscriptions" in page.text
    assert f"channel.held · channel:{CHANNEL} · 1 waiting · status 503" in page.text
    assert notified.receiver.place not in page.text
