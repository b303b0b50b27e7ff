"""What the responses tell people about requests: the asker, the approver, the reviewer."""

from __future__ import annotations

import httpx2
import pytest

from tests.api.protected_fleet import GLASS, HERE, approve, ask, climb, protect, show
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tidegate.domain.access.roles import Role


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def test_the_last_approver_gets_the_result(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": [CHANNEL]})
    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}))

    done = approve(cem, asked).json()

    assert (done["state"], done["rollout_id"], done["waits"]) == ("executed", ROLLOUT, True)
    assert "Its orders wait. Freeze " in done["warnings"][0]


def test_a_review_shows_the_releases_the_hosts_and_the_rollout(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    climb(fleet)
    protect(fleet)
    now = {"reason": "bad", "now": True}
    assert eve.post(f"{HERE}/rollback", json=now, headers=GLASS).status_code == 200
    (review,) = fleet.viewer.get("/v1/requests?state=to-review").json()["items"]

    found = show(fleet, review)

    assert found["what"] == f"roll {CHANNEL} back to web.2, on all hosts at once"
    assert found["rollout"] == {
        "rollout_id": f"{CHANNEL}@web.2~2",
        "release_id": "web.2",
        "before": "web.3",
        "hosts": 2,
    }


def test_the_history_shows_what_break_glass_did_and_who_reviewed_it(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    body = {"release_id": "web.1", "reason": "hurry"}
    assert eve.post(f"{HERE}/promote", json=body, headers=GLASS).status_code == 200
    url = f"/v1/releases/{CHANNEL}/events"
    (before,) = fleet.viewer.get(url).json()["items"]
    (review,) = fleet.viewer.get("/v1/requests?state=to-review").json()["items"]
    verdict = {"accepted": True, "reason": "fine"}
    cem.post(f"/v1/requests/{review['request_id']}/review", json=verdict)

    (after,) = fleet.viewer.get(url).json()["items"]

    me = cem.get("/v1/me").json()["user_id"]
    assert (before["breakGlass"], before.get("reviewedBy")) == (review["request_id"], None)
    assert (after["breakGlass"], after["reviewedBy"]) == (review["request_id"], me)


def test_the_asker_and_the_approver_of_a_promotion_see_the_same(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    body = {"channel": "web-dev", "package": "default/web", "selector": "app=dev"}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201
    etag = {"if-match": fleet.manager.get(HERE).headers["etag"]}
    policy = {"edges": [{"channel": "web-dev"}]}
    assert fleet.manager.patch(HERE, json={"policy": policy}, headers=etag).status_code == 200
    protect(fleet)

    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}))

    assert asked["notes"] == cem.get(f"/v1/requests/{asked['request_id']}").json()["notes"]
    assert "web-dev" in asked["notes"][0]


def test_names_the_next_step_if_no_person_may_approve(
    fleet: ServedFleet, cem: httpx2.Client
) -> None:
    protect(fleet)
    admin = fleet.served.as_role(Role.SECURITY_ADMIN)
    users = admin.get("/v1/users").json()["items"]
    approvers = set(fleet.installation.guard.approvers(CHANNEL))
    warnings = [
        admin.post(f"/v1/users/{user['user_id']}/disable", json={"reason": "left"}).json()
        for user in users
        if user["user_id"] in approvers
    ]

    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}))

    (warning,) = warnings[-1]["warnings"]
    assert f"on {CHANNEL}" in warning
    grant = f"tidegate user grant LOGIN approver@channel:{CHANNEL}"
    assert grant in warning
    assert [answer["warnings"] for answer in warnings[:-1]] == [[]] * (len(warnings) - 1)
    assert grant in asked["next"]


def test_suggests_no_second_rollback_during_one(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    """A second rollback would go one release further; the suggested command names its release."""
    climb(fleet)
    protect(fleet)
    assert eve.post(f"{HERE}/rollback", json={"reason": "bad"}).status_code == 200

    asked = ask(eve.post(f"{HERE}/rollback", json={"reason": "bad", "now": True}))

    (at_once,) = asked["alternatives"]
    assert at_once["command"] == (
        f"tidegate channel rollback {CHANNEL} --to web.2 --now --reason … --break-glass"
    )
