"""The facts of the shop. Tags are declared here once; every query is derived from them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tidegate.kernel.tags import Cross, Partition, Untagged
from tidegate.kernel.vocabulary import facts


class ProductAdded(Struct, frozen=True, rename="camel"):
    product_id: str
    name: str
    description: str
    price_cents: int


class ProductNameChanged(Struct, frozen=True, rename="camel"):
    product_id: str
    name: str


class ProductPriceChanged(Struct, frozen=True, rename="camel"):
    product_id: str
    price_cents: int


class CatalogProductSynced(Struct, frozen=True, rename="camel"):
    """The catalogue records whether a product can be ordered."""

    product_id: str
    available: bool


class OrderPlaced(Struct, frozen=True, rename="camel"):
    """Found by its order only. It names its products, but is not tagged with them: otherwise all
    orders of a popular product would conflict with each other.
    """

    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Untagged()]
    product_ids: tuple[str, ...]


class ProductDemandRecorded(Struct, frozen=True, rename="camel"):
    product_id: Annotated[str, Partition()]
    order_id: str


class ProductDemandRevoked(Struct, frozen=True, rename="camel"):
    product_id: Annotated[str, Partition()]
    order_id: str


class ProductOrdered(Struct, frozen=True, rename="camel"):
    """Found by its order, and by its customer over all orders."""

    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_id: Annotated[str, Untagged()]
    quantity: int


FACTS = (
    *facts("catalog", ProductAdded, ProductNameChanged, ProductPriceChanged, CatalogProductSynced),
    *facts("order", OrderPlaced, ProductOrdered),
    *facts("demand", ProductDemandRecorded, ProductDemandRevoked),
)
