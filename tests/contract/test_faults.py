"""The faults of the seed's published rules, one by one: each situation, and its correct outcome.

The numbers are those of the table in the reference on the log. Where a fault belonged to one
engine, the test puts every engine into the situation that caused it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import product

import pytest

from tests.contract.address import Address, Connect
from tests.contract.racing import CapReached, Crowd, order
from tests.contract.world import (
    SCHEMA,
    T0,
    Announced,
    DemandRecorded,
    DemandRevoked,
    LabelsGiven,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    boundary_of,
    clause,
    commit_of,
    land,
    positions,
    query_of,
    values,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, LimitExceeded
from tidegate.kernel.model import COST_MAX, TAGS_MAX, Fact, Query, Receipt
from tidegate.kernel.store import Store

HOUR = timedelta(hours=1)
PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
CUSTOMER = query_of(OrderPlaced, tags="customer_id:c1")


def pair(product_id: str, order_id: str) -> Query:
    tags = (f"product_id:{product_id}", f"order_id:{order_id}")
    return query_of(DemandRecorded, DemandRevoked, tags=tags)


@pytest.mark.req("CB-15")
def test_f01_a_slow_clock_loses_no_update(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    append(ours, ProductAdded("p1"), at=T0 + HOUR)
    boundary = boundary_of(ours, PRODUCT)
    append(theirs, ProductRenamed("p1", "theirs"), at=T0)  # earlier than what we have read

    with pytest.raises(BoundaryMoved):
        land(ours, commit_of(ProductRenamed("p1", "ours"), on=[boundary], at=T0 + 2 * HOUR))


@pytest.mark.req("CB-1", "CB-15")
def test_f02_a_writer_that_stalled_is_not_hidden_by_a_newer_event_elsewhere(
    connect: Connect,
) -> None:
    ours, stalled, third = connect(), connect(), connect()
    query = Query((*PRODUCT.clauses, *CUSTOMER.clauses))
    decided = commit_of(ProductAdded("p1"), on=[boundary_of(stalled, PRODUCT)], at=T0)
    append(third, OrderPlaced("o1", "c1"), at=T0 + HOUR)
    page = ours.read(query)
    assert len(page.events) == 1
    assert page.has_boundary
    land(stalled, decided)

    with pytest.raises(BoundaryMoved, match="product_id:p1"):
        land(ours, commit_of(OrderPlaced("o2", "c1"), on=[page.boundary], at=T0 + 2 * HOUR))


@pytest.mark.req("CB-11")
def test_f03_an_empty_model_guards_its_secondary_tags_too(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    own = clause(OrderPlaced, tags="order_id:o1")
    query = Query((own, clause(OrderPlaced, ProductAdded, tags="product_id:p1")))
    boundary = boundary_of(ours, query)
    append(theirs, ProductAdded("p1"))

    with pytest.raises(BoundaryMoved, match="product_id:p1"):
        land(ours, commit_of(OrderPlaced("o1", "c1", ("p1",)), on=[boundary]))


@pytest.mark.req("CB-11", "CB-13")
def test_f04_a_second_pair_of_one_product_meets_no_conflict(store: Store) -> None:
    land(store, commit_of(DemandRecorded("p1", "o1"), on=[boundary_of(store, pair("p1", "o1"))]))

    land(store, commit_of(DemandRecorded("p1", "o2"), on=[boundary_of(store, pair("p1", "o2"))]))

    assert len(store.read(pair("p1", "o2")).events) == 1


@pytest.mark.req("CB-11")
def test_f05_a_pair_can_be_revisited_after_another_pair_was_written(store: Store) -> None:
    for product_id, order_id in product(("p1", "p2"), ("o1", "o2")):
        append(store, DemandRecorded(product_id, order_id))

    for product_id, order_id in product(("p1", "p2"), ("o1", "o2")):
        boundary = boundary_of(store, pair(product_id, order_id))
        land(store, commit_of(DemandRevoked(product_id, order_id), on=[boundary]))

    assert len(store.read(pair("p1", "o1")).events) == 2


@pytest.mark.req("CB-13")
def test_f06_a_type_that_is_produced_but_not_read_never_blocks_its_next_use(store: Store) -> None:
    reads = query_of(ProductAdded, tags="product_id:p1")
    guard = query_of(PriceChanged, tags="product_id:p1")

    for cents in range(3):  # on an empty model, where the guard counts
        land(store, commit_of(PriceChanged("p1", cents), on=[boundary_of(store, reads, guard)]))
    append(store, ProductAdded("p1"))
    for cents in range(3):  # and on one that is not empty
        land(store, commit_of(PriceChanged("p1", cents), on=[boundary_of(store, reads, guard)]))

    assert len(store.read(query_of(PriceChanged, tags="product_id:p1")).events) == 6


@pytest.mark.req("CB-11", "CB-15")
def test_f07_a_carrier_with_a_slow_clock_moves_its_tag_forwards(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    append(ours, OrderPlaced("o1", "c1"), at=T0 + HOUR)
    boundary = boundary_of(ours, CUSTOMER)
    first = append(theirs, OrderPlaced("o2", "c1"), at=T0 - HOUR)  # carries the tag, reads nothing
    second = append(theirs, OrderPlaced("o3", "c1"), at=T0 - 2 * HOUR)

    with pytest.raises(BoundaryMoved) as refusal:
        land(ours, commit_of(OrderPlaced("o4", "c1"), on=[boundary]))
    assert refusal.value.facts["position"] == second.last > first.last


@pytest.mark.req("CB-25")
def test_f08_a_newer_event_of_one_clause_hides_nothing_of_another(
    connect: Connect, rounds: int
) -> None:
    """A cap read through two clauses, right after another process changed either of them."""
    ours, theirs = connect(), connect()
    query = Query((*CUSTOMER.clauses, *PRODUCT.clauses))
    for number in range(rounds):
        append(theirs, OrderPlaced(f"o{number}", "c1"))
        newer = append(theirs, ProductRenamed("p1", str(number)))
        events = ours.read(query).events
        assert positions(events)[-1] == newer.last
        assert len(events) == 2 * (number + 1)

    with pytest.raises(CapReached):
        order(ours, "one more", "c1", rounds, HOUR)


@pytest.mark.req("CB-11")
@pytest.mark.parametrize("writes", [(ProductAdded("p9"),), ()], ids=["another fact", "nothing"])
def test_f09_a_tag_that_is_read_is_checked_although_nothing_written_carries_it(
    connect: Connect, writes: tuple[ProductAdded, ...]
) -> None:
    ours, theirs = connect(), connect()
    boundary = boundary_of(ours, CUSTOMER)
    append(theirs, OrderPlaced("o1", "c1"))

    with pytest.raises(BoundaryMoved, match="customer_id:c1"):
        land(ours, commit_of(*writes, on=[boundary]))


@pytest.mark.req("CB-25")
def test_f10_a_read_larger_than_any_page_of_a_database_is_whole(store: Store) -> None:
    tags = ("customer_id:c1", "order_id:o1")
    bulk = [
        Fact("shop", "OrderPlaced", 1, tags, b'{"order_id":"' + b"x" * 120_000 + b'%02d"}' % number)
        for number in range(20)
    ]
    for start in range(0, 20, 10):
        append(store, *bulk[start : start + 10])
    append(store, ProductAdded("p1"))

    by_tag = store.read(Query((*CUSTOMER.clauses, *PRODUCT.clauses)))

    assert [event.body for event in by_tag.events[:-1]] == [fact.body for fact in bulk]
    assert by_tag.has_boundary
    assert len(store.read(query_of(OrderPlaced)).events) == 20
    assert len(store.feed(after=0, limit=100).events) == 21


@pytest.mark.req("CB-25")
def test_f11_a_reader_that_asks_only_for_what_is_new_misses_nothing(
    connect: Connect, crowd: Crowd
) -> None:
    follower = connect()
    known: list[int] = []

    def write(store: Store, number: int) -> None:
        for turn in range(4):
            at = T0 - HOUR * number
            append(store, OrderPlaced(f"o{number}-{turn}", "c1"), at=at)
            if number == 0:
                known.extend(positions(follower.read(CUSTOMER, after=max(known, default=0)).events))

    crowd.in_threads(write, 6)
    known.extend(positions(follower.read(CUSTOMER, after=max(known, default=0)).events))

    assert known == positions(follower.read(CUSTOMER).events)
    assert len(known) == 24


@pytest.mark.req("CB-6", "CB-11")
def test_f12_each_element_of_a_cross_partition_list_finds_and_moves_its_tag(store: Store) -> None:
    labels = ("red", "green", "blue")
    boundaries = {
        label: boundary_of(store, query_of(LabelsGiven, tags=f"label_id:{label}"))
        for label in labels
    }
    untouched = boundary_of(store, query_of(LabelsGiven, tags="label_id:black"))

    append(store, LabelsGiven("n1", labels), LabelsGiven("n2", ("red",)))

    for label, found in zip(labels, (2, 1, 1), strict=True):
        assert len(store.read(query_of(LabelsGiven, tags=f"label_id:{label}")).events) == found
        with pytest.raises(BoundaryMoved, match=f"label_id:{label}"):
            land(store, commit_of(on=[boundaries[label]]))
    land(store, commit_of(on=[untouched]))


@pytest.mark.req("CB-20")
@pytest.mark.parametrize("glue", ["#", "/", "&", ",", "|", ":", " & ", "%23", "13:"])
def test_f13_sets_that_would_be_equal_when_joined_stay_apart(store: Store, glue: str) -> None:
    """Joined by the separator, both pairs read order_id:x…product_id:y…product_id:z."""
    wide = ("z", f"x{glue}product_id:y")
    narrow = (f"y{glue}product_id:z", "x")
    boundary = boundary_of(store, pair(*wide))

    append(store, DemandRecorded(*narrow))

    assert store.read(pair(*wide)).events == ()
    land(store, commit_of(DemandRecorded(*wide), on=[boundary]))
    assert values(store.read(pair(*wide)).events) == [DemandRecorded(*wide)]
    assert values(store.read(pair(*narrow)).events) == [DemandRecorded(*narrow)]


@pytest.mark.req("CB-25")
def test_f14_a_refusal_counts_only_while_its_read_is_current(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    page = ours.read(PRODUCT)
    assert page.events == ()  # "no such product", the answer would be
    assert page.has_boundary
    land(ours, commit_of(on=[page.boundary]))  # certified: nothing happened
    append(theirs, ProductAdded("p1"))

    with pytest.raises(BoundaryMoved):
        land(ours, commit_of(on=[page.boundary]))
    assert len(ours.read(PRODUCT).events) == 1


@pytest.mark.req("CB-10")
def test_f15_a_hot_tag_is_contended_but_loses_nothing(crowd: Crowd, store: Store) -> None:
    def carry(handle: Store, number: int) -> list[Receipt]:
        return [append(handle, OrderPlaced(f"o{number}-{turn}", "c1")) for turn in range(4)]

    receipts = [receipt for made in crowd.in_threads(carry, 8) for receipt in made]

    assert sorted(receipt.last for receipt in receipts) == positions(store.read(CUSTOMER).events)
    assert len({receipt.last for receipt in receipts}) == 32


def test_f16_a_commit_may_carry_many_tags(store: Store) -> None:
    labels = tuple(f"l{number:02}" for number in range(48))
    products = tuple(f"p{number:02}" for number in range(TAGS_MAX - 2))
    append(store, LabelsGiven("n1", labels))  # every tag an index: the log slot and 2 × 49 items
    append(store, OrderPlaced("o1", "c1", products))  # plain tags cost nothing

    assert len(store.read(query_of(LabelsGiven, tags="label_id:l47")).events) == 1
    assert len(store.read(query_of(tags="product_id:p61", contains=True)).events) == 1
    assert len(store.read(query_of(LabelsGiven, Rebooted)).events) == 1
    with pytest.raises(LimitExceeded, match="storage items of a commit: found 101, allowed 100"):
        SCHEMA.check(commit_of(LabelsGiven("n2", (*labels, "l48"))), COST_MAX)


@pytest.mark.req("CB-17")
def test_f17_a_condition_on_a_type_alone_lets_one_of_eight_commit(
    crowd: Crowd, store: Store
) -> None:
    query = query_of(Announced)

    def announce(handle: Store, number: int) -> bool:
        page = handle.read(query)
        if page.events or not page.has_boundary:
            return False
        (outcome,) = handle.commit(commit_of(Announced(str(number)), on=[page.boundary]))
        return isinstance(outcome, Receipt)

    assert crowd.in_threads(announce, 8).count(True) == 1
    assert len(store.read(query).events) == 1


@pytest.mark.req("CB-25")
def test_f18_an_old_transaction_elsewhere_hides_nothing_from_a_decision(
    connect: Connect, address: Address | None
) -> None:
    ours, theirs = connect(), connect()
    append(theirs, ProductAdded("p1"))
    with old_transaction(address):
        stale = boundary_of(ours, PRODUCT)
        moved = append(theirs, ProductRenamed("p1", "theirs"))
        with pytest.raises(BoundaryMoved):
            land(ours, commit_of(ProductRenamed("p1", "ours"), on=[stale]))

        again = ours.read(PRODUCT)  # the second attempt sees what refused the first
        assert positions(again.events)[-1] == moved.last
        assert again.has_boundary
        land(ours, commit_of(ProductRenamed("p1", "ours"), on=[again.boundary]))
        assert len(whole_feed(ours)) == 3


@contextmanager
def old_transaction(address: Address | None) -> Iterator[None]:
    """A transaction that another client began earlier and leaves open. DynamoDB has none to
    leave.
    """
    if address is not None and address.engine == "postgres":
        import psycopg

        with psycopg.connect(address.where) as connection:
            connection.execute("SELECT pg_current_xact_id()")
            yield
    elif address is not None and address.engine == "sqlite":
        import apsw

        reader = apsw.Connection(address.where)
        try:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            yield
        finally:
            reader.close()
    else:
        yield
