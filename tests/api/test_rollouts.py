"""Rollouts over HTTP: lists, plans, events in order, and commands."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ROLLOUT, WAVES, ServedFleet
from tidegate.domain.rollouts.rows import Rollout, rollout_key

HTTP = {"engines": None, "reason": "what HTTP shows does not depend on the engine"}
URL = f"/v1/rollouts/{ROLLOUT}"
ONCE = {"idempotency-key": "abort-1"}


def pages(fleet: ServedFleet, url: str, limit: int) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    items: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(100):
        page = fleet.viewer.get(url, params={"limit": limit, "next": cursor}).json()
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items
    raise AssertionError("the list does not end")


@pytest.mark.req("RO-13", **HTTP)
def test_lists_rollouts_with_the_state_that_is_stored(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.promote("web.2")
    listed = {}
    for item in fleet.viewer.get("/v1/rollouts").json()["items"]:
        stored = fleet.installation.reads.find(rollout_key(item["rollout_id"]), Rollout)
        assert stored is not None
        assert item["state"] == stored.row.state
        assert (item["channel"], item["target_ref"]) == (CHANNEL, stored.row.target_ref)
        assert (item["current_wave"], item["version"]) == (0, stored.version)
        listed[item["rollout_id"]] = item["state"]

    assert listed == {ROLLOUT: "Superseded", "web-stable@web.2": "Opening"}

    def ids(**query: str) -> list[str]:
        found = fleet.viewer.get("/v1/rollouts", params=query).json()["items"]
        return [item["rollout_id"] for item in found]

    assert ids(state="Superseded") == [ROLLOUT]
    assert ids(channel=CHANNEL, state="Opening") == ["web-stable@web.2"]
    assert ids(channel=CHANNEL) == ids() == ["web-stable@web.2", ROLLOUT]  # the newest first
    assert fleet.viewer.get("/v1/rollouts", params={"state": "Lost"}).status_code == 400


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/v1/rollouts?channel=typo", "channel_not_found"),
        ("/v1/quarantine?channel=typo", "channel_not_found"),
        ("/v1/hosts?channel=typo", "channel_not_found"),
        ("/v1/outbox?scope=typo", "channel_not_found"),
        ("/v1/releases/typo/events", "channel_not_found"),
        ("/v1/releases/typo/evidence", "channel_not_found"),
        ("/v1/releases/typo/history", "channel_not_found"),
        ("/v1/packages?repository=typo", "not_found"),
        ("/v1/revisions?repository=typo", "not_found"),
        ("/v1/revisions?package=default/typo", "package_not_found"),
    ],
)
def test_a_list_of_something_that_does_not_exist_is_not_found(
    fleet: ServedFleet, url: str, code: str
) -> None:
    answer = fleet.viewer.get(url)

    assert (answer.status_code, answer.json()["code"]) == (404, code)
    assert "typo" in answer.json()["detail"]


def test_a_deleted_channel_still_lists_its_rollouts(fleet: ServedFleet) -> None:
    fleet.sail()
    body = {"reason": "not needed"}
    assert fleet.operator.post(f"{URL}/abort", json=body, headers=ONCE).status_code == 200
    gone = fleet.manager.post(f"/v1/channels/{CHANNEL}/delete", json=body)
    assert gone.status_code == 200, gone.text

    listed = fleet.viewer.get("/v1/rollouts", params={"channel": CHANNEL})

    assert [item["rollout_id"] for item in listed.json()["items"]] == [ROLLOUT]


@pytest.mark.req("RO-13", **HTTP)
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_lists_events_of_hosts_and_rollout_in_order_page_by_page(
    fleet: ServedFleet, limit: int
) -> None:
    fleet.sail()
    fleet.converge("web-01")

    items = pages(fleet, f"{URL}/events", limit)

    positions = [item["position"] for item in items]
    types = [item["type"].removeprefix("tidegate.") for item in items]
    assert positions == sorted(set(positions))
    assert types[:4] == ["RolloutOpened", "DispatchReserved", "HostJoined", "RolloutTransitioned"]
    assert {"DispatchAck", "HostStateChanged", "Converged", "WaveAdvanced"} <= set(types)
    assert types.index("Converged") < types.index("WaveAdvanced")
    assert {item["kind"] for item in items} >= {"agent_event", "rollout_event", "plan_action"}
    acknowledged = items[types.index("DispatchAck")]
    assert acknowledged["data"]["host_id"] == "web-01"
    assert acknowledged["actor"] == "host_web-01"


@pytest.mark.req("RO-21", **HTTP)
def test_shows_a_rollout_with_its_frozen_plan_by_its_id(fleet: ServedFleet) -> None:
    fleet.create()
    body = {"channel": CHANNEL, "release_id": "web.1", "display_name": "spring@cleaning"}
    opened = fleet.manager.post("/v1/rollouts", json=body)
    assert opened.json()["rollout_id"] == ROLLOUT, opened.text

    shown = fleet.viewer.get(URL)

    found = shown.json()
    assert (found["state"], found["current_wave"]) == ("Opening", 0)
    assert found["plan"]["display_name"] == "spring@cleaning"
    assert (found["plan"]["hosts"], found["plan"]["digest"]) == (2, found["plan_digest"])
    assert [wave["name"] for wave in found["plan"]["waves"]] == ["canary", "all"]
    assert [wave["hosts"] for wave in found["waves"]] == [1, 1]
    whole = fleet.viewer.get(f"{URL}/plan").json()
    assert [wave["hosts"] for wave in whole["waves"]] == [["web-01"], ["web-02"]]
    for name in (
        "spring@cleaning",
        "Spring cleaning",
        "web-stable",
        "web-stable@WEB.1",
        "@",
        "a@b~",
    ):
        answer = fleet.viewer.get(f"/v1/rollouts/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "rollout_unknown"), name
    assert fleet.viewer.get(f"/v1/rollouts/{'a' * 400}").status_code == 400
    same = fleet.viewer.get(URL, headers={"if-none-match": shown.headers["etag"]})
    assert same.status_code == 304


def test_changes_its_etag_with_what_it_shows_and_its_version_with_its_state(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    first = fleet.viewer.get(URL)
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None

    agent.acknowledge(order)
    then = fleet.viewer.get(URL)

    assert then.headers["etag"] != first.headers["etag"]
    assert then.json()["version"] == first.json()["version"]
    assert then.json()["waves"][0]["states"] == {"Activating": 1}


def test_lists_the_hosts_of_a_rollout_by_state_and_wave(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.converge("web-01")
    fleet.dispatch()

    def names(**query: str) -> list[str]:
        found = fleet.viewer.get(f"{URL}/hosts", params=query).json()["items"]
        return [item["host_id"] for item in found]

    assert names() == ["web-01", "web-02"]
    assert names(state="Pending") == ["web-02"]
    assert names(wave="0") == ["web-01"]
    assert [item["host_id"] for item in pages(fleet, f"{URL}/hosts", 1)] == ["web-01", "web-02"]
    assert fleet.viewer.get("/v1/rollouts/web-stable@web.9/hosts").status_code == 404


def test_pauses_and_resumes(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    seen = fleet.viewer.get(URL).headers["etag"]

    paused = fleet.operator.post(
        f"{URL}/pause", json={"reason": "lunch"}, headers={"if-match": seen}
    )
    refused = agent.acknowledge(order)
    resumed = fleet.operator.post(f"{URL}/resume", json={"reason": "back"})
    taken = agent.acknowledge(order)

    assert paused.status_code == 200, paused.text
    assert paused.json()["paused_by"].startswith("user_")
    assert (refused.status_code, refused.json()["code"]) == (409, "rollout_paused")
    assert "paused_at" not in resumed.json()
    assert taken.status_code == 200
    stale = fleet.operator.post(f"{URL}/pause", json={"reason": "x"}, headers={"if-match": '"1"'})
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")


def test_retries_a_reverted_rollout_and_lifts_its_quarantine(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")
    assert fleet.viewer.get(URL).json()["state"] == "Reverted"
    (row,) = fleet.viewer.get("/v1/quarantine").json()["items"]
    assert (row["channel"], row["rollout_id"]) == (CHANNEL, ROLLOUT)

    retried = fleet.operator.post(f"{URL}/retry", json={"reason": "the disk was full"})
    fleet.dispatch()
    fleet.converge("web-01")
    fleet.dispatch()
    fleet.converge("web-02")

    assert (retried.status_code, retried.json()["state"]) == (200, "Active")
    assert retried.json()["attempt"] == 2
    assert fleet.viewer.get("/v1/quarantine").json()["items"] == []
    assert fleet.viewer.get(URL).json()["state"] == "Terminal"
    assert fleet.installation.health.differences() == []


def test_clears_by_waiving_or_abandoning(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")
    clear = f"{URL}/clearance"

    nobody = fleet.operator.post(clear, json={"mode": "waive", "reason": "x"})
    stranger = fleet.operator.post(clear, json={"mode": "waive", "reason": "x", "hosts": ["no"]})
    unsaid = fleet.operator.post(clear, json={"mode": "waive", "reason": "", "hosts": ["web-01"]})
    mode = fleet.operator.post(clear, json={"mode": "forget", "reason": "x"})
    aborted = fleet.operator.post(f"{URL}/abort", json={"reason": "we go another way"})
    over = fleet.operator.post(f"{URL}/abort", json={"reason": "again"})

    assert [item.status_code for item in (nobody, stranger, unsaid, mode)] == [400, 404, 400, 400]
    assert (aborted.status_code, aborted.json()["state"]) == (200, "Superseded")
    assert (over.status_code, over.json()["code"]) == (422, "invalid_transition")


def test_continues_without_a_waived_host(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")

    cleared = fleet.operator.post(
        f"{URL}/clearance", json={"mode": "waive", "reason": "broken disk", "hosts": ["web-01"]}
    )

    assert cleared.status_code == 200, cleared.text
    assert cleared.json()["state"] != "Reverted"
    assert cleared.json()["waves"][0]["left"] == 1


def test_aborts_a_running_rollout_and_withdraws_its_orders(fleet: ServedFleet) -> None:
    fleet.sail()
    order = fleet.agents["web-01"].order()
    assert order is not None
    said: dict[str, Any] = {"json": {"reason": "not this one"}, "headers": ONCE}

    aborted = fleet.operator.post(f"{URL}/abort", **said)
    again = fleet.operator.post(f"{URL}/abort", **said)
    late = fleet.agents["web-01"].acknowledge(order)
    swept = fleet.dispatch(thorough=True)
    channel = fleet.viewer.get(f"/v1/channels/{CHANNEL}").json()

    assert (aborted.status_code, aborted.json()["state"]) == (200, "Superseded"), aborted.text
    assert aborted.json()["reason"] == "aborted: not this one"
    assert "superseded_by" not in aborted.json()
    assert (again.status_code, again.headers["tidegate-position"]) == (
        200,
        aborted.headers["tidegate-position"],
    )
    assert (late.status_code, late.json()["code"]) == (410, "rollout_superseded")
    assert swept.cancelled == 1
    assert "active_rollout_id" not in channel
    assert channel["newest_state"] == "Superseded"
    assert fleet.promote("web.2").status_code == 200
    assert fleet.installation.health.differences() == []


def test_promotes_an_aborted_release_again(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.operator.post(f"{URL}/abort", json={"reason": "not now"})

    again = fleet.promote("web.1")

    assert (again.status_code, again.json()["rollout_id"]) == (200, f"{ROLLOUT}~2"), again.text


def test_a_repeated_abort_gets_the_first_response(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")
    said: dict[str, Any] = {"json": {"reason": "another way"}, "headers": ONCE}

    answers = [fleet.operator.post(f"{URL}/abort", **said) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json()["reason"] for answer in answers] == ["abandon: another way"] * 2


def test_refuses_to_retry_a_rollout_that_did_not_halt(fleet: ServedFleet) -> None:
    fleet.sail()

    answer = fleet.operator.post(f"{URL}/retry", json={"reason": "x"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_transition")
    missing = fleet.operator.post("/v1/rollouts/web-stable@web.9/retry", json={"reason": "x"})
    assert (missing.status_code, missing.json()["code"]) == (404, "rollout_unknown")


@pytest.mark.req("OP-1", **HTTP)
def test_shows_how_a_rollout_ended_and_why(fleet: ServedFleet) -> None:
    fleet.sail()
    shown = fleet.viewer.get(URL).json()
    assert (shown.get("outcome"), shown.get("outcome_at")) == (None, None)

    fleet.fail("web-01")
    assert fleet.viewer.get(URL).json().get("outcome") is None, "a retry may still succeed"
    fleet.operator.post(f"{URL}/abort", json={"reason": "not this one"})

    ended = fleet.viewer.get(URL).json()
    (listed,) = fleet.viewer.get("/v1/rollouts").json()["items"]
    assert (ended["state"], ended["outcome"]) == ("Superseded", "rolled_back")
    assert (ended["cause"], ended["cause_id"]) == ("host", "web-01")
    assert (listed["outcome"], listed["outcome_at"]) == (ended["outcome"], ended["outcome_at"])
    assert (listed["hosts"], listed["failures"], listed["halted_by"]) == (2, 1, "web-01")
    types = [event["type"] for event in pages(fleet, f"{URL}/events", 50)]
    assert types[-2:] == ["tidegate.RolloutTransitioned", "tidegate.RolloutConcluded"]


@pytest.mark.req("OP-1", **HTTP)
def test_finds_rollouts_by_how_they_ended_and_when(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")
    fleet.operator.post(f"{URL}/abort", json={"reason": "not this one"})
    fleet.promote("web.2")
    later = "web-stable@web.2"
    opened = fleet.viewer.get(f"/v1/rollouts/{later}").json()["opened_at"]

    def ids(**query: str) -> list[str]:
        found = fleet.viewer.get("/v1/rollouts", params=query).json()["items"]
        return [item["rollout_id"] for item in found]

    assert ids() == [later, ROLLOUT]
    assert ids(outcome="rolled_back") == ids(outcome="failed,rolled_back") == [ROLLOUT]
    assert ids(outcome="succeeded") == []
    assert ids(had_failures="true") == [ROLLOUT]
    assert ids(since=opened) == [later]
    assert [item["rollout_id"] for item in pages(fleet, "/v1/rollouts", 1)] == [later, ROLLOUT]
    wrong = fleet.viewer.get("/v1/rollouts", params={"outcome": "lost"})
    assert (wrong.status_code, "allowed are succeeded" in wrong.json()["detail"]) == (400, True)


def test_explains_why_hosts_wait(fleet: ServedFleet) -> None:
    fleet.sail()

    whole = fleet.viewer.get(f"{URL}/explain").json()
    host = fleet.viewer.get(f"{URL}/explain", params={"host_id": "web-02"}).json()
    elsewhere = fleet.viewer.get("/v1/hosts/web-02/explain").json()["items"]

    assert (whole["rollout_id"], whole["waiting"]) == (ROLLOUT, 1)
    shut = [item["gate"] for item in host["verdicts"] if not item["passed"]]
    assert shut == ["wave-promotion"]
    assert elsewhere == [host]
    assert fleet.viewer.get("/v1/rollouts/web-stable@web.9/explain").status_code == 404


def test_tells_when_a_host_that_does_not_take_its_order_reported_last(fleet: ServedFleet) -> None:
    fleet.sail()
    assert fleet.agents["web-01"].beat().status_code == 200
    heard = fleet.clock()
    fleet.wait(75)

    why = fleet.operator.get(f"{URL}/explain").json()

    (wait,) = [item for item in why["waits"] if item["code"] == "pending"]
    assert f"it last reported at {heard:%Y-%m-%d %H:%M} UTC" in wait["sentence"]
    skip = f"tidegate rollout skip {ROLLOUT} web-01 --reason …"
    assert wait["remedies"] == [
        {
            "command": skip,
            "when": "if the host is switched off",
            "needs": ["operate"],
            "scopes": [f"channel:{CHANNEL}"],
        }
    ]


def test_tells_why_a_rollout_was_paused(fleet: ServedFleet) -> None:
    fleet.sail()
    for reason in ("checking logs", "a second look"):
        assert fleet.operator.post(f"{URL}/pause", json={"reason": reason}).status_code == 200
    shown = fleet.viewer.get(URL).json()
    why = fleet.viewer.get(f"{URL}/explain").json()
    (needed,) = fleet.viewer.get("/v1/status").json()["attention"]
    assert fleet.operator.post(f"{URL}/resume", json={"reason": "fine"}).status_code == 200
    resumed = fleet.viewer.get(URL).json()

    (wait,) = [item for item in why["waits"] if item["code"] == "paused"]
    assert re.search(r"paused by user_\d+: checking logs$", wait["sentence"]), wait
    assert shown["paused_reason"] == "checking logs"
    assert re.fullmatch(r"web\.1 is paused by user_\d+: checking logs", needed["says"]), needed
    assert "paused_reason" not in resumed


def test_tells_by_whom_and_why_a_host_was_skipped(fleet: ServedFleet) -> None:
    fleet.sail()
    body = {"host_id": "web-02", "reason": "switched off"}
    assert fleet.operator.post(f"{URL}/skip", json=body).status_code == 200
    at = f"{fleet.clock():%Y-%m-%d %H:%M} UTC: switched off"

    during = fleet.viewer.get(f"{URL}/explain", params={"host_id": "web-02"}).json()["answer"]
    fleet.converge("web-01")
    freeze = {"reason": "holidays", "channels": [CHANNEL], "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=freeze).status_code == 201
    fleet.dispatch(thorough=True)
    (after,) = fleet.viewer.get("/v1/hosts/web-02/explain").json()["items"]

    assert during.startswith(f"the host was skipped in {ROLLOUT} by "), during
    assert during.endswith(f" at {at}. It is not waited for"), during
    later = ". It gets the release as a late host. Now freeze holds it: freeze xmas: holidays"
    assert after["answer"] == during.replace(". It is not waited for", later)


def test_shows_a_rollout_as_it_was(fleet: ServedFleet) -> None:
    fleet.sail()
    before = fleet.installation.log.head()
    fleet.converge("web-01")

    then = fleet.viewer.get(URL, params={"as_of": str(before)})
    now = fleet.viewer.get(URL)

    assert then.status_code == 200, then.text
    assert then.json()["waves"][0]["states"] == {"Pending": 1}
    assert now.json()["waves"][0]["states"] == {"Converged": 1}
    assert then.headers["tidegate-position"] == str(before)
    assert fleet.viewer.get(URL, params={"as_of": "1"}).status_code == 404


def test_starts_no_rollout_before_the_time_of_its_promotion(fleet: ServedFleet) -> None:
    fleet.create()
    start_at = fleet.clock() + timedelta(hours=2)
    body = {"release_id": "web.1", "start_at": start_at.isoformat()}

    promoted = fleet.manager.post(f"/v1/channels/{CHANNEL}/promote", json=body)
    fleet.dispatch()

    assert promoted.status_code == 200, promoted.text
    assert fleet.agents["web-01"].order() is None
    why = fleet.viewer.get(f"{URL}/explain").json()
    (wait,) = [item for item in why["waits"] if item["code"] == "start-at"]
    assert (wait["ends"], wait["until"][:16]) == ("by_itself", start_at.isoformat()[:16])
    fleet.wait(7_201)
    fleet.dispatch(thorough=True)
    assert fleet.agents["web-01"].order() is not None


def test_starts_a_manual_wave_on_command(fleet: ServedFleet) -> None:
    fleet.sail(waves=[{"name": "all", "manual": True}])
    assert fleet.agents["web-01"].order() is None
    why = fleet.viewer.get(f"{URL}/explain").json()
    assert why["waits"][0]["code"] == "manual"

    done = fleet.operator.post(f"{URL}/continue", json={})
    fleet.dispatch(thorough=True)

    assert done.status_code == 200, done.text
    assert fleet.agents["web-01"].order() is not None


def test_a_soak_counts_as_progress(fleet: ServedFleet) -> None:
    fleet.sail()
    under_way = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    agent.activate(order)
    fleet.dispatch()

    shown = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()
    status = fleet.viewer.get("/v1/status").json()

    assert under_way["progress"]["says"] == "wave 1 of 2 (canary): 0 of 1 hosts done"
    progress = {"says": "wave 1 of 2 (canary) soaks", "until": "2026-04-24T20:00:30Z"}
    assert shown["progress"] == progress
    (gate,) = shown["gates"]
    assert (gate["gate"], gate["needs_person"]) == ("wave-promotion", False)
    assert (status["is_well"], status["attention"], status["notices"]) == (True, [], [])
    assert status["channels"][0]["progress"] == progress


def test_a_wave_that_waits_for_a_person_needs_attention(fleet: ServedFleet) -> None:
    fleet.sail(waves=[WAVES[0], {**WAVES[1], "manual": True}])
    fleet.converge("web-01")
    fleet.dispatch(thorough=True)

    shown = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()
    status = fleet.viewer.get("/v1/status").json()

    assert [gate["needs_person"] for gate in shown["gates"]] == [True]
    (item,) = status["attention"]
    assert "wave all waits for an operator to continue it" in item["says"]


def test_an_edge_needs_attention_only_if_nothing_will_open_it(fleet: ServedFleet) -> None:
    fleet.create()
    late = {
        "channel": "late",
        "package": "default/web",
        "selector": "app=late",
        "policy": {"waves": WAVES, "edges": [{"channel": CHANNEL}]},
    }
    assert fleet.manager.post("/v1/channels", json=late).status_code == 201
    fleet.enroll("late-01", app="late", tier="canary")
    opened = fleet.manager.post("/v1/channels/late/promote", json={"release_id": "web.1"})
    assert opened.status_code == 200, opened.text

    url, tags = "/v1/rollouts/late@web.1", ['"none"']

    def needed() -> list[tuple[str, bool]]:
        fleet.dispatch(thorough=True)
        answer = fleet.viewer.get(url, headers={"if-none-match": tags[-1]})
        assert answer.status_code == 200, "what it shows changed, and so did its ETag"
        tags.append(answer.headers["etag"])
        return [(gate["gate"], gate["needs_person"]) for gate in answer.json()["gates"]]

    never = needed()
    fleet.promote()
    going = needed()
    fleet.operator.post(f"/v1/rollouts/{ROLLOUT}/pause", json={"reason": "wait"})

    assert never == [("channel-edges", True)]
    assert going == [("channel-edges", False)]
    assert needed() == [("channel-edges", True)]
    again = fleet.viewer.get(url, headers={"if-none-match": tags[-1]})
    assert again.status_code == 304
