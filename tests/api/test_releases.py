"""The registry, the outbox and publications over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.registry_people import SCOPE, T0, URL, RegistryPeople
from tests.api.serving import ADMIN, serving
from tidegate.clock import ManualClock
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.control.publication.publisher import Publisher
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.outbox.slices import RecordAttempt, record_attempt
from tidegate.kernel.model import Meta

HTTP = {"engines": None, "reason": "what HTTP shows does not depend on the engine"}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryPeople]:
    with serving(tmp_path / "data", clock=ManualClock(T0)) as served:
        yield RegistryPeople(served)


@pytest.mark.req("RS-16", **HTTP)
def test_returns_the_current_release_and_the_history(registry: RegistryPeople) -> None:
    registered = registry.register(operations=["announce"])
    moved = registry.manager.post(
        f"{URL}/transition",
        json=registry.pin("web.2"),
        headers={"if-match": registered.headers["etag"]},
    )
    assert moved.status_code == 200, moved.text

    actual = registry.viewer.get(f"{URL}/actual")

    assert actual.json()["pinnedReleaseId"] == "web.2"
    assert actual.json()["previousReleaseId"] == "web.1"
    assert actual.json()["version"] == 1
    assert actual.json()["confidence"]["level"] == "high"
    assert actual.headers["etag"] == moved.headers["etag"]
    events = registry.viewer.get(f"{URL}/events").json()["items"]
    assert [event["eventType"] for event in events] == ["registered", "promoted"]
    assert [event["what"] for event in events] == ["promoted", "promoted"]
    history = registry.viewer.get(f"{URL}/history").json()["items"]
    assert [item["type"] for item in history] == [
        *("ReleaseRegistered", "IntentRequested", "ReleaseTransitioned"),
    ]
    assert [item["scope"] for item in registry.viewer.get("/v1/actual").json()["items"]] == [SCOPE]


@pytest.mark.req("RS-5", **HTTP)
def test_requires_the_version_of_the_pin(registry: RegistryPeople) -> None:
    seen = {"if-match": registry.register().headers["etag"]}
    body = registry.pin("web.2")

    missing = registry.manager.post(f"{URL}/transition", json=body)
    once = {**seen, "idempotency-key": "move"}
    moved = registry.manager.post(f"{URL}/transition", json=body, headers=once)
    stale = registry.manager.post(f"{URL}/transition", json=body, headers=seen)
    again = registry.manager.post(f"{URL}/transition", json=body, headers=once)

    assert missing.status_code == 428
    assert moved.status_code == 200
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert again.json() == moved.json(), "a repeat of the key is no stale write"


@pytest.mark.req("RS-6", "RS-14", **HTTP)
def test_evidence_without_authority_changes_no_pin(registry: RegistryPeople) -> None:
    seen = {"if-match": registry.register().headers["etag"]}
    weak = registry.pin("web.2")
    weak["confidence"]["level"] = "medium"
    noted = registry.pin("web.2", notes="trust me")

    refused = registry.manager.post(f"{URL}/transition", json=weak, headers=seen)
    unknown = registry.manager.post(f"{URL}/transition", json=noted, headers=seen)

    assert (refused.status_code, refused.json()["code"]) == (422, "rejected_evidence")
    assert unknown.status_code == 400
    assert registry.viewer.get(f"{URL}/actual").json()["version"] == 0


def test_shows_what_was_authoritative_at_a_time(registry: RegistryPeople) -> None:
    clock = registry.served.installation.clock
    assert isinstance(clock, ManualClock)
    seen = {"if-match": registry.register().headers["etag"]}
    clock.advance(timedelta(hours=1))
    registry.manager.post(f"{URL}/transition", json=registry.pin("web.2"), headers=seen)

    then = registry.viewer.get(f"{URL}/actual", params={"as_of": "2026-04-24T20:30:00Z"})
    never = registry.viewer.get(f"{URL}/actual", params={"as_of": "2026-04-24T19:00:00Z"})

    assert then.json()["pinnedReleaseId"] == "web.1"
    assert never.status_code == 404


def test_stores_evidence_without_moving_the_pin(registry: RegistryPeople) -> None:
    registry.register()
    before = registry.viewer.get(f"{URL}/actual").content
    body = {"source": "factory", "batch": "b-1", "document": {"seen": ["web.2"]}}

    kept = registry.manager.post(f"{URL}/evidence", json=body)

    assert kept.status_code == 201
    (evidence,) = registry.viewer.get(f"{URL}/evidence").json()["items"]
    assert (evidence["authority"], evidence["document"]) == (False, {"seen": ["web.2"]})
    assert registry.viewer.get(f"{URL}/actual").content == before


def test_lists_nothing_of_a_registered_scope_and_refuses_others(registry: RegistryPeople) -> None:
    registry.register()
    lists = ("/v1/releases/{}/evidence", "/v1/outbox?scope={}")

    own = [registry.viewer.get(path.format(SCOPE)) for path in lists]
    others = [registry.viewer.get(path.format("unknown")) for path in lists]

    assert [(answer.status_code, answer.json()["items"]) for answer in own] == [(200, [])] * 2
    assert [answer.json()["code"] for answer in others] == ["channel_not_found"] * 2


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("evidence", {"source": "factory", "batch": "b-1", "document": {"seen": []}}),
        (
            "manifests",
            {
                "batch": "b-1",
                "ref": "s3://factory/b-1.json",
                "observedAt": "2026-04-24T19:30:00Z",
                "digests": ["sha256:" + "0" * 64],
            },
        ),
    ],
)
def test_returns_the_position_of_evidence_that_is_stored_already(
    registry: RegistryPeople, verb: str, body: dict[str, Any]
) -> None:
    registry.register()

    first, again = (registry.manager.post(f"{URL}/{verb}", json=body) for _ in range(2))

    assert first.json()["position"] > 0
    assert again.json() == first.json()
    assert again.headers["tidegate-position"] == first.headers["tidegate-position"]


def test_moves_the_pin_by_a_manifest_that_matches_one_release(registry: RegistryPeople) -> None:
    seen = {"if-match": registry.register().headers["etag"]}
    digest = registry.viewer.get("/v1/releases/web.2").json()["digest"]
    manifest = {
        "batch": "b-1",
        "ref": "s3://factory/b-1.json",
        "observedAt": "2026-04-24T19:30:00Z",
        "digests": [digest],
    }

    answer = registry.manager.post(f"{URL}/manifests", json=manifest, headers=seen)

    assert answer.status_code == 201, answer.text
    assert registry.viewer.get(f"{URL}/actual").json()["pinnedReleaseId"] == "web.2"


def test_retires_a_scope_for_good(registry: RegistryPeople) -> None:
    seen = {"if-match": registry.register().headers["etag"]}

    retired = registry.manager.post(f"{URL}/retire", json={"reason": "over"}, headers=seen)
    after = registry.manager.post(
        f"{URL}/transition",
        json=registry.pin("web.2"),
        headers={"if-match": retired.headers["etag"]},
    )

    assert retired.json()["status"] == "retired"
    assert (after.status_code, after.json()["code"]) == (422, "invalid_transition")


def test_managers_can_change_only_their_channel(registry: RegistryPeople) -> None:
    manager = registry.served.as_role(Grant(Role.RELEASE_MANAGER, "channel:other"))

    assert manager.post(f"{URL}/register", json=registry.pin("web.1")).status_code == 403
    assert manager.get(f"{URL}/actual").status_code == 403


# ── outbox ────────────────────────────────────────────────────────────────────────────────────────


def test_redrives_a_dead_letter(registry: RegistryPeople) -> None:
    registry.register(operations=["announce"])
    (intent,) = registry.viewer.get("/v1/outbox").json()["items"]
    attempt = RecordAttempt(
        scope=SCOPE,
        intent_id=intent["id"],
        attempt=1,
        succeeded=False,
        detail="gone",
        retryable=False,
    )
    registry.served.installation.execute.run(record_attempt, attempt, meta=Meta(actor=ADMIN))
    (dead,) = registry.viewer.get("/v1/outbox", params={"state": "dead"}).json()["items"]
    url = f"/v1/outbox/{quote(intent['id'], safe='')}"

    refused = registry.viewer.post(f"{url}/redrive", json={"reason": "fixed"})
    again = registry.operator.post(f"{url}/redrive", json={"reason": "fixed"})

    assert (dead["state"], dead["attempts"]) == ("dead", 1)
    assert refused.status_code == 403
    assert again.json()["state"] == "pending"
    assert again.json()["idempotencyKey"] == intent["idempotencyKey"]
    assert registry.viewer.get(url).json() == again.json()
    assert registry.viewer.get("/v1/outbox", params={"scope": SCOPE}).json()["items"] == [
        again.json()
    ]
    assert registry.viewer.get("/v1/outbox/nothing").status_code == 404


def test_cancels_an_intent_for_an_operator_with_a_reason(registry: RegistryPeople) -> None:
    registry.register(operations=["announce"])
    (intent,) = registry.viewer.get("/v1/outbox").json()["items"]
    url = f"/v1/outbox/{quote(intent['id'], safe='')}/cancel"
    key = {"idempotency-key": "give-up"}

    refused = registry.viewer.post(url, json={"reason": "over"})
    silent = registry.operator.post(url, json={})
    first = registry.operator.post(url, json={"reason": "over"}, headers=key)
    again = registry.operator.post(url, json={"reason": "over"}, headers=key)

    assert (refused.status_code, silent.status_code) == (403, 400)
    assert (first.status_code, first.json()["state"]) == (200, "cancelled")
    assert again.json() == first.json()
    assert again.headers["tidegate-position"] == first.headers["tidegate-position"]
    assert registry.viewer.get("/v1/outbox").json()["items"] == []
    (cancelled,) = registry.viewer.get("/v1/outbox", params={"state": "cancelled"}).json()["items"]
    assert cancelled["id"] == intent["id"]


def test_reads_the_outbox_page_by_page(registry: RegistryPeople) -> None:
    registry.register(operations=["a", "b", "c"])

    seen, cursor = [], ""
    for _ in range(5):
        page = registry.viewer.get("/v1/outbox", params={"limit": 1, "next": cursor}).json()
        seen += [item["operation"] for item in page["items"]]
        cursor = page["next"]
        if not cursor:
            break

    assert sorted(seen) == ["a", "b", "c"]


# ── publications ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-5", **HTTP)
def test_serves_a_publication_and_rolls_it_back(registry: RegistryPeople) -> None:
    installation = registry.served.installation
    publisher = Publisher(installation.control, installation.blobs)
    policy = PublicationPolicy(versioned=True)
    publisher.serve("a page", lambda: b"one", policy)
    clock = installation.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(hours=1))
    publisher.serve("a page", lambda: b"two", policy)
    url = "/v1/publications/a%20page"

    body = registry.viewer.get(url)
    same = registry.viewer.get(url, headers={"if-none-match": body.headers["etag"]})
    generations = registry.viewer.get(f"{url}/generations").json()["items"]

    assert body.content == b"two"
    assert same.status_code == 304
    assert sorted(item["current"] for item in generations) == [False, True]
    old = next(item for item in generations if not item["current"])
    back = registry.manager.post(f"{url}/roll-back", json={"version_id": old["version_id"]})
    assert back.status_code == 200, back.text
    assert registry.viewer.get(url).content == b"one"
    assert registry.viewer.get("/v1/publications/nothing").status_code == 404


@pytest.mark.req("PB-7", **HTTP)
def test_collects_expired_generations_when_an_operator_asks(registry: RegistryPeople) -> None:
    """PB-7: "ttl only lets rows be collected later"."""
    installation = registry.served.installation
    policy = PublicationPolicy(versioned=True, retention=timedelta(hours=1))
    installation.publisher.serve("a page", lambda: b"one", policy)
    assert isinstance(installation.clock, ManualClock)
    url = "/v1/publication-collections"

    early = registry.operator.post(url)
    installation.clock.advance(timedelta(hours=2))
    before = registry.viewer.get("/v1/publications/a%20page")
    refused = registry.viewer.post(url)
    gone = registry.operator.post(url)
    again = registry.operator.post(url)

    none = {"publications": 0, "generations": 0, "requests": 0, "position": 0}
    assert (early.status_code, early.json()) == (200, none)
    assert before.content == b"one", "nothing changes until it is collected"
    assert refused.status_code == 403
    assert gone.json() == {
        "publications": 1,
        "generations": 1,
        "requests": 0,
        "position": installation.log.head(),
    }
    assert gone.headers["tidegate-position"] == str(installation.log.head())
    assert again.json() == none
    assert registry.viewer.get("/v1/publications/a%20page").status_code == 404
    (event,) = installation.log.feed(after=installation.log.head() - 1, limit=1)
    assert event.meta.actor == registry.operator.get("/v1/me").json()["user_id"]
