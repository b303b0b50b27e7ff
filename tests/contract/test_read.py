"""Reading: what a query finds on every engine, in which order, and which reads can be guarded."""

from __future__ import annotations

import pytest

from tests.contract.address import Connect
from tests.contract.world import (
    Announced,
    DemandBilled,
    DemandRecorded,
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
from tidegate.errors import BoundaryMoved, UnfencedQuery
from tidegate.kernel.model import ALL, Query
from tidegate.kernel.store import Store, demand_boundary

HISTORY = (
    ProductAdded("p1"),
    OrderPlaced("o1", "c1", ("p1", "p2")),
    ProductAdded("p2"),
    DemandRecorded("p1", "o1"),
    OrderPlaced("o2", "c1", ("p2",)),
    DemandBilled("p1", "o1", "i1"),
    Rebooted("once"),
    PriceChanged("p1", 5),
    LabelsGiven("n1", ("red", "blue")),
    OrderPlaced("o3", "c2", ()),
    Announced("opened"),
)

# What the public DCB specification says these find, as indexes into HISTORY.
FOUND = {
    "all": (ALL, range(11)),
    "one type": (query_of(ProductAdded), (0, 2)),
    "two types": (query_of(PriceChanged, Rebooted), (6, 7)),
    "a type that never happened": (query_of(ProductRenamed), ()),
    "contains a partition tag": (query_of(tags="product_id:p1", contains=True), (0, 1, 3, 5, 7)),
    "contains a secondary tag": (
        query_of(OrderPlaced, tags="product_id:p2", contains=True),
        (1, 4),
    ),
    "contains two tags": (
        query_of(tags=("product_id:p1", "order_id:o1"), contains=True),
        (1, 3, 5),
    ),
    "contains three tags": (
        query_of(tags=("product_id:p1", "order_id:o1", "invoice_id:i1"), contains=True),
        (5,),
    ),
    "contains by type": (
        query_of(DemandRecorded, tags=("product_id:p1", "order_id:o1"), contains=True),
        (3,),
    ),
    "clauses are OR-ed": (
        Query((clause(Rebooted), clause(tags="customer_id:c1", contains=True))),
        (1, 4, 6),
    ),
    "an event is found once": (
        Query((clause(ProductAdded), clause(tags="product_id:p1", contains=True), *ALL.clauses)),
        range(11),
    ),
}

# Reads by the seed's rules: partition-scoped, cross-partition by declaration, exact composites.
SCOPED = {
    "a partition": (query_of(ProductAdded, PriceChanged, tags="product_id:p1"), (0, 7)),
    "a partition, every type": (query_of(tags="product_id:p1"), (0, 3, 5, 7)),
    "over all partitions": (query_of(OrderPlaced, tags="customer_id:c1"), (1, 4)),
    "an element of a cross-partition list": (query_of(LabelsGiven, tags="label_id:blue"), (8,)),
    "the exact pair": (
        query_of(DemandRecorded, DemandBilled, tags=("product_id:p1", "order_id:o1")),
        (3,),
    ),
    "the exact three": (
        query_of(DemandBilled, tags=("product_id:p1", "order_id:o1", "invoice_id:i1")),
        (5,),
    ),
    "a part of a set is not the set": (
        query_of(OrderPlaced, tags=("customer_id:c1", "product_id:p2")),
        (),
    ),
    "a type in global order": (query_of(Announced), (10,)),
    "an unused tag value": (query_of(tags="product_id:p"), ()),
}


@pytest.fixture(scope="module")
def history(steady: Store) -> list[int]:
    """The positions of HISTORY, in a log that the tests of this module only read."""
    for fact in HISTORY:
        append(steady, fact)
    return positions(whole_feed(steady))


@pytest.mark.req("CB-2", "CB-17", "CB-25")
@pytest.mark.parametrize("name", FOUND)
def test_reads_as_the_public_specification_requires(
    steady: Store, history: list[int], name: str
) -> None:
    query, found = FOUND[name]

    assert positions(steady.read(query).events) == [history[index] for index in found]


@pytest.mark.req("CB-2", "CB-6", "CB-8", "CB-20", "CB-25")
@pytest.mark.parametrize("name", SCOPED)
def test_reads_by_the_scopes_of_tags(steady: Store, history: list[int], name: str) -> None:
    query, found = SCOPED[name]

    assert positions(steady.read(query).events) == [history[index] for index in found]


@pytest.mark.parametrize("name", [*FOUND, *SCOPED])
def test_pages_by_position_and_limit(steady: Store, history: list[int], name: str) -> None:
    query, found = (FOUND | SCOPED)[name]
    wanted = [history[index] for index in found]

    for limit in (1, 3):
        pages: list[int] = []
        while page := steady.read(query, after=pages[-1] if pages else 0, limit=limit).events:
            assert len(page) <= limit
            pages += positions(page)
        assert pages == wanted


def test_lacks_a_boundary_only_when_the_limit_cut_the_page(
    steady: Store, history: list[int]
) -> None:
    query = query_of(OrderPlaced, tags="customer_id:c1")

    assert not steady.read(query, limit=1).has_boundary
    assert steady.read(query, limit=2).has_boundary
    assert steady.read(query, limit=1, after=history[1]).has_boundary
    assert steady.read(query, limit=3).has_boundary


@pytest.mark.req("CB-17")
@pytest.mark.parametrize(
    "query",
    [
        ALL,
        query_of(ProductAdded),
        query_of(Announced, Rebooted),
        query_of(OrderPlaced, tags="product_id:p1", contains=True),
        query_of(tags=("product_id:p1", "order_id:o1"), contains=True),
        query_of(tags=("product_id:p1", "order_id:o1", "invoice_id:i1")),
        Query((clause(ProductAdded, tags="product_id:p1"), clause(Rebooted))),
    ],
    ids=str,
)
def test_refuses_to_guard_a_query_that_no_index_covers(steady: Store, query: Query) -> None:
    page = steady.read(query)

    assert not page.has_boundary
    with pytest.raises(UnfencedQuery, match="can be read"):
        demand_boundary(page, query)


@pytest.mark.req("CB-17")
def test_refuses_to_guard_when_the_guard_has_no_index(steady: Store) -> None:
    query = query_of(ProductAdded, tags="product_id:p99")

    assert not steady.read(query, guard=query_of(Rebooted)).has_boundary


@pytest.mark.req("CB-17")
def test_a_contains_clause_is_a_condition_where_a_tag_covers_its_types(store: Store) -> None:
    query = query_of(OrderPlaced, tags=("customer_id:c1", "product_id:p1"), contains=True)
    append(store, OrderPlaced("o1", "c1", ("p1",)), OrderPlaced("o2", "c1", ("p2",)))
    page = store.read(query)
    assert values(page.events) == [OrderPlaced("o1", "c1", ("p1",))]
    boundary = demand_boundary(page, query)
    append(store, OrderPlaced("o3", "c2", ("p1",)))
    land(store, commit_of(Rebooted(), on=[boundary]))

    append(store, OrderPlaced("o4", "c1", ("p1",)))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(Rebooted(), on=[boundary]))


