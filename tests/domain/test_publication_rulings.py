"""publication.md §6, ruling by ruling: rows, leases, readers, recipes, guards, requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.publication.desk import (
    LOCK_KEY,
    LOG,
    META_KEY,
    PAGE,
    PK,
    SCHEMA,
    T0,
    VERSIONED,
    Desk,
    at,
    desk_at,
)
from tidegate.clock import ManualClock
from tidegate.control.blobs.files import FileBlobs
from tidegate.control.generations import GenerationStore, referenced
from tidegate.control.publisher import Asked, Policy, State
from tidegate.domain.publication.rows import (
    Pointer,
    etag_of,
    is_fresh,
    pk_of,
    request_key,
    version_key,
)
from tidegate.domain.publication.slices import (
    ALL_GUARDS,
    GUARDS,
    Guard,
    PublishGeneration,
    publish_generation,
)
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    NotFound,
    StaleVersion,
    TidegateError,
    Unavailable,
)
from tidegate.kernel import codec
from tidegate.kernel.leases import LEASES, Lease, Leases
from tidegate.kernel.model import Check, Commit, Delete, Put


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clock = ManualClock(T0)
    blobs = FileBlobs(tmp_path / "blobs", LOG, clock=clock)
    with desk_at(MemoryStore(SCHEMA), blobs, clock) as desk:
        yield desk


def render(body: bytes) -> Any:
    return lambda: body


def fail() -> bytes:
    raise Unavailable("the renderer has no paper")


# ── §6.1 rows ─────────────────────────────────────────────────────────────────────────────────────


def test_keeps_the_rows_of_the_schema_under_one_pk(desk: Desk) -> None:
    """publication.md §6.1 #1: "metadata / pointer | `META` | `s3_key` S, `generated_at` N epoch s,
    `revalidate_seconds` N, `etag` S opt, `ttl` N epoch s opt; recipe B adds `current_sk` and
    optional `version`"
    publication.md §6.1 #2: "lease | `LOCK` | `lease_token` S, `lease_expires_at` N epoch s"
    publication.md §6.1 #3: "version (recipe B) | `VER#<id>` | `s3_key`, `generated_at`, `etag`"
    publication.md §6.1 #4: "idempotency | `REQ#<key>` | `request_hash` S, `status`
    STARTED/COMPLETED/FAILED, `result_s3_key` opt, `ttl`"
    publication.md §6.1 #5: "pk: `CACHE#<hash>` single tenant"
    """
    policy = Policy(versioned=True, retention=timedelta(days=7))
    desk.publisher.serve(PAGE, render(b"one"), policy, Asked("r1", "h1"))
    ((id, _),) = desk.publisher.generations(PAGE)
    assert PK.startswith("CACHE#")
    assert len(PK) == len("CACHE#") + 64
    assert {META_KEY.id, version_key(PK, id).id, request_key(PK, "r1").id} == {
        f"{PK}/META",
        f"{PK}/VER#{id}",
        f"{PK}/REQ#r1",
    }
    base = {"s3_key", "generated_at", "revalidate_seconds", "etag", "ttl"}
    assert set(desk.members(META_KEY)) == base | {"current_sk", "version"}
    assert set(desk.members(version_key(PK, id))) == {"s3_key", "generated_at", "etag"}
    request = desk.members(request_key(PK, "r1"))
    assert set(request) == {"request_hash", "status", "result_s3_key", "ttl"}
    assert request["status"] == "COMPLETED"
    desk.acquire()
    assert set(desk.members(LOCK_KEY)) == {"lease_token", "lease_expires_at"}


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


def test_publishes_under_the_lease_or_not_at_all(desk: Desk) -> None:
    """publication.md §6.2 #4: "publish (recipe A/B) | token equal AND lease_expires_at > now |
    delete row as part of the transaction | whole transaction fails -> not-owned"
    publication.md §6.2 #6: "G3: compare with floor(now), store ceil(now + duration)": to the
    microsecond here, so that no lease is short
    publication.md §6.7 #3: "lease expired/stolen before publish | transaction fails, META
    unchanged, caller serves stale or errors; orphan body"
    """
    lease = desk.acquire()
    assert lease.expires_at == T0 + timedelta(seconds=30)
    desk.clock.advance(timedelta(seconds=30))
    with pytest.raises(LeaseLost):
        desk.publisher.publish(PAGE, lease, b"late", generated_at=T0)
    assert desk.meta() is None
    assert desk.lock() is not None
    mine = desk.acquire()
    desk.publisher.publish(PAGE, mine, b"one", generated_at=desk.clock.now)
    assert desk.lock() is None


def test_takes_a_lock_that_lost_its_expiry(desk: Desk) -> None:
    """publication.md §6.2 #10: "A lock row lacking `lease_expires_at` can never be acquired" |
    "PROPOSAL: treat as expired, log corruption".
    """
    damaged = Put(LOCK_KEY, codec.encode(Lease("tok9")), 0)
    desk.store.commit(Commit(T0, writes=(damaged,)))

    assert desk.publisher.try_acquire(PAGE, 30) is not None


def test_never_compares_the_owner(desk: Desk) -> None:
    """publication.md §6.2 #11: "`leaseOwner` is for logs only"."""
    store = GenerationStore(desk.control, tokens=lambda: "tok")
    lease = store.try_acquire_lease(PAGE, 1_000, lease_owner="one")
    assert lease is not None
    assert store.try_acquire_lease(PAGE, 1_000, lease_owner="one") is None
    store.commit_generation(PAGE, lease.lease_token, "k", 1, 60, lease_owner="somebody else")
    assert LEASES.model is Lease


