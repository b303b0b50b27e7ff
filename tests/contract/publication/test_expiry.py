"""A fact deletes rows past their ttl. Memory stands in for a store that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.contract.publication.publishing import (
    FOLDS,
    LOCK_KEY,
    PAGE,
    PK,
    VERSIONED,
    Direct,
    Publishing,
)
from tidegate.control.publication.entries import PublicationPolicy, RegenerationKey, ServedState
from tidegate.control.publication.generations import (
    CollectedRows,
    collect_past,
    list_referenced_blobs,
)
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.domain.publication.expiry import COLLECTED_MAX, CollectRows, collect_rows
from tidegate.domain.publication.facts import RowsCollected
from tidegate.domain.publication.rows import version_key
from tidegate.domain.publication.slices import REQUEST_KEPT
from tidegate.errors import LimitExceeded, StoreUnavailable, Unavailable
from tidegate.kernel.model import Key, Record
from tidegate.lru import LruCache

DAY = timedelta(days=1)
KEPT = PublicationPolicy(retention=DAY)
KEPT_VERSIONED = PublicationPolicy(versioned=True, retention=DAY)


# ── ttl ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-7")
def test_deletes_a_pointer_past_its_ttl_with_a_fact_and_publishes_again(
    publishing: Publishing,
) -> None:
    publishing.publish("one", KEPT)
    publishing.clock.advance(DAY - timedelta(microseconds=1))
    assert collect_past(publishing.control) == CollectedRows()
    assert publishing.publisher.read(PAGE) is not None, "stale for a long time, and still served"

    publishing.clock.advance(timedelta(microseconds=1))
    assert collect_past(publishing.control) == CollectedRows(publications=1)

    assert publishing.meta() is None
    assert list_referenced_blobs(publishing.store) == frozenset()
    last = publishing.store.feed(after=0, limit=100).events[-1]
    assert (last.type, last.tags) == ("RowsCollected", (f"publication:{PK}",))
    assert collect_past(publishing.control) == CollectedRows()
    publishing.publish("two", KEPT)
    found = publishing.publisher.read(PAGE)
    assert found is not None
    assert found.body == b"two"


@pytest.mark.req("PB-7")
def test_keeps_rows_without_a_ttl_for_ever(publishing: Publishing) -> None:
    publishing.publish("one")
    publishing.clock.advance(4_000 * DAY)

    assert collect_past(publishing.control) == CollectedRows()
    assert publishing.meta() is not None


@pytest.mark.req("PB-3", "PB-7")
def test_deletes_generations_with_their_pointer_in_batches(publishing: Publishing) -> None:
    count = COLLECTED_MAX + 3
    for number in range(count):
        publishing.clock.advance(timedelta(seconds=1))
        publishing.publish(f"body {number}", KEPT_VERSIONED)
    publishing.publisher.roll_back(PAGE, next(publishing.publisher.generations(PAGE))[0])
    publishing.clock.advance(2 * DAY)

    assert collect_past(publishing.control) == CollectedRows(1, count, 0)

    assert list(publishing.publisher.generations(PAGE)) == []
    assert publishing.meta() is None
    assert list_referenced_blobs(publishing.store) == frozenset()


@pytest.mark.req("PB-7")
def test_deletes_nothing_of_a_publication_that_is_renewed_meanwhile(
    publishing: Publishing,
) -> None:
    publishing.publish("one", KEPT_VERSIONED)
    (old,) = [id for id, _ in publishing.publisher.generations(PAGE)]
    publishing.clock.advance(2 * DAY)
    lease = publishing.acquire()
    control = Control(publishing.store, FOLDS, Direct(publishing.store), clock=publishing.clock)
    rival = Publisher(control, publishing.blobs)

    def renew() -> None:
        rival.publish(
            PAGE, lease, b"two", KEPT_VERSIONED, generated_at=publishing.clock.now, version_id="new"
        )

    publishing.watched.meanwhile = renew
    command = CollectRows(publication=PK, version_ids=(old,), last=True)
    outcome = publishing.control.execute(collect_rows, command)

    assert outcome.facts == ()
    assert sorted(id for id, _ in publishing.publisher.generations(PAGE)) == sorted((old, "new"))


@pytest.mark.req("PB-1", "PB-7")
def test_keeps_the_lease_when_the_pointer_expires(publishing: Publishing) -> None:
    publishing.publish("one", KEPT)
    publishing.clock.advance(2 * DAY)
    lease = publishing.acquire()
    collect_past(publishing.control)

    assert publishing.record(LOCK_KEY) is not None
    publishing.publisher.publish(PAGE, lease, b"two", KEPT, generated_at=publishing.clock.now)
    assert publishing.meta() is not None


@pytest.mark.req("PB-3", "PB-7")
def test_resumes_where_a_run_died_between_two_batches(publishing: Publishing) -> None:
    for number in range(3):
        publishing.clock.advance(timedelta(seconds=1))
        publishing.publish(f"body {number}", KEPT_VERSIONED)
    ids = [id for id, _ in publishing.publisher.generations(PAGE)]
    publishing.clock.advance(2 * DAY)
    half = CollectRows(publication=PK, version_ids=tuple(ids))  # not the last: that one is current

    (fact,) = publishing.control.execute(collect_rows, half).facts

    assert fact == RowsCollected(PK, False, tuple(ids[:2]))
    assert publishing.publisher.read(PAGE) is not None, "the pointer does not dangle"
    assert collect_past(publishing.control) == CollectedRows(1, 1, 0)


@pytest.mark.req("PB-7")
def test_deletes_requests_past_their_ttl_and_renders_them_again(publishing: Publishing) -> None:
    asked = RegenerationKey("r1", "h1")
    publishing.publisher.serve(PAGE, lambda: b"one", VERSIONED, asked)
    publishing.clock.advance(REQUEST_KEPT)

    assert collect_past(publishing.control) == CollectedRows(requests=1)

    served = publishing.publisher.serve(PAGE, lambda: b"two", VERSIONED, asked)
    assert (served.state, served.entry.body) == (ServedState.MISS, b"two")


def test_limits_the_rows_deleted_in_one_commit() -> None:
    with pytest.raises(LimitExceeded):
        CollectRows(publication=PK, version_ids=tuple(map(str, range(COLLECTED_MAX + 1))))


def test_deletes_only_rows_that_exist(publishing: Publishing) -> None:
    publishing.publish("one", KEPT)
    publishing.clock.advance(2 * DAY)
    command = CollectRows(publication=PK, version_ids=("none",), requests=("none",))

    assert publishing.control.execute(collect_rows, command).facts == ()
    assert publishing.record(version_key(PK, "none")) is None


# ── a store that does not answer ──────────────────────────────────────────────────────────────────


class Mute:
    """The store, which can be made to fail every call."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.silent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        if self.silent:
            raise StoreUnavailable("it does not answer")
        found: tuple[Record | None, ...] = self._store.get(*keys)
        return found


