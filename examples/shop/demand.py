"""A composite boundary: the exact pair of a product and an order, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct

from examples.shop.facts import ProductDemandRecorded, ProductDemandRevoked
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Partition


class RecordDemand(Struct, frozen=True, rename="camel"):
    product_id: Annotated[str, Partition()]
    order_id: str


class RevokeDemand(Struct, frozen=True, rename="camel"):
    product_id: Annotated[str, Partition()]
    order_id: str


def evolve(recorded: bool, fact: ProductDemandRecorded | ProductDemandRevoked) -> bool:
    return isinstance(fact, ProductDemandRecorded)


def decide_record(recorded: bool, command: RecordDemand, now: datetime) -> Sequence[Struct]:
    return () if recorded else (ProductDemandRecorded(command.product_id, command.order_id),)


def decide_revoke(recorded: bool, command: RevokeDemand, now: datetime) -> Sequence[Struct]:
    return (ProductDemandRevoked(command.product_id, command.order_id),) if recorded else ()


record_demand = Slice(
    name="record-demand",
    command=RecordDemand,
    reads=(ProductDemandRecorded, ProductDemandRevoked),
    writes=(ProductDemandRecorded,),
    start=lambda command: False,
    evolve=evolve,
    decide=decide_record,
)

revoke_demand = Slice(
    name="revoke-demand",
    command=RevokeDemand,
    reads=(ProductDemandRecorded, ProductDemandRevoked),
    writes=(ProductDemandRevoked,),
    start=lambda command: False,
    evolve=evolve,
    decide=decide_revoke,
)

SLICES = (record_demand, revoke_demand)