# ── §6.3 readers ──────────────────────────────────────────────────────────────────────────────────


def test_says_how_a_reader_came_by_its_body(desk: Desk) -> None:
    """publication.md §6.3 #1: "`miss` (I regenerated)"
    publication.md §6.3 #2: "`hit` (fresh)"
    publication.md §6.3 #4: "`stale` (served old)"
    publication.md §6.3 #8: "fresh and body readable -> `hit`. (Fresh pointer with missing body
    falls through to regeneration.)"
    publication.md §6.3 #9: "acquire lease. Acquired -> 6. Not acquired -> contention metric"
    """
    states = [desk.publisher.serve(PAGE, render(b"one")).state for _ in range(2)]
    assert states == [State.MISS, State.HIT]
    desk.clock.advance(timedelta(minutes=2))
    desk.acquire()
    served = desk.publisher.serve(PAGE, render(b"two"), Policy(waits=False))
    assert (served.state, served.entry.body, served.contended) == (State.STALE, b"one", True)
    desk.clock.advance(timedelta(minutes=2))
    entry = desk.publisher.serve(PAGE, render(b"three")).entry
    desk.clock.advance(timedelta(seconds=1))
    desk.blobs.discard(entry.pointer.s3_key, before=desk.clock.now + timedelta(days=9))
    assert desk.publisher.serve(PAGE, render(b"four")).state is State.MISS


def test_waits_for_what_another_makes(desk: Desk) -> None:
    """publication.md §6.3 #3: "`wait-hit` (another regenerated while I waited)"."""
    desk.publish("old")
    desk.clock.advance(timedelta(minutes=2))
    lease = desk.acquire()
    published: list[float] = []

    def sleep(seconds: float) -> None:
        if not published:
            published.append(seconds)
            desk.publisher.publish(PAGE, lease, b"new", generated_at=desk.clock.now)

    desk.publisher._sleep = sleep
    served = desk.publisher.serve(PAGE, render(b"mine"))

    assert (served.state, served.entry.body) == (State.WAIT_HIT, b"new")


