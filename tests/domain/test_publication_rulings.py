"""publication.md §6.1–§6.3, ruling by ruling: rows, leases, readers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.publication.publishing import (
    LOCK_KEY,
    LOG,
    META_KEY,
    PAGE,
    PK,
    SCHEMA,
    T0,
    Publishing,
    at,
    publishing_at,
)
from tidegate.clock import ManualClock
from tidegate.control.publication.entries import PublicationPolicy, RegenerationKey, ServedState
from tidegate.control.publication.generations import GenerationStore
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.publication.rows import (
    Pointer,
    is_fresh,
    request_key,
    version_key,
)
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    Unavailable,
)
from tidegate.kernel import codec
from tidegate.kernel.leases import LEASES, Lease, Leases
from tidegate.kernel.model import Commit, Put


@pytest.fixture
def publishing(tmp_path: Path) -> Iterator[Publishing]:
    clock = ManualClock(T0)
    blobs = FileBlobs(tmp_path / "blobs", LOG, clock=clock)
    with publishing_at(MemoryStore(SCHEMA), blobs, clock) as publishing:
        yield publishing


def render(body: bytes) -> Any:
    return lambda: body


def fail() -> bytes:
    raise Unavailable("the renderer has no paper")


# ── §6.1 rows ─────────────────────────────────────────────────────────────────────────────────────


def test_keeps_the_rows_of_the_schema_under_one_pk(publishing: Publishing) -> None:
    """publication.md §6.1 #1: "metadata / pointer | `META` | `s3_key` S, `generated_at` N epoch s,
    `revalidate_seconds` N, `etag` S opt, `ttl` N epoch s opt; recipe B adds `current_sk` and
    optional `version`"
    publication.md §6.1 #2: "lease | `LOCK` | `lease_token` S, `lease_expires_at` N epoch s"
    publication.md §6.1 #3: "version (recipe B) | `VER#<id>` | `s3_key`, `generated_at`, `etag`"
    publication.md §6.1 #4: "idempotency | `REQ#<key>` | `request_hash` S, `status`
    STARTED/COMPLETED/FAILED, `result_s3_key` opt, `ttl`"
    publication.md §6.1 #5: "pk: `CACHE#<hash>` single tenant"
    """
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


def test_compares_strictly() -> None:
    """publication.md §6.1 #6: "fresh iff now < generated_at + revalidate_seconds (strict)"
    publication.md §6.1 #7: "Held: iff lease_expires_at > now (strict). TTL never decides either".
    """
    pointer = Pointer("k", T0, 60, ttl=T0 - timedelta(days=1))
    assert is_fresh(pointer, at(59.999999))
    assert not is_fresh(pointer, at(60))
    leases = Leases(MemoryStore(SCHEMA))
    leases.acquire("x", "tok1", now=T0, seconds=30)
    with pytest.raises(LeaseHeld):
        leases.acquire("x", "tok2", now=at(29.999999), seconds=30)
    leases.acquire("x", "tok2", now=at(30), seconds=30)


# ── §6.2 leases ───────────────────────────────────────────────────────────────────────────────────


def test_acquires_renews_and_releases_as_the_table_says() -> None:
    """publication.md §6.2 #1: "acquire(key, seconds>0) | row absent OR lease_expires_at <= now"
    publication.md §6.2 #2: "refresh(lease, seconds>0) | token equal AND lease_expires_at > now |
    set expiry (+ ttl); token unchanged"
    publication.md §6.2 #3: "release(lease) | token equal (expiry NOT checked) | delete row |
    swallowed: best effort, also when the row is gone"
    publication.md §6.2 #5: "at now == lease_expires_at the lease is **expired**"
    publication.md §6.2 #7: "Token: random UUIDv4 per acquire, injectable. Not monotonic, hence
    **not a fencing token**": the row's version is one
    publication.md §6.2 #9: "Not re-entrant: the holder's second acquire is refused until expiry"
    publication.md §6.2 #12: "clock 1000, 30 s, tok1 acquires; tok2 at 1000 refused; tok2 at 2000
    acquires; tok1 refresh -> not owned"
    """
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
    assert leases.release("x", "tok2", now=at(9_000)), "expired, and its own all the same"
    assert not leases.release("x", "tok2", now=at(9_000))
    for seconds in (0, -1):
        with pytest.raises(InvalidInput):
            leases.acquire("x", "tok", now=T0, seconds=seconds)


def test_publishes_under_the_lease_or_not_at_all(publishing: Publishing) -> None:
    """publication.md §6.2 #4: "publish (recipe A/B) | token equal AND lease_expires_at > now |
    delete row as part of the transaction | whole transaction fails -> not-owned"
    publication.md §6.2 #6: "G3: compare with floor(now), store ceil(now + duration)": to the
    microsecond here, so that no lease is short
    publication.md §6.7 #3: "lease expired/stolen before publish | transaction fails, META
    unchanged, caller serves stale or errors; orphan body"
    """
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


def test_takes_a_lock_that_lost_its_expiry(publishing: Publishing) -> None:
    """publication.md §6.2 #10: "A lock row lacking `lease_expires_at` can never be acquired" |
    "PROPOSAL: treat as expired, log corruption".
    """
    damaged = Put(LOCK_KEY, codec.encode(Lease("tok9")), 0)
    publishing.store.commit(Commit(T0, writes=(damaged,)))

    assert publishing.publisher.try_acquire(PAGE, 30) is not None


def test_never_compares_the_owner(publishing: Publishing) -> None:
    """publication.md §6.2 #11: "`leaseOwner` is for logs only"."""
    store = GenerationStore(publishing.control, tokens=lambda: "tok")
    lease = store.try_acquire_lease(PAGE, 1_000, lease_owner="one")
    assert lease is not None
    assert store.try_acquire_lease(PAGE, 1_000, lease_owner="one") is None
    store.commit_generation(PAGE, lease.lease_token, "k", 1, 60, lease_owner="somebody else")
    assert LEASES.model is Lease


