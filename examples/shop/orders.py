"""Many entities in one decision: an order is placed if all of its products are available."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from examples.shop.facts import CatalogProductSynced, OrderPlaced
from tidegate.errors import Refused
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Partition, Untagged


class PlaceOrder(Struct, frozen=True, rename="camel"):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Untagged()]
    product_ids: tuple[str, ...]


class OrderAlreadyPlaced(Refused):
    """The order exists already; orders are placed once."""

    code = "order_already_placed"


class ProductsNotAvailable(Refused):
    """Some product of the order cannot be ordered now."""

    code = "products_not_available"


class Placement(Struct, frozen=True):
    placed: bool = False
    available: frozenset[str] = frozenset()


def evolve(state: Placement, fact: OrderPlaced | CatalogProductSynced) -> Placement:
    match fact:
        case OrderPlaced():
            return replace(state, placed=True)
        case CatalogProductSynced(product_id=product_id, available=True):
            return replace(state, available=state.available | {product_id})
        case CatalogProductSynced(product_id=product_id):
            return replace(state, available=state.available - {product_id})


def decide(state: Placement, command: PlaceOrder, now: datetime) -> Sequence[Struct]:
    if state.placed:
        raise OrderAlreadyPlaced(f"order {command.order_id} is placed", order=command.order_id)
    missing = sorted(set(command.product_ids) - state.available)
    if missing or not command.product_ids:
        raise ProductsNotAvailable(f"not available: {missing}", products=", ".join(missing))
    return (OrderPlaced(command.order_id, command.customer_id, command.product_ids),)


place_order = Slice(
    name="place-order",
    command=PlaceOrder,
    reads=(OrderPlaced, CatalogProductSynced),
    writes=(OrderPlaced,),
    start=lambda command: Placement(),
    evolve=evolve,
    decide=decide,
)
