"""Protected channels over HTTP: what needs two people, and how one person acts alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from tests.api.protected_fleet import HERE, WHY, approve, approver, pin_of, protect
from tests.api.served_fleet import CHANNEL, ServedFleet
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.requests import request_commands


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def ask(fleet: ServedFleet, release: str = "web.1") -> dict[str, Any]:
    asked = fleet.manager.post(f"{HERE}/promote", json={"release_id": release})
    assert asked.status_code == 202, asked.text
    found: dict[str, Any] = asked.json()
    return found


def test_the_last_approval_carries_a_requested_promotion_out(
    fleet: ServedFleet,
) -> None:
    ann, bob = approver(fleet), approver(fleet)
    protect(fleet, approvals=2)

    request = ask(fleet)
    before = pin_of(fleet)
    first = approve(ann, request)
    between = pin_of(fleet)
    second = approve(bob, request)

    assert request["state"] == "waiting"
    assert len(request["approvers"]) >= 2
    assert (before, between, pin_of(fleet)) == (None, None, "web.1")
    assert (first.status_code, first.json()["state"]) == (200, "waiting")
    assert (second.status_code, second.json()["state"]) == (200, "executed")
    events = fleet.installation.log.feed(after=first.json()["position"], limit=1_000)
    assert [event.type for event in events][:3] == [
        *("RequestApproved", "RequestExecuted", "ReleaseRegistered"),
    ]
    again = approve(bob, request)
    assert (again.status_code, again.json()["state"]) == (200, "executed")
    (moved,) = fleet.viewer.get(f"/v1/releases/{CHANNEL}/events").json()["items"]
    me = [who.get("/v1/me").json()["user_id"] for who in (ann, bob)]
    assert moved["approvedBy"] == me, "the history says who approved it"


def test_two_last_approvals_at_once_carry_the_request_out(fleet: ServedFleet) -> None:
    """Wrong version: each saw that one more was missing, so neither carried it out."""
    ann, bob = approver(fleet), approver(fleet)
    protect(fleet, approvals=2)
    request = ask(fleet)
    read = request_commands.rows_of_request
    others = [lambda: approve(bob, request)]

    def rows_of_request(command: Any) -> Any:
        if others:  # between what Ann's approval reads first and its commit
            assert others.pop()().status_code == 200
        return read(command)

    with patch.object(request_commands, "rows_of_request", rows_of_request):
        done = approve(ann, request)

    assert done.json()["state"] == "executed", done.text
    assert done.json()["rollout_id"] == f"{CHANNEL}@web.1"
    assert pin_of(fleet) == "web.1"


def test_people_cannot_approve_their_own_request(fleet: ServedFleet) -> None:
    both = fleet.served.as_role(Role.RELEASE_MANAGER, Role.APPROVER)
    approver(fleet)
    protect(fleet)

    request = both.post(f"{HERE}/promote", json={"release_id": "web.1"}).json()
    own = approve(both, request)

    assert (own.status_code, own.json()["code"]) == (422, "own_request")
    assert pin_of(fleet) is None


def test_counts_each_person_once(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    approver(fleet)
    protect(fleet, approvals=2)
    request = ask(fleet)

    states = [approve(ann, request).json()["state"] for _ in range(2)]

    assert states == ["waiting", "waiting"]
    assert pin_of(fleet) is None


@pytest.mark.parametrize("approvals", [1, 2])
def test_an_approval_ends_with_the_permission_to_approve(
    fleet: ServedFleet, approvals: int
) -> None:
    """Wrong version: the approval of an account that was disabled as stolen still counted."""
    ann, bob = approver(fleet), approver(fleet)
    protect(fleet, approvals=approvals)
    request = ask(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    assert approve(ann, request).status_code == 200
    fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})
    user_id = ann.get("/v1/me").json()["user_id"]
    admin = fleet.served.as_role(Role.SECURITY_ADMIN)
    path = f"/v1/users/{user_id}/disable"
    assert admin.post(path, json={"reason": "stolen"}).status_code == 200

    if approvals == 1:
        done = fleet.manager.post(f"/v1/requests/{request['request_id']}/run")
    else:
        done = approve(bob, request)

    assert (done.status_code, done.json()["code"]) == (422, "request_outdated"), done.text
    assert "a person who approved it lost that permission" in done.json()["detail"]
    shown = bob.get(f"/v1/requests/{request['request_id']}").json()
    assert shown["state"] == "voided"
    assert pin_of(fleet) is None


def test_refuses_an_approval_of_another_digest(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)

    refused = approve(ann, ask(fleet), digest="0" * 64)

    assert (refused.status_code, refused.json()["code"]) == (409, "request_changed")


def test_an_approver_needs_the_permission_on_this_channel(fleet: ServedFleet) -> None:
    approver(fleet)
    elsewhere = fleet.served.as_role(Grant(Role.APPROVER, "channel:other"))
    protect(fleet)

    assert approve(elsewhere, ask(fleet)).status_code == 403


def test_voids_a_request_when_the_pin_moved(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    first, second = ask(fleet), ask(fleet, "web.2")
    assert approve(ann, first).json()["state"] == "executed"

    refused = approve(ann, second)

    assert (refused.status_code, refused.json()["code"]) == (422, "request_outdated")
    assert "web.1" in refused.json()["detail"]
    shown = ann.get(f"/v1/requests/{second['request_id']}").json()
    assert shown["state"] == "voided"
    assert pin_of(fleet) == "web.1"


def test_an_old_request_expires(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet, request_seconds=300)
    request = ask(fleet)
    fleet.wait(301)

    refused = approve(ann, request)

    assert refused.json()["code"] == "request_expired"
    assert ann.get(f"/v1/requests/{request['request_id']}").json()["state"] == "expired"


def test_a_request_approved_during_a_hold_runs_later(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    request = ask(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})

    approved = approve(ann, request).json()
    fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})
    ran = fleet.manager.post(f"/v1/requests/{request['request_id']}/run")

    assert approved["state"] == "approved"
    assert "held" in approved["not_carried_out"]
    assert f"tidegate channel release {CHANNEL} --reason …" in approved["not_carried_out"]
    assert (ran.status_code, ran.json()["state"]) == (200, "executed")
    assert pin_of(fleet) == "web.1"


def test_another_person_confirms_that_the_approved_plan_grew(fleet: ServedFleet) -> None:
    """Wrong version: the asker confirmed it while the approved request waited."""
    ann = approver(fleet)
    protect(fleet)
    request = ask(fleet)
    run = f"/v1/requests/{request['request_id']}/run"
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    assert approve(ann, request).json()["state"] == "approved"
    fleet.operator.post(f"{HERE}/unhold", json={"reason": "over"})
    fleet.enroll("web-03", app="web")

    moved = fleet.manager.post(run)
    own = fleet.manager.post(run, json={"hosts": 3})
    before = pin_of(fleet)
    confirmed = ann.post(run, json={"hosts": 3})

    command = f"tidegate request run {request['request_id']} --hosts 3"
    assert {answer.json()["code"] for answer in (moved, own)} == {"request_hosts_moved"}
    assert moved.json()["detail"].endswith(f"Another person must confirm that: {command}")
    assert before is None
    assert (confirmed.status_code, confirmed.json()["state"]) == (200, "executed")
    assert pin_of(fleet) == "web.1"


def test_changing_the_policy_takes_two_people(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    etag = fleet.manager.get(HERE).headers["etag"]

    asked = fleet.manager.patch(HERE, json={"policy": {"waves": []}}, headers={"if-match": etag})
    before = fleet.viewer.get(HERE).json()["policy"]
    done = approve(ann, asked.json())

    assert asked.status_code == 202, asked.text
    assert before["waves"] != []
    assert done.json()["state"] == "executed", done.text
    assert fleet.viewer.get(HERE).json()["policy"].get("waves", []) == []


def test_stopping_and_rolling_back_take_one_person(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    approve(ann, ask(fleet))
    rollout = fleet.viewer.get(HERE).json()["active_rollout_id"]

    paused = fleet.operator.post(f"/v1/rollouts/{rollout}/pause", json={"reason": "look"})
    aborted = fleet.operator.post(f"/v1/rollouts/{rollout}/abort", json={"reason": "bad"})
    held = fleet.operator.post(f"{HERE}/hold", json={"reason": "bad"})
    back = fleet.manager.post(f"{HERE}/rollback", json={"reason": "bad"})
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    at_once = on_call.post(f"{HERE}/rollback", json={"reason": "bad", "now": True})

    assert [paused.status_code, aborted.status_code, held.status_code] == [200, 200, 200]
    assert back.json()["code"] == "nothing_to_go_back_to"  # nothing succeeded yet; no request
    assert at_once.json()["code"] == "nothing_to_go_back_to", "an approval would not help"
    assert fleet.viewer.get("/v1/requests?state=waiting").json()["items"] == []


def test_an_approval_keeps_the_requested_start(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    start_at = (fleet.installation.clock() + timedelta(hours=2)).isoformat()

    asked = fleet.manager.post(
        f"{HERE}/promote", json={"release_id": "web.1", "start_at": start_at}
    )
    done = approve(ann, asked.json())
    why = fleet.viewer.get(f"/v1/rollouts/{CHANNEL}@web.1/explain").json()

    assert done.json()["state"] == "executed", done.text
    assert [item["gate"] for item in why["verdicts"] if not item["passed"]][:1] == ["start-at"]


def test_promoting_a_rolled_back_release_again_takes_two_people(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.succeed()
    approver(fleet)
    protect(fleet)

    back = fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"})
    again = fleet.manager.post(f"{HERE}/rollback", json={"reason": "it was not", "to": "web.2"})

    assert (back.status_code, pin_of(fleet)) == (200, "web.1")
    assert again.status_code == 202, again.text
    assert pin_of(fleet) == "web.1"


def test_loosening_the_protection_takes_two_people(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    approver(fleet)
    protect(fleet)
    protect(fleet, approvals=2)

    less = fleet.manager.post(f"{HERE}/protect", json=WHY | {"approvals": 1})
    none = fleet.manager.post(f"{HERE}/unprotect", json=WHY)

    assert [less.status_code, none.status_code] == [202, 202]
    assert fleet.viewer.get(HERE).json()["protection"]["approvals"] == 2
    assert approve(ann, none.json()).json()["state"] == "waiting"


def test_protects_no_channel_without_enough_other_approvers(fleet: ServedFleet) -> None:
    alone = fleet.served.as_role(Role.RELEASE_MANAGER)
    found = len(fleet.installation.guard.approvers(CHANNEL))

    refused = alone.post(f"{HERE}/protect", json=WHY | {"approvals": min(found + 1, 5)})

    assert (refused.status_code, refused.json()["code"]) == (422, "nobody_else_approves")


def test_break_glass_is_reviewed(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL, Role.APPROVER)
    protect(fleet)
    glass = {"tidegate-break-glass": "it%20burns"}

    without = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=glass)
    done = on_call.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=glass)
    (waiting,) = ann.get("/v1/requests", params={"state": "to-review"}).json()["items"]
    path = f"/v1/requests/{waiting['request_id']}/review"
    own = on_call.post(path, json={"accepted": True, "reason": "fine"})
    reviewed = ann.post(path, json={"accepted": False, "reason": "wake me"})

    assert without.status_code == 403
    assert done.status_code == 200, done.text
    assert pin_of(fleet) == "web.1"
    assert (waiting["reason"], waiting["kind"]) == ("it burns", "channel.promote")
    assert own.json()["code"] == "own_request"
    assert (reviewed.json()["state"], reviewed.json()["accepted"]) == ("reviewed", False)


def test_a_channel_can_forbid_break_glass(fleet: ServedFleet) -> None:
    approver(fleet)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    protect(fleet, break_glass=False)

    refused = on_call.post(
        f"{HERE}/promote",
        json={"release_id": "web.1"},
        headers={"tidegate-break-glass": "fire"},
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "break_glass_forbidden")
    assert pin_of(fleet) is None


def test_a_repeat_gets_the_same_request(fleet: ServedFleet) -> None:
    approver(fleet)
    protect(fleet)
    key = {"idempotency-key": "one"}

    asked = [
        fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=key).json()
        for _ in range(2)
    ]

    assert asked[0] == asked[1]


def test_a_repeat_with_another_reason_gets_the_open_request(
    fleet: ServedFleet,
) -> None:
    approver(fleet)
    protect(fleet)
    bob = fleet.served.as_role(Role.RELEASE_MANAGER)

    def promote(who: httpx2.Client, release: str, reason: str) -> dict[str, Any]:
        body = {"release_id": release, "reason": reason}
        asked = who.post(f"{HERE}/promote", json=body)
        assert asked.status_code == 202, asked.text
        found: dict[str, Any] = asked.json()
        return found

    first = promote(fleet.manager, "web.1", "for the fair")
    again = promote(fleet.manager, "web.1", "please")
    other = promote(fleet.manager, "web.2", "please")
    of_bob = promote(bob, "web.1", "please")

    assert (again["request_id"], again["reason"]) == (first["request_id"], "for the fair")
    ids = {item["request_id"] for item in (first, other, of_bob)}
    assert len(ids) == 3
    listed = fleet.manager.get("/v1/requests").json()["items"]
    assert {item["request_id"] for item in listed} == ids


def test_rejects_and_withdraws(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    one, two = ask(fleet), ask(fleet, "web.2")

    rejected = ann.post(f"/v1/requests/{one['request_id']}/reject", json={"reason": "no"})
    other = ann.post(f"/v1/requests/{two['request_id']}/withdraw", json={})
    own = fleet.manager.post(f"/v1/requests/{two['request_id']}/withdraw", json={})
    late = approve(ann, one)

    assert rejected.json()["state"] == "rejected"
    assert other.json()["code"] == "not_own_request"
    assert own.json()["state"] == "withdrawn"
    assert late.json()["code"] == "request_over"


def test_names_the_rollback_now_that_needs_no_second_person(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.succeed()
    approver(fleet)
    protect(fleet)
    manager = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    command = f"tidegate channel rollback {CHANNEL}"

    made = manager.post(f"{HERE}/rollback", json={"reason": "bad", "now": True})
    shown = fleet.viewer.get(f"/v1/requests/{made.json()['request_id']}").json()
    protect(fleet, break_glass=False)
    forbidden = manager.post(f"{HERE}/rollback", json={"reason": "worse", "now": True})

    assert made.status_code == 202, made.text
    assert "waits for 1 more approval" in made.json()["next"]
    plain, at_once = made.json()["alternatives"]
    assert plain["says"].endswith("needs no second person")
    assert plain["command"] == f"{command} --to web.1 --reason …"
    assert at_once["command"] == f"{command} --to web.1 --now --reason … --break-glass"
    assert shown.get("alternatives", []) == [], "only the asker sees this"
    (only,) = forbidden.json()["alternatives"]
    assert "--break-glass" not in only["command"]


def test_warns_that_a_held_rollback_now_takes_a_second_person(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.succeed()
    approver(fleet)
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": [CHANNEL]})

    back = fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"})

    (warning,) = back.json()["warnings"]
    assert f"tidegate channel rollback {CHANNEL} --to web.1 --now --reason …" in warning
    assert "also a second person, or --break-glass" in warning
    on_call = fleet.served.as_role(Role.ON_CALL)
    why = on_call.get(f"/v1/rollouts/{back.json()['rollout_id']}/explain").json()
    found = next(wait["remedies"] for wait in why["waits"] if wait["code"] == "freeze")
    hasten, end, _ = (remedy["command"] for remedy in found)
    assert end.startswith("tidegate freeze delete ")
    assert end.endswith(" --reason …")
    assert hasten == f"tidegate channel rollback {CHANNEL} --to web.1 --now --reason …"


def test_makes_no_request_that_no_approval_could_help(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.dispatch()
    fleet.fail("web-01")
    approver(fleet)
    protect(fleet)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)

    unsaid = on_call.post(f"{HERE}/promote", json={"release_id": "web.2", "override": ["window"]})
    shut = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"})

    assert unsaid.status_code == 400, unsaid.text
    assert "an override needs a reason" in unsaid.text
    assert (shut.status_code, shut.json()["code"]) == (422, "closure_quarantined")
    assert shut.json()["detail"].startswith(f"web.1 is quarantined on {CHANNEL}: ")
    assert f"tidegate quarantine lift {CHANNEL} web.1 --reason …" in shut.json()["detail"]
    assert fleet.viewer.get("/v1/requests").json()["items"] == []


def test_the_same_change_gets_the_open_request(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    other = fleet.served.as_role(Role.RELEASE_MANAGER)

    first, again, another = ask(fleet), ask(fleet), ask(fleet, "web.2")
    theirs = other.post(f"{HERE}/promote", json={"release_id": "web.1"}).json()
    fleet.manager.post(f"/v1/requests/{first['request_id']}/withdraw", json={})
    afterwards = ask(fleet)

    assert again["request_id"] == first["request_id"]
    ids = [item["request_id"] for item in (first, another, theirs, afterwards)]
    assert len(set(ids)) == 4
    assert approve(ann, afterwards).json()["state"] == "executed"


def status(who: httpx2.Client) -> dict[str, Any]:
    found: dict[str, Any] = who.get("/v1/status").json()
    return found


def test_status_names_a_request_to_approvers_and_shows_others_that_it_waits(
    fleet: ServedFleet,
) -> None:
    ann, bob = approver(fleet), approver(fleet)
    protect(fleet, approvals=2)
    request = ask(fleet)
    show = f"tidegate request show {request['request_id']}"

    before = status(ann)
    approve(ann, request)
    after, others, own = status(ann), status(fleet.viewer), status(fleet.manager)

    (item,) = before["attention"]
    assert (before["is_well"], item["channel"], item["next"]) == (False, CHANNEL, show)
    assert "waits for your approval: promote web.1 on web-stable" in item["says"]
    assert status(bob)["is_well"] is False
    for seen in (after, others, own):
        assert (seen["is_well"], seen["attention"]) == (True, [])
        (notice,) = seen["notices"]
        assert (notice["kind"], notice["next"]) == ("request", show)
        assert "waits for the approval of others" in notice["says"]
    assert own["notices"][0]["says"].startswith("your request R-")
    approve(bob, request)
    assert status(fleet.viewer)["notices"] == []


def test_status_names_a_break_glass_to_its_reviewers(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    alone = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL, Role.APPROVER)
    protect(fleet)
    headers = {"tidegate-break-glass": "it%20burns"}
    done = alone.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=headers)
    assert done.status_code == 200, done.text

    reviewer, own = status(ann), status(alone)

    (item,) = reviewer["attention"]
    assert (reviewer["is_well"], "waits for your review" in item["says"]) == (False, True)
    assert item["next"].startswith("tidegate request show R-")
    assert (own["is_well"], [one["kind"] for one in own["notices"]]) == (True, ["request"])


def test_status_names_a_proposal_to_its_approvers(fleet: ServedFleet) -> None:
    fleet.draft("v1", packageName="api")
    fleet.push("default.api.v1", a="1")
    assert fleet.step(fleet.author, "propose", "default.api.v1").status_code == 200

    reviewer, author = status(fleet.approver), status(fleet.author)

    (item,) = reviewer["attention"]
    assert (reviewer["is_well"], item["next"]) == (False, "tidegate rev approve default.api.v1")
    assert (author["is_well"], author["approvals_waiting"]) == (True, 1)


def test_status_shows_freezes_and_holds_without_an_alarm(fleet: ServedFleet) -> None:
    until = (fleet.clock() + timedelta(hours=2)).isoformat()
    body = {"reason": "holidays", "channels": [CHANNEL], "until": until}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    assert fleet.operator.post(f"{HERE}/hold", json=WHY).status_code == 200

    found = status(fleet.viewer)
    fleet.wait(7_201)
    later = status(fleet.viewer)

    assert found["is_well"] is True
    freeze, hold = found["notices"]
    assert (freeze["kind"], hold["kind"], hold["channel"]) == ("freeze", "hold", CHANNEL)
    assert "web-stable frozen by " in freeze["says"]
    assert freeze["says"].endswith("until 2026-04-24 22:00 UTC: holidays")
    assert hold["says"].startswith("held by ")
    assert [item["kind"] for item in later["notices"]] == ["hold"]


def test_shows_an_approver_the_history_and_the_gates(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.succeed()
    fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"})
    fleet.succeed()
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": [CHANNEL]})
    ann = approver(fleet)
    protect(fleet)

    again = ask(fleet, "web.2")
    notes = ann.get(f"/v1/requests/{again['request_id']}").json()["notes"]

    bad, freeze, hosts = notes
    assert f" rolled {CHANNEL} back from web.2 at " in bad
    assert bad.endswith(": slow")
    assert freeze.startswith("Its orders would wait. Freeze ")
    assert hosts == "It reaches 2 hosts"


def test_names_the_release_of_a_requested_rollback(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.succeed()
    ann = approver(fleet)
    protect(fleet)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)

    asked = on_call.post(f"{HERE}/rollback", json={"reason": "bad", "now": True}).json()
    notes = ann.get(f"/v1/requests/{asked['request_id']}").json()["notes"]

    assert notes[0].startswith("It goes to web.1, which succeeded here at ")
    assert notes[1] == "It reaches 2 hosts"
