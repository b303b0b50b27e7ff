"""Channels over HTTP: created, edited, promoted, rolled back, held, and as of an earlier time."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.api.accounts import NAME, PASSWORD, person, signed_in
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Grant, Role
from tidegate.kernel.model import Meta

URL = f"/v1/channels/{CHANNEL}"


def test_creates_a_channel_and_shows_it_with_its_policy(fleet: ServedFleet) -> None:
    made = fleet.create()

    shown = fleet.viewer.get(URL)

    body = shown.json()
    assert made.json()["version"] == body["version"]
    assert (body["package"], body["selector"]) == ("default/web", "app=web")
    assert [wave["name"] for wave in body["policy"]["waves"]] == ["canary", "all"]
    assert "pin" not in body
    assert [item["channel"] for item in fleet.viewer.get("/v1/channels").json()["items"]] == [
        CHANNEL
    ]
    same = fleet.viewer.get(URL, headers={"if-none-match": shown.headers["etag"]})
    assert same.status_code == 304


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"channel": "Web Stable"}, 400, "invalid_request"),
        ({"selector": "app=="}, 400, "invalid_selector"),
        ({"policy": {"waves": [{"percent": 101}]}}, 400, "malformed_policy"),
        ({"policy": {"wavs": []}}, 400, "invalid_request"),
        ({"policy": {"waves": [{"soak": 3}]}}, 400, "invalid_request"),
        ({"policy": {"edges": ["web-stable"]}}, 400, "malformed_policy"),
        ({"policy": {"edges": ["other-"]}}, 400, "invalid_request"),
        ({"policy": {"edges": [{"channel": "other-"}]}}, 400, "invalid_request"),
        ({"channel": "web-"}, 400, "invalid_request"),
        ({"policy": {"soak_seconds": 3}}, 400, "invalid_request"),
        ({"package": ""}, 400, "invalid_request"),
    ],
)
def test_refuses_an_invalid_channel(
    fleet: ServedFleet, change: dict[str, object], status: int, code: str
) -> None:
    body = {"channel": CHANNEL, "package": "default/web", "selector": "*", **change}

    answer = fleet.manager.post("/v1/channels", json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert fleet.viewer.get(URL).status_code == 404


DEFAULT = {
    "waves": [
        {"name": "canary", "count": 1, "soak_seconds": 300},
        {"name": "early", "percent": 10, "soak_seconds": 300},
        {"name": "rest", "soak_seconds": 60},
    ],
    "offline_grace_seconds": 900,
}


@pytest.mark.req("OP-8", engines=None, reason="what a door writes out does not depend on it")
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, DEFAULT),
        ({"policy": None}, DEFAULT),
        ({"policy": {}}, DEFAULT),
        ({"policy": {"on_failure": "halt"}}, {**DEFAULT, "on_failure": "halt"}),
        ({"policy": {"waves": [{"count": 2}]}}, {**DEFAULT, "waves": [{"count": 2}]}),
        ({"policy": {"waves": [], "offline_grace_seconds": None}}, {}),
        (
            {"policy": {"waves": [{"converged_min": 0}], "offline_grace_seconds": 0}},
            {"waves": [{"converged_min": 0}], "offline_grace_seconds": 0},
        ),
    ],
)
def test_a_new_channel_stores_careful_defaults_for_omitted_members(
    fleet: ServedFleet, given: dict[str, object], stored: dict[str, object]
) -> None:
    body = {"channel": CHANNEL, "package": "default/web", "selector": "app=web", **given}

    created = fleet.manager.post("/v1/channels", json=body)

    assert created.status_code == 201, created.text
    assert created.json()["policy"] == stored
    events = fleet.installation.log.feed(after=0, limit=1_000)
    (fact,) = [event for event in events if event.type == "ChannelCreated"]
    assert json.loads(fact.body)["policy"] == stored, "the value is stored in the fact"


def test_refuses_a_channel_that_claims_hosts_of_another_one_of_its_package(
    fleet: ServedFleet,
) -> None:
    fleet.create()
    other = {"channel": "web-edge", "package": "default/web", "selector": "tier=canary"}

    clash = fleet.manager.post("/v1/channels", json=other)
    elsewhere = fleet.manager.post("/v1/channels", json={**other, "package": "default/db"})
    again = fleet.manager.post("/v1/channels", json={**other, "channel": CHANNEL})

    assert (clash.status_code, clash.json()["code"]) == (422, "selector_overlap")
    assert set(clash.json()["channels"]) == {CHANNEL, "web-edge"}
    assert elsewhere.status_code == 201
    assert (again.status_code, again.json()["code"]) == (409, "channel_exists")


def test_a_rollout_does_not_change_the_version_of_a_channels_settings(fleet: ServedFleet) -> None:
    seen = fleet.create().headers["etag"]
    assert fleet.promote("web.1").status_code == 200
    assert fleet.viewer.get(URL).headers["etag"] != seen
    changes = [{"selector": selector} for selector in ("app=web,tier=rest", "app=web,tier=edge")]

    edited, stale = (
        fleet.manager.patch(URL, json=change, headers={"if-match": seen}) for change in changes
    )
    head = fleet.installation.log.head()
    made_up = [
        fleet.manager.patch(URL, json=changes[1], headers={"if-match": f'"{version}"'})
        for version in (0, 1, head + 1)
    ]

    assert edited.status_code == 200, edited.text
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert {answer.status_code for answer in made_up} == {409}


def test_edits_a_channel_only_at_the_version_that_was_read(fleet: ServedFleet) -> None:
    seen = fleet.create().headers["etag"]

    missing = fleet.manager.patch(URL, json={"selector": "app=web,tier=rest"})
    headers = {"if-match": seen, "idempotency-key": "edit"}
    edited = fleet.manager.patch(URL, json={"selector": "app=web,tier=rest"}, headers=headers)
    repeated = fleet.manager.patch(URL, json={"selector": "app=web,tier=rest"}, headers=headers)
    stale = fleet.manager.patch(URL, json={"selector": "*"}, headers={"if-match": seen})

    assert missing.status_code == 428
    assert edited.status_code == 200, edited.text
    assert edited.json()["selector"] == "app=web,tier=rest"
    assert [wave["name"] for wave in edited.json()["policy"]["waves"]] == ["canary", "all"]
    assert repeated.json() == edited.json()
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert stale.json()["current"] == edited.json()["version"]


def test_promotes_in_one_commit_and_repeats_the_first_response(fleet: ServedFleet) -> None:
    fleet.create()
    etag = fleet.viewer.get(URL).headers["etag"]
    headers = {"if-match": etag, "idempotency-key": "go"}

    promoted = fleet.promote(**headers)
    repeated = fleet.promote(**headers)
    stale = fleet.promote("web.2", **{"if-match": etag})
    other = fleet.promote("web.2", **headers)

    assert promoted.status_code == 200, promoted.text
    assert promoted.json()["rollout_id"] == ROLLOUT
    assert repeated.json() == promoted.json()
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    shown = fleet.viewer.get(URL).json()
    assert shown["pin"]["pinnedReleaseId"] == "web.1"
    assert (shown["confidence"], shown["active_state"]) == ("high", "Opening")
    assert shown["active_rollout_id"] == ROLLOUT


def test_accepts_the_version_of_the_pin_as_well(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    pin = fleet.viewer.get(f"/v1/releases/{CHANNEL}/actual").headers["etag"]

    promoted = fleet.promote("web.2", **{"if-match": pin})
    again = fleet.promote("web.1", **{"if-match": pin})

    assert promoted.json()["superseded_rollout_id"] == ROLLOUT
    assert again.status_code == 409


def test_warns_of_a_wave_without_hosts(fleet: ServedFleet) -> None:
    empty = {"name": "early", "selector": "tier=none"}
    fleet.create(waves=[empty, {"name": "rest"}])
    planned = fleet.manager.post(
        "/v1/rollouts/plan", json={"channel": CHANNEL, "release_id": "web.1"}
    )
    promoted = fleet.promote()

    assert planned.json()["empty_waves"] == ["early"]
    assert promoted.json()["warnings"] == ["wave early takes no host now"]


def test_refuses_invalid_promotions(fleet: ServedFleet) -> None:
    unknown = fleet.promote()
    fleet.create()

    codes = {
        "no release": fleet.promote("web.9"),
        "twice": [fleet.promote(), fleet.promote()][1],
        "form": fleet.manager.post(f"{URL}/promote", json={"release_id": "W 1"}),
        "member": fleet.manager.post(f"{URL}/promote", json={"release_id": "web.1", "x": 1}),
    }
    fleet.operator.post(f"{URL}/hold", json={"reason": "audit"})
    codes["held"] = fleet.promote("web.2")

    assert (unknown.status_code, unknown.json()["code"]) == (404, "channel_not_found")
    told = {name: (item.status_code, item.json()["code"]) for name, item in codes.items()}
    assert told == {
        "no release": (404, "not_found"),
        "twice": (422, "already_promoted"),
        "form": (400, "invalid_request"),
        "member": (400, "invalid_request"),
        "held": (422, "channel_held"),
    }
    assert codes["no release"].json()["detail"] == "there is no release web.9"
    under_way = "web.1 is being rolled out on web-stable already: web-stable@web.1"
    assert codes["twice"].json()["detail"] == under_way


def test_refuses_a_release_that_succeeded_already(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    fleet.succeed()

    again = fleet.promote().json()

    assert again["code"] == "already_promoted"
    assert again["detail"] == "web.1 succeeded on web-stable already: web-stable@web.1"


def test_rolls_a_channel_back_to_a_release_that_succeeded(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    nothing = fleet.manager.post(f"{URL}/rollback", json={"reason": "no"})
    fleet.succeed()
    fleet.promote("web.2")
    headers = {"idempotency-key": "back"}
    ladder = fleet.viewer.get(f"{URL}/ladder").json()

    back = fleet.manager.post(f"{URL}/rollback", json={"reason": "it is slow"}, headers=headers)
    repeated = fleet.manager.post(f"{URL}/rollback", json={"reason": "it is slow"}, headers=headers)

    assert (nothing.status_code, nothing.json()["code"]) == (422, "nothing_to_go_back_to")
    assert "no release has succeeded there" in nothing.json()["detail"]
    assert (ladder["wanted"], ladder["choice"], ladder["refusal"]) == ("web.2", "web.1", None)
    assert [(rung["release_id"], rung["hosts"]) for rung in ladder["rungs"]] == [("web.1", 2)]
    assert back.status_code == 200, back.text
    assert back.json()["rollout_id"] == f"{ROLLOUT}~2"
    assert repeated.json() == back.json()
    pin = fleet.viewer.get(URL).json()["pin"]
    assert (pin["pinnedReleaseId"], pin["previousReleaseId"]) == ("web.1", "web.2")


@pytest.mark.req("OP-13", engines=None, reason="names in what an operator reads")
def test_a_rollback_on_a_held_channel_warns_that_it_waits(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.operator.post(f"{URL}/hold", json={"reason": "audit"})
    accounts, holder = fleet.installation.accounts, fleet.viewer.get(URL).json()["held_by"]
    ann = PersonNames(name="Ann", login="ann@example.com")
    accounts.keep_person(holder, ann, "correct horse battery", Meta())

    back = fleet.manager.post(f"{URL}/rollback", json={"reason": "it is slow"})
    ladder = fleet.viewer.get(f"{URL}/ladder", params={"to": "web.2"}).json()

    assert back.status_code == 200, back.text
    (waits,) = back.json()["warnings"]
    assert waits.startswith(f"{CHANNEL} is held by Ann")
    assert ": audit. To go back in spite of it: tidegate channel rollback" in waits
    assert ladder["refusal"].startswith(f"{CHANNEL} can't be rolled back to web.2")


@pytest.mark.req("OP-13", engines=None, reason="names in what an operator reads")
def test_gates_and_refusals_name_people(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    made = fleet.served.admin.post("/v1/users", json=person()).json()["user_id"]
    role = {"role": "fleet-operator", "scope": "*"}
    granted = fleet.served.admin.post(f"/v1/users/{made}/grant", json=role)
    assert granted.status_code == 200, granted.text
    signed_in(fleet.served).post(f"{URL}/hold", json={"reason": "audit"})

    why = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}/explain").json()
    of_host = fleet.viewer.get("/v1/hosts/web-01/explain").json()
    refused = fleet.manager.post(f"{URL}/promote", json={"release_id": "web.2"})

    shown = fleet.viewer.get(URL).json()
    assert (shown["held_by"], shown["held_by_name"]) == (made, NAME)
    for text in (json.dumps(why), json.dumps(of_host)):
        assert f"is held by {NAME}: audit" in text
        assert made not in text
    assert refused.status_code in (409, 422), refused.text
    assert f"{CHANNEL} is held by {NAME}: audit" in refused.json()["detail"]


@pytest.mark.req("OP-13", engines=None, reason="names in what an operator reads")
def test_histories_name_people_and_distinguish_rollbacks(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")
    fleet.manager.post(f"{URL}/rollback", json={"reason": "it is slow"})
    changes = f"/v1/releases/{CHANNEL}/events"
    by = fleet.viewer.get(changes).json()["items"][-1]["by"]
    ann = PersonNames(name="Ann", login="ann@example.com")
    fleet.installation.accounts.keep_person(by, ann, "correct horse battery", Meta())

    moved = fleet.viewer.get(changes).json()["items"]
    shown = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}~2").json()
    listed = fleet.viewer.get("/v1/rollouts").json()["items"]
    steps = fleet.viewer.get("/v1/revisions/default.web.v1/history").json()["items"]
    events = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}~2/events").json()["items"]

    assert sorted((item["releaseId"], item["what"]) for item in moved) == [
        ("web.1", "promoted"),  # including the first release of the channel
        ("web.1", "rolled back"),
        ("web.2", "promoted"),
    ]
    assert {item["byName"] for item in moved if item["by"] == by} == {"Ann"}
    assert (shown["opened_by"], shown["opened_by_name"]) == (by, "Ann")
    assert {item["opened_by_name"] for item in listed if item["opened_by"] == by} == {"Ann"}
    assert all(step["byName"] == ("Ann" if step["by"] == by else None) for step in steps)
    assert {event["actorname"] for event in events if event["actor"] == by} == {"Ann"}


def test_lists_name_who_made_a_join_token_or_a_subscription(fleet: ServedFleet) -> None:
    until = (fleet.clock() + timedelta(hours=2)).isoformat()
    ops = {"kind": "slack", "url": "https://93.184.215.14/hook", "min_severity": "info"}
    fleet.operator.post("/v1/join-tokens", json={"limit": 2, "until": until})
    by = fleet.viewer.get("/v1/join-tokens").json()["items"][0]["operator"]
    ann = PersonNames(name="Ann", login="ann@example.com")
    fleet.installation.accounts.keep_person(by, ann, "correct horse battery", Meta())

    made = fleet.operator.post("/v1/subscriptions", json={"name": "ops", "scopes": ["*"], **ops})
    subscribed = fleet.operator.get("/v1/subscriptions").json()["items"]
    tokens = fleet.viewer.get("/v1/join-tokens").json()["items"]

    assert [token["operator_name"] for token in tokens] == ["Ann"]
    assert [item["created_by_name"] for item in (made.json(), *subscribed)] == ["Ann", "Ann"]


def test_a_channel_shows_what_is_wanted_and_what_its_hosts_run(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.agents["web-01"].beat(**{CHANNEL: "sha256:old"})
    fleet.promote()
    fleet.succeed()
    good = fleet.viewer.get(URL).json()["pin"]["digest"]
    for agent in fleet.agents.values():
        agent.beat(**{CHANNEL: good})
    fleet.promote("web.2")
    fleet.dispatch()
    fleet.fail("web-01")
    fleet.agents["web-01"].beat(**{CHANNEL: "sha256:old"})

    stopped = fleet.viewer.get(URL).json()
    fleet.manager.post(f"{URL}/rollback", json={"reason": "it is slow"})
    back = fleet.viewer.get(URL).json()
    (listed,) = fleet.viewer.get("/v1/channels").json()["items"]
    fleet.manager.post(f"{URL}/promote", json={"release_id": "web.1", "refresh": True})
    refreshed = fleet.viewer.get(URL).json()

    assert (stopped["wanted"]["release_id"], stopped["wanted"]["what"]) == ("web.2", "promoted")
    assert "newest_outcome" not in stopped  # it can still succeed
    assert stopped["actual"] == {
        "hosts": 2,
        "releases": [
            {"digest": good, "hosts": 1, "release_id": "web.1"},
            {"digest": "sha256:old", "hosts": 1, "release_id": None},
        ],
    }
    wanted = back["wanted"]
    assert (wanted["release_id"], wanted["what"], wanted["reason"]) == (
        "web.1",
        "rolled back",
        "it is slow",
    )
    assert wanted["since"] == back["pin"]["updatedAt"]
    assert back["actual"]["releases"][0]["release_id"] == "web.1"
    assert (listed["wanted"], listed["actual"]) == ("web.1", back["actual"])
    assert "newest_outcome" not in listed
    assert refreshed["wanted"] == wanted  # new evidence for the same release chooses nothing


def test_the_log_records_which_release_a_rollback_leaves(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    fleet.succeed()
    fleet.promote("web.2")

    fleet.manager.post(f"{URL}/rollback", json={"reason": "it leaks"})

    opened = fleet.viewer.get("/v1/events", params={"type": "RolloutOpened"}).json()["items"]
    left = [item["data"].get("rollback_of") for item in opened]
    assert left == [None, None, "web.2"], "the edges of other channels need it"


def test_keeps_the_reasons_of_promotions_and_rollbacks(fleet: ServedFleet) -> None:
    fleet.create()
    said = {"release_id": "web.1", "reason": " the checkout was slow "}
    once = {"idempotency-key": "why"}

    first = fleet.manager.post(f"{URL}/promote", json=said, headers=once)
    other = fleet.manager.post(f"{URL}/promote", json={**said, "reason": "x"}, headers=once)
    fleet.succeed()
    fleet.promote("web.2")
    fleet.wait(1)
    back = fleet.manager.post(f"{URL}/rollback", json={"reason": "it was slower"})
    long = fleet.manager.post(f"{URL}/promote", json={"release_id": "web.2", "reason": "ü" * 1_000})

    assert (first.status_code, back.status_code) == (200, 200), back.text
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert (long.status_code, long.json()["code"]) == (413, "limit_exceeded")
    told = []
    for answer in (first, back):
        shown = fleet.viewer.get(f"/v1/rollouts/{answer.json()['rollout_id']}").json()
        told.append(shown["opened_reason"])
        assert shown["opened_by"].startswith("user_")
    assert told == ["the checkout was slow", "it was slower"]
    events = fleet.viewer.get(f"/v1/releases/{CHANNEL}/events").json()["items"]
    reasons = ["the checkout was slow", None, "it was slower"]
    assert [item.get("reason") for item in events] == reasons
    history = fleet.viewer.get(f"{URL}/history").json()["items"]
    assert [item["value"].get("reason") for item in history] == reasons
    assert fleet.installation.health.differences() == []


def test_holds_and_releases_a_channel(fleet: ServedFleet) -> None:
    fleet.create()

    held = fleet.operator.post(f"{URL}/hold", json={"reason": "audit"})
    unsaid = fleet.operator.post(f"{URL}/hold", json={})
    free = fleet.manager.post(f"{URL}/unhold", json={"reason": "done"})

    assert (held.json()["held_reason"], unsaid.status_code) == ("audit", 400)
    assert "held_at" not in free.json()
    assert int(free.headers["tidegate-position"]) > int(held.headers["tidegate-position"])


def test_shows_a_channel_as_it_was(fleet: ServedFleet) -> None:
    created = fleet.create().headers["tidegate-position"]
    fleet.promote()
    fleet.clock.advance(timedelta(minutes=5))
    fleet.dispatch()
    before = fleet.clock().isoformat()
    fleet.clock.advance(timedelta(minutes=5))
    fleet.promote("web.2")

    early = fleet.viewer.get(URL, params={"as_of": created}).json()
    middle = fleet.viewer.get(URL, params={"as_of": before}).json()
    now = fleet.viewer.get(URL).json()

    assert "pin" not in early
    assert "newest_rollout_id" not in early
    assert (middle["newest_rollout_id"], middle["newest_state"]) == (ROLLOUT, "Active")
    assert middle["pin"]["pinnedReleaseId"] == "web.1"
    assert now["pin"]["pinnedReleaseId"] == "web.2"
    assert fleet.viewer.get(URL, params={"as_of": "1"}).status_code == 404
    assert fleet.viewer.get(URL, params={"as_of": "noon"}).status_code == 400


def test_names_the_idle_edge_that_blocks_and_the_reason(fleet: ServedFleet) -> None:
    fleet.create()
    edge = {"channel": CHANNEL, "require": "idle"}
    fleet.manager.post(
        "/v1/channels",
        json={
            "channel": "db-late",
            "package": "default/db",
            "selector": "*",
            "policy": {"edges": [edge]},
        },
    )
    free = fleet.viewer.get("/v1/channels/db-late").json()["edges"]
    fleet.promote()

    blocked = fleet.viewer.get("/v1/channels/db-late").json()["edges"]

    assert [shown["blocks"] for shown in free] == [False]
    assert blocked == [
        {
            **edge,
            "soak_seconds": 0,
            "blocks": True,
            "reason": f"db-late waits until {CHANNEL} is idle: {ROLLOUT} is opening",
            "until": None,
        }
    ]


def test_shows_an_edge_in_full_and_why_it_is_closed(
    fleet: ServedFleet,
) -> None:
    fleet.create()
    body = {
        "channel": "web-late",
        "package": "default/web",
        "selector": "app=late",
        "policy": {"edges": [CHANNEL]},
    }
    created = fleet.manager.post("/v1/channels", json=body)
    assert created.status_code == 201, created.text
    full = {"channel": CHANNEL, "require": "succeeded", "soak_seconds": 0}
    assert created.json()["policy"]["edges"] == [full]
    assert created.json()["edges"] == [
        {
            **full,
            "blocks": False,
            "reason": "no release is pinned on web-late yet",
            "until": None,
        }
    ]

    promoted = fleet.manager.post("/v1/channels/web-late/promote", json={"release_id": "web.1"})
    assert promoted.status_code == 200, promoted.text

    (edge,) = fleet.viewer.get("/v1/channels/web-late").json()["edges"]
    assert edge["blocks"]
    assert edge["reason"] == (
        f"web.1 was never rolled out on {CHANNEL}. "
        f"Promote it there first: tidegate channel promote {CHANNEL} web.1"
    )


@pytest.mark.parametrize(
    ("edge", "says"),
    [
        (
            CHANNEL,
            (
                f"db-late carries default/db, {CHANNEL} carries default/web: "
                "an edge between packages can only ask for an order; "
                f'write {{"channel": "{CHANNEL}", "require": "idle"}}.'
            ),
        ),
        (
            {"channel": CHANNEL, "require": "idle", "soak_seconds": 5},
            (
                "edges[0] requires idle, which has no success that soak_seconds could count from; "
                "leave soak_seconds out."
            ),
        ),
    ],
)
def test_refuses_an_edge_that_could_never_open(fleet: ServedFleet, edge: object, says: str) -> None:
    fleet.create()
    body = {
        "channel": "db-late",
        "package": "default/db",
        "selector": "*",
        "policy": {"edges": [edge]},
    }

    refused = fleet.manager.post("/v1/channels", json=body)

    assert (refused.status_code, refused.json()["code"]) == (400, "malformed_policy")
    assert refused.json()["detail"] == says


def test_refuses_an_edge_of_another_form(fleet: ServedFleet) -> None:
    body = {"channel": "late", "package": "web", "selector": "*"}
    for edge in (7, {"channel": CHANNEL, "require": "luck"}, {"require": "idle"}, {"chanel": "x"}):
        refused = fleet.manager.post("/v1/channels", json={**body, "policy": {"edges": [edge]}})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), edge


def test_a_plan_changes_nothing(fleet: ServedFleet) -> None:
    fleet.create()
    before = fleet.installation.log.head()

    planned = fleet.viewer.get(f"{URL}/plan").json()
    of_release = fleet.viewer.post(
        "/v1/rollouts/plan", json={"channel": CHANNEL, "release_id": "web.1"}
    )
    unknown = fleet.viewer.post(
        "/v1/rollouts/plan", json={"channel": CHANNEL, "release_id": "web.9"}
    )

    assert [wave["hosts"] for wave in planned["waves"]] == [["web-01"], ["web-02"]]
    assert {**planned, "earliest": of_release.json()["earliest"]} == of_release.json()
    assert [item["wave"] for item in of_release.json()["earliest"]] == ["canary", "all"]
    assert unknown.status_code == 404
    assert fleet.installation.log.head() == before


def test_shows_the_history_of_a_channel(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    fleet.promote("web.2")

    items = fleet.viewer.get(f"{URL}/history").json()["items"]

    assert [item["type"] for item in items] == ["ReleaseRegistered", "ReleaseTransitioned"]
    assert fleet.viewer.get("/v1/channels/none/history").status_code == 404


def test_a_manager_of_one_channel_manages_no_other(fleet: ServedFleet) -> None:
    fleet.create()
    other = fleet.served.as_role(Grant(Role.RELEASE_MANAGER, "channel:web-edge"))

    refused = other.post(f"{URL}/promote", json={"release_id": "web.1"})
    made = other.post("/v1/channels", json={"channel": "new", "package": "p", "selector": "a=b"})

    assert (refused.status_code, made.status_code) == (403, 403)
    assert other.get("/v1/channels").json()["items"] == []


def test_a_promotion_shows_what_its_orders_wait_for(fleet: ServedFleet) -> None:
    fleet.create()
    body = {
        "channel": "web-late",
        "package": "default/web",
        "selector": "app=late",
        "policy": {"edges": [CHANNEL]},
    }
    fleet.manager.post("/v1/channels", json=body)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": ["web-late"]})
    asked = {"channel": "web-late", "release_id": "web.1"}
    planned = fleet.manager.post("/v1/rollouts/plan", json=asked).json()
    played = fleet.manager.post("/v1/rollouts/simulate", json=asked)

    late = fleet.manager.post("/v1/channels/web-late/promote", json={"release_id": "web.1"})
    free = fleet.promote()

    closed = (
        f"web.1 was never rolled out on {CHANNEL}. "
        f"Promote it there first: tidegate channel promote {CHANNEL} web.1"
    )
    edge, freeze, see = late.json()["warnings"][-3:]
    assert edge == f"Its orders wait. {closed}"
    assert freeze.startswith("Its orders wait. Freeze ")
    assert see.endswith("tidegate rollout explain web-late@web.1")
    assert planned["holds"][0] == closed
    assert played.json()["holds"] == planned["holds"], played.text
    assert not free.json().get("warnings")


def test_accepts_overrides_on_a_channel_without_hosts(fleet: ServedFleet) -> None:
    body = {"channel": "web-none", "package": "default/web", "selector": "app=none"}
    fleet.manager.post("/v1/channels", json=body)
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)

    done = on_call.post(
        "/v1/channels/web-none/promote",
        json={"release_id": "web.1", "override": ["edges"], "reason": "an outage"},
    )

    assert done.status_code == 200, done.text
    shown = fleet.viewer.get("/v1/channels/web-none").json()
    assert (shown["pin"]["pinnedReleaseId"], shown.get("overrides")) == ("web.1", None)


def test_a_promotion_that_passes_its_gates_warns_of_none(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.enroll("late-01", app="late")
    policy = {"edges": [CHANNEL], "waves": []}
    body = {
        "channel": "web-late",
        "package": "default/web",
        "selector": "app=late",
        "policy": policy,
    }
    fleet.manager.post("/v1/channels", json=body)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": ["web-late"]})
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)

    done = on_call.post(
        "/v1/channels/web-late/promote",
        json={"release_id": "web.1", "override": ["edges", "freeze"], "reason": "an outage"},
    )

    assert done.status_code == 200, done.text
    assert not done.json().get("warnings")
    edges, freeze = fleet.viewer.get("/v1/channels/web-late").json()["overrides"]
    assert edges.endswith("overrode its edges for web.1 until the rollout ends: an outage")
    assert "overrode freezes for web.1" in freeze
    notices = on_call.get("/v1/status").json()["notices"]
    assert [item["says"] for item in notices if item["kind"] == "override"] == [edges, freeze]
    fleet.dispatch()
    fleet.converge("late-01")
    assert "overrides" not in fleet.viewer.get("/v1/channels/web-late").json(), "they end with it"


def test_a_path_with_a_slash_is_in_the_default_repository_unless_there_is_another(
    fleet: ServedFleet,
) -> None:
    def create(channel: str, package: str) -> object:
        body = {"channel": channel, "package": package, "selector": f"app={channel}"}
        made = fleet.manager.post("/v1/channels", json=body)
        assert made.status_code == 201, made.text
        return made.json()["package"]

    key = {"idempotency-key": "create-c"}
    body = {"channel": "c", "package": "net/vpc", "selector": "app=c"}
    first = fleet.manager.post("/v1/channels", json=body, headers=key)
    named = [create("a", "web"), create("b", "default/api"), first.json()["package"]]
    made = fleet.served.admin.post("/v1/repositories", json={"name": "net"})
    assert made.status_code == 201, made.text
    named.append(create("d", "net/vpc"))
    again = fleet.manager.post("/v1/channels", json=body, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())

    assert named == ["default/web", "default/api", "default/net/vpc", "net/vpc"]


def test_a_package_of_a_repository_that_one_may_not_read_is_refused_alike(
    fleet: ServedFleet,
) -> None:
    fleet.served.admin.post("/v1/repositories", json={"name": "secret"})
    scopes = ("channel:x", "repository:default")
    roles = [Grant(Role.RELEASE_MANAGER, scope) for scope in scopes]
    fleet.served.add_person("user_scoped00000", PersonNames("scoped", "Scoped"), PASSWORD, *roles)
    manager = signed_in(fleet.served, "scoped", PASSWORD)

    answers = [
        manager.post("/v1/channels", json={"channel": "x", "package": name, "selector": "a=b"})
        for name in ("secret/web", "nowhere/web")
    ]

    assert [(it.status_code, it.json()["code"]) for it in answers] == [
        (403, "missing_permission")
    ] * 2
