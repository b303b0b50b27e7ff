"""A cap over all orders of one customer: read by customer across partitions, fenced by customer.

The product is narrowed in the fold, not in the query: not every constraint is a tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from examples.shop import facts
from tidegate.errors import Refused
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Cross, Partition, Untagged

UNITS_PER_CUSTOMER_MAX = 5


class OrderProduct(Struct, frozen=True, rename="camel"):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_id: Annotated[str, Untagged()]
    quantity: int


class ProductOrdered(Struct, frozen=True, rename="camel"):
    """The part of the fact that this decision needs, without tags."""

    order_id: str
    product_id: str
    quantity: int


class CapReached(Refused):
    """The customer has as many units of the product as one customer may order."""

    code = "cap_reached"


class Purchases(Struct, frozen=True):
    order_id: str
    product_id: str
    ordered: bool = False
    units: int = 0


def evolve(state: Purchases, fact: ProductOrdered) -> Purchases:
    if fact.order_id == state.order_id and fact.product_id == state.product_id:
        state = replace(state, ordered=True)
    if fact.product_id == state.product_id:
        state = replace(state, units=state.units + fact.quantity)
    return state


def decide(state: Purchases, command: OrderProduct, now: datetime) -> Sequence[Struct]:
    if state.ordered:
        return ()
    if state.units + command.quantity > UNITS_PER_CUSTOMER_MAX:
        raise CapReached(
            f"{command.customer_id} has {state.units} units of {command.product_id}, "
            f"{UNITS_PER_CUSTOMER_MAX} are allowed",
            found=state.units,
            allowed=UNITS_PER_CUSTOMER_MAX,
        )
    ordered = facts.ProductOrdered(
        command.order_id, command.customer_id, command.product_id, command.quantity
    )
    return (ordered,)


order_product = Slice(
    name="order-product",
    command=OrderProduct,
    reads=(ProductOrdered,),
    writes=(facts.ProductOrdered,),
    start=lambda command: Purchases(command.order_id, command.product_id),
    evolve=evolve,
    decide=decide,
)