def test_has_the_defaults_of_the_runtime() -> None:
    """publication.md §6.3 #6: "revalidate 60 s, lease 5 000 ms, wait timeout 7 000 ms, poll 25 ms
    (min 1), failurePolicy `serve-stale`, lockContentionPolicy `wait`".
    """
    policy = Policy()
    assert (policy.revalidate_seconds, policy.lease_seconds) == (60, 5.0)
    assert (policy.wait_seconds, policy.poll_seconds) == (7.0, 0.025)
    assert (policy.serves_stale, policy.waits) == (True, True)
    with pytest.raises(InvalidInput):
        Policy(poll_seconds=0.0001)


def test_takes_the_time_before_rendering_and_keeps_the_old_when_that_fails(desk: Desk) -> None:
    """publication.md §6.3 #10: "generatedAt is taken BEFORE rendering"
    publication.md §6.3 #11: "any failure in 6: serve stale if policy says so, else rethrow.
    Finally: release lease (best effort) in every path"
    publication.md §6.3 #13: "failing regeneration keeps the old pointer, next request recovers"
    publication.md §6.7 #1: "render throws / status >= 500 | pointer untouched, stale served or
    error, lease released"
    """

    def slow() -> bytes:
        desk.clock.advance(timedelta(seconds=2))
        return b"one"

    entry = desk.publisher.serve(PAGE, slow).entry
    assert entry.pointer.generated_at == T0
    desk.clock.advance(timedelta(minutes=2))
    served = desk.publisher.serve(PAGE, fail)
    assert (served.state, served.entry.body) == (State.STALE, b"one")
    assert isinstance(served.failure, Unavailable)
    assert desk.lock() is None
    with pytest.raises(Unavailable):
        desk.publisher.serve(PAGE, fail, Policy(serves_stale=False))
    assert desk.lock() is None
    assert desk.publisher.serve(PAGE, render(b"two")).state is State.MISS


# ── §6.4, §6.5, §6.6 recipes, guards, etags ───────────────────────────────────────────────────────


def test_publishes_in_two_or_three_actions(desk: Desk) -> None:
    """publication.md §6.4 #1: "one transaction { put META; delete LOCK if token equal and expiry >
    now }. Exactly two actions; the regression test asserts no ConditionCheck"
    publication.md §6.4 #2: "one transaction { put VER#id if absent; update META set current_sk
    (optional version guard); delete LOCK conditionally }"
    publication.md §6.11 #2: "The pointer swap appends exactly one log event in the same
    transaction"
    release-state.md §0.3 #4: "conditional delete only"
    """
    for cache_key, policy, kinds in (
        (PAGE, Policy(), [Put, Delete]),
        ("/other", VERSIONED, [Put, Delete, Put]),
    ):
        lease = desk.publisher.try_acquire(cache_key, 30)
        assert lease is not None
        desk.publisher.publish(cache_key, lease, b"one", policy, generated_at=T0)
        commit = desk.watched.commits[-1]
        assert [type(write) for write in commit.writes] == kinds
        assert not any(isinstance(write, Check) for write in commit.writes)
        assert len(commit.facts) == 1


@pytest.mark.parametrize(
    ("point", "guard", "act"),
    [
        ("publication.md §6.5 #1: token | stolen lease", Guard.TOKEN, "steal"),
        ("publication.md §6.5 #2: expiry > now | late holder", Guard.EXPIRY, "expire"),
        (
            "publication.md §6.5 #3: optimistic version on pointer | any concurrent pointer change",
            Guard.VERSION,
            "move",
        ),
        (
            (
                "publication.md §6.5 #4: monotonic generated_at (`stored < new`) | older generation"
                " overwriting newer"
            ),
            Guard.MONOTONE,
            "older",
        ),
    ],
)
def test_stops_by_each_guard_what_it_is_for(desk: Desk, point: str, guard: Guard, act: str) -> None:
    """publication.md §6.5 #5: "The monotonic guard must be "absent OR stored < new"": it passes the
    first publish.
    """
    del point
    desk.publish("first", generated_at=at(10))
    seen = desk.record(META_KEY)
    assert seen is not None
    lease = desk.acquire()
    generated = at(20)
    match act:
        case "steal":
            desk.clock.advance(timedelta(seconds=31))
            desk.acquire()
        case "expire":
            desk.clock.advance(timedelta(seconds=31))
        case "move":
            command = PublishGeneration(
                cache_key=PAGE,
                s3_key="moved",
                generated_at=at(11),
                revalidate_seconds=60,
                guards=frozenset({Guard.MONOTONE}),
            )
            desk.control.execute(publish_generation, command)
        case "older":
            generated = at(10)
    before = desk.meta()

    with pytest.raises(TidegateError):
        desk.publisher.publish(
            PAGE,
            lease,
            b"late",
            generated_at=generated,
            guards=frozenset({guard}),
            expected_version=seen.version,
        )
    assert desk.meta() == before