# ── §6.3 readers ──────────────────────────────────────────────────────────────────────────────────


def test_says_how_a_reader_came_by_its_body(publishing: Publishing) -> None:
    """publication.md §6.3 #1: "`miss` (I regenerated)"
    publication.md §6.3 #2: "`hit` (fresh)"
    publication.md §6.3 #4: "`stale` (served old)"
    publication.md §6.3 #8: "fresh and body readable -> `hit`. (Fresh pointer with missing body
    falls through to regeneration.)"
    publication.md §6.3 #9: "acquire lease. Acquired -> 6. Not acquired -> contention metric"
    """
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


def test_waits_for_what_another_makes(publishing: Publishing) -> None:
    """publication.md §6.3 #3: "`wait-hit` (another regenerated while I waited)"."""
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
    """publication.md §6.3 #6: "revalidate 60 s, lease 5 000 ms, wait timeout 7 000 ms, poll 25 ms
    (min 1), failurePolicy `serve-stale`, lockContentionPolicy `wait`".
    """
    policy = PublicationPolicy()
    assert (policy.revalidate_seconds, policy.lease_seconds) == (60, 5.0)
    assert (policy.wait_seconds, policy.poll_seconds) == (7.0, 0.025)
    assert (policy.serves_stale, policy.waits) == (True, True)
    with pytest.raises(InvalidInput):
        PublicationPolicy(poll_seconds=0.0001)


def test_takes_the_time_before_rendering_and_keeps_the_old_when_that_fails(
    publishing: Publishing,
) -> None:
    """publication.md §6.3 #10: "generatedAt is taken BEFORE rendering"
    publication.md §6.3 #11: "any failure in 6: serve stale if policy says so, else rethrow.
    Finally: release lease (best effort) in every path"
    publication.md §6.3 #13: "failing regeneration keeps the old pointer, next request recovers"
    publication.md §6.7 #1: "render throws / status >= 500 | pointer untouched, stale served or
    error, lease released"
    """

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
