"""Groups of commits: one call and one flush, but each commit succeeds or fails on its own."""

from __future__ import annotations

from tests.contract.world import (
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    boundary_of,
    commit_of,
    item,
    positions,
    put,
    query_of,
    row,
    values,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, VersionConflict
from tidegate.kernel.model import ALL, Check, Receipt
from tidegate.kernel.store import Store

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
CUSTOMER = query_of(OrderPlaced, tags="customer_id:c1")


def test_each_commit_of_a_group_is_atomic_on_its_own(store: Store) -> None:
    stale = boundary_of(store, CUSTOMER)
    append(store, OrderPlaced("o0", "c1"))

    outcomes = store.commit(
        commit_of(ProductAdded("p1")),
        commit_of(ProductAdded("p2"), Rebooted(), on=[stale], writes=[put(item("a"), row())]),
        commit_of(ProductAdded("p3"), writes=[put(item("b"), row())]),
        commit_of(ProductAdded("p4"), writes=[Check(item("a"), expect=9)]),
        commit_of(ProductAdded("p5")),
    )

    assert [type(outcome) for outcome in outcomes] == [
        Receipt,
        BoundaryMoved,
        Receipt,
        VersionConflict,
        Receipt,
    ]
    added = query_of(ProductAdded)
    assert values(store.read(added).events) == [ProductAdded(f"p{n}") for n in (1, 3, 5)]
    assert store.get(item("a"))[0] is None
    assert store.get(item("b"))[0] is not None


def test_a_commit_of_a_group_is_checked_against_those_accepted_before_it(store: Store) -> None:
    boundary = boundary_of(store, PRODUCT)

    first, second, third, fourth = store.commit(
        commit_of(ProductAdded("p1"), on=[boundary], writes=[put(item("a"), row(name="1"))]),
        commit_of(ProductRenamed("p1"), on=[boundary]),
        commit_of(writes=[put(item("a"), row(name="2"))]),
        commit_of(PriceChanged("p1"), writes=[put(item("b"), row())]),
    )

    assert isinstance(first, Receipt)
    assert isinstance(second, BoundaryMoved)
    assert second.facts["position"] == first.last
    assert isinstance(third, VersionConflict)
    assert third.facts["found"] == first.last
    assert isinstance(fourth, Receipt)
    assert fourth.first > first.last


def test_a_refused_commit_of_a_group_does_not_affect_those_after_it(store: Store) -> None:
    stale = boundary_of(store, CUSTOMER)
    append(store, OrderPlaced("o0", "c1"))
    boundary = boundary_of(store, PRODUCT)

    refused, accepted = store.commit(
        commit_of(ProductAdded("p1"), on=[stale], writes=[put(item("a"), row())]),
        commit_of(ProductAdded("p1"), on=[boundary], writes=[put(item("a"), row())]),
    )

    assert isinstance(refused, BoundaryMoved)
    assert isinstance(accepted, Receipt)


def test_a_group_keeps_its_order_in_the_log(store: Store) -> None:
    outcomes = store.commit(
        *(commit_of(ProductAdded(f"p{n}"), Rebooted(str(n))) for n in range(20))
    )

    receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    assert len(receipts) == 20
    numbered = [number for receipt in receipts for number in (receipt.first, receipt.last)]
    assert numbered == sorted(set(numbered)) == positions(whole_feed(store))


def test_an_empty_group_returns_no_answers(store: Store) -> None:
    assert store.commit() == ()
    assert store.read(ALL).events == ()
