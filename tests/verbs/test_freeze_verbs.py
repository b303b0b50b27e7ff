"""Starting and ending a freeze have the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

FREEZE = "sale"
OPERATOR = (Role.FLEET_OPERATOR,)
VIEWER = (Role.VIEWER,)
OF_CHANNEL = (Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"),)
WHY = "it is Christmas"


def create(fleet: ServedFleet) -> None:
    fleet.create()


def freeze(fleet: ServedFleet, *channels: str) -> None:
    fleet.create()
    body = {"reason": "sale", "channels": channels, "freeze_id": FREEZE}
    done = fleet.operator.post("/v1/freezes", json=body)
    assert done.status_code == 201, done.text


def freeze_channel(fleet: ServedFleet) -> None:
    freeze(fleet, CHANNEL)


START = Verb(
    steps.START_FREEZE,
    ApiCall("POST", "/v1/freezes", {"reason": WHY, "channels": [CHANNEL]}),
    ("freeze", "create", "--channel", CHANNEL, "--reason", WHY),
    Form("/new/freeze", {"reason": WHY, "channels": CHANNEL}),
)
START_EVERYWHERE = Verb(
    steps.START_FREEZE,
    ApiCall("POST", "/v1/freezes", {"reason": WHY}),
    ("freeze", "create", "--reason", WHY),
    Form("/new/freeze", {"reason": WHY}),
)
END = Verb(
    steps.END_FREEZE,
    ApiCall("POST", f"/v1/freezes/{FREEZE}/end", {"reason": WHY}),
    ("freeze", "delete", FREEZE, "--reason", WHY),
    Form("/maintenance/end-freeze", {"freeze_id": FREEZE, "reason": WHY}),
)

CASES = (
    VerbCase(START, "of a channel", OF_CHANNEL, create),
    VerbCase(START_EVERYWHERE, "of all channels", OPERATOR),
    VerbCase(
        START_EVERYWHERE, "with a role on one channel", OF_CHANNEL, create, "missing_permission"
    ),
    VerbCase(START, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(START, "of an unknown channel", OPERATOR, code="channel_not_found"),
    VerbCase(END, "of a channel", OF_CHANNEL, freeze_channel),
    VerbCase(END, "of all channels", OF_CHANNEL, freeze, "missing_permission"),
    VerbCase(END, "as a viewer", VIEWER, freeze, "missing_permission"),
    VerbCase(END, "an unknown one", OPERATOR, code="freeze_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
