"""Which events a command depends on: the queries that are derived from its type and value."""

from __future__ import annotations

from typing import Annotated, NewType

import pytest
from msgspec import Struct

from tests.domain import sample_shop as shop
from tests.domain.sample_shop import SHOP, slice_of
from tidegate.errors import InvalidInput, LimitExceeded
from tidegate.kernel.model import Clause, Query
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Partition, Tag, Untagged
from tidegate.kernel.vocabulary import Vocabulary, facts

pure = {"engines": None, "reason": "derivation is a pure function of types and values"}

Printed = list[tuple[list[str], list[str]]]


def printed(query: Query) -> Printed:
    """Format a query as text: types and tags of each clause."""
    return [(sorted(clause.types or ()), sorted(clause.tags)) for clause in query.clauses]


# ── a shop and courses ────────────────────────────────────────────────────────────────────────────

PRINTED: dict[str, tuple[Slice, Struct, Printed]] = {
    "AddProduct": (
        shop.add_product,
        shop.AddProduct("prod-1", "name"),
        [(["ProductAdded"], ["productId:prod-1"])],
    ),
    "PlaceOrder": (
        shop.place_order,
        shop.PlaceOrder("ord-1", "cust-9", ("prod-1", "prod-2")),
        [
            (["OrderPlaced"], ["orderId:ord-1"]),
            (["CatalogProductSynced", "OrderPlaced"], ["productId:prod-1"]),
            (["CatalogProductSynced", "OrderPlaced"], ["productId:prod-2"]),
        ],
    ),
    "RecordDemand": (
        shop.record_demand,
        shop.RecordDemand("prod-1", "ord-1"),
        [
            (
                ["ProductDemandRecorded", "ProductDemandRevoked"],
                ["orderId:ord-1", "productId:prod-1"],
            )
        ],
    ),
    "RevokeDemand": (
        shop.revoke_demand,
        shop.RevokeDemand("prod-1", "ord-1"),
        [
            (
                ["ProductDemandRecorded", "ProductDemandRevoked"],
                ["orderId:ord-1", "productId:prod-1"],
            )
        ],
    ),
    "OrderProduct": (
        shop.order_product,
        shop.OrderProduct("ord-7", "cust-9", "prod-1", 3),
        [(["ProductOrdered"], ["orderId:ord-7"]), (["ProductOrdered"], ["customerId:cust-9"])],
    ),
    "SubscribeStudent": (
        shop.subscribe_student,
        shop.SubscribeStudent("C1", "S1"),
        [(["StudentSubscribed"], ["courseId:C1"]), (["StudentSubscribed"], ["studentId:S1"])],
    ),
}


@pytest.mark.req("CB-3", "CB-4", "CB-5", "CB-18", "CB-19", **pure)
@pytest.mark.parametrize("name", PRINTED)
def test_derives_exactly_these_clauses_from_a_command(name: str) -> None:
    item, command, clauses = PRINTED[name]

    assert printed(SHOP.query(item, command)) == clauses


@pytest.mark.req("CB-19", **pure)
def test_a_list_element_and_a_scalar_field_name_the_same_tag() -> None:
    order = SHOP.fact(shop.OrderPlaced("ord-1", "cust-9", ("prod-2", "prod-1", "prod-2")))

    assert order.tags == ("orderId:ord-1", "productId:prod-1", "productId:prod-2")
    assert SHOP.fact(shop.ProductAdded("prod-1")).tags == ("productId:prod-1",)


@pytest.mark.req("CB-4", **pure)
def test_an_empty_list_gives_only_the_clause_of_the_partition() -> None:
    assert printed(SHOP.query(shop.place_order, shop.PlaceOrder("ord-1", "cust-9", ()))) == [
        (["OrderPlaced"], ["orderId:ord-1"])
    ]


@pytest.mark.req("CB-4", **pure)
def test_a_repeated_element_gives_one_clause() -> None:
    query = SHOP.query(shop.place_order, shop.PlaceOrder("ord-1", "cust-9", ("prod-1", "prod-1")))

    assert len(query.clauses) == 2


class SyncProducts(Struct, frozen=True, rename="camel"):
    product_ids: tuple[str, ...]


sync_products = slice_of(SyncProducts, [shop.CatalogProductSynced])


