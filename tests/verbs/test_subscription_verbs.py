"""Create, edit, delete, test, skip and replay: the same result through each door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

NAME = "ops"
URL = "https://hooks.example.com/deploys"
SECRET = "whsec_" + "QUFB" * 8
OPERATOR = (Role.FLEET_OPERATOR,)
VIEWER = (Role.VIEWER,)
OF_CHANNEL = (Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"),)


def subscribe(fleet: ServedFleet, scope: str = "*") -> None:
    fleet.create()
    body = {"name": NAME, "kind": "webhook", "url": URL, "scopes": [scope], "secret": SECRET}
    done = fleet.operator.post("/v1/subscriptions", json=body)
    assert done.status_code == 201, done.text


def subscribe_channel(fleet: ServedFleet) -> None:
    subscribe(fleet, f"channel:{CHANNEL}")


def create(fleet: ServedFleet) -> None:
    fleet.create()


def _create(scope: str, url: str = URL) -> Verb:
    body: dict[str, Any] = {
        "name": NAME,
        "kind": "webhook",
        "url": url,
        "events": ["rollout.halted"],
        "min_severity": "info",
        "scopes": [scope],
    }
    words = ("--kind", "webhook", "--to", url, "--event", "rollout.halted", "--scope", scope)
    return Verb(
        steps.CREATE_SUBSCRIPTION,
        ApiCall("POST", "/v1/subscriptions", body),
        ("notify", "create", NAME, *words),
        Form("/new/subscription", {**body, "events": "rollout.halted", "scopes": scope}),
    )


UNKNOWN = _create("channel:web-stabel")
PRIVATE = _create("*", "http://127.0.0.1:9/hook")
CREATE, CREATE_OF_CHANNEL = _create("*"), _create(f"channel:{CHANNEL}")


def _edit(scope: str) -> Verb:
    page = f"/subscriptions/{NAME}/edit"
    return Verb(
        steps.EDIT_SUBSCRIPTION,
        ApiCall("PATCH", f"/v1/subscriptions/{NAME}", {"min_severity": "critical"}),
        ("notify", "edit", NAME, "--min-severity", "critical"),
        Form(page, {"min_severity": "critical", "scopes": scope}, page),
    )


def _form(verb: str, **fields: str) -> Form:
    return Form(f"/notifications/{verb}", {"name": NAME, **fields})


EDIT_TO_UNKNOWN = Verb(
    steps.EDIT_SUBSCRIPTION,
    ApiCall("PATCH", f"/v1/subscriptions/{NAME}", {"scopes": ["channel:web-stabel"]}),
    ("notify", "edit", NAME, "--scope", "channel:web-stabel"),
    Form(f"/subscriptions/{NAME}/edit", {"scopes": "channel:web-stabel"}),
)
EDIT, EDIT_OF_CHANNEL = _edit("*"), _edit(f"channel:{CHANNEL}")
DELETE = Verb(
    steps.DELETE_SUBSCRIPTION,
    ApiCall("DELETE", f"/v1/subscriptions/{NAME}"),
    ("notify", "delete", NAME),
    _form("delete"),
)
SKIP = Verb(
    steps.SKIP_NOTICE,
    ApiCall("POST", f"/v1/subscriptions/{NAME}/skip", {"reason": "it chokes"}),
    ("notify", "skip", NAME, "--reason", "it chokes"),
    _form("skip", reason="it chokes"),
)
REPLAY = Verb(
    steps.REPLAY_NOTICES,
    ApiCall("POST", f"/v1/subscriptions/{NAME}/replay", {"after": 0}),
    ("notify", "replay", NAME, "--after", "0"),
    _form("replay", after="0"),
)
TEST = Verb(
    steps.TEST_SUBSCRIPTION,
    ApiCall("POST", f"/v1/subscriptions/{NAME}/test"),
    ("notify", "test", NAME),
    _form("test"),
)
CASES = (
    VerbCase(CREATE, "everywhere", OPERATOR, create),
    VerbCase(CREATE_OF_CHANNEL, "of a channel", OF_CHANNEL, create),
    VerbCase(CREATE, "with a role on one channel", OF_CHANNEL, create, "missing_permission"),
    VerbCase(CREATE, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(PRIVATE, "at a private address", OPERATOR, code="destination_refused"),
    VerbCase(UNKNOWN, "of no channel", OPERATOR, create, "channel_not_found"),
    VerbCase(CREATE, "a second time", OPERATOR, subscribe, "subscription_exists"),
    VerbCase(EDIT, "everywhere", OPERATOR, subscribe),
    VerbCase(EDIT_OF_CHANNEL, "of a channel", OF_CHANNEL, subscribe_channel),
    VerbCase(EDIT, "of all scopes", OF_CHANNEL, subscribe, "missing_permission"),
    VerbCase(EDIT_TO_UNKNOWN, "to no channel", OPERATOR, subscribe, "channel_not_found"),
    VerbCase(EDIT, "an unknown one", OPERATOR, code="subscription_not_found"),
    VerbCase(DELETE, "everywhere", OPERATOR, subscribe),
    VerbCase(DELETE, "as a viewer", VIEWER, subscribe, "missing_permission"),
    VerbCase(DELETE, "an unknown one", OPERATOR, code="subscription_not_found"),
    VerbCase(SKIP, "with nothing waiting", OPERATOR, subscribe, "nothing_waits"),
    VerbCase(SKIP, "as a viewer", VIEWER, subscribe, "missing_permission"),
    VerbCase(REPLAY, "everywhere", OPERATOR, subscribe),
    VerbCase(REPLAY, "as a viewer", VIEWER, subscribe, "missing_permission"),
    VerbCase(TEST, "as a viewer", VIEWER, subscribe, "missing_permission"),
    VerbCase(TEST, "an unknown one", OPERATOR, code="subscription_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
