"""The shop as one schema, its one derived table, and a walk through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from examples.shop import catalog, demand
from examples.shop.facts import FACTS, ProductOrdered
from examples.shop.order_product import OrderProduct, order_product
from examples.shop.orders import PlaceOrder, place_order
from tidegate.clock import system_clock
from tidegate.control.runtime import Control
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import Refused
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.replay import differences, rebuild_changed
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary


class CustomerUnits(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many units of a product a customer has ordered."""

    customer_id: str
    product_id: str
    units: int = 0


CUSTOMER_UNITS = Collection(
    "customer_units",
    CustomerUnits,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("customerId", "productId", "units"),
    indexes=(Index("by_product", ("productId",)),),
)


def add_units(row: CustomerUnits, fact: ProductOrdered, now: datetime) -> CustomerUnits:
    return replace(row, units=row.units + fact.quantity)


customer_units = Fold(
    collection=CUSTOMER_UNITS,
    number=1,
    reads=(ProductOrdered,),
    ids=lambda fact: (f"{fact.customer_id}/{fact.product_id}",),
    start=lambda id, fact: CustomerUnits(fact.customer_id, fact.product_id),
    step=add_units,
)

SLICES = (*catalog.SLICES, place_order, *demand.SLICES, order_product)
SCHEMA = Schema(Vocabulary(FACTS, SLICES), (CUSTOMER_UNITS,))
FOLDS = Folds(SCHEMA, (customer_units,))


@contextmanager
def shop(url: str) -> Iterator[Control]:
    """Open the shop on the log at this URL. A fold with a new number is rebuilt first."""
    with closing(connect(url, SCHEMA)) as store, closing(GroupCommit(store)) as writer:
        rebuild_changed(store, FOLDS, system_clock())
        yield Control(store, FOLDS, writer.submit)


def said(control: Control, item: Slice, command: Struct) -> str:
    """Describe the result of a command in a few words."""
    try:
        outcome = control.execute(item, command)
    except Refused as refusal:
        return f"{refusal.code}: {refusal.detail}"
    return f"log position {outcome.position}" if outcome.receipt else "exists already"


def walk(control: Control) -> None:
    """Take a first customer from the catalogue to the cap. Repeated, it changes nothing."""
    control.execute(catalog.add_product, catalog.AddProduct("prod-1", "Lamp", "It shines", 990))
    control.execute(catalog.sync_product, catalog.SyncProduct("prod-1", True))
    order = PlaceOrder("ord-1", "cust-9", ("prod-1",))
    print(f"placing ord-1: {said(control, place_order, order)}")
    for number in range(1, 8):
        unit = OrderProduct(f"ord-{number}", "cust-9", "prod-1", 1)
        print(f"one prod-1 in {unit.order_id}: {said(control, order_product, unit)}")
    for record in control.store.range(CUSTOMER_UNITS.name, limit=10):
        print(f"{record.key}: {record.data.decode()} at version {record.version}")
    print(f"differences after replay: {differences(control.store, FOLDS)}")


if __name__ == "__main__":
    with shop(sys.argv[1] if len(sys.argv) > 1 else "memory:") as running:
        walk(running)