def test_regenerates_under_all_guards(desk: Desk) -> None:
    """publication.md §6.5 #6: "always token + expiry + pointer version; use the log position (or
    (generated_at, version)) for monotonicity, not wall seconds": a pointer that was moved without
    the lease while a reader rendered is not overwritten.
    """
    assert set(Guard) == ALL_GUARDS > GUARDS
    desk.publish("one")
    desk.clock.advance(timedelta(minutes=2))

    def interrupted() -> bytes:
        moved = PublishGeneration(
            cache_key=PAGE,
            s3_key=desk.blobs.put(b"by an operator"),
            generated_at=desk.clock.now - timedelta(seconds=1),
            revalidate_seconds=60,
            guards=frozenset({Guard.MONOTONE}),
        )
        desk.control.execute(publish_generation, moved)
        return b"two"

    served = desk.publisher.serve(PAGE, interrupted)

    assert (served.state, served.entry.body) == (State.STALE, b"by an operator")
    assert isinstance(served.failure, StaleVersion)


def test_has_a_strong_etag_on_pointer_and_version_that_is_verified_on_read(
    desk: Desk, tmp_path: Path
) -> None:
    """publication.md §6.6 #1: "strong etag = quoted sha256 of the body, computed before publish,
    same value on VER and META, verified on read".
    """
    entry = desk.publisher.serve(PAGE, render(b"one"), VERSIONED).entry
    ((_, generation),) = desk.publisher.generations(PAGE)

    assert entry.pointer.etag == generation.etag == etag_of(b"one")
    assert entry.pointer.etag.strip('"') == entry.pointer.s3_key.removeprefix("sha256:")
    digits = entry.pointer.s3_key.removeprefix("sha256:")
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name in digits)
    path.chmod(0o600)
    path.write_bytes(b"two")
    with pytest.raises(TidegateError) as damage:
        desk.publisher.read(PAGE)
    assert damage.value.code == "blob_damaged"


# ── §6.7 failures ─────────────────────────────────────────────────────────────────────────────────


def test_leaves_an_orphan_and_no_dangling_pointer_where_it_dies_in_between(desk: Desk) -> None:
    """publication.md §6.7 #2: "body written, crash before publish | orphan body object; lease
    expires by itself; pointer unchanged".
    """
    desk.publish("one")
    desk.acquire()
    orphan = desk.blobs.put(b"two")

    found = desk.publisher.read(PAGE)
    assert found is not None
    assert found.body == b"one"
    assert orphan not in referenced(desk.store)
    desk.clock.advance(timedelta(seconds=31))
    assert desk.publisher.try_acquire(PAGE, 30) is not None


def test_knows_its_own_publish_after_a_lost_answer(desk: Desk) -> None:
    """publication.md §6.7 #4: "commit succeeded, response lost | retry sees LOCK absent ->
    not-owned although published" | "on not-owned re-read META; if pointer equals mine -> success".
    """
    lease = desk.acquire()
    for guards in (GUARDS, ALL_GUARDS):
        entry = desk.publisher.publish(
            PAGE, lease, b"one", generated_at=T0, guards=guards, expected_version=0
        )
        assert entry.pointer == desk.meta()
    with pytest.raises(LeaseLost):
        desk.publisher.publish(PAGE, lease, b"two", generated_at=at(1))


