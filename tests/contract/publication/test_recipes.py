"""Both recipes on every engine: what is written, by which holder, and how it is rolled back."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from tests.contract.publication.publishing import (
    FOLDS,
    LEASE_SECONDS,
    LOCK_KEY,
    META_KEY,
    PAGE,
    PK,
    T0,
    VERSIONED,
    Publishing,
    at,
)
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.control.publication.generations import GenerationStore
from tidegate.control.runtime import Control
from tidegate.domain.content.digests import digest_of
from tidegate.domain.publication.refusals import GenerationExists, RecipeMixed, StaleGeneration
from tidegate.domain.publication.rows import Generation, Pointer, etag_of, version_key
from tidegate.domain.publication.slices import PublishGeneration, PublishGuard, publish_generation
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import LeaseHeld, LeaseLost, NotFound
from tidegate.kernel import codec
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import ALL, Delete, Put

# ── recipe A ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-2", "PB-5", "PB-8")
def test_writes_meta_and_deletes_lock_in_one_commit_of_two_actions(publishing: Publishing) -> None:
    """'Publish metadata and release the lock with a single transaction.'"""
    lease = publishing.acquire()
    publishing.watched.commits.clear()

    publishing.publisher.publish(
        PAGE, lease, b"body", PublicationPolicy(retention=timedelta(days=7)), generated_at=T0
    )

    (sent,) = publishing.watched.commits
    assert [(type(write), write.key.id) for write in sent.writes] == [
        (Put, f"{PK}/META"),
        (Delete, LOCK_KEY.id),
    ]
    assert sent.at == publishing.clock.now
    assert [fact.type for fact in sent.facts] == ["GenerationPublished"]
    assert publishing.lock() is None
    assert publishing.members(META_KEY) == {
        "s3_key": digest_of(b"body"),
        "generated_at": codec.time_text(T0),
        "revalidate_seconds": 60,
        "etag": etag_of(b"body"),
        "ttl": codec.time_text(T0 + timedelta(days=7)),
    }


@pytest.mark.req("PB-1", "PB-8")
def test_keeps_token_and_expiry_in_the_lock(publishing: Publishing) -> None:
    publishing.acquire()

    assert publishing.members(LOCK_KEY) == {
        "lease_token": "tok1",
        "lease_expires_at": codec.time_text(at(LEASE_SECONDS)),
    }


@pytest.mark.req("PB-2", "PB-4")
@pytest.mark.parametrize("how", ["expired", "at the very instant", "stolen", "released", "renewed"])
@pytest.mark.parametrize("policy", [PublicationPolicy(), VERSIONED], ids=["A", "B"])
def test_changes_nothing_when_the_lease_is_lost(
    publishing: Publishing, how: str, policy: PublicationPolicy
) -> None:
    """'Stale writers (expired lock, stolen lock) cannot overwrite newer state.'"""
    publishing.publish("old", policy)
    lease = publishing.acquire()
    match how:
        case "expired":
            publishing.clock.now = at(LEASE_SECONDS + 1)
        case "at the very instant":
            publishing.clock.now = at(LEASE_SECONDS)
        case "stolen":
            publishing.clock.now = at(LEASE_SECONDS)
            publishing.acquire()
            publishing.clock.now = T0  # its own clock is slow, so only the token shows it
        case "released":
            Leases(publishing.store).release(lease.key.id, lease.token, now=T0)
        case "renewed":  # the same token with another number is another holder
            Leases(publishing.store).renew(lease.key.id, lease.token, now=T0, seconds=5)
    before = publishing.record(META_KEY), publishing.lock()

    with pytest.raises(LeaseLost):
        publishing.publisher.publish(PAGE, lease, b"late", policy, generated_at=at(5))

    assert (publishing.record(META_KEY), publishing.lock()) == before
    assert len(list(publishing.publisher.generations(PAGE))) == policy.versioned


@pytest.mark.req("PB-2", "PB-4")
def test_checks_the_lease_at_the_time_of_the_attempt_that_commits(publishing: Publishing) -> None:
    """The pointer moves during the first attempt; by the second attempt the lease has expired."""
    lease = publishing.acquire()

    def meanwhile() -> None:
        command = PublishGeneration(
            cache_key=PAGE,
            s3_key="by an operator",
            generated_at=at(1),
            revalidate_seconds=60,
            guards=frozenset({PublishGuard.MONOTONE}),
        )
        with closing(GroupCommit(publishing.store)) as writer:
            Control(publishing.store, FOLDS, writer.submit, clock=lambda: T0).execute(
                publish_generation, command
            )
        publishing.clock.now = at(LEASE_SECONDS)

    publishing.watched.meanwhile = meanwhile

    with pytest.raises(LeaseLost):
        publishing.publisher.publish(PAGE, lease, b"late", generated_at=at(2))

    meta = publishing.meta()
    assert meta is not None
    assert meta.s3_key == "by an operator"


# ── recipe B ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-3", "PB-5", "PB-8")
def test_swaps_the_pointer_to_a_new_version_in_one_commit(publishing: Publishing) -> None:
    lease = publishing.acquire()
    publishing.watched.commits.clear()

    publishing.publisher.publish(PAGE, lease, b"body", VERSIONED, generated_at=T0, version_id="v1")

    (sent,) = publishing.watched.commits
    assert {(type(write), write.key.id) for write in sent.writes} == {
        (Put, f"{PK}/META"),
        (Put, f"{PK}/VER#v1"),
        (Delete, LOCK_KEY.id),
    }
    assert publishing.lock() is None
    assert publishing.members(version_key(PK, "v1")) == {
        "s3_key": digest_of(b"body"),
        "generated_at": codec.time_text(T0),
        "etag": etag_of(b"body"),
    }
    assert publishing.members(META_KEY) == {
        "s3_key": digest_of(b"body"),
        "generated_at": codec.time_text(T0),
        "revalidate_seconds": 60,
        "etag": etag_of(b"body"),
        "current_sk": "VER#v1",
        "version": 1,
    }


@pytest.mark.req("PB-3")
def test_refuses_an_id_that_was_already_used(publishing: Publishing) -> None:
    """'Guarded with attribute_not_exists(pk) to avoid duplicate IDs.'"""
    publishing.publish("old", VERSIONED, version_id="v1")
    before = publishing.record(META_KEY)
    publishing.clock.advance(timedelta(seconds=1))

    with pytest.raises(GenerationExists):
        publishing.publish("new", VERSIONED, version_id="v1")

    assert publishing.record(META_KEY) == before
    assert publishing.lock() is not None, "the lease is not spent"


@pytest.mark.req("PB-3")
def test_lists_generations_and_rolls_back_under_a_lease(publishing: Publishing) -> None:
    for number in range(3):
        publishing.publish(f"body {number}", VERSIONED)
        publishing.clock.advance(timedelta(seconds=1))
    ids = [id for id, _ in publishing.publisher.generations(PAGE)]
    first = dict(publishing.publisher.generations(PAGE))[ids[0]]

    publishing.publisher.roll_back(PAGE, ids[0], by="user_1")

    assert first == Generation(digest_of(b"body 0"), T0, etag_of(b"body 0"))
    assert len(ids) == 3
    assert publishing.meta() == Pointer(
        first.s3_key, at(3), 60, first.etag, current_sk=f"VER#{ids[0]}", version=4
    )
    assert publishing.lock() is None
    entry = publishing.publisher.read(PAGE)
    assert entry is not None
    assert entry.body == b"body 0"
    with pytest.raises(StaleGeneration):  # rendered before the rollback, and sent after it
        publishing.publish("late", VERSIONED, generated_at=at(2.5))


@pytest.mark.req("PB-3")
def test_rolls_back_only_to_an_existing_generation_and_in_a_commit_of_its_own(
    publishing: Publishing,
) -> None:
    with pytest.raises(NotFound):
        publishing.publisher.roll_back(PAGE, "v1")
    publishing.publish("body", VERSIONED, version_id="v1")
    before = publishing.record(META_KEY)

    with pytest.raises(NotFound):
        publishing.publisher.roll_back(PAGE, "v0")
    publishing.publisher.roll_back(PAGE, "v1")  # it is there already, so nothing happens
    assert publishing.lock() is None
    publishing.acquire()
    with pytest.raises(LeaseHeld):
        publishing.publisher.roll_back(PAGE, "v1")

    assert publishing.record(META_KEY) == before


@pytest.mark.req("PB-3")
def test_pages_through_many_generations(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.kernel.store.PAGE_ROWS", 2)
    for number in range(5):
        publishing.publish(f"body {number}", VERSIONED, version_id=f"v{number}")
        publishing.clock.advance(timedelta(seconds=1))

    assert [id for id, _ in publishing.publisher.generations(PAGE)] == [f"v{n}" for n in range(5)]
    assert list(publishing.publisher.generations("/other.html")) == []


def test_keeps_a_publication_to_one_recipe(publishing: Publishing) -> None:
    publishing.publish("old", VERSIONED)
    publishing.clock.advance(timedelta(seconds=1))

    with pytest.raises(RecipeMixed):
        publishing.publish("new")


# ── the lost answer ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-2")
@pytest.mark.parametrize("policy", [PublicationPolicy(), VERSIONED], ids=["A", "B"])
def test_recognizes_its_own_publish_after_the_answer_was_lost(
    publishing: Publishing, policy: PublicationPolicy
) -> None:
    lease = publishing.acquire()
    for _ in range(2):  # the second attempt finds no lease, because the first one spent it
        entry = publishing.publisher.publish(PAGE, lease, b"body", policy, generated_at=T0)
        assert entry.pointer == publishing.meta()

    with pytest.raises(LeaseLost):
        publishing.publisher.publish(PAGE, lease, b"other", policy, generated_at=T0)
    assert len(publishing.store.read(ALL).events) == 1


# ── the store object of a publication ─────────────────────────────────────────────────────────────


@pytest.mark.req("PB-9")
def test_offers_a_store_object_for_generations(publishing: Publishing) -> None:
    store = GenerationStore(publishing.control)
    key = "/a page/with ünusual#text"
    milliseconds = int(T0.timestamp() * 1000) + 123

    lease = store.try_acquire_lease(cache_key=key, lease_duration_ms=30_000, lease_owner="app-1")
    assert lease is not None
    assert store.try_acquire_lease(key, 30_000) is None
    with pytest.raises(LeaseLost):
        store.commit_generation(key, "another", "s3://b/k", milliseconds, 60, '"abc"')
    assert store.get(key) is None
    publishing.watched.commits.clear()
    store.commit_generation(
        cache_key=key,
        lease_token=lease.lease_token,
        html_pointer="s3://bucket/key.html",
        generated_at_ms=milliseconds,
        revalidate_seconds=60,
        etag='"abc"',
        lease_owner="app-2",  # never compared
    )

    (sent,) = publishing.watched.commits
    assert [type(write) for write in sent.writes] == [Put, Delete]
    assert store.get(key) == Pointer("s3://bucket/key.html", at(0.123), 60, '"abc"')
    assert lease.lease_expires_at == at(30)
    assert store.try_acquire_lease(key, 1) is not None
