"""Rows, leases and readers of a publication."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.publication.publishing import (
    LOCK_KEY,
    META_KEY,
    PAGE,
    PK,
    SCHEMA,
    T0,
    Publishing,
    at,
    fail,
    render,
)
from tidegate.control.publication.entries import PublicationPolicy, RegenerationKey, ServedState
from tidegate.control.publication.generations import GenerationStore
from tidegate.domain.publication.rows import Pointer, is_fresh, request_key, version_key
from tidegate.engines.memory import MemoryStore
from tidegate.errors import InvalidInput, LeaseHeld, LeaseLost, Unavailable
from tidegate.kernel import codec
from tidegate.kernel.leases import LEASES, Lease, Leases
from tidegate.kernel.model import Commit, Put

# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


def test_keeps_the_rows_of_the_schema_under_one_pk(publishing: Publishing) -> None:
    policy = PublicationPolicy(versioned=True, retention=timedelta(days=7))
    publishing.publisher.serve(PAGE, render(b"one"), policy, RegenerationKey("r1", "h1"))
    ((id, _),) = publishing.publisher.generations(PAGE)
    assert PK.startswith("CACHE#")
    assert len(PK) == len("CACHE#") + 64
    assert {META_KEY.id, version_key(PK, id).id, request_key(PK, "r1").id} == {
        f"{PK}/META",
        f"{PK}/VER#{id}",
        f"{PK}/REQ#r1",
    }
    base = {"s3_key", "generated_at", "revalidate_seconds", "etag", "ttl"}
    assert set(publishing.members(META_KEY)) == base | {"current_sk", "version"}
    assert set(publishing.members(version_key(PK, id))) == {"s3_key", "generated_at", "etag"}
    request = publishing.members(request_key(PK, "r1"))
    assert set(request) == {"request_hash", "status", "result_s3_key", "ttl"}
    assert request["status"] == "COMPLETED"
    publishing.acquire()
    assert set(publishing.members(LOCK_KEY)) == {"lease_token", "lease_expires_at"}


def test_compares_expiry_times_strictly() -> None:
    pointer = Pointer("k", T0, 60, ttl=T0 - timedelta(days=1))
    assert is_fresh(pointer, at(59.999999))
    assert not is_fresh(pointer, at(60))
    leases = Leases(MemoryStore(SCHEMA))
    leases.acquire("x", "tok1", now=T0, seconds=30)
    with pytest.raises(LeaseHeld):
        leases.acquire("x", "tok2", now=at(29.999999), seconds=30)
    leases.acquire("x", "tok2", now=at(30), seconds=30)


# ── leases ────────────────────────────────────────────────────────────────────────────────────────


def test_acquires_renews_and_releases_according_to_the_table() -> None:
    leases = Leases(MemoryStore(SCHEMA))
    first = leases.acquire("x", "tok1", now=at(1_000), seconds=30)
    for token in ("tok1", "tok2"):
        with pytest.raises(LeaseHeld):
            leases.acquire("x", token, now=at(1_000), seconds=30)
    renewed = leases.renew("x", "tok1", now=at(1_010), seconds=60)
    assert (renewed.token, renewed.expires_at) == ("tok1", at(1_070))
    with pytest.raises(LeaseLost):
        leases.renew("x", "tok1", now=at(1_070), seconds=60)
    second = leases.acquire("x", "tok2", now=at(2_000), seconds=30)
    assert first.number < renewed.number < second.number
    with pytest.raises(LeaseLost):
        leases.renew("x", "tok1", now=at(2_000), seconds=60)
    assert not leases.release("x", "tok1", now=at(2_000))
    assert leases.release("x", "tok2", now=at(9_000)), "expired, and still its own"
    assert not leases.release("x", "tok2", now=at(9_000))
    for seconds in (0, -1):
        with pytest.raises(InvalidInput):
            leases.acquire("x", "tok", now=T0, seconds=seconds)


def test_publishes_under_the_lease_or_not_at_all(publishing: Publishing) -> None:
    lease = publishing.acquire()
    assert lease.expires_at == T0 + timedelta(seconds=30)
    publishing.clock.advance(timedelta(seconds=30))
    with pytest.raises(LeaseLost):
        publishing.publisher.publish(PAGE, lease, b"late", generated_at=T0)
    assert publishing.meta() is None
    assert publishing.lock() is not None
    mine = publishing.acquire()
    publishing.publisher.publish(PAGE, mine, b"one", generated_at=publishing.clock.now)
    assert publishing.lock() is None


def test_refuses_to_take_a_lock_without_an_expiry(publishing: Publishing) -> None:
    damaged = Put(LOCK_KEY, codec.encode(Lease("tok9")), 0)
    publishing.store.commit(Commit(T0, writes=(damaged,)))

    assert publishing.publisher.try_acquire(PAGE, 30) is None


def test_never_compares_the_owner(publishing: Publishing) -> None:
    store = GenerationStore(publishing.control, tokens=lambda: "tok")
    lease = store.try_acquire_lease(PAGE, 1_000, lease_owner="one")
    assert lease is not None
    assert store.try_acquire_lease(PAGE, 1_000, lease_owner="one") is None
    store.commit_generation(PAGE, lease.lease_token, "k", 1, 60, lease_owner="somebody else")
    assert LEASES.model is Lease


# ── readers ───────────────────────────────────────────────────────────────────────────────────────


def test_reports_how_a_reader_got_its_body(publishing: Publishing) -> None:
    states = [publishing.publisher.serve(PAGE, render(b"one")).state for _ in range(2)]
    assert states == [ServedState.MISS, ServedState.HIT]
    publishing.clock.advance(timedelta(minutes=2))
    publishing.acquire()
    served = publishing.publisher.serve(PAGE, render(b"two"), PublicationPolicy(waits=False))
    assert (served.state, served.entry.body, served.contended) == (ServedState.STALE, b"one", True)
    publishing.clock.advance(timedelta(minutes=2))
    entry = publishing.publisher.serve(PAGE, render(b"three")).entry
    publishing.clock.advance(timedelta(seconds=1))
    publishing.blobs.discard(entry.pointer.s3_key, before=publishing.clock.now + timedelta(days=9))
    assert publishing.publisher.serve(PAGE, render(b"four")).state is ServedState.MISS


def test_waits_for_the_result_of_another_publisher(publishing: Publishing) -> None:
    publishing.publish("old")
    publishing.clock.advance(timedelta(minutes=2))
    lease = publishing.acquire()
    published: list[float] = []

    def sleep(seconds: float) -> None:
        if not published:
            published.append(seconds)
            publishing.publisher.publish(PAGE, lease, b"new", generated_at=publishing.clock.now)

    publishing.publisher._sleep = sleep
    served = publishing.publisher.serve(PAGE, render(b"mine"))

    assert (served.state, served.entry.body) == (ServedState.WAIT_HIT, b"new")


def test_has_the_defaults_of_the_runtime() -> None:
    policy = PublicationPolicy()
    assert (policy.revalidate_seconds, policy.lease_seconds) == (60, 5.0)
    assert (policy.wait_seconds, policy.poll_seconds) == (7.0, 0.025)
    assert (policy.serves_stale, policy.waits) == (True, True)
    with pytest.raises(InvalidInput):
        PublicationPolicy(poll_seconds=0.0001)


def test_takes_the_time_before_rendering_and_keeps_the_old_when_that_fails(
    publishing: Publishing,
) -> None:
    def slow() -> bytes:
        publishing.clock.advance(timedelta(seconds=2))
        return b"one"

    entry = publishing.publisher.serve(PAGE, slow).entry
    assert entry.pointer.generated_at == T0
    publishing.clock.advance(timedelta(minutes=2))
    served = publishing.publisher.serve(PAGE, fail)
    assert (served.state, served.entry.body) == (ServedState.STALE, b"one")
    assert isinstance(served.failure, Unavailable)
    assert publishing.lock() is None
    with pytest.raises(Unavailable):
        publishing.publisher.serve(PAGE, fail, PublicationPolicy(serves_stale=False))
    assert publishing.lock() is None
    assert publishing.publisher.serve(PAGE, render(b"two")).state is ServedState.MISS
