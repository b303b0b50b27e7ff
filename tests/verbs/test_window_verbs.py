"""Creating, editing and deleting a maintenance window: the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

WINDOW = "nightly"
OPERATOR = (Role.FLEET_OPERATOR,)
VIEWER = (Role.VIEWER,)
OF_CHANNEL = (Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"),)
WHY = "nights are quiet"
TIMES = {"kind": "allow", "start": "2026-11-17T02:00", "duration_seconds": 7_200}
DAILY = {**TIMES, "window_id": WINDOW, "rule": "FREQ=DAILY", "reason": WHY}
TYPED = {"kind": "allow", "start": "2026-11-17T02:00", "rule": "FREQ=DAILY", "reason": WHY}
NEW = {**TYPED, "window_id": WINDOW, "minutes": "120"}
EDIT_PAGE = f"/windows/{WINDOW}/edit"
WORDS = ("--start", "2026-11-17T02:00", "--for", "2h", "--reason", WHY)


def create_channel(fleet: ServedFleet) -> None:
    fleet.create()


def create(fleet: ServedFleet, *channels: str) -> None:
    fleet.create()
    done = fleet.operator.post("/v1/windows", json={**DAILY, "channels": channels})
    assert done.status_code == 201, done.text


def create_of_channel(fleet: ServedFleet) -> None:
    create(fleet, CHANNEL)


def create_other(fleet: ServedFleet) -> None:
    create(fleet, CHANNEL)
    path = f"/v1/windows/{WINDOW}"
    etag = fleet.operator.get(path).headers["etag"]
    change = {"duration_seconds": 3_600, "reason": "shorter"}
    done = fleet.operator.patch(path, json=change, headers={"if-match": etag})
    assert done.status_code == 200, done.text


CREATE = Verb(
    steps.CREATE_WINDOW,
    ApiCall("POST", "/v1/windows", {**DAILY, "channels": [CHANNEL]}),
    ("window", "create", WINDOW, "--rule", "FREQ=DAILY", "--channel", CHANNEL, *WORDS),
    Form("/new/window", {**NEW, "channels": CHANNEL}),
)
CREATE_EVERYWHERE = Verb(
    steps.CREATE_WINDOW,
    ApiCall("POST", "/v1/windows", DAILY),
    ("window", "create", WINDOW, "--rule", "FREQ=DAILY", *WORDS),
    Form("/new/window", NEW),
)
CREATE_MALFORMED = Verb(
    steps.CREATE_WINDOW,
    ApiCall("POST", "/v1/windows", {**DAILY, "rule": "FREQ=HOURLY"}),
    ("window", "create", WINDOW, "--rule", "FREQ=HOURLY", *WORDS),
    Form("/new/window", {**NEW, "rule": "FREQ=HOURLY"}),
)
EDIT = Verb(
    steps.EDIT_WINDOW,
    ApiCall(
        "PATCH",
        f"/v1/windows/{WINDOW}",
        {"duration_seconds": 10_800, "reason": WHY},
        etag_of=f"/v1/windows/{WINDOW}",
    ),
    ("window", "edit", WINDOW, "--for", "3h", "--reason", WHY),
    Form(EDIT_PAGE, {**TYPED, "minutes": "180", "channels": CHANNEL}, EDIT_PAGE),
)
EDIT_TO_ALL = Verb(
    steps.EDIT_WINDOW,
    ApiCall(
        "PATCH",
        f"/v1/windows/{WINDOW}",
        {"channels": [], "reason": WHY},
        etag_of=f"/v1/windows/{WINDOW}",
    ),
    ("window", "edit", WINDOW, "--all-channels", "--reason", WHY),
    Form(EDIT_PAGE, {**TYPED, "minutes": "120"}, EDIT_PAGE),
)
EDIT_UNKNOWN = Verb(
    steps.EDIT_WINDOW,
    ApiCall("PATCH", f"/v1/windows/{WINDOW}", {"reason": WHY}, etag_of=f"/v1/channels/{CHANNEL}"),
    ("window", "edit", WINDOW, "--reason", WHY),
    Form(EDIT_PAGE, {**TYPED, "minutes": "120", "expected_version": "1"}),
)
DELETE = Verb(
    steps.DELETE_WINDOW,
    ApiCall("POST", f"/v1/windows/{WINDOW}/delete", {"reason": WHY}),
    ("window", "delete", WINDOW, "--reason", WHY),
    Form("/maintenance/delete-window", {"window_id": WINDOW, "reason": WHY}),
)

CASES = (
    VerbCase(CREATE, "of a channel", OF_CHANNEL, create_channel),
    VerbCase(CREATE, "that is there already", OPERATOR, create_of_channel, changes=False),
    VerbCase(CREATE, "with other members", OPERATOR, create_other, "window_exists"),
    VerbCase(CREATE_EVERYWHERE, "of all channels", OPERATOR),
    VerbCase(
        CREATE_EVERYWHERE,
        "with a role on one channel",
        OF_CHANNEL,
        create_channel,
        "missing_permission",
    ),
    VerbCase(CREATE_MALFORMED, "an invalid one", OPERATOR, code="malformed_window"),
    VerbCase(CREATE, "as a viewer", VIEWER, create_channel, "missing_permission"),
    VerbCase(CREATE, "of an unknown channel", OPERATOR, code="channel_not_found"),
    VerbCase(EDIT, "of a channel", OF_CHANNEL, create_of_channel),
    VerbCase(EDIT_TO_ALL, "to all channels", OPERATOR, create_of_channel),
    VerbCase(
        EDIT_TO_ALL, "beyond one's channel", OF_CHANNEL, create_of_channel, "missing_permission"
    ),
    VerbCase(EDIT, "as a viewer", VIEWER, create_of_channel, "missing_permission"),
    VerbCase(EDIT_UNKNOWN, "an unknown one", OPERATOR, create_channel, "window_not_found"),
    VerbCase(DELETE, "of a channel", OF_CHANNEL, create_of_channel),
    VerbCase(DELETE, "of all channels", OF_CHANNEL, create, "missing_permission"),
    VerbCase(DELETE, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(DELETE, "an unknown one", OPERATOR, code="window_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