def test_calls_a_publication_stale_under_the_lease(desk: Desk) -> None:
    """publication.md §6.7 #6: "invalidate" | "provide it as a transition that forces stale
    (revalidate from now) and is fenced by the lease".
    """
    desk.publish("one")
    lease = desk.acquire()
    with pytest.raises(LeaseHeld):
        desk.publisher.invalidate(PAGE)
    Leases(desk.store).release(lease.key.id, lease.token, now=T0)
    desk.publisher.invalidate(PAGE)

    meta = desk.meta()
    assert meta is not None
    assert not is_fresh(meta, desk.clock.now)
    found = desk.publisher.read(PAGE)
    assert found is not None
    assert found.body == b"one"
    with pytest.raises(NotFound):
        desk.publisher.invalidate("/none")


def test_takes_a_lock_without_a_pointer_for_a_miss(desk: Desk) -> None:
    """publication.md §6.7 #7: "META gone, LOCK present | treated as miss; waits or takes over on
    expiry".
    """
    desk.acquire()
    with pytest.raises(LeaseHeld):
        desk.publisher.serve(PAGE, render(b"one"))
    desk.clock.advance(timedelta(seconds=31))
    assert desk.publisher.serve(PAGE, render(b"one")).state is State.MISS


# ── §6.8, §6.11 requests, channels ────────────────────────────────────────────────────────────────


def test_gives_a_request_one_result(desk: Desk) -> None:
    """publication.md §6.8 #1: "read META, fresh -> return"
    publication.md §6.8 #2: "create REQ if absent; existing: hash differs -> fail closed; COMPLETED
    -> return recorded result; STARTED -> in progress (wait or serve stale)"
    publication.md §6.8 #3: "acquire lease"
    publication.md §6.8 #4: "regenerate"
    publication.md §6.8 #5: "publish META + mark REQ COMPLETED with result + delete LOCK, one
    transaction"
    """
    asked = Asked("deploy-7", "hash-1")
    assert desk.publisher.serve(PAGE, render(b"one"), VERSIONED, asked).state is State.MISS
    commit = desk.watched.commits[-1]
    assert {write.key.collection for write in commit.writes} >= {
        *("publications", "generations", "publication_requests", "leases")
    }
    assert desk.publisher.serve(PAGE, fail, VERSIONED, Asked("other", "x")).state is State.HIT
    desk.clock.advance(timedelta(minutes=2))
    again = desk.publisher.serve(PAGE, fail, VERSIONED, asked)
    assert (again.state, again.entry.body) == (State.HIT, b"one")
    with pytest.raises(IdempotencyMismatch):
        desk.publisher.serve(PAGE, fail, VERSIONED, replace_hash(asked))


def replace_hash(asked: Asked) -> Asked:
    return Asked(asked.key, "hash-2")


def test_lets_the_next_holder_take_a_request_over(desk: Desk) -> None:
    """publication.md §6.8 #8: "STARTED carries the lease token; a later holder of the lease may
    take it over; FAILED is retryable with the same hash": the lease itself is what is carried over
    publication.md §6.8 #6: "Key choices: request id, queue message id, or hash(cache key | deploy
    id | policy version)": the caller's, any text of up to 128 bytes
    """
    asked = Asked("queue/message-1", "hash-1")
    with pytest.raises(Unavailable):
        desk.publisher.serve(PAGE, fail, VERSIONED, asked)
    assert desk.members(request_key(PK, asked.key))["status"] == "FAILED"
    served = desk.publisher.serve(PAGE, render(b"one"), VERSIONED, asked)
    assert (served.state, served.entry.body) == (State.MISS, b"one")
    assert replace(served.entry.pointer, ttl=None).current_sk.startswith("VER#")


def test_keys_a_publication_by_any_text_of_its_caller() -> None:
    """publication.md §6.11 #1: ""Cache key" -> (tenant, service, channel)": one flat tenant, and
    each channel's manifest is a publication of its own.
    """
    assert pk_of("channel/web-stable") != pk_of("channel/web-beta")
