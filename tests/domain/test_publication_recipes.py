"""Publishing: both recipes, their guards, etags, failures and requests."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.publication.publishing import (
    META_KEY,
    PAGE,
    PK,
    T0,
    VERSIONED,
    Publishing,
    at,
    fail,
    render,
)
from tidegate.control.publication.entries import PublicationPolicy, RegenerationKey, ServedState
from tidegate.control.publication.generations import list_referenced_blobs
from tidegate.domain.publication.rows import etag_of, is_fresh, pk_of, request_key
from tidegate.domain.publication.slices import (
    ALL_GUARDS,
    GUARDS,
    PublishGeneration,
    PublishGuard,
    publish_generation,
)
from tidegate.errors import (
    IdempotencyMismatch,
    LeaseHeld,
    LeaseLost,
    NotFound,
    StaleVersion,
    TidegateError,
    Unavailable,
)
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import Check, Delete, Put

# ── recipes, guards, etags ────────────────────────────────────────────────────────────────────────


def test_publishes_in_two_or_three_actions(publishing: Publishing) -> None:
    for cache_key, policy, kinds in (
        (PAGE, PublicationPolicy(), [Put, Delete]),
        ("/other", VERSIONED, [Put, Delete, Put]),
    ):
        lease = publishing.publisher.try_acquire(cache_key, 30)
        assert lease is not None
        publishing.publisher.publish(cache_key, lease, b"one", policy, generated_at=T0)
        commit = publishing.watched.commits[-1]
        assert [type(write) for write in commit.writes] == kinds
        assert not any(isinstance(write, Check) for write in commit.writes)
        assert len(commit.facts) == 1


@pytest.mark.parametrize(
    ("guard", "act"),
    [
        pytest.param(PublishGuard.TOKEN, "steal", id="token: stolen lease"),
        pytest.param(PublishGuard.EXPIRY, "expire", id="expiry > now: late holder"),
        pytest.param(
            PublishGuard.VERSION,
            "move",
            id="optimistic version on pointer: any concurrent pointer change",
        ),
        pytest.param(
            PublishGuard.MONOTONE,
            "older",
            id="monotonic generated_at (stored < new): older generation overwriting newer",
        ),
    ],
)
def test_each_guard_stops_what_it_is_for(
    publishing: Publishing, guard: PublishGuard, act: str
) -> None:
    publishing.publish("first", generated_at=at(10))
    seen = publishing.record(META_KEY)
    assert seen is not None
    lease = publishing.acquire()
    generated = at(20)
    match act:
        case "steal":
            publishing.clock.advance(timedelta(seconds=31))
            publishing.acquire()
        case "expire":
            publishing.clock.advance(timedelta(seconds=31))
        case "move":
            command = PublishGeneration(
                cache_key=PAGE,
                s3_key="moved",
                generated_at=at(11),
                revalidate_seconds=60,
                guards=frozenset({PublishGuard.MONOTONE}),
            )
            publishing.control.execute(publish_generation, command)
        case "older":
            generated = at(10)
    before = publishing.meta()

    with pytest.raises(TidegateError):
        publishing.publisher.publish(
            PAGE,
            lease,
            b"late",
            generated_at=generated,
            guards=frozenset({guard}),
            expected_version=seen.version,
        )
    assert publishing.meta() == before


def test_regenerates_under_all_guards(publishing: Publishing) -> None:
    assert set(PublishGuard) == ALL_GUARDS > GUARDS
    publishing.publish("one")
    publishing.clock.advance(timedelta(minutes=2))

    def interrupted() -> bytes:
        moved = PublishGeneration(
            cache_key=PAGE,
            s3_key=publishing.blobs.put(b"by an operator"),
            generated_at=publishing.clock.now - timedelta(seconds=1),
            revalidate_seconds=60,
            guards=frozenset({PublishGuard.MONOTONE}),
        )
        publishing.control.execute(publish_generation, moved)
        return b"two"

    served = publishing.publisher.serve(PAGE, interrupted)

    assert (served.state, served.entry.body) == (ServedState.STALE, b"by an operator")
    assert isinstance(served.failure, StaleVersion)


def test_has_a_strong_etag_on_pointer_and_version_that_is_verified_on_read(
    publishing: Publishing, tmp_path: Path
) -> None:
    entry = publishing.publisher.serve(PAGE, render(b"one"), VERSIONED).entry
    ((_, generation),) = publishing.publisher.generations(PAGE)

    assert entry.pointer.etag == generation.etag == etag_of(b"one")
    assert entry.pointer.etag.strip('"') == entry.pointer.s3_key.removeprefix("sha256:")
    digits = entry.pointer.s3_key.removeprefix("sha256:")
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name in digits)
    path.chmod(0o600)
    path.write_bytes(b"two")
    with pytest.raises(TidegateError) as damage:
        publishing.publisher.read(PAGE)
    assert damage.value.code == "blob_damaged"


# ── failures ──────────────────────────────────────────────────────────────────────────────────────


def test_leaves_an_orphan_and_no_dangling_pointer_when_it_dies_in_between(
    publishing: Publishing,
) -> None:
    publishing.publish("one")
    publishing.acquire()
    orphan = publishing.blobs.put(b"two")

    found = publishing.publisher.read(PAGE)
    assert found is not None
    assert found.body == b"one"
    assert orphan not in list_referenced_blobs(publishing.store)
    publishing.clock.advance(timedelta(seconds=31))
    assert publishing.publisher.try_acquire(PAGE, 30) is not None


def test_recognizes_its_own_publish_after_a_lost_answer(publishing: Publishing) -> None:
    lease = publishing.acquire()
    for guards in (GUARDS, ALL_GUARDS):
        entry = publishing.publisher.publish(
            PAGE, lease, b"one", generated_at=T0, guards=guards, expected_version=0
        )
        assert entry.pointer == publishing.meta()
    with pytest.raises(LeaseLost):
        publishing.publisher.publish(PAGE, lease, b"two", generated_at=at(1))


def test_calls_a_publication_stale_under_the_lease(publishing: Publishing) -> None:
    publishing.publish("one")
    lease = publishing.acquire()
    with pytest.raises(LeaseHeld):
        publishing.publisher.invalidate(PAGE)
    Leases(publishing.store).release(lease.key.id, lease.token, now=T0)
    publishing.publisher.invalidate(PAGE)

    meta = publishing.meta()
    assert meta is not None
    assert not is_fresh(meta, publishing.clock.now)
    found = publishing.publisher.read(PAGE)
    assert found is not None
    assert found.body == b"one"
    with pytest.raises(NotFound):
        publishing.publisher.invalidate("/none")


def test_treats_a_lock_without_a_pointer_as_a_miss(publishing: Publishing) -> None:
    publishing.acquire()
    with pytest.raises(LeaseHeld):
        publishing.publisher.serve(PAGE, render(b"one"))
    publishing.clock.advance(timedelta(seconds=31))
    assert publishing.publisher.serve(PAGE, render(b"one")).state is ServedState.MISS


# ── requests, channels ────────────────────────────────────────────────────────────────────────────


def test_gives_a_request_one_result(publishing: Publishing) -> None:
    asked = RegenerationKey("deploy-7", "hash-1")
    assert (
        publishing.publisher.serve(PAGE, render(b"one"), VERSIONED, asked).state is ServedState.MISS
    )
    commit = publishing.watched.commits[-1]
    assert {write.key.collection for write in commit.writes} >= {
        *("publications", "generations", "publication_requests", "leases")
    }
    assert (
        publishing.publisher.serve(PAGE, fail, VERSIONED, RegenerationKey("other", "x")).state
        is ServedState.HIT
    )
    publishing.clock.advance(timedelta(minutes=2))
    again = publishing.publisher.serve(PAGE, fail, VERSIONED, asked)
    assert (again.state, again.entry.body) == (ServedState.HIT, b"one")
    with pytest.raises(IdempotencyMismatch):
        publishing.publisher.serve(PAGE, fail, VERSIONED, replace_hash(asked))


def replace_hash(asked: RegenerationKey) -> RegenerationKey:
    return RegenerationKey(asked.key, "hash-2")


def test_the_next_holder_may_take_over_a_request(publishing: Publishing) -> None:
    asked = RegenerationKey("queue/message-1", "hash-1")
    with pytest.raises(Unavailable):
        publishing.publisher.serve(PAGE, fail, VERSIONED, asked)
    assert publishing.members(request_key(PK, asked.key))["status"] == "FAILED"
    served = publishing.publisher.serve(PAGE, render(b"one"), VERSIONED, asked)
    assert (served.state, served.entry.body) == (ServedState.MISS, b"one")
    assert replace(served.entry.pointer, ttl=None).current_sk.startswith("VER#")


def test_accepts_any_text_as_the_key_of_a_publication() -> None:
    assert pk_of("channel/web-stable") != pk_of("channel/web-beta")
