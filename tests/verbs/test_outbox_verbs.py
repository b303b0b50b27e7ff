"""Redriving and cancelling an intent have the same result through each door."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.api.serving import ADMIN
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check, serve
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.outbox.names import intent_id
from tidegate.domain.outbox.slices import (
    RecordAttempt,
    RequestEffect,
    record_attempt,
    request_effect,
)
from tidegate.kernel.model import Meta

INTENT = intent_id(CHANNEL, "announce", "web.1", "c1")
OPERATOR = (Role.FLEET_OPERATOR,)
VIEWER = (Role.VIEWER,)
ELSEWHERE = (Role.VIEWER, Grant(Role.FLEET_OPERATOR, channel_scope("db-stable")))
WHY = "the receiver is back"


def ask(fleet: ServedFleet) -> None:
    """Create a pending intent."""
    command = RequestEffect(
        scope=CHANNEL,
        operation="announce",
        release_id="web.1",
        version=1,
        command_id="c1",
        requested_state={"releaseId": "web.1"},
        by=ADMIN,
    )
    fleet.installation.control.execute(request_effect, command, meta=Meta(actor=ADMIN))


def die(fleet: ServedFleet) -> None:
    """Create a dead intent."""
    ask(fleet)
    record(fleet, succeeded=False)


def end(fleet: ServedFleet) -> None:
    """Create a delivered intent."""
    ask(fleet)
    record(fleet, succeeded=True)


def record(fleet: ServedFleet, *, succeeded: bool) -> None:
    command = RecordAttempt(
        scope=CHANNEL,
        intent_id=INTENT,
        attempt=1,
        succeeded=succeeded,
        detail="as the target said",
        retryable=False,
    )
    fleet.installation.control.execute(record_attempt, command, meta=Meta(actor=ADMIN))


def on_intent(step: steps.Step, name: str) -> Verb:
    body = {"reason": WHY}
    return Verb(
        step,
        ApiCall("POST", f"/v1/outbox/{quote(INTENT, safe='')}/{name}", body),
        ("outbox", name, INTENT, "--reason", WHY),
        Form(f"/outbox/{name}", {**body, "id": INTENT}, "/outbox"),
    )


REDRIVE = on_intent(steps.REDRIVE_INTENT, "redrive")
CANCEL = on_intent(steps.CANCEL_INTENT, "cancel")

CASES = (
    VerbCase(REDRIVE, "a dead one", OPERATOR, die),
    VerbCase(REDRIVE, "a pending one", OPERATOR, ask, changes=False),
    VerbCase(REDRIVE, "one that is done", OPERATOR, end, "invalid_transition"),
    VerbCase(REDRIVE, "an unknown one", OPERATOR, code="not_found"),
    VerbCase(REDRIVE, "as a viewer", VIEWER, die, "missing_permission"),
    VerbCase(CANCEL, "a pending one", OPERATOR, ask),
    VerbCase(CANCEL, "one that is done", OPERATOR, end, "invalid_transition"),
    VerbCase(CANCEL, "as an operator of another channel", ELSEWHERE, ask, "missing_permission"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


def test_refuses_a_form_without_a_reason(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        die(fleet)

        done = fleet.operator.post(
            "/outbox/redrive", data={"id": INTENT}, headers={"accept": "text/html"}
        )

        assert (done.status_code, "invalid_request" in done.text) == (400, True)
