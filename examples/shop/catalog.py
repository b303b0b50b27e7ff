"""One entity, one tag: a product is decided on its own history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from examples.shop.facts import (
    CatalogProductSynced,
    ProductAdded,
    ProductNameChanged,
    ProductPriceChanged,
)
from tidegate.errors import NotFound
from tidegate.kernel.slices import Slice


class AddProduct(Struct, frozen=True, rename="camel"):
    product_id: str
    name: str
    description: str
    price_cents: int


class ChangeProductName(Struct, frozen=True, rename="camel"):
    product_id: str
    name: str


class ChangeProductPrice(Struct, frozen=True, rename="camel"):
    product_id: str
    price_cents: int


class SyncProduct(Struct, frozen=True, rename="camel"):
    product_id: str
    available: bool


class Product(Struct, frozen=True):
    """The parts of a product that a decision needs. Fields are None until their fact was read."""

    name: str | None = None
    price_cents: int | None = None
    available: bool | None = None


Change = ProductAdded | ProductNameChanged | ProductPriceChanged | CatalogProductSynced


def evolve(product: Product, fact: Change) -> Product:
    match fact:
        case ProductAdded(name=name, price_cents=cents):
            return replace(product, name=name, price_cents=cents)
        case ProductNameChanged(name=name):
            return replace(product, name=name)
        case ProductPriceChanged(price_cents=cents):
            return replace(product, price_cents=cents)
        case CatalogProductSynced(available=available):
            return replace(product, available=available)


def decide_addition(product: Product, command: AddProduct, now: datetime) -> Sequence[Struct]:
    if product.name is not None:
        return ()  # added already: a repeated command is not an error
    return (
        ProductAdded(command.product_id, command.name, command.description, command.price_cents),
    )


def decide_name(product: Product, command: ChangeProductName, now: datetime) -> Sequence[Struct]:
    if product.name is None:
        raise NotFound(f"there is no product {command.product_id}", product=command.product_id)
    if product.name == command.name:
        return ()
    return (ProductNameChanged(command.product_id, command.name),)


def decide_price(product: Product, command: ChangeProductPrice, now: datetime) -> Sequence[Struct]:
    if product.price_cents is None:
        raise NotFound(f"there is no product {command.product_id}", product=command.product_id)
    if product.price_cents == command.price_cents:
        return ()
    return (ProductPriceChanged(command.product_id, command.price_cents),)


def decide_sync(product: Product, command: SyncProduct, now: datetime) -> Sequence[Struct]:
    if product.available == command.available:
        return ()
    return (CatalogProductSynced(command.product_id, command.available),)


def start(command: Struct) -> Product:
    return Product()


add_product = Slice(
    name="add-product",
    command=AddProduct,
    reads=(ProductAdded,),
    writes=(ProductAdded,),
    start=start,
    evolve=evolve,
    decide=decide_addition,
)

# It does not read prices, so a concurrent price change never conflicts with it.
change_product_name = Slice(
    name="change-product-name",
    command=ChangeProductName,
    reads=(ProductAdded, ProductNameChanged),
    writes=(ProductNameChanged,),
    start=start,
    evolve=evolve,
    decide=decide_name,
)

change_product_price = Slice(
    name="change-product-price",
    command=ChangeProductPrice,
    reads=(ProductAdded, ProductPriceChanged),
    writes=(ProductPriceChanged,),
    start=start,
    evolve=evolve,
    decide=decide_price,
)

sync_product = Slice(
    name="sync-product",
    command=SyncProduct,
    reads=(CatalogProductSynced,),
    writes=(CatalogProductSynced,),
    start=start,
    evolve=evolve,
    decide=decide_sync,
)

SLICES = (add_product, change_product_name, change_product_price, sync_product)
