"""Hosts over HTTP: listed by label, shown, labelled, retired."""

from __future__ import annotations

import pytest

from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tidegate.domain.fleet.agent_versions import AGENT_VERSION_MIN


def test_lists_hosts_by_selector_status_and_channel(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.enroll("db-01", app="db")
    fleet.operator.post("/v1/hosts/db-01/revoke", json={"reason": "x"})

    def names(**query: str) -> list[str]:
        found = fleet.viewer.get("/v1/hosts", params=query).json()["items"]
        return [item["host_id"] for item in found]

    assert names() == ["db-01", "web-01", "web-02"]
    assert names(status="revoked") == ["db-01"]
    assert names(selector="app=web,tier!=canary") == ["web-02"]
    assert names(channel=CHANNEL) == ["web-01", "web-02"]
    assert names(limit="1") == ["db-01"]
    assert fleet.viewer.get("/v1/hosts", params={"selector": "=="}).status_code == 400
    assert fleet.viewer.get("/v1/hosts", params={"status": "lost"}).status_code == 400
    assert fleet.viewer.get("/v1/hosts", params={"channel": "none"}).status_code == 404


def test_shows_a_host_with_its_history(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.agents["web-01"].beat(**{CHANNEL: "sha256:old"})

    found = fleet.viewer.get("/v1/hosts/web-01").json()

    assert found["labels"] == {"tier": "canary", "app": "web"}
    assert (found["channels"], found["order"]) == ([CHANNEL], ROLLOUT)
    assert (found["agent_version"], found["last_seen_at"]) == ("1.0", "2026-04-24T20:00:00Z")
    assert [(item["rollout_id"], item["state"]) for item in found["records"]] == [
        (ROLLOUT, "Pending")
    ]
    missing = fleet.viewer.get("/v1/hosts/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "host_not_found")


def test_the_etag_of_a_host_changes_with_everything_shown(fleet: ServedFleet) -> None:
    fleet.create()
    url = "/v1/hosts/web-01"
    tags: list[str] = []

    def look() -> int:
        seen = {"if-none-match": tags[-1]} if tags else {}
        answer = fleet.viewer.get(url, headers=seen)
        tags.append(answer.headers["etag"])
        return answer.status_code

    assert (look(), look()) == (200, 304)
    fleet.agents["web-01"].beat(**{CHANNEL: "sha256:old"})
    assert (look(), look()) == (200, 304), "it reported"
    fleet.promote()
    fleet.dispatch()
    assert (look(), look()) == (200, 304), "it has an order"
    labels = {"labels": {"app": "web", "tier": "rest"}}
    seen = {"if-match": tags[0]}
    assert fleet.operator.put(f"{url}/labels", json=labels, headers=seen).status_code == 200, (
        "If-Match names the version of the host alone"
    )


def test_labels_a_host_only_at_the_version_that_was_read(fleet: ServedFleet) -> None:
    fleet.create()
    seen = fleet.viewer.get("/v1/hosts/web-01").headers["etag"]
    url = "/v1/hosts/web-01/labels"

    labelled = fleet.operator.put(url, json={"labels": {"app": "db"}}, headers={"if-match": seen})
    stale = fleet.operator.put(url, json={"labels": {}}, headers={"if-match": seen})
    wrong = fleet.operator.put(url, json={"labels": {"a b": "c"}})
    missing = fleet.operator.put("/v1/hosts/none/labels", json={"labels": {}})

    assert labelled.status_code == 200, labelled.text
    assert (labelled.json()["labels"], labelled.json().get("channels", [])) == ({"app": "db"}, [])
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_label")
    assert missing.status_code == 404


def test_retires_a_host_for_good(fleet: ServedFleet) -> None:
    retired = fleet.operator.post("/v1/hosts/web-01/retire", json={"reason": "sold"})
    again = fleet.operator.post("/v1/hosts/web-01/retire", json={"reason": "sold"})
    poll = fleet.agents["web-01"].poll()
    invited = fleet.operator.post("/v1/hosts/enroll", json={"host_id": "web-01"})

    assert (retired.status_code, retired.json()["status"]) == (200, "retired")
    assert again.status_code == 200
    assert (poll.status_code, poll.json()["code"]) == (401, "key_refused")
    assert (invited.status_code, invited.json()["code"]) == (410, "host_retired")


@pytest.mark.parametrize(
    "body",
    [
        {"host_id": "Web 1"},
        {"host_id": ""},
        {"host_id": "a", "labels": {"b": 1}},
        {},
        {"host": "a"},
    ],
)
def test_refuses_invalid_enrollments(fleet: ServedFleet, body: dict[str, object]) -> None:
    assert fleet.operator.post("/v1/hosts/enroll", json=body).status_code == 400


def test_explains_nothing_about_a_host_without_a_rollout(fleet: ServedFleet) -> None:
    assert fleet.viewer.get("/v1/hosts/web-01/explain").json()["items"] == []
    assert fleet.viewer.get("/v1/hosts/none/explain").status_code == 404


def test_lists_the_hosts_that_run_a_release(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.enroll("db-01", app="db")
    digest = fleet.viewer.get("/v1/releases/web.1").json()["digest"]
    fleet.agents["web-01"].beat(**{CHANNEL: digest})
    fleet.agents["web-02"].beat(**{CHANNEL: "sha256:other"})
    fleet.agents["db-01"].beat(other=digest)  # the same content, but from no channel of web

    assert names(fleet, runs="web.1") == ["web-01"]
    assert names(fleet, runs="web.2") == []
    missing = fleet.viewer.get("/v1/hosts", params={"runs": "web.9"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert "there is no release web.9; tidegate rev list" in missing.json()["detail"]


def test_shows_wanted_and_running_releases(fleet: ServedFleet) -> None:
    fleet.sail()
    old, new = (fleet.viewer.get(f"/v1/releases/web.{n}").json()["digest"] for n in (2, 1))
    fleet.agents["web-01"].beat(**{CHANNEL: new})
    fleet.agents["web-02"].beat(**{CHANNEL: old, "gone": "sha256:unknown"})
    fleet.enroll("db-01", app="db")

    listed = fleet.viewer.get("/v1/hosts").json()["items"]
    shown = fleet.viewer.get("/v1/hosts/web-02").json()

    web = {"channel": CHANNEL, "wanted": "web.1"}
    assert [item.get("releases", []) for item in listed] == [
        [],
        [{**web, "runs": "web.1", "digest": new}],
        [{"channel": "gone", "digest": "sha256:unknown"}, {**web, "runs": "web.2", "digest": old}],
    ]
    assert shown["releases"] == listed[2]["releases"]


def test_no_release_is_wanted_on_a_retired_host(fleet: ServedFleet) -> None:
    fleet.sail()
    digest = fleet.viewer.get("/v1/releases/web.1").json()["digest"]
    fleet.agents["web-02"].beat(**{CHANNEL: digest})
    fleet.operator.post("/v1/hosts/web-02/retire", json={"reason": "sold"})

    shown = fleet.viewer.get("/v1/hosts/web-02").json()

    assert shown["releases"] == [{"channel": CHANNEL, "runs": "web.1", "digest": digest}]


def test_lists_the_hosts_that_are_silent(fleet: ServedFleet) -> None:
    fleet.agents["web-01"].beat()
    fleet.wait(1_800)
    fleet.agents["web-02"].beat()
    fleet.tick()

    assert names(fleet, silent_seconds="0") == ["web-01"]
    assert names(fleet, silent_seconds="1200") == ["web-01"]
    assert names(fleet, silent_seconds="7200") == []
    fleet.wait(120)  # web-02 does not count as silent yet
    assert names(fleet, silent_seconds="0") == ["web-01"]
    assert names(fleet, silent_seconds="60") == ["web-01", "web-02"]


def test_names_agents_that_are_too_old(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.agents["web-01"].beat()
    body = {"agent_version": "0.0.9", "current_closures": {}}
    fleet.agents["web-02"].send("POST", "/v1/agent/heartbeat", json=body)

    listed = fleet.viewer.get("/v1/hosts").json()["items"]
    status = fleet.viewer.get("/v1/status").json()

    assert [item.get("agent_too_old", False) for item in listed] == [False, True]
    assert names(fleet, old_agent="true") == ["web-02"]
    assert fleet.viewer.get("/v1/hosts/web-02").json()["agent_too_old"] is True
    old = [item for item in status["attention"] if item.get("channel") is None]
    assert [(item["says"], item["next"]) for item in old] == [
        (
            f"1 host runs an agent older than {AGENT_VERSION_MIN}: web-02",
            "tidegate host list --old-agent",
        )
    ]
    assert not status["is_well"]


def names(fleet: ServedFleet, **query: str) -> list[str]:
    found = fleet.viewer.get("/v1/hosts", params=query)
    assert found.status_code == 200, found.text
    return [item["host_id"] for item in found.json()["items"]]


def test_explains_a_late_host_by_the_rollout_that_it_joins(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.succeed()
    fleet.promote("web.2")
    ended = fleet.operator.post("/v1/rollouts/web-stable@web.2/abort", json={"reason": "not this"})
    assert ended.status_code == 200, ended.text
    fleet.enroll("web-03", app="web")

    (found,) = fleet.viewer.get("/v1/hosts/web-03/explain").json()["items"]

    assert found["rollout_id"] == "web-stable@web.1"
    assert found["answer"] == "nothing holds the host back: its order goes out with the next pass"
