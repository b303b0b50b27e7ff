"""What people do on a protected channel of a served fleet."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.served_fleet import CHANNEL, ServedFleet
from tidegate.domain.access.roles import Grant, Role

HERE = f"/v1/channels/{CHANNEL}"
WHY = {"reason": "it is production"}
GLASS = {"tidegate-break-glass": "it%20burns"}


def approver(fleet: ServedFleet) -> httpx2.Client:
    """A new approver of the channel."""
    return fleet.served.as_role(Grant(Role.APPROVER, f"channel:{CHANNEL}"))


def protect(fleet: ServedFleet, **members: Any) -> None:
    done = fleet.manager.post(f"{HERE}/protect", json=WHY | members)
    assert done.status_code == 200, done.text


def ask(asked: httpx2.Response) -> dict[str, Any]:
    assert asked.status_code == 202, asked.text
    found: dict[str, Any] = asked.json()
    return found


def approve(who: httpx2.Client, request: dict[str, Any], **members: Any) -> httpx2.Response:
    body = {"digest": request["digest"]} | members
    return who.post(f"/v1/requests/{request['request_id']}/approve", json=body)


def show(fleet: ServedFleet, request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fleet.viewer.get(f"/v1/requests/{request['request_id']}").json()
    return found


def pin_of(fleet: ServedFleet) -> str | None:
    pin = fleet.viewer.get(HERE).json().get("pin")
    return None if pin is None else str(pin["pinnedReleaseId"])


def events(fleet: ServedFleet, *types: str) -> list[str]:
    found = fleet.installation.log.feed(after=0, limit=10_000)
    return [event.type for event in found if event.type in types]


def climb(fleet: ServedFleet) -> None:
    """Let web.1, web.2 and web.3 succeed on the channel in turn; web.3 stays pinned."""
    fleet.draft("v3", tasks=[{"type": "edit", "source": "default.web.v2"}])
    fleet.push("default.web.v3", a_txt="3")
    fleet.publish("default.web.v3")
    for release in ("web.1", "web.2", "web.3"):
        assert fleet.promote(release).status_code == 200
        fleet.succeed()


def assert_void(answer: httpx2.Response, *parts: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (422, "request_outdated"), answer.text
    for part in parts:
        assert part in answer.json()["detail"]
