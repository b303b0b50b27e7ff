"""What readers get on every engine, fresh or stale, and requests that have one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Barrier, Lock

import pytest

from tests.contract.address import Address
from tests.contract.publication.publishing import (
    FOLDS,
    LEASE_SECONDS,
    LOG,
    PAGE,
    PK,
    T0,
    VERSIONED,
    Killed,
    Publishing,
    at,
    publishing_at,
)
from tidegate.control.publication.entries import (
    PublicationPolicy,
    RegenerationKey,
    Served,
    ServedState,
)
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.content.digests import digest_of
from tidegate.domain.publication.rows import (
    PublicationRequest,
    RequestStatus,
    etag_of,
    is_fresh,
    is_not_modified,
    request_key,
)
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import IdempotencyMismatch, LeaseHeld, LeaseLost, NotFound
from tidegate.kernel import codec
from tidegate.kernel.model import ALL
from tidegate.kernel.store import Store

Connect = Callable[[], Store]
READERS = 8

# ── readers ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-7")
def test_is_fresh_until_its_revalidation_time_and_stale_at_that_instant(
    publishing: Publishing,
) -> None:
    renders = count(1)

    def serve(seconds: float) -> tuple[str, bytes]:
        publishing.clock.now = at(seconds)
        served = publishing.publisher.serve(PAGE, lambda: f"body {next(renders)}".encode())
        return served.state, served.entry.body

    assert serve(0) == (ServedState.MISS, b"body 1")
    assert serve(59.999_999) == (ServedState.HIT, b"body 1")
    assert serve(60) == (ServedState.MISS, b"body 2")
    assert serve(61) == (ServedState.HIT, b"body 2")


@pytest.mark.req("PB-7")
def test_a_ttl_decides_neither_freshness_nor_ownership(publishing: Publishing) -> None:
    policy = PublicationPolicy(revalidate_seconds=600, retention=timedelta(seconds=1))
    publishing.publisher.serve(PAGE, lambda: b"body", policy)
    publishing.clock.advance(timedelta(seconds=300))  # the ttl expired long ago

    served = publishing.publisher.serve(PAGE, lambda: b"other", policy)

    assert (served.state, served.entry.body) == (ServedState.HIT, b"body")
    lease = publishing.publisher.try_acquire(PAGE, LEASE_SECONDS)
    assert lease is not None
    assert publishing.publisher.try_acquire(PAGE, LEASE_SECONDS) is None


@pytest.mark.req("PB-7")
def test_serves_the_last_body_while_another_regenerates(publishing: Publishing) -> None:
    """'Readers get the last published body while someone regenerates.'"""
    publishing.publish("old")
    publishing.clock.advance(timedelta(seconds=61))
    publishing.acquire()

    for policy in (PublicationPolicy(), PublicationPolicy(waits=False)):
        served = publishing.publisher.serve(PAGE, lambda: b"new", policy)
        assert (served.state, served.entry.body, served.contended) == (
            ServedState.STALE,
            b"old",
            True,
        )
    with pytest.raises(LeaseHeld):
        publishing.publisher.serve(PAGE, lambda: b"new", PublicationPolicy(serves_stale=False))


@pytest.mark.req("PB-7")
def test_waits_for_another_publisher_and_uses_its_result(
    publishing: Publishing, home: Path
) -> None:
    publishing.publish("old")
    publishing.clock.advance(timedelta(seconds=61))
    lease = publishing.acquire()
    naps = count(1)

    def sleep(seconds: float) -> None:
        if next(naps) == 3:
            publishing.publisher.publish(PAGE, lease, b"new", generated_at=publishing.clock.now)

    reader = Publisher(publishing.control, publishing.blobs, sleep=sleep)

    served = reader.serve(PAGE, lambda: b"never")

    assert (served.state, served.entry.body) == (ServedState.WAIT_HIT, b"new")
    assert next(naps) == 4


@pytest.mark.req("PB-7")
def test_reads_the_pointer_again_after_acquiring_the_lease(publishing: Publishing) -> None:
    """Another publisher acquires, renders and publishes between our read and our acquisition."""
    publishing.publish("old")
    publishing.clock.advance(timedelta(seconds=61))

    def meanwhile() -> None:
        with publishing_at(publishing.store, publishing.blobs, publishing.clock) as other:
            other.publish("new")

    publishing.watched.meanwhile = meanwhile

    served = publishing.publisher.serve(PAGE, lambda: b"never")

    assert (served.state, served.entry.body) == (ServedState.WAIT_HIT, b"new")
    assert publishing.lock() is None, "the lease was released"


@pytest.mark.req("PB-7")
def test_keeps_the_old_pointer_when_a_regeneration_fails_and_recovers(
    publishing: Publishing,
) -> None:
    publishing.publish("old")
    before = publishing.meta()
    publishing.clock.advance(timedelta(seconds=61))

    def broken() -> bytes:
        raise ZeroDivisionError

    served = publishing.publisher.serve(PAGE, broken)
    with pytest.raises(ZeroDivisionError):
        publishing.publisher.serve(PAGE, broken, PublicationPolicy(serves_stale=False))

    assert (served.state, served.entry.body) == (ServedState.STALE, b"old")
    assert isinstance(served.failure, ZeroDivisionError)
    assert publishing.meta() == before
    assert publishing.lock() is None, "the lease was released"
    assert publishing.publisher.serve(PAGE, lambda: b"new").state is ServedState.MISS


@pytest.mark.req("PB-4", "PB-7")
def test_never_shows_the_result_of_a_renderer_that_lost_its_lease(publishing: Publishing) -> None:
    """The slow renderer loses its lease and a second worker takes over: three renders in all."""
    publishing.publish("old")
    publishing.clock.advance(timedelta(seconds=61))
    renders = []

    def slow() -> bytes:
        renders.append("slow")
        publishing.clock.advance(timedelta(milliseconds=80))
        second = publishing.publisher.serve(PAGE, quick, PublicationPolicy(lease_seconds=0.02))
        assert second.state is ServedState.MISS
        return b"slow"

    def quick() -> bytes:
        renders.append("quick")
        return b"quick"

    served = publishing.publisher.serve(PAGE, slow, PublicationPolicy(lease_seconds=0.02))

    assert renders == ["slow", "quick"]
    assert (served.state, served.entry.body) == (ServedState.STALE, b"quick")
    assert isinstance(served.failure, LeaseLost)
    entry = publishing.publisher.read(PAGE)
    assert entry is not None
    assert entry.body == b"quick"


@pytest.mark.req("PB-6", "PB-7")
def test_renders_a_missing_body_again_although_its_pointer_is_fresh(
    publishing: Publishing,
) -> None:
    publishing.publish("body")
    publishing.blobs.discard(digest_of(b"body"), before=at(1))
    publishing.clock.advance(timedelta(seconds=1))

    served = publishing.publisher.serve(PAGE, lambda: b"body")

    assert (served.state, served.entry.body) == (ServedState.MISS, b"body")


@pytest.mark.req("PB-7")
def test_renders_once_for_a_burst_of_readers(
    connect: Connect, store: Store, home: Path, address: Address | None
) -> None:
    """A burst of 8 requests on a stale entry: exactly 1 extra render, all see the new body."""
    rendered: list[int] = []
    counting = Lock()
    start = Barrier(READERS)

    def render() -> bytes:
        with counting:
            rendered.append(1)
            return f"body {len(rendered)}".encode()

    policy = PublicationPolicy(revalidate_seconds=1, lease_seconds=30.0, wait_seconds=20.0)

    def read(_: int) -> Served:
        with closing(connect()) as mine, closing(GroupCommit(mine)) as writer:
            publisher = Publisher(
                Control(mine, FOLDS, writer.submit, clock=lambda: at(100)), FileBlobs(home, LOG)
            )
            start.wait()
            return publisher.serve(PAGE, render, policy)

    with closing(GroupCommit(store)) as writer:
        first = Control(store, FOLDS, writer.submit, clock=lambda: T0)
        Publisher(first, FileBlobs(home, LOG)).serve(PAGE, render, policy)
    with ThreadPoolExecutor(READERS) as pool:
        served = list(pool.map(read, range(READERS)))

    assert len(rendered) == 2
    assert {item.entry.body for item in served} == {b"body 2"}
    states = Counter(item.state for item in served)
    assert states[ServedState.MISS] == 1
    assert set(states) <= {ServedState.MISS, ServedState.WAIT_HIT, ServedState.HIT}


@pytest.mark.req("PB-5")
@pytest.mark.parametrize("policy", [PublicationPolicy(), VERSIONED], ids=["A", "B"])
def test_answers_a_conditional_get_with_304_until_the_body_changes(
    publishing: Publishing, policy: PublicationPolicy
) -> None:
    publishing.publish("body", policy)
    entry = publishing.publisher.read(PAGE)
    assert entry is not None
    etag = entry.pointer.etag

    assert etag == etag_of(entry.body)
    assert is_not_modified(etag, entry.pointer.etag)
    assert is_not_modified(f'"other", W/{etag}', entry.pointer.etag)
    publishing.clock.advance(timedelta(seconds=1))
    publishing.publish("new", policy)
    changed = publishing.meta()
    assert changed is not None
    assert not is_not_modified(etag, changed.etag)


@pytest.mark.req("PB-7")
def test_an_invalidated_entry_is_stale_and_still_served(publishing: Publishing) -> None:
    with pytest.raises(NotFound):
        publishing.publisher.invalidate(PAGE)
    publishing.publish("old")
    publishing.publisher.invalidate(PAGE, by="user_1")
    publishing.publisher.invalidate(PAGE)  # it is stale already, so nothing happens

    meta = publishing.meta()
    assert meta is not None
    assert not is_fresh(meta, publishing.clock.now)
    assert meta.etag == etag_of(b"old")
    entry = publishing.publisher.read(PAGE)
    assert entry is not None
    assert entry.body == b"old"
    publishing.clock.advance(timedelta(seconds=1))
    assert publishing.publisher.serve(PAGE, lambda: b"new").state is ServedState.MISS
    publishing.acquire()
    with pytest.raises(LeaseHeld):
        publishing.publisher.invalidate(PAGE)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────

ASKED = RegenerationKey("deploy-7", "hash-1")


def request(publishing: Publishing) -> PublicationRequest | None:
    record = publishing.record(request_key(PK, ASKED.key))
    return None if record is None else codec.decode(record.data, PublicationRequest)


def test_a_repeated_request_has_one_result(publishing: Publishing) -> None:
    renders = count(1)

    def serve() -> Served:
        publishing.clock.advance(timedelta(seconds=61))
        return publishing.publisher.serve(
            PAGE, lambda: f"body {next(renders)}".encode(), PublicationPolicy(), ASKED
        )

    first, again = serve(), serve()

    assert (first.state, first.entry.body) == (ServedState.MISS, b"body 1")
    assert (again.state, again.entry.body) == (ServedState.HIT, b"body 1")
    found = request(publishing)
    assert found is not None
    assert (found.status, found.result_s3_key) == (RequestStatus.COMPLETED, digest_of(b"body 1"))
    publishing.publisher.serve(
        PAGE, lambda: b"other", PublicationPolicy(), RegenerationKey("deploy-8", "hash-2")
    )
    publishing.clock.advance(timedelta(seconds=61))
    late = publishing.publisher.serve(PAGE, lambda: b"never", PublicationPolicy(), ASKED)
    assert late.entry.body == b"body 1"
    assert late.entry.pointer.etag == etag_of(b"body 1")


def test_refuses_a_key_that_is_reused_with_other_content(publishing: Publishing) -> None:
    publishing.publisher.serve(PAGE, lambda: b"body", PublicationPolicy(), ASKED)
    publishing.clock.advance(timedelta(seconds=61))

    with pytest.raises(IdempotencyMismatch):
        publishing.publisher.serve(
            PAGE, lambda: b"never", PublicationPolicy(), RegenerationKey(ASKED.key, "hash-2")
        )

    assert publishing.lock() is None


def test_retries_a_failed_request_and_takes_over_one_whose_worker_died(
    publishing: Publishing,
) -> None:
    def broken() -> bytes:
        raise ZeroDivisionError

    def dies() -> bytes:
        raise Killed

    with pytest.raises(ZeroDivisionError):
        publishing.publisher.serve(PAGE, broken, PublicationPolicy(), ASKED)
    failed = request(publishing)
    with pytest.raises(Killed):
        publishing.publisher.serve(PAGE, dies, PublicationPolicy(), ASKED)
    died = request(publishing)
    served = publishing.publisher.serve(PAGE, lambda: b"body", PublicationPolicy(), ASKED)

    assert failed is not None
    assert died is not None
    assert (failed.status, died.status) == (RequestStatus.FAILED, RequestStatus.STARTED)
    assert (served.state, served.entry.body) == (ServedState.MISS, b"body")
    types = [event.type for event in publishing.store.read(ALL).events]
    assert types == ["RequestStarted", "RequestFailed", "RequestStarted", "GenerationPublished"]