@pytest.mark.req("CB-4", **pure)
def test_a_command_of_empty_lists_depends_on_nothing_and_is_refused() -> None:
    vocabulary = Vocabulary(shop.FACTS, (sync_products,))

    assert len(vocabulary.query(sync_products, SyncProducts(("a", "b"))).clauses) == 2
    with pytest.raises(InvalidInput, match="depends on nothing"):
        vocabulary.query(sync_products, SyncProducts(()))


@pytest.mark.req("CB-4", **pure)
def test_a_command_of_too_many_elements_is_refused() -> None:
    vocabulary = Vocabulary(shop.FACTS, (sync_products,))
    elements = tuple(f"p{number}" for number in range(65))

    assert len(vocabulary.query(sync_products, SyncProducts(elements[:64])).clauses) == 64
    with pytest.raises(LimitExceeded, match="clauses of a query"):
        vocabulary.query(sync_products, SyncProducts(elements))


@pytest.mark.req("CB-3", **pure)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (shop.AddProduct(""), "product_id is empty"),
        (shop.AddProduct("a\nb"), "control character"),
        (shop.AddProduct("\ud800"), "lone surrogate"),
        (shop.AddProduct("x" * 300), "bytes of a tag"),
    ],
    ids=["empty", "control", "surrogate", "long"],
)
def test_names_a_value_that_cannot_be_a_tag(command: shop.AddProduct, words: str) -> None:
    with pytest.raises((InvalidInput, LimitExceeded), match=words):
        SHOP.query(shop.add_product, command)


# ── what is a tag ─────────────────────────────────────────────────────────────────────────────────

HostId = NewType("HostId", str)


class Everything(Struct, frozen=True):
    host_id: Annotated[HostId, Partition()]
    region: Annotated[str, Tag("zone")]
    rank_id: int
    alias_ids: list[str]
    team_id: str | None
    note_id: Annotated[str, Untagged()]
    valid: bool
    identity: str


@pytest.mark.req("CB-3", "CB-19", **pure)
def test_fields_named_id_are_tags_unless_they_opt_out() -> None:
    (known,) = facts("host", Everything)
    vocabulary = Vocabulary([known])

    full = vocabulary.fact(Everything(HostId("h1"), "eu", 7, ["a", "b"], "t1", "n1", True, "me"))
    bare = vocabulary.fact(Everything(HostId("h1"), "eu", 7, [], None, "n1", True, "me"))

    assert full.tags == (
        "alias_id:a",
        "alias_id:b",
        "host_id:h1",
        "rank_id:7",
        "team_id:t1",
        "zone:eu",
    )
    assert bare.tags == ("host_id:h1", "rank_id:7", "zone:eu")


def test_indexes_a_fact_by_its_partition_its_cross_tags_and_the_composite_that_is_read() -> None:
    def indexes(value: Struct) -> set[str]:
        return set(SHOP.indexes(SHOP.fact(value)))

    assert indexes(shop.ProductOrdered("o1", "c1", "p1", 1)) == {"orderId:o1", "customerId:c1"}
    assert indexes(shop.ProductDemandRecorded("p1", "o1")) == {
        "productId:p1",
        "10:orderId:o112:productId:p1",
    }


@pytest.mark.parametrize("products", [(), ("p1",), ("p1", "p2")])
def test_an_order_moves_its_own_partition_and_nothing_else(products: tuple[str, ...]) -> None:
    """Its tags may equal a pair that demand is read by; no slice reads orders by it."""
    order = SHOP.fact(shop.OrderPlaced("o1", "c1", products))

    assert SHOP.indexes(order) == ("orderId:o1",)


def test_guards_the_facts_it_creates_in_the_partitions_of_the_command() -> None:
    renaming = slice_of(shop.AddProduct, [shop.CatalogProductSynced], [shop.ProductAdded])
    vocabulary = Vocabulary(shop.FACTS, (renaming,))
    query = vocabulary.query(renaming, shop.AddProduct("p1"))

    assert vocabulary.guard(renaming, query) == Query(
        (Clause(frozenset({"ProductAdded"}), frozenset({"productId:p1"})),)
    )
    own = SHOP.query(shop.add_product, shop.AddProduct("p1"))
    assert SHOP.guard(shop.add_product, own) is None  # it reads what it creates