@pytest.fixture
def mute(publishing: Publishing) -> Iterator[tuple[Mute, Publisher]]:
    mute: Any = Mute(publishing.store)
    control = publishing.control
    store, control.store = control.store, mute
    yield mute, Publisher(control, publishing.blobs)
    control.store = store


@pytest.mark.req("PB-7")
def test_serves_the_last_known_entry_while_the_store_does_not_answer(
    mute: tuple[Mute, Publisher],
) -> None:
    store, publisher = mute
    publisher.serve(PAGE, lambda: b"one")
    store.silent = True

    served = publisher.serve(PAGE, lambda: b"two")

    assert (served.state, served.entry.body) == (ServedState.STALE_METADATA_ERROR, b"one")
    assert isinstance(served.failure, StoreUnavailable)
    store.silent = False
    assert publisher.serve(PAGE, lambda: b"two").state is ServedState.HIT


@pytest.mark.req("PB-7")
def test_reports_that_the_store_does_not_answer_where_no_cached_entry_may_be_served(
    mute: tuple[Mute, Publisher],
) -> None:
    store, publisher = mute
    publisher.serve(PAGE, lambda: b"one")
    store.silent = True

    with pytest.raises(Unavailable):
        publisher.serve(PAGE, lambda: b"two", PublicationPolicy(serves_stale=False))
    with pytest.raises(Unavailable):
        publisher.serve("/other", lambda: b"two")


def test_limits_cached_entries_and_bytes_and_evicts_the_least_recently_used() -> None:
    known = LruCache[str, bytes](3, bytes_max=10, size=len)
    for key in "abc":
        known.keep(key, key.encode())
    assert known.find("a") == b"a"
    known.keep("d", b"d")
    assert [known.find(key) for key in "abcd"] == [b"a", None, b"c", b"d"]
    known.keep("e", b"12345678")
    assert [known.find(key) for key in "acde"] == [None, b"c", b"d", b"12345678"]
    known.keep("f", b"12345678901")
    assert [known.find(key) for key in "cdef"] == [None, None, None, None]
    known.keep("g", b"1")
    known.keep("g", b"2")
    assert known.find("g") == b"2"