@pytest.mark.req("CB-17")
def test_a_contains_clause_is_fenced_by_the_tag_that_covers_it(store: Store) -> None:
    """Read by the covering tag and filter by the rest: the fence covers the whole index."""
    query = query_of(OrderPlaced, tags=("customer_id:c1", "product_id:p1"), contains=True)
    boundary = boundary_of(store, query)
    append(store, OrderPlaced("o1", "c1", ("p2",)))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(Rebooted(), on=[boundary]))
    land(store, commit_of(Rebooted(), on=[boundary_of(store, query)]))


@pytest.mark.req("CB-17")
def test_a_type_in_global_order_is_a_condition_without_tags(store: Store) -> None:
    boundary = boundary_of(store, query_of(Announced))
    append(store, Rebooted(), ProductAdded("p1"))
    land(store, commit_of(Rebooted(), on=[boundary]))
    append(store, Announced("once"))

    with pytest.raises(BoundaryMoved, match="Announced"):
        land(store, commit_of(Announced("twice"), on=[boundary]))


@pytest.mark.req("CB-25")
def test_reads_commits_of_any_handle_at_once(connect: Connect, rounds: int) -> None:
    writer, reader = connect(), connect()
    queries = (
        query_of(OrderPlaced, tags="customer_id:c1"),
        Query((clause(OrderPlaced, tags="order_id:o0"), *query_of(tags="customer_id:c1").clauses)),
        query_of(OrderPlaced),
        ALL,
    )

    for number in range(rounds):
        receipt = append(writer, OrderPlaced(f"o{number}", "c1"))
        for query in queries:
            page = reader.read(query)
            assert len(page.events) == number + 1
            assert page.events[-1].position == receipt.last


def test_merges_clauses_in_position_order(store: Store) -> None:
    for number in range(6):
        append(store, ProductAdded(f"p{number % 3}"), OrderPlaced(f"o{number}", f"c{number % 2}"))
    query = Query(
        tuple(clause(tags=tag) for tag in ("product_id:p2", "customer_id:c1", "product_id:p0"))
    )

    found = positions(store.read(query).events)

    assert len(found) == 7
    assert found == sorted(set(found))


def test_finds_several_facts_of_one_commit_in_their_order(store: Store) -> None:
    names = [f"name {number}" for number in range(20)]
    append(store, *(ProductRenamed("p1", name) for name in names))

    events = store.read(query_of(ProductRenamed, tags="product_id:p1")).events

    assert values(events) == [ProductRenamed("p1", name) for name in names]
    middle = events[9].position
    assert store.read(query_of(tags="product_id:p1"), after=middle).events == events[10:]
    assert store.read(query_of(tags="product_id:p1"), after=middle, limit=3).events == events[10:13]
