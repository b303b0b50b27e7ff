"""What one person alone may not loosen on a protected channel, and when this makes a request."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.protected_fleet import HERE, WHY, approve, approver, events, protect
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet, WireAgent, serve_fleet
from tidegate.control.operations.protection import GuardedVerb
from tidegate.control.queries.request_changes import describe_policy_changes
from tidegate.control.runtime import CommandOutcome
from tidegate.control.worker import make_request_deadlines
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.second_person import SecondPersonNeeded
from tidegate.domain.access.steps import UNHOLD_CHANNEL
from tidegate.domain.channels.facts import ChannelPolicy, WaveSpec
from tidegate.domain.channels.slices import UnholdChannel, unhold_channel


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    approver(fleet)
    return fleet


def wider(request: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["what"]: (item["before"], item["after"]) for item in request["changes"]}


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_a_channel_protected_during_the_decision_makes_a_request(
    fleet: ServedFleet,
) -> None:
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    caller = Caller(principal=Principal("user_other", "session", (Grant(Role.FLEET_OPERATOR),)))
    verb = GuardedVerb(
        step=UNHOLD_CHANNEL, channels=(CHANNEL,), arguments={"reason": "x"}, own_hold=CHANNEL
    )
    attempts = []

    def unhold_late(by: Caller) -> CommandOutcome:
        """The channel becomes protected between the check and the commit."""
        attempts.append(by.alongside)
        protect(fleet)
        command = UnholdChannel(channel=CHANNEL, operator=by.id, reason="x")
        return fleet.installation.execute(unhold_channel, command, by)

    with pytest.raises(SecondPersonNeeded):
        fleet.installation.guard.run(caller, verb, unhold_late, lambda: None)

    assert len(attempts) == 1
    assert events(fleet, "ChannelUnheld", "RequestMade") == ["RequestMade"]


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_ending_a_hold_or_freeze_of_another_person_takes_two_people(
    fleet: ServedFleet,
) -> None:
    ann, other = approver(fleet), fleet.served.as_role(Role.FLEET_OPERATOR)
    protect(fleet)
    fleet.operator.post(f"{HERE}/hold", json={"reason": "audit"})
    body = {"freeze_id": "xmas", "channels": [CHANNEL], "reason": "holidays"}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201

    unhold = other.post(f"{HERE}/unhold", json={"reason": "late"})
    thaw = other.post("/v1/freezes/xmas/end", json={"reason": "late"})
    assert [unhold.status_code, thaw.status_code] == [202, 202], thaw.text
    assert events(fleet, "ChannelUnheld", "FreezeEnded") == []
    assert thaw.json()["what"] == f"end the freeze xmas, which covers {CHANNEL}"
    done = [approve(ann, asked.json()) for asked in (unhold, thaw)]
    own = fleet.operator.post(f"{HERE}/hold", json={"reason": "once more"})
    released = fleet.operator.post(f"{HERE}/unhold", json={"reason": "mine"})

    assert [answer.json()["state"] for answer in done] == ["executed", "executed"]
    assert [own.status_code, released.status_code] == [200, 200]
    assert events(fleet, "ChannelUnheld", "FreezeEnded") == [
        *("ChannelUnheld", "FreezeEnded", "ChannelUnheld"),
    ]


ROLLOUT_VERBS: dict[str, tuple[str, dict[str, Any], str]] = {  # path, body, fact
    "retry": ("retry", {}, "OperatorClearance"),
    "clear": ("clearance", {"mode": "waive", "hosts": ["web-01"]}, "OperatorClearance"),
    "override": ("override", {"gate": "window"}, "GateOverridden"),
    "skip-wave": ("skip-wave", {"wave": "all"}, "WaveSkipped"),
    "promote-all": ("promote-all", {}, "WaveAdvanced"),
}
HALTED = ("retry", "clear")


def roll_out(fleet: ServedFleet, verb: str) -> httpx2.Client:
    """Open a rollout, let it fail if the verb needs that, and then protect its channel."""
    assert fleet.promote("web.1").status_code == 200
    fleet.dispatch()
    if verb in HALTED:
        fleet.fail("web-01")
    protect(fleet)
    return fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
@pytest.mark.parametrize("verb", ROLLOUT_VERBS)
def test_bypassing_a_gate_takes_two_people(fleet: ServedFleet, verb: str) -> None:
    path, members, fact = ROLLOUT_VERBS[verb]
    ann, on_call = approver(fleet), roll_out(fleet, verb)

    asked = on_call.post(f"/v1/rollouts/{ROLLOUT}/{path}", json=WHY | members)

    assert asked.status_code == 202, asked.text
    assert events(fleet, fact) == []
    own = approve(on_call, asked.json())
    assert own.status_code == 403, own.text
    assert events(fleet, fact) == []
    done = approve(ann, asked.json())
    assert done.json()["state"] == "executed", done.text
    assert events(fleet, fact) == [fact]


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
@pytest.mark.parametrize("verb", ROLLOUT_VERBS)
def test_break_glass_needs_one_person_and_a_review(fleet: ServedFleet, verb: str) -> None:
    path, members, fact = ROLLOUT_VERBS[verb]
    ann, on_call = approver(fleet), roll_out(fleet, verb)

    glass = {"tidegate-break-glass": "it%20burns"}
    done = on_call.post(f"/v1/rollouts/{ROLLOUT}/{path}", json=WHY | members, headers=glass)

    assert done.status_code == 200, done.text
    assert events(fleet, fact, "EmergencyUsed", "RequestMade") in (
        [fact, "EmergencyUsed"],
        ["EmergencyUsed", fact],
    )
    (review,) = ann.get("/v1/requests?state=to-review").json()["items"]
    assert review["channel"] == CHANNEL


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_stopping_a_rollout_takes_one_person(fleet: ServedFleet) -> None:
    roll_out(fleet, "retry")
    url = f"/v1/rollouts/{ROLLOUT}"

    given_up = fleet.operator.post(f"{url}/clearance", json=WHY | {"mode": "abandon"})

    assert given_up.status_code == 200, given_up.text
    assert events(fleet, "RequestMade", "EmergencyUsed") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_pausing_skipping_a_host_and_aborting_take_one_person(fleet: ServedFleet) -> None:
    roll_out(fleet, "pause")
    url = f"/v1/rollouts/{ROLLOUT}"

    done = [
        fleet.operator.post(f"{url}/{verb}", json=WHY | members)
        for verb, members in (("pause", {}), ("skip", {"host_id": "web-02"}), ("abort", {}))
    ]

    assert [answer.status_code for answer in done] == [200, 200, 200], done[1].text
    assert events(fleet, "RequestMade", "EmergencyUsed") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_a_freeze_of_all_channels_covers_the_protected_ones(fleet: ServedFleet) -> None:
    other = fleet.served.as_role(Role.FLEET_OPERATOR)
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"freeze_id": "all", "reason": "outage"})

    ended = other.post("/v1/freezes/all/end", json={"reason": "late"})

    assert ended.status_code == 202, ended.text
    assert events(fleet, "FreezeEnded") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_loosening_a_window_or_a_budget_takes_two_people(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    window = {
        "window_id": "nights",
        "kind": "deny",
        "channels": [CHANNEL],
        "start": "2026-04-24T08:00",
        "duration_seconds": 3_600,
        "rule": "FREQ=DAILY",
        "reason": "quiet",
    }
    made = fleet.operator.post("/v1/windows", json=window)
    bound = {"selector": "app=web", "max_in_flight": 1}
    fleet.operator.put("/v1/budgets/web", json=bound)
    protect(fleet)
    etag = {"if-match": made.headers["etag"]}

    longer = fleet.operator.patch(
        "/v1/windows/nights", json={"duration_seconds": 7_200, "reason": "more"}, headers=etag
    )
    stale = fleet.operator.patch(
        "/v1/windows/nights", json={"duration_seconds": 600, "reason": "less"}, headers=etag
    )
    etag = {"if-match": longer.headers["etag"]}
    shorter = fleet.operator.patch(
        "/v1/windows/nights", json={"duration_seconds": 600, "reason": "less"}, headers=etag
    )
    deleted = fleet.operator.post("/v1/windows/nights/delete", json={"reason": "gone"})
    tighter = fleet.operator.put("/v1/budgets/web", json={**bound, "max_in_flight_pct": 10})
    more = fleet.operator.put("/v1/budgets/web", json={**bound, "max_in_flight": 2})
    removed = fleet.operator.delete("/v1/budgets/web")

    assert [longer.status_code, tighter.status_code] == [200, 200], longer.text
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    waiting = [shorter, deleted, more, removed]
    assert [answer.status_code for answer in waiting] == [202, 202, 202, 202]
    assert wider(shorter.json()) == {"duration_seconds": ("7200", "600")}
    assert wider(more.json())["max_in_flight"] == ("1", "2")
    assert approve(ann, shorter.json()).json()["state"] == "executed"
    assert approve(ann, more.json()).json()["state"] == "executed"
    shown = fleet.viewer.get("/v1/windows/nights").json()
    assert shown["duration_seconds"] == 600


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_adding_an_allow_window_takes_two_people(
    fleet: ServedFleet,
) -> None:
    window = {
        "kind": "allow",
        "channels": [CHANNEL],
        "rule": "FREQ=DAILY",
        "start": "2026-04-24T02:00",
        "duration_seconds": 3_600,
        "reason": "nights",
    }
    protect(fleet)

    first = fleet.operator.post("/v1/windows", json=window | {"window_id": "one"})
    second = fleet.operator.post("/v1/windows", json=window | {"window_id": "two"})

    assert [first.status_code, second.status_code] == [201, 202], second.text


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_moving_a_host_to_another_channel_takes_two_people(
    fleet: ServedFleet,
) -> None:
    ann = approver(fleet)
    body = {"channel": "web-dev", "package": "default/web", "selector": "app=dev"}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201
    protect(fleet)

    kept = fleet.operator.put(
        "/v1/hosts/web-02/labels", json={"labels": {"app": "web", "tier": "rest", "rack": "b"}}
    )
    out = fleet.operator.put("/v1/hosts/web-02/labels", json={"labels": {"app": "dev"}})

    assert (out.status_code, kept.status_code) == (202, 200), out.text
    assert wider(out.json())["label app"] == ("web", "dev")
    assert approve(ann, out.json()).json()["state"] == "executed"
    assert fleet.viewer.get("/v1/hosts/web-02").json()["labels"] == {"app": "dev"}


LABELS = "/v1/hosts/web-02/labels"


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_taking_a_host_out_of_the_channel_takes_two_people(fleet: ServedFleet) -> None:
    """Not even in two steps, of which the first enters no other channel."""
    protect(fleet)

    out = fleet.operator.put(LABELS, json={"labels": {}})

    assert out.status_code == 202, out.text
    assert events(fleet, "HostLabelled") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_facts_that_would_move_a_host_out_of_the_channel_count(
    tmp_path: Path,
) -> None:
    with serve_fleet(tmp_path / "facts", fact_labels="arch") as fleet:
        seen = {"if-match": fleet.create().headers["etag"]}
        approver(fleet)
        body = {"selector": "fact/arch=x86_64,app!=dev"}
        edit = fleet.manager.patch(HERE, json=body, headers=seen)
        assert edit.status_code == 200, edit.text
        fleet.agents["web-02"].send(
            *("POST", "/v1/agent/heartbeat"),
            json={"agent_version": "1.0", "current_closures": {}, "facts": {"arch": "x86_64"}},
        )
        protect(fleet)

        kept = fleet.operator.put(LABELS, json={"labels": {"app": "web", "rack": "b"}})
        out = fleet.operator.put(LABELS, json={"labels": {"app": "dev"}})

    assert (kept.status_code, out.status_code) == (200, 202), (kept.text, out.text)


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_the_labels_of_a_token_take_no_host_out_of_the_channel(fleet: ServedFleet) -> None:
    earlier = fleet.operator.post("/v1/hosts/web-02/re-enroll", json={"labels": {"app": "dev"}})
    protect(fleet)
    moving = {"labels": {"app": "dev"}, "host_id": "web-02"}

    invited = fleet.operator.post("/v1/hosts/enroll", json=moving)
    again = fleet.operator.post("/v1/hosts/web-02/re-enroll", json={"labels": {"app": "dev"}})
    plain = fleet.operator.post("/v1/hosts/web-02/re-enroll", json={})
    traded = WireAgent(fleet.served, "web-02", fleet.clock).enroll(earlier.json()["token"])
    other = WireAgent(fleet.served, "web-02", fleet.clock).enroll(plain.json()["token"])

    for refused in (invited, again, traded):
        assert refused.json()["code"] == "host_leaves_protected", refused.text
    assert again.json()["detail"].endswith("change them with tidegate host label web-02")
    assert (plain.status_code, other.status_code) == (201, 200), other.text
    assert fleet.viewer.get("/v1/hosts/web-02").json()["labels"]["app"] == "web"


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_makes_no_request_for_a_version_that_the_caller_did_not_read(fleet: ServedFleet) -> None:
    protect(fleet)
    stale = {"if-match": '"1"'}
    approver(fleet)
    fleet.installation.guard.approvers(CHANNEL)

    edit = fleet.manager.patch(HERE, json={"selector": "app=api"}, headers=stale)
    promote = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=stale)
    unknown = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.99"})

    assert [edit.status_code, promote.status_code, unknown.status_code] == [409, 409, 404]
    assert events(fleet, "RequestMade") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_a_repeat_gets_the_first_response_although_the_channel_is_protected_now(
    fleet: ServedFleet,
) -> None:
    key = {"idempotency-key": "one"}
    body = {"release_id": "web.1"}
    first = fleet.manager.post(f"{HERE}/promote", json=body, headers=key)
    protect(fleet)

    second = fleet.manager.post(f"{HERE}/promote", json=body, headers=key)

    assert (first.status_code, second.status_code) == (200, 200), second.text
    assert first.json()["rollout_id"] == second.json()["rollout_id"]
    assert events(fleet, "RequestMade") == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_needs_another_confirmation_if_many_hosts_changed(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    protect(fleet)
    request = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.1"}).json()
    fleet.enroll("web-03", tier="rest", app="web")

    refused = approve(ann, request)
    after = ann.get(f"/v1/requests/{request['request_id']}").json()["state"]
    confirmed = approve(ann, request, hosts=3)

    assert (refused.status_code, refused.json()["code"]) == (409, "request_hosts_moved")
    assert "had 2 hosts" in refused.json()["detail"]
    assert after == "waiting"
    assert confirmed.json()["state"] == "executed", confirmed.text


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_an_urgent_request_expires_within_the_hour(fleet: ServedFleet) -> None:
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    protect(fleet)

    promoted = on_call.post(f"{HERE}/promote", json={"release_id": "web.1"}).json()
    body = {"release_id": "web.1", "reason": "it burns", "override": ["window"]}
    at_once = on_call.post(f"{HERE}/promote", json=body).json()

    made = fleet.installation.clock()
    found = [request["expires_at"][:16] for request in (promoted, at_once)]
    wanted = [made + timedelta(days=1), made + timedelta(hours=1)]
    assert found == [moment.isoformat()[:16] for moment in wanted]


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_the_worker_records_expired_requests_and_reminds_of_reviews(fleet: ServedFleet) -> None:
    approver(fleet)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    protect(fleet)
    etag = {"if-match": fleet.manager.get(HERE).headers["etag"]}
    voided = fleet.manager.patch(HERE, json={"selector": "app=api"}, headers=etag).json()
    glass = {"tidegate-break-glass": "it%20burns"}
    assert on_call.post(f"{HERE}/promote", json={"release_id": "web.1"}, headers=glass).is_success
    expiring = fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.2"}).json()
    deadlines = make_request_deadlines(fleet.installation)

    def state(request: dict[str, Any]) -> str:
        return str(fleet.viewer.get(f"/v1/requests/{request['request_id']}").json()["state"])

    deadlines.round()
    assert (state(voided), state(expiring)) == ("voided", "waiting")
    fleet.wait(86_401)
    deadlines.round()
    assert state(expiring) == "expired"
    assert events(fleet, "EmergencyUnreviewed") == []
    for _ in range(2):
        fleet.wait(86_400)
        deadlines.round()
    assert events(fleet, "EmergencyUnreviewed", "RequestExpired", "RequestVoided") == [
        *("RequestVoided", "RequestExpired", "EmergencyUnreviewed"),
    ]
    assert fleet.installation.health.differences() == []


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_describes_what_a_request_would_change(fleet: ServedFleet) -> None:
    protect(fleet)
    etag = {"if-match": fleet.manager.get(HERE).headers["etag"]}
    policy = {"waves": [{"name": "all", "soak_seconds": 30}], "sustained_failure_seconds": 5}

    asked = fleet.manager.patch(
        HERE, json={"policy": policy, "selector": "app=api"}, headers=etag
    ).json()

    assert asked["what"] == f"change the hosts and the policy of {CHANNEL}"
    assert wider(asked)["hosts"] == ("app=web", "app=api")
    assert wider(asked)["wave canary"][1] == "none"


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_shows_an_approver_the_defaults_of_omitted_members(fleet: ServedFleet) -> None:
    """What a policy omits gets the type's default: no waves, no grace."""
    protect(fleet)
    etag = {"if-match": fleet.manager.get(HERE).headers["etag"]}

    asked = fleet.manager.patch(HERE, json={"policy": {"waves": []}}, headers=etag).json()

    assert wider(asked)["wave canary"][1] == "none"
    assert wider(asked)["wave rest"] == ("none", "every host at once")


@pytest.mark.req("OP-6", engines=None, reason="an operation of a served fleet")
def test_shows_an_approver_that_a_protection_returns_to_its_defaults(fleet: ServedFleet) -> None:
    protect(fleet, approvals=1, break_glass=False)

    asked = fleet.manager.post(f"{HERE}/protect", json={"approvals": 1, "reason": "less"}).json()

    assert wider(asked)["break_glass"] == ("no", "yes")


def test_names_waves_that_change_places() -> None:
    waves = tuple(WaveSpec(name=name, count=1) for name in ("canary", "early", "rest"))
    before, after = ChannelPolicy(waves=waves), ChannelPolicy(waves=waves[::-1])

    (change,) = describe_policy_changes(before, after)

    assert change.what == "order of the waves"
    assert (change.before, change.after) == ("canary, early, rest", "rest, early, canary")
