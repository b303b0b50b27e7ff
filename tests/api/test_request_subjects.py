"""A request does exactly what its approver saw, or nothing, even if its subject has changed."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from tests.api.protected_fleet import (
    GLASS,
    HERE,
    WHY,
    approve,
    ask,
    assert_void,
    climb,
    events,
    pin_of,
    protect,
    show,
)
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tidegate.control import request_deadlines
from tidegate.control.operations import freezes
from tidegate.control.worker import make_request_deadlines
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.windows import slices as window_slices

WINDOW = {
    "window_id": "nights",
    "kind": "deny",
    "channels": [CHANNEL],
    "start": "2026-04-24T08:00",
    "duration_seconds": 3_600,
    "rule": "FREQ=DAILY",
    "reason": "quiet",
}


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


# ── rollbacks ─────────────────────────────────────────────────────────────────────────────────────


def test_a_request_of_a_rollback_names_its_release_from_the_start(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    climb(fleet)
    protect(fleet)

    asked = ask(eve.post(f"{HERE}/rollback", json={"reason": "bad", "now": True}))

    assert asked["command"]["to"] == "web.2"
    assert asked["what"] == f"roll {CHANNEL} back to web.2, on all hosts at once"
    assert asked["changes"][0] == {"what": "release", "before": "web.3", "after": "web.2"}
    assert approve(cem, asked).json()["state"] == "executed"
    assert pin_of(fleet) == "web.2"


def test_a_rollback_done_with_break_glass_is_not_repeated(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    climb(fleet)
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": [CHANNEL]})

    plain = eve.post(f"{HERE}/rollback", json={"reason": "bad"})
    fleet.wait(1)
    asked = ask(eve.post(f"{HERE}/rollback", json={"reason": "bad", "now": True}))
    fleet.wait(1)
    now = {"reason": "bad", "now": True}
    alone = eve.post(f"{HERE}/rollback", json=now, headers=GLASS)
    after = show(fleet, asked)
    fleet.dispatch()
    fleet.converge("web-01", "web-02")
    late = approve(cem, asked)

    assert (plain.status_code, alone.status_code) == (200, 200), alone.text
    assert asked["command"]["to"] == "web.2"
    assert after["state"] == "voided"
    assert "carried out with break-glass" in after["ended_reason"]
    assert late.json()["code"] == "request_over"
    assert pin_of(fleet) == "web.2"
    assert fleet.installation.health.differences() == []


def test_a_rollback_is_void_after_another_one_to_the_same_release(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    climb(fleet)
    protect(fleet)
    fleet.manager.post(f"{HERE}/rollback", json={"reason": "bad"})
    asked = ask(eve.post(f"{HERE}/rollback", json={"reason": "bad", "now": True}))
    fleet.succeed()

    late = approve(cem, asked)

    assert_void(late, "web.2")
    assert pin_of(fleet) == "web.2"
    assert show(fleet, asked)["state"] == "voided"


def test_a_promotion_is_void_after_the_release_was_rolled_back(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    """The pin is unchanged, but the requested release was found to be bad in the meantime."""
    fleet.promote()
    fleet.succeed()
    protect(fleet)
    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.2"}))
    body = {"release_id": "web.2", "reason": "hurry", "override": ["window"]}
    assert eve.post(f"{HERE}/promote", json=body, headers=GLASS).status_code == 200
    fleet.succeed()
    assert eve.post(f"{HERE}/rollback", json={"reason": "bad"}).status_code == 200
    fleet.succeed()

    late = approve(cem, asked)

    assert_void(late, "web.1")
    assert pin_of(fleet) == "web.1"


# ── holds, freezes, windows, budgets, labels, quarantines ─────────────────────────────────────────


def test_releases_only_the_hold_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    asked = ask(eve.post(f"{HERE}/unhold", json={"reason": "late"}))
    fleet.wait(1)
    fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})
    fleet.operator.post(f"{HERE}/hold", json={"reason": "it burns"})

    late = approve(cem, asked)

    assert_void(late, f"{CHANNEL} was held again")
    assert fleet.viewer.get(HERE).json()["held_reason"] == "it burns"


def test_the_worker_voids_a_request_whose_hold_ended(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    asked = ask(eve.post(f"{HERE}/unhold", json={"reason": "late"}))
    fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})

    make_request_deadlines(fleet.installation).round()

    assert show(fleet, asked)["state"] == "voided"
    assert "the hold ended" in show(fleet, asked)["ended_reason"]


def test_the_worker_ends_every_request_however_many_wait(
    fleet: ServedFleet, cem: httpx2.Client
) -> None:
    protect(fleet, request_seconds=300)
    asked = [
        ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1", "reason": why} | x))
        for why, x in (
            ("one", {}),
            ("two", {"display_name": "two"}),
            ("three", {"display_name": "three"}),
        )
    ]
    fleet.wait(301)

    with patch.object(request_deadlines, "PAGE", 2):
        make_request_deadlines(fleet.installation).round()

    assert len({request["request_id"] for request in asked}) == 3
    assert {show(fleet, request)["state"] for request in asked} == {"expired"}


def test_a_hold_is_named_in_the_digest(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    digests = []
    for reason in ("audit", "it burns"):
        fleet.operator.post(f"{HERE}/hold", json={"reason": reason})
        digests.append(ask(eve.post(f"{HERE}/unhold", json={"reason": "late"}))["digest"])
        fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})
        fleet.wait(1)

    assert len(set(digests)) == 2


def test_releasing_a_channel_that_is_not_held_makes_no_request(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)

    done = eve.post(f"{HERE}/unhold", json={"reason": "late"})

    assert done.status_code == 200, done.text
    assert events(fleet, "RequestMade") == []


def test_ends_only_the_freeze_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    body = {"freeze_id": "xmas", "channels": [CHANNEL], "reason": "holidays"}
    fleet.operator.post("/v1/freezes", json=body)
    asked = ask(eve.post("/v1/freezes/xmas/end", json={"reason": "late"}))
    fleet.wait(1)
    fleet.operator.post("/v1/freezes/xmas/end", json={"reason": "over"})
    fleet.operator.post("/v1/freezes", json=body | {"reason": "it burns"})

    late = approve(cem, asked)

    assert_void(late, "the freeze xmas was started again")
    assert events(fleet, "FreezeEnded") == ["FreezeEnded"]


@pytest.mark.parametrize("verb", ["edit", "delete"])
def test_changes_only_the_window_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client, verb: str
) -> None:
    protect(fleet)
    made = fleet.operator.post("/v1/windows", json=WINDOW)
    etag = {"if-match": made.headers["etag"]}
    url = "/v1/windows/nights"
    if verb == "edit":
        body = {"duration_seconds": 600, "reason": "less"}
        asked = ask(eve.patch(url, json=body, headers=etag))
    else:
        asked = ask(eve.post(f"{url}/delete", json={"reason": "gone"}))
    longer = {"duration_seconds": 7_200, "reason": "more"}
    assert fleet.operator.patch(url, json=longer, headers=etag).status_code == 200

    late = approve(cem, asked)

    assert_void(late, "the window nights was changed")
    assert fleet.viewer.get(url).json()["duration_seconds"] == 7_200


@pytest.mark.parametrize("verb", ["set", "remove"])
def test_loosens_only_the_budget_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client, verb: str
) -> None:
    bound = {"selector": "app=web", "max_in_flight": 5}
    fleet.operator.put("/v1/budgets/web", json=bound)
    protect(fleet)
    if verb == "set":
        asked = ask(eve.put("/v1/budgets/web", json={**bound, "max_in_flight": 6}))
    else:
        asked = ask(eve.delete("/v1/budgets/web"))
    assert fleet.operator.put("/v1/budgets/web", json={**bound, "max_in_flight": 1}).is_success

    late = approve(cem, asked)

    assert_void(late, "the budget web was changed")


def test_using_a_budget_does_not_change_its_version(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    bound = {"selector": "app=web", "max_in_flight": 1}
    fleet.operator.put("/v1/budgets/web", json=bound)
    protect(fleet)
    asked = ask(eve.put("/v1/budgets/web", json={**bound, "max_in_flight": 2}))
    body = {"release_id": "web.1", "reason": "hurry"}
    assert eve.post(f"{HERE}/promote", json=body, headers=GLASS).status_code == 200
    fleet.dispatch()

    assert approve(cem, asked).json()["state"] == "executed"


def test_labels_a_host_only_at_the_version_of_the_request(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    url = "/v1/hosts/web-02/labels"
    asked = ask(eve.put(url, json={"labels": {"rack": "a"}}))
    kept = {"labels": {"app": "web", "tier": "rest", "rack": "b"}}
    assert fleet.operator.put(url, json=kept).status_code == 200

    late = approve(cem, asked)

    assert_void(late, "the labels of web-02 were changed")
    assert fleet.viewer.get("/v1/hosts/web-02").json()["labels"]["app"] == "web"


def test_lifts_only_the_quarantine_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.promote()
    fleet.dispatch()
    fleet.fail("web-01")
    protect(fleet)
    url = "/v1/quarantine"
    (found,) = fleet.viewer.get(url).json()["items"]
    body = WHY | {"channel": CHANNEL, "closure_hash": found["closure_hash"]}
    asked = ask(eve.post(f"{url}/lift", json=body))
    retry = eve.post(f"/v1/rollouts/{ROLLOUT}/retry", json=WHY, headers=GLASS)
    assert retry.status_code == 200, retry.text
    fleet.dispatch(thorough=True)
    fleet.fail("web-01")

    late = approve(cem, asked)

    assert_void(late, "quarantined again")
    assert len(fleet.viewer.get(url).json()["items"]) == 1


def test_retries_only_the_halt_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.promote()
    fleet.dispatch()
    fleet.fail("web-01")
    protect(fleet)
    url = f"/v1/rollouts/{ROLLOUT}/retry"
    asked = ask(fleet.operator.post(url, json=WHY))
    other = {"reason": "I mended it", "hosts": ["web-01"]}
    assert eve.post(url, json=other, headers=GLASS).is_success
    fleet.dispatch(thorough=True)
    fleet.fail("web-01")

    late = approve(cem, asked)

    assert_void(late, f"{ROLLOUT} moved on")


def test_bypasses_only_the_freeze_that_the_request_was_made_for(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.promote()
    protect(fleet)
    body = {"freeze_id": "one", "channels": [CHANNEL], "reason": "holidays"}
    fleet.operator.post("/v1/freezes", json=body)
    url = f"/v1/rollouts/{ROLLOUT}/override"
    asked = ask(eve.post(url, json=WHY | {"gate": "freeze"}))
    fleet.operator.post("/v1/freezes", json=body | {"freeze_id": "two", "reason": "it burns"})

    late = approve(cem, asked)

    assert_void(late, f"the freezes of {CHANNEL} changed")


def test_a_channel_that_is_protected_later_is_not_loosened_by_approvers_of_another(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    body = {"channel": "web-dev", "package": "default/web", "selector": "app=dev"}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201
    fleet.served.as_role(Grant(Role.APPROVER, "channel:web-dev"))
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"freeze_id": "all", "reason": "outage"})
    asked = ask(eve.post("/v1/freezes/all/end", json={"reason": "late"}))
    assert fleet.manager.post("/v1/channels/web-dev/protect", json=WHY).status_code == 200

    late = approve(cem, asked)

    assert_void(late, "web-dev")
    assert events(fleet, "FreezeEnded") == []


# ── break-glass ───────────────────────────────────────────────────────────────────────────────────


def test_break_glass_ends_open_requests_for_the_same_change(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    protect(fleet)
    dan = fleet.served.as_role(Role.FLEET_OPERATOR)
    own = ask(eve.post(f"{HERE}/unhold", json={"reason": "late"}))
    other = ask(dan.post(f"{HERE}/unhold", json={"reason": "please"}))

    done = eve.post(f"{HERE}/unhold", json={"reason": "now"}, headers=GLASS)

    assert done.status_code == 200, done.text
    (review,) = fleet.viewer.get("/v1/requests?state=to-review").json()["items"]
    for request in (own, other):
        found = show(fleet, request)
        assert found["state"] == "voided"
        assert found["ended_reason"] == (
            f"it was carried out with break-glass: {review['request_id']}"
        )


# ── what no approval could fix ────────────────────────────────────────────────────────────────────


def test_makes_no_request_for_a_change_that_is_refused_anyway(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.promote()
    allow = WINDOW | {"kind": "allow", "window_id": "one"}
    assert fleet.operator.post("/v1/windows", json=allow).status_code == 201
    protect(fleet)
    assert fleet.operator.post(f"/v1/rollouts/{ROLLOUT}/abort", json=WHY).status_code == 200
    lift = WHY | {"channel": CHANNEL, "closure_hash": "web.77"}
    over = f"/v1/rollouts/{ROLLOUT}"
    late = WHY | {"gate": "window", "until": "2020-01-01T00:00:00Z"}

    refused = {
        "malformed_window": eve.post(
            "/v1/windows", json=allow | {"window_id": "w2", "rule": "FREQ=DAYLY"}
        ),
        "window_exists": eve.post("/v1/windows", json=allow | {"duration_seconds": 7_200}),
        "quarantine_not_found": eve.post("/v1/quarantine/lift", json=lift),
        "invalid_transition": eve.post(f"{over}/retry", json=WHY),
        "invalid_label": eve.put("/v1/hosts/web-02/labels", json={"labels": {"no no": "x"}}),
    }
    others = [
        eve.post(f"{over}/skip-wave", json=WHY | {"wave": "canary"}),
        eve.post(f"{over}/promote-all", json=WHY),
        eve.post(f"{over}/override", json=late),
    ]

    assert {code: answer.json().get("code") for code, answer in refused.items()} == {
        code: code for code in refused
    }
    assert [answer.status_code // 100 for answer in others] == [4, 4, 4], others[2].text
    assert events(fleet, "RequestMade") == []


def test_makes_a_request_for_a_change_that_only_a_hold_refuses(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})

    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}))

    assert approve(cem, asked).json()["state"] == "approved"


def test_an_approved_request_that_can_never_be_carried_out_is_void(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    fleet.promote()
    protect(fleet)
    url = f"/v1/rollouts/{ROLLOUT}/skip-wave"
    asked = ask(eve.post(url, json=WHY | {"wave": "canary"}))
    fleet.succeed()

    refused = approve(cem, asked)

    assert refused.status_code == 422, refused.text
    assert refused.json()["code"] in ("request_outdated", "request_impossible")
    found = show(fleet, asked)
    assert found["state"] == "voided"
    assert found["ended_reason"]


def test_an_invalid_approval_voids_nothing(
    fleet: ServedFleet, cem: httpx2.Client, eve: httpx2.Client
) -> None:
    protect(fleet)
    asked = ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}))
    body = {"digest": asked["digest"], "reason": "é" * 1_024}

    refused = cem.post(f"/v1/requests/{asked['request_id']}/approve", json=body)

    assert refused.status_code >= 400, refused.text
    assert show(fleet, asked)["state"] == "waiting"


@pytest.mark.parametrize(
    ("before", "after", "takes_two"),
    [
        ({"tz": "Europe/Berlin"}, {"tz": "Asia/Tokyo"}, True),
        ({"shop": "yes"}, {}, True),
        ({"slow": "yes"}, {"slow": "no"}, True),
        ({}, {"vip": "yes"}, True),
        ({"vip": "yes"}, {}, False),
        ({}, {"shop": "yes"}, False),
        ({}, {"slow": "yes"}, False),
        ({"tz": "Europe/Berlin"}, {"tz": "Europe/Berlin", "rack": "7"}, False),
    ],
    ids=[
        *("zone", "leaves-deny", "leaves-budget", "enters-allow"),
        *("leaves-allow", "enters-deny", "enters-budget", "other"),
    ],
)
def test_labels_that_loosen_a_window_or_budget_of_a_host_take_two_people(
    fleet: ServedFleet,
    cem: httpx2.Client,
    before: dict[str, str],
    after: dict[str, str],
    takes_two: bool,
) -> None:
    """Wrong version: one person moved a host into the time zone in which a window is open."""
    always = {"kind": "allow", "start": "2026-01-01T02:00", "duration_seconds": 3_600, **WHY}
    for window in (
        {"window_id": "nights", "zone": "label:tz", "zone_default": "UTC", "channels": [CHANNEL]},
        {"window_id": "shops", "zone": "UTC", "kind": "deny", "hosts": "shop=yes"},
        {"window_id": "vips", "zone": "UTC", "hosts": "vip=yes"},
    ):
        made = fleet.operator.post("/v1/windows", json=always | {"rule": "FREQ=DAILY"} | window)
        assert made.status_code == 201, made.text
    few = {"selector": "slow=yes", "max_in_flight": 1}
    assert fleet.operator.put("/v1/budgets/slow", json=few).is_success
    url = "/v1/hosts/web-01/labels"
    assert fleet.operator.put(url, json={"labels": {"app": "web", **before}}).is_success
    protect(fleet)

    asked = fleet.operator.put(url, json={"labels": {"app": "web", **after}})
    token = {"host_id": "web-01", "labels": {"app": "web", **after}}
    enrolled = fleet.operator.post("/v1/hosts/enroll", json=token)

    assert asked.status_code == (202 if takes_two else 200), asked.text
    assert (enrolled.json().get("code") == "host_leaves_protected") is takes_two
    if takes_two:
        assert approve(cem, asked.json()).json()["state"] == "executed"
    labels = fleet.viewer.get("/v1/hosts/web-01").json()["labels"]
    assert {key: labels.get(key) for key in after} == after


def test_deletes_only_the_window_whose_channels_were_looked_at(fleet: ServedFleet) -> None:
    """Wrong version: an edit in between let one person delete a window of a protected channel."""
    other = {"channel": "other", "package": "default/web", "selector": "app=other"}
    assert fleet.manager.post("/v1/channels", json=other).status_code == 201
    window = {
        "window_id": "nights",
        "kind": "deny",
        "zone": "UTC",
        "channels": ["other"],
        "start": "2026-01-01T02:00",
        "duration_seconds": 3_600,
        "rule": "FREQ=DAILY",
        **WHY,
    }
    url = "/v1/windows/nights"
    assert fleet.operator.post("/v1/windows", json=window).status_code == 201
    protect(fleet)
    spec_of = window_slices.spec_of
    seen = {"if-match": fleet.operator.get(url).headers["etag"]}
    others = [lambda: fleet.operator.patch(url, json={"channels": [CHANNEL], **WHY}, headers=seen)]

    def spec_of_row(row: Any) -> Any:
        if others:
            assert others.pop()().status_code == 200
        return spec_of(row)

    with patch.object(window_slices, "spec_of", spec_of_row):
        late = fleet.operator.post(f"{url}/delete", json=WHY)

    assert (late.status_code, late.json()["code"]) == (409, "version_conflict"), late.text
    assert fleet.viewer.get(url).json()["channels"] == [CHANNEL]


def test_ends_only_the_freeze_whose_channels_were_looked_at(fleet: ServedFleet) -> None:
    """Wrong version: another freeze of the same name in between was ended by one person."""
    other = {"channel": "other", "package": "default/web", "selector": "app=other"}
    assert fleet.manager.post("/v1/channels", json=other).status_code == 201
    end = "/v1/freezes/sale/end"

    def start(channel: str) -> None:
        body = {"freeze_id": "sale", "channels": [channel], **WHY}
        assert fleet.operator.post("/v1/freezes", json=body).status_code == 201

    start("other")
    protect(fleet)
    list_scopes = freezes.list_scopes
    eve = fleet.served.as_role(Role.FLEET_OPERATOR)

    def replace() -> None:
        assert fleet.operator.post(end, json=WHY).status_code == 200
        start(CHANNEL)

    others = [replace]

    def list_scopes_late(channels: tuple[str, ...]) -> list[str]:
        if others:
            others.pop()()
        return list_scopes(channels)

    with patch.object(freezes, "list_scopes", list_scopes_late):
        late = eve.post(end, json=WHY)

    assert (late.status_code, late.json()["code"]) == (409, "version_conflict"), late.text
    (found,) = fleet.viewer.get("/v1/freezes").json()["items"]
    assert found["channels"] == [CHANNEL]
