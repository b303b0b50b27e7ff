"""The feed: every event once, in order, and nothing appears later below the last one."""

from __future__ import annotations

import pytest

from tests.contract.address import Connect
from tests.contract.world import (
    OrderPlaced,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    values,
    whole_feed,
)
from tidegate.errors import UnfencedQuery
from tidegate.kernel.model import ALL, Receipt
from tidegate.kernel.store import Store

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")


def test_is_empty_before_the_first_event(store: Store) -> None:
    page = store.feed(after=0, limit=10)

    assert page.events == ()
    assert not page.has_boundary


def test_gives_every_event_in_position_order_to_every_handle(connect: Connect) -> None:
    first, second = connect(), connect()
    for number in range(6):
        append((first, second)[number % 2], ProductAdded(f"p{number}"), Rebooted())

    events = whole_feed(first)

    assert positions(events) == sorted(set(positions(events)))
    assert len(events) == 12
    assert events == whole_feed(second)
    assert tuple(events) == first.read(ALL).events


def test_cuts_pages_at_the_limit(store: Store) -> None:
    for number in range(5):
        append(store, Rebooted(str(number)), ProductAdded("p1"))
    everything = whole_feed(store)

    for limit in (1, 2, 3, 7, 10, 11):
        assert store.feed(after=0, limit=limit).events == tuple(everything[:limit])
        assert whole_feed(store, limit=limit) == everything


def test_resumes_inside_a_commit(store: Store) -> None:
    append(store, Rebooted("before"))
    receipt = append(store, *(ProductAdded(f"p{number}") for number in range(9)))
    append(store, Rebooted("after"))

    page = store.feed(after=receipt.first + 3, limit=3).events

    assert values(page) == [ProductAdded(f"p{number}") for number in (4, 5, 6)]
    assert len(store.feed(after=receipt.last - 1, limit=50).events) == 2


def test_is_empty_after_its_end_until_the_next_event(store: Store) -> None:
    last = append(store, Rebooted()).last
    assert store.feed(after=last, limit=5).events == ()
    assert store.feed(after=last + 10_000, limit=5).events == ()

    append(store, ProductAdded("p1"))

    assert values(store.feed(after=last, limit=5).events) == [ProductAdded("p1")]


def test_skips_commits_without_facts(store: Store) -> None:
    version = 0
    for number in range(4):
        append(store, Rebooted(str(number)))
        version = land(store, commit_of(writes=[put(item("a"), row(), expect=version)])).last

    assert values(whole_feed(store, limit=1)) == [Rebooted(str(number)) for number in range(4)]
    assert store.feed(after=version, limit=1).events == ()


def test_skips_refused_commits(store: Store) -> None:
    land(store, commit_of(writes=[put(item("a"), row())]))
    good, bad = (
        commit_of(Rebooted("good")),
        commit_of(Rebooted("bad"), writes=[put(item("a"), row())]),
    )

    outcomes = store.commit(good, bad, good, bad, good)

    assert [type(outcome) is Receipt for outcome in outcomes] == [True, False, True, False, True]
    assert values(whole_feed(store)) == [Rebooted("good")] * 3


def test_returns_the_same_events_as_reads(store: Store) -> None:
    for number in range(3):
        append(store, OrderPlaced(f"o{number}", "c1", ("p1", "p2")), Rebooted("é 😀"))

    assert store.feed(after=0, limit=100).events == store.read(ALL).events


def test_reports_the_head(connect: Connect, engine: str) -> None:
    ours, theirs = connect(), connect()
    assert ours.head() == 0

    for commit in (commit_of(Rebooted(), Rebooted()), commit_of(writes=[put(item("a"), row())])):
        last = land(theirs, commit).last

        head = ours.head()
        assert head == theirs.head() >= last
        assert engine == "dynamodb" or head == last
        assert ours.feed(after=head, limit=10).events == ()
        assert ours.read(ALL, after=head).events == ()


def test_using_the_boundary_of_an_unguarded_page_raises(store: Store) -> None:
    append(store, ProductAdded("p1"), ProductRenamed("p1"))
    whole = store.read(PRODUCT)
    cut = store.read(PRODUCT, limit=1)
    unfenced = store.read(ALL)

    land(store, commit_of(Rebooted(), on=[whole.boundary]))
    assert whole.has_boundary
    for page in (cut, unfenced, store.feed(after=0, limit=10)):
        assert not page.has_boundary
        with pytest.raises(UnfencedQuery, match="no boundary"):
            land(store, commit_of(Rebooted(), on=[page.boundary]))
