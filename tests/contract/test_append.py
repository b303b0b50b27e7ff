"""Appending under a boundary: what conflicts, what does not, and what a conflict reports."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.address import Connect, address_of, opener
from tests.contract.world import (
    T0,
    VOCABULARY,
    Announced,
    DemandBilled,
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
    item,
    land,
    positions,
    put,
    query_of,
    row,
    values,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, VersionConflict
from tidegate.kernel.model import Boundary, Check, Meta, Query, Receipt
from tidegate.kernel.store import Store

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
CUSTOMER = query_of(OrderPlaced, tags="customer_id:c1")
PAIR = query_of(DemandRecorded, DemandRevoked, tags=("product_id:p1", "order_id:o1"))


def test_numbers_facts_upwards_and_keeps_every_column(store: Store) -> None:
    meta = Meta(actor="user_1", on_behalf_of="user_2", request="r-7", cause="5")
    values_in = (ProductAdded("p1", "Ünïcode ✓ 'quoted'"), OrderPlaced("o1", "c1", ("p1", "p2")))

    receipt = land(store, commit_of(*values_in, meta=meta, at=T0 + timedelta(microseconds=7)))

    events = store.feed(after=0, limit=10).events
    assert positions(events) == [receipt.first, receipt.last]
    assert 1 <= receipt.first == receipt.last - 1
    assert [event.at for event in events] == [T0 + timedelta(microseconds=7)] * 2
    assert {event.meta for event in events} == {meta}
    assert [(event.kind, event.type, event.schema) for event in events] == [
        ("shop", "ProductAdded", 1),
        ("shop", "OrderPlaced", 1),
    ]
    assert events[1].tags == ("customer_id:c1", "order_id:o1", "product_id:p1", "product_id:p2")
    assert [event.body for event in events] == [VOCABULARY.fact(v).body for v in values_in]
    assert values(events) == list(values_in)
    assert receipt == Receipt(receipt.first, receipt.last, T0 + timedelta(microseconds=7))


def test_a_fact_may_name_its_own_actor(connect: Connect) -> None:
    shared, own = Meta("user_1", request="r-7"), Meta("agent_2", cause="ünïcode ✓")
    facts = [
        VOCABULARY.fact(ProductAdded("p1")),
        replace(VOCABULARY.fact(ProductRenamed("p1")), meta=own),
        replace(VOCABULARY.fact(ProductRenamed("p1")), meta=Meta()),
    ]

    land(connect(), commit_of(*facts, meta=shared))

    other = connect()
    assert [event.meta for event in whole_feed(other)] == [shared, own, Meta()]
    assert [event.meta for event in other.read(PRODUCT).events] == [shared, own, Meta()]


@pytest.mark.req("CB-1")
def test_commits_when_nothing_that_was_read_changed(store: Store) -> None:
    append(store, ProductAdded("p1"))
    boundary = boundary_of(store, PRODUCT)

    receipt = land(store, commit_of(ProductRenamed("p1"), on=[boundary]))

    assert positions(store.read(PRODUCT).events)[-1] == receipt.last


@pytest.mark.req("CB-1", "CB-10")
def test_refuses_a_commit_whose_reads_changed_and_writes_nothing(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    append(theirs, ProductAdded("p1"))
    boundary = boundary_of(ours, PRODUCT)
    moved = append(theirs, ProductRenamed("p1", "theirs"))

    with pytest.raises(BoundaryMoved) as refusal:
        land(
            ours,
            commit_of(
                ProductRenamed("p1", "ours"),
                Rebooted(),
                on=[boundary],
                writes=[put(item("a"), row(name="ours"))],
            ),
        )

    assert refusal.value.facts == {"clause": str(PRODUCT.clauses[0]), "position": moved.last}
    assert positions(whole_feed(ours))[-1] == moved.last
    assert ours.get(item("a")) == (None,)


@pytest.mark.req("CB-10")
def test_appends_no_fact_when_a_row_is_not_at_its_version(store: Store) -> None:
    taken = land(store, commit_of(writes=[put(item("a"), row(name="first"))]))

    with pytest.raises(VersionConflict) as refusal:
        land(
            store,
            commit_of(
                ProductAdded("p1"),
                writes=[put(item("b"), row()), put(item("a"), row(name="second"))],
            ),
        )

    assert refusal.value.facts == {
        "collection": "items",
        "id": "a",
        "expected": 0,
        "found": taken.last,
    }
    assert whole_feed(store) == []
    assert store.get(item("b")) == (None,)


def test_names_the_boundary_before_the_row_when_both_changed(store: Store) -> None:
    boundary = boundary_of(store, PRODUCT)
    append(store, ProductAdded("p1"))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(Rebooted(), on=[boundary], writes=[Check(item("a"), expect=7)]))


def test_names_the_first_moved_clause_and_its_newest_event(store: Store) -> None:
    query = Query((clause(ProductAdded, tags="product_id:p1"), *CUSTOMER.clauses))
    boundary = boundary_of(store, query)
    append(store, OrderPlaced("o1", "c1"))
    append(store, OrderPlaced("o2", "c1"))
    with pytest.raises(BoundaryMoved) as second_clause:
        land(store, commit_of(Rebooted(), on=[boundary]))
    product = append(store, ProductAdded("p1"))

    with pytest.raises(BoundaryMoved) as first_clause:
        land(store, commit_of(Rebooted(), on=[boundary]))

    newest = positions(store.read(CUSTOMER).events)[-1]
    assert second_clause.value.facts == {"clause": str(query.clauses[1]), "position": newest}
    assert first_clause.value.facts == {"clause": str(query.clauses[0]), "position": product.last}


def test_checks_every_boundary_of_a_commit(store: Store) -> None:
    product, customer = boundary_of(store, PRODUCT), boundary_of(store, CUSTOMER)
    append(store, OrderPlaced("o1", "c1"))

    with pytest.raises(BoundaryMoved, match="customer_id:c1"):
        land(store, commit_of(Rebooted(), on=[product, customer]))
    land(store, commit_of(Rebooted(), on=[product]))


def test_accepts_a_boundary_that_another_handle_read(connect: Connect) -> None:
    reader, writer = connect(), connect()
    append(writer, ProductAdded("p1"))
    boundary = boundary_of(reader, PRODUCT)

    land(writer, commit_of(ProductRenamed("p1"), on=[boundary]))

    with pytest.raises(BoundaryMoved):
        land(reader, commit_of(ProductRenamed("p1"), on=[boundary]))


def test_merges_two_reads_of_one_scope_at_different_moments_into_the_stricter(store: Store) -> None:
    early = boundary_of(store, PRODUCT)
    append(store, ProductAdded("p1"))
    late = boundary_of(store, PRODUCT)

    for boundaries in ([early, late], [late, early]):
        with pytest.raises(BoundaryMoved):
            land(store, commit_of(Rebooted(), on=boundaries))
    land(store, commit_of(Rebooted(), on=[late, late]))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_refuses_a_boundary_beyond_the_end_of_the_log(
    store: Store, request: pytest.FixtureRequest, engine: str, tmp_path: Path, kept: int
) -> None:
    """The boundary was read before a backup was restored, or on a primary whose last commits were
    lost.
    """
    with closing(opener(address_of(request, engine, tmp_path))()) as longer:
        newest = 0
        for number in range(kept):
            newest = append(store, ProductAdded("p1", str(number))).last
            append(longer, ProductAdded("p1", str(number)))
        append(longer, ProductRenamed("p1"))
        ahead = boundary_of(longer, PRODUCT)

    first, second, third = store.commit(
        commit_of(Rebooted(), on=[ahead]),
        commit_of(Rebooted(), Rebooted()),  # everything that was read, and one more fact
        commit_of(ProductAdded("p2"), on=[ahead]),
    )

    for refusal in (first, third):
        assert isinstance(refusal, BoundaryMoved)
        assert refusal.clause == PRODUCT.clauses[0]
        assert refusal.facts == {"clause": str(PRODUCT.clauses[0]), "position": newest}
    assert isinstance(second, Receipt)
    land(store, commit_of(Rebooted(), on=[boundary_of(store, PRODUCT)]))


def test_does_not_conflict_with_its_own_writes_after_reading_again(store: Store) -> None:
    for number in range(4):
        land(store, commit_of(ProductRenamed("p1", str(number)), on=[boundary_of(store, PRODUCT)]))

    assert len(store.read(PRODUCT).events) == 4


@pytest.mark.req("CB-1", "CB-15")
def test_checks_its_boundary_even_when_it_writes_nothing(store: Store) -> None:
    boundary = boundary_of(store, PRODUCT)
    certified = land(store, commit_of(on=[boundary]))
    append(store, ProductAdded("p1"))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(on=[boundary]))
    assert certified.first == certified.last
    assert len(whole_feed(store)) == 1


@pytest.mark.req("CB-12", "CB-23")
def test_a_sibling_type_in_the_same_partition_does_not_conflict(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    append(theirs, ProductAdded("p1"))
    boundary = boundary_of(ours, PRODUCT)
    append(theirs, PriceChanged("p1", 499))

    land(ours, commit_of(ProductRenamed("p1", "new"), on=[boundary]))

    later = boundary_of(ours, PRODUCT)
    append(theirs, ProductRenamed("p1", "newer"))
    with pytest.raises(BoundaryMoved):
        land(ours, commit_of(ProductRenamed("p1", "newest"), on=[later]))


@pytest.mark.req("CB-12")
def test_another_partition_of_the_same_type_does_not_conflict(store: Store) -> None:
    boundary = boundary_of(store, PRODUCT)
    append(store, ProductAdded("p2"), ProductRenamed("p10"))

    land(store, commit_of(ProductAdded("p1"), on=[boundary]))

    assert values(store.read(PRODUCT).events) == [ProductAdded("p1")]


@pytest.mark.req("CB-11", "CB-21")
def test_a_secondary_read_checks_its_tag_but_does_not_move_it(connect: Connect) -> None:
    """Two orders of one product do not conflict with each other; a change of the product conflicts
    with both.
    """
    ours, theirs = connect(), connect()
    append(ours, ProductAdded("p1"))
    kinds = (ProductAdded, OrderPlaced)

    def reads(order: str) -> Query:
        own = clause(OrderPlaced, tags=f"order_id:{order}")
        return Query((own, clause(*kinds, tags="product_id:p1")))

    first, second, third = (boundary_of(ours, reads(order)) for order in ("o1", "o2", "o3"))
    land(theirs, commit_of(OrderPlaced("o1", "c1", ("p1",)), on=[first]))
    land(ours, commit_of(OrderPlaced("o2", "c2", ("p1",)), on=[second]))
    append(theirs, ProductAdded("p1", "again"))

    with pytest.raises(BoundaryMoved, match="product_id:p1"):
        land(ours, commit_of(OrderPlaced("o3", "c3", ("p1",)), on=[third]))


@pytest.mark.req("CB-6", "CB-8", "CB-11")
def test_every_carrier_of_a_cross_partition_tag_moves_it(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    boundary = boundary_of(ours, CUSTOMER)
    append(theirs, OrderPlaced("o9", "c1"))  # in a partition of its own, without reading the tag

    with pytest.raises(BoundaryMoved, match="customer_id:c1"):
        land(ours, commit_of(OrderPlaced("o1", "c1"), on=[boundary]))
    assert len(ours.read(CUSTOMER).events) == 1


@pytest.mark.req("CB-22")
def test_orders_of_different_customers_never_conflict(store: Store) -> None:
    other = query_of(OrderPlaced, tags="customer_id:c2")
    first, second = boundary_of(store, CUSTOMER), boundary_of(store, other)

    land(store, commit_of(OrderPlaced("o1", "c1", ("p1",)), on=[first]))
    land(store, commit_of(OrderPlaced("o2", "c2", ("p1",)), on=[second]))

    assert values(store.read(CUSTOMER).events) == [OrderPlaced("o1", "c1", ("p1",))]
    assert values(store.read(other).events) == [OrderPlaced("o2", "c2", ("p1",))]


@pytest.mark.req("CB-8", "CB-11")
def test_a_plain_tag_is_neither_found_nor_moved(store: Store) -> None:
    query = query_of(OrderPlaced, ProductAdded, tags="product_id:p1")
    boundary = boundary_of(store, query)
    append(store, OrderPlaced("o1", "c1", ("p1",)), DemandRecorded("p1", "o1"))

    assert store.read(query).events == ()
    land(store, commit_of(ProductAdded("p1"), on=[boundary]))


@pytest.mark.req("CB-11", "CB-20")
def test_a_composite_is_its_exact_set(store: Store) -> None:
    wide = query_of(
        DemandRecorded, DemandRevoked, DemandBilled, tags=("product_id:p1", "order_id:o1")
    )
    append(store, DemandBilled("p1", "o1", "i1"))
    boundary = boundary_of(store, wide)
    append(store, DemandBilled("p1", "o1", "i2"), DemandRecorded("p1", "o2"))
    append(store, DemandRecorded("p2", "o1"), ProductAdded("p1"), OrderPlaced("o1", "c1", ("p1",)))
    assert store.read(wide).events == ()

    land(store, commit_of(DemandRecorded("p1", "o1"), on=[boundary]))

    assert values(store.read(wide).events) == [DemandRecorded("p1", "o1")]


@pytest.mark.req("CB-11")
def test_every_writer_of_the_pair_checks_and_advances_a_composite(store: Store) -> None:
    boundary = boundary_of(store, PAIR)
    append(store, DemandRevoked("p1", "o1"))

    with pytest.raises(BoundaryMoved) as refusal:
        land(store, commit_of(DemandRecorded("p1", "o1"), on=[boundary]))
    assert refusal.value.facts["clause"] == str(PAIR.clauses[0])


@pytest.mark.req("CB-11")
def test_an_untagged_fact_conflicts_with_no_boundary(store: Store) -> None:
    boundaries = [
        boundary_of(store, PRODUCT),
        boundary_of(store, CUSTOMER),
        boundary_of(store, PAIR),
    ]

    append(store, Rebooted("now"))

    land(store, commit_of(ProductAdded("p1"), on=boundaries))

    assert values(whole_feed(store)) == [Rebooted("now"), ProductAdded("p1")]


@pytest.mark.req("CB-13")
def test_one_of_two_first_writers_conflicts_although_neither_reads_what_it_creates(
    connect: Connect,
) -> None:
    ours, theirs = connect(), connect()
    reads, guard = (
        query_of(ProductAdded, tags="product_id:p1"),
        query_of(PriceChanged, tags="product_id:p1"),
    )
    first, second = boundary_of(ours, reads, guard), boundary_of(theirs, reads, guard)

    land(ours, commit_of(PriceChanged("p1", 1), on=[first]))

    with pytest.raises(BoundaryMoved) as refusal:
        land(theirs, commit_of(PriceChanged("p1", 2), on=[second]))
    assert refusal.value.facts["clause"] == str(guard.clauses[0])
    assert ours.read(reads, guard=guard).events == ()  # observed, never returned


@pytest.mark.req("CB-13")
def test_a_guard_does_not_conflict_with_another_type(store: Store) -> None:
    reads, guard = (
        query_of(ProductAdded, tags="product_id:p1"),
        query_of(PriceChanged, tags="product_id:p1"),
    )
    boundary = boundary_of(store, reads, guard)

    append(store, ProductRenamed("p1"))

    land(store, commit_of(PriceChanged("p1"), on=[boundary]))

    assert values(store.read(guard).events) == [PriceChanged("p1")]


@pytest.mark.req("CB-13")
def test_a_guard_ignores_facts_from_before_the_read(store: Store) -> None:
    reads, guard = (
        query_of(ProductAdded, tags="product_id:p1"),
        query_of(PriceChanged, tags="product_id:p1"),
    )
    append(store, PriceChanged("p1", 1))

    land(store, commit_of(PriceChanged("p1", 2), on=[boundary_of(store, reads, guard)]))

    assert values(store.read(guard).events) == [PriceChanged("p1", 1), PriceChanged("p1", 2)]


@pytest.mark.req("CB-13")
def test_a_guard_counts_only_on_an_empty_model(store: Store) -> None:
    reads, guard = (
        query_of(ProductAdded, tags="product_id:p1"),
        query_of(PriceChanged, tags="product_id:p1"),
    )
    append(store, ProductAdded("p1"))
    boundary = boundary_of(store, reads, guard)

    append(store, PriceChanged("p1", 1))

    land(store, commit_of(PriceChanged("p1", 2), on=[boundary]))

    assert values(store.read(guard).events) == [PriceChanged("p1", 1), PriceChanged("p1", 2)]


def test_a_read_after_a_position_still_guards_all_that_follows(store: Store) -> None:
    first = append(store, ProductAdded("p1"))
    boundary = boundary_of(store, PRODUCT, after=first.last)

    land(store, commit_of(Rebooted(), on=[boundary]))
    append(store, ProductRenamed("p1"))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(Rebooted(), on=[boundary]))


def test_a_clause_over_every_type_is_moved_by_every_type_under_its_tag(store: Store) -> None:
    query = query_of(tags="product_id:p1")
    boundaries: list[Boundary] = []
    for fact in (ProductAdded("p1"), PriceChanged("p1"), DemandRecorded("p1", "o1")):
        boundaries.append(boundary_of(store, query))
        append(store, fact)
    late = boundary_of(store, query)
    append(store, OrderPlaced("o1", "c1", ("p1",)))

    for boundary in boundaries:
        with pytest.raises(BoundaryMoved):
            land(store, commit_of(Rebooted(), on=[boundary]))
    land(store, commit_of(Rebooted(), on=[late]))


def test_the_same_array_tag_twice_is_one_tag(store: Store) -> None:
    append(store, LabelsGiven("n1", ("red", "red", "blue")))

    (event,) = store.read(query_of(LabelsGiven, tags="label_id:red")).events
    assert event.tags == ("label_id:blue", "label_id:red", "note_id:n1")


def test_a_global_order_is_moved_by_its_own_types_alone(store: Store) -> None:
    boundary = boundary_of(store, query_of(Announced))
    append(store, ProductAdded("p1"), Rebooted())
    land(store, commit_of(Announced("first"), on=[boundary]))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(Announced("second"), on=[boundary]))
