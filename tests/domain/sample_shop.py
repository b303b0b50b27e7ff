"""The commands and facts of a shop and of courses, and short forms to declare others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Struct, defstruct

from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Cross, Partition, Untagged
from tidegate.kernel.vocabulary import Vocabulary, facts


class Seed(Struct, frozen=True, rename="camel"):
    """Snake case here, and camel case in JSON, tags and clauses."""


class ProductAdded(Seed, frozen=True):
    product_id: str
    name: str = ""


class CatalogProductSynced(Seed, frozen=True):
    product_id: str


class OrderPlaced(Seed, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Untagged()]
    product_ids: tuple[str, ...]


class ProductDemandRecorded(Seed, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class ProductDemandRevoked(Seed, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class ProductOrdered(Seed, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_id: Annotated[str, Untagged()]
    quantity: int


class StudentSubscribed(Seed, frozen=True):
    course_id: Annotated[str, Partition()]
    student_id: Annotated[str, Cross()]


class AddProduct(Seed, frozen=True):
    product_id: str
    name: str = ""
    description: str = ""
    price: int = 0  # floats have no portable form


class PlaceOrder(Seed, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Untagged()]
    product_ids: tuple[str, ...]


class RecordDemand(Seed, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class RevokeDemand(Seed, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class OrderProduct(Seed, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_id: Annotated[str, Untagged()]
    quantity: int


class SubscribeStudent(Seed, frozen=True):
    course_id: Annotated[str, Partition()]
    student_id: Annotated[str, Cross()]


def slice_of(
    command: type[Struct],
    reads: Sequence[type[Struct]],
    writes: Sequence[type[Struct]] = (),
    name: str = "",
) -> Slice:
    """Build a slice of which only the declaration matters: it decides nothing."""

    def evolve(state: Any, fact: Any) -> Any:
        return state

    return Slice(
        name=name or command.__name__,
        command=command,
        reads=tuple(reads),
        writes=tuple(writes),
        start=lambda command: None,
        evolve=evolve,
        decide=lambda state, command, now: (),
    )


# ── types built in a test ─────────────────────────────────────────────────────────────────────────

P, C = Annotated[str, Partition()], Annotated[str, Cross()]


def struct(name: str = "Happened", **hints: Any) -> type[Struct]:
    """Build a fact or command type with these fields."""
    return defstruct(name, list(hints.items()), frozen=True)


def vocabulary_of(*structs: type[Struct], slices: Sequence[Slice] = ()) -> Vocabulary:
    return Vocabulary(facts("test", *structs), slices)


# ── the shop ──────────────────────────────────────────────────────────────────────────────────────

DEMAND = (ProductDemandRecorded, ProductDemandRevoked)
FACTS = facts(
    "shop",
    ProductAdded,
    CatalogProductSynced,
    OrderPlaced,
    *DEMAND,
    ProductOrdered,
    StudentSubscribed,
)
add_product = slice_of(AddProduct, [ProductAdded], [ProductAdded])
place_order = slice_of(PlaceOrder, [OrderPlaced, CatalogProductSynced], [OrderPlaced])
record_demand = slice_of(RecordDemand, DEMAND, [ProductDemandRecorded])
revoke_demand = slice_of(RevokeDemand, DEMAND, [ProductDemandRevoked])
order_product = slice_of(OrderProduct, [ProductOrdered], [ProductOrdered])
subscribe_student = slice_of(SubscribeStudent, [StudentSubscribed], [StudentSubscribed])

SHOP = Vocabulary(
    FACTS,
    (add_product, place_order, record_demand, revoke_demand, order_product, subscribe_student),
)
