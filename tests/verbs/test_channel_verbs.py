"""Creating, editing, holding and releasing a channel have the same result through each door."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest

from tests.api.served_fleet import CHANNEL, WAVES, ServedFleet
from tests.verbs.doors import ApiCall, Door, Form, SharedServers, Verb, VerbCase, check, serve, take
from tidegate.cli import client
from tidegate.control import lanes
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.rows import FLEET

PAGE = f"/channels/{CHANNEL}"
EDGE = "web-edge"
OPERATOR = (Role.FLEET_OPERATOR,)
MANAGER = (Role.RELEASE_MANAGER,)
VIEWER = (Role.VIEWER,)
WHY = "the metrics look odd"
REASON = {"reason": WHY}
POLICY = json.dumps({"waves": WAVES, "sustained_failure_seconds": 5})  # unchanged


def create(fleet: ServedFleet) -> None:
    fleet.create()


def hold(fleet: ServedFleet) -> None:
    fleet.create()
    done = fleet.operator.post(f"/v1{PAGE}/hold", json={"reason": "lunch"})
    assert done.status_code == 200, done.text


def create_verb(channel: str, selector: str) -> Verb:
    body = {"channel": channel, "package": "default/web", "selector": selector}
    return Verb(
        steps.CREATE_CHANNEL,
        ApiCall("POST", "/v1/channels", body),
        ("channel", "create", channel, "--package", "default/web", "--hosts", selector),
        Form("/new/channel", body),
    )


def edit_verb(selector: str) -> Verb:
    return Verb(
        steps.EDIT_CHANNEL,
        ApiCall("PATCH", f"/v1{PAGE}", {"selector": selector}, etag_of=f"/v1{PAGE}"),
        ("channel", "edit", CHANNEL, "--hosts", selector),
        Form(f"{PAGE}/edit", {"selector": selector, "policy": POLICY}, f"{PAGE}/edit"),
    )


def stop_verb(step: steps.Step, name: str, command: str = "") -> Verb:
    return Verb(
        step,
        ApiCall("POST", f"/v1{PAGE}/{name}", REASON),
        ("channel", command or name, CHANNEL, "--reason", WHY),
        Form(f"{PAGE}/{name}", REASON, PAGE),
    )


CREATE = create_verb(EDGE, "app=edge")
CREATE_AGAIN = create_verb(CHANNEL, "app=web")
CREATE_OVERLAPPING = create_verb(EDGE, "tier=canary")
EDIT = edit_verb("app=web,tier=rest")
EDIT_BADLY = edit_verb("app=")
HOLD = stop_verb(steps.HOLD_CHANNEL, "hold")
UNHOLD = stop_verb(steps.UNHOLD_CHANNEL, "unhold", "release")
DELETE = stop_verb(steps.DELETE_CHANNEL, "delete")
OF_CHANNEL = (Grant(Role.RELEASE_MANAGER, f"channel:{EDGE}"),)

CASES = (
    VerbCase(CREATE, "a new one", MANAGER),
    VerbCase(CREATE, "as an operator", OPERATOR, code="missing_permission"),
    VerbCase(CREATE, "without reading the package", OF_CHANNEL, code="missing_permission"),
    VerbCase(CREATE_AGAIN, "one that exists", MANAGER, create, "channel_exists"),
    VerbCase(CREATE_OVERLAPPING, "for hosts of another", MANAGER, create, "selector_overlap"),
    VerbCase(EDIT, "its hosts", MANAGER, create),
    VerbCase(EDIT, "as an operator", OPERATOR, create, "missing_permission"),
    VerbCase(EDIT_BADLY, "with an invalid selector", MANAGER, create, "invalid_selector"),
    VerbCase(HOLD, "as an operator", OPERATOR, create),
    VerbCase(HOLD, "as a release manager", MANAGER, create),
    VerbCase(HOLD, "a held one", OPERATOR, hold, changes=False),
    VerbCase(HOLD, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(HOLD, "an unknown one", OPERATOR, code="channel_not_found"),
    VerbCase(UNHOLD, "a held one", OPERATOR, hold),
    VerbCase(UNHOLD, "one that is not held", MANAGER, create, changes=False),
    VerbCase(UNHOLD, "as a viewer", VIEWER, hold, "missing_permission"),
    VerbCase(DELETE, "one that nothing uses", MANAGER, create),
    VerbCase(DELETE, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(DELETE, "an unknown one", MANAGER, code="channel_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


def test_a_second_hold_names_the_first_through_each_door(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        hold(fleet)
        body = {"reason": "looking at web-02"}
        paths = (f"{PAGE}/hold", f"{PAGE}/unhold")

        second = fleet.operator.post(f"/v1{PAGE}/hold", json=body)
        posted = fleet.operator.post(paths[0], data=body, follow_redirects=False)
        shown = fleet.operator.get(posted.headers["location"]).text
        released = [fleet.operator.post(f"/v1{paths[1]}", json=body) for _ in range(2)]
        posted = fleet.operator.post(paths[1], data=body, follow_redirects=False)
        free = fleet.operator.get(posted.headers["location"]).text
        again = fleet.operator.post(f"/v1{paths[0]}", json=body)

        [words] = second.json()["warnings"]
        assert second.status_code == 200
        assert words.startswith(f"{CHANNEL} is held already by ")
        assert words.endswith(" UTC: lunch. Your hold was not added.")
        assert "The channel was held already, and your hold was not added." in shown
        assert [done.json().get("warnings") for done in released] == [
            None,
            [f"{CHANNEL} is not held. Nothing was released."],
        ]
        assert "The channel was not held, and nothing was released." in free
        assert "warnings" not in again.json()


def test_reports_a_busy_fleet_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "COMMAND_SECONDS", 0.2)
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    with serve(tmp_path / "data") as fleet:
        go_on = Event()
        slow = fleet.installation.lanes.command(FLEET, go_on.wait)

        results = [take(CASES[0], door, fleet, is_rehearsed=False) for door in CREATE.doors]
        go_on.set()
        slow.result()

        assert results == [("lane_busy", ())] * len(Door)
        assert take(CASES[0], Door.API, fleet).code == ""  # no part of it is left


def test_offers_hold_and_unhold_to_operators(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        create(fleet)

        page = fleet.operator.get(PAGE, headers={"accept": "text/html"}).text

        assert f'action="{PAGE}/hold"' in page
        assert "This needs the role release-manager or fleet-operator or on-call" not in page
