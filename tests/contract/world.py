"""The small world of the contract suite: a shop's facts and rows, and short words to use them.

ProductAdded, ProductRenamed, PriceChanged   siblings in one partition, product_id
OrderPlaced      partition order_id, cross-partition customer_id, a plain tag per product
DemandRecorded, DemandRevoked, DemandBilled  the pair (product_id, order_id); the last has more
LabelsGiven      a cross-partition tag per element of a list
Announced        no tag, in global order;  Rebooted: no tag, in none
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Struct, defstruct

from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.model import (
    ABSENT,
    NO_META,
    Boundary,
    Clause,
    Commit,
    CommitKey,
    Event,
    Fact,
    Key,
    Match,
    Meta,
    Position,
    Put,
    Query,
    Receipt,
    Record,
    Write,
)
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store, demand_boundary
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import FactType, Vocabulary, facts

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


class ProductAdded(Struct, frozen=True):
    product_id: str
    name: str = ""


class ProductRenamed(Struct, frozen=True):
    product_id: str
    name: str = ""


class PriceChanged(Struct, frozen=True):
    product_id: str
    cents: int = 0


class OrderPlaced(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_ids: tuple[str, ...] = ()
    units: int = 1


class DemandRecorded(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class DemandRevoked(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class DemandBilled(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str
    invoice_id: str


class LabelsGiven(Struct, frozen=True):
    note_id: Annotated[str, Partition()]
    label_ids: Annotated[tuple[str, ...], Cross()] = ()


class Announced(Struct, frozen=True):
    text: str = ""


class Rebooted(Struct, frozen=True):
    text: str = ""


LONGEST = defstruct("L" * 128, [("thing_id", str)], frozen=True)  # a type name at its limit
TOO_LONG = defstruct("L" * 129, [("thing_id", str)], frozen=True)
# By the length of the kind under which each is declared, around its limit.
KINDS = {size: defstruct(f"Kind{size}", [], frozen=True) for size in (127, 128, 129)}


class RecordDemand(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


# The one slice here: its composite makes the exact pair an index. This suite never executes it.
record_demand = Slice(
    name="record-demand",
    command=RecordDemand,
    reads=(DemandRecorded, DemandRevoked),
    writes=(DemandRecorded,),
    start=lambda command: 0,
    evolve=lambda state, fact: state + 1,
    decide=lambda state, command, now: (),
)

VOCABULARY = Vocabulary(
    (
        *facts("shop", ProductAdded, ProductRenamed, PriceChanged, OrderPlaced),
        *facts("demand", DemandRecorded, DemandRevoked, DemandBilled),
        *facts("note", LabelsGiven, Rebooted, LONGEST, TOO_LONG),
        *(FactType(struct, "k" * size) for size, struct in KINDS.items()),
        FactType(Announced, "note", global_order=True),
    ),
    (record_demand,),
)


class Item(Struct, frozen=True, omit_defaults=True):
    name: str = ""
    state: str | None = None
    owner: str | None = None
    count: int = 0


class Note(Struct, frozen=True):
    text: str


class Tally(Struct, frozen=True):
    state: str
    count: int = 0


ITEMS = Collection(
    "items",
    Item,
    columns=("name", "state", "owner", "count"),
    indexes=(Index("by_state", ("state",)), Index("by_owner", ("owner", "state"))),
)
NOTES = Collection("notes", Note)
TALLIES = Collection(
    "tallies",
    Tally,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("state", "count"),
    allowed={"state": frozenset({"open", "closed"})},
)
SCHEMA = Schema(VOCABULARY, (ITEMS, NOTES, TALLIES))


# ── short forms ───────────────────────────────────────────────────────────────────────────────────


def commit_of(
    *values: Struct | Fact,
    on: Sequence[Boundary] = (),
    writes: Sequence[Write] = (),
    at: datetime = T0,
    once: CommitKey | None = None,
    meta: Meta = NO_META,
) -> Commit:
    """Build a commit of these facts."""
    made = tuple(value if isinstance(value, Fact) else VOCABULARY.fact(value) for value in values)
    return Commit(at, meta, made, tuple(on), tuple(writes), once)


def land(store: Store, commit: Commit) -> Receipt:
    """Commit it. Raises: the store's answer, if that is an error."""
    (outcome,) = store.commit(commit)
    if isinstance(outcome, TidegateError):
        raise outcome
    return outcome


def append(store: Store, *values: Struct | Fact, at: datetime = T0) -> Receipt:
    """Append facts without any condition."""
    return land(store, commit_of(*values, at=at))


def clause(*types: type[Struct], tags: str | Sequence[str] = (), contains: bool = False) -> Clause:
    """Build a clause over these types, or over every type if none is named."""
    found = frozenset((tags,) if isinstance(tags, str) else tags)
    names = frozenset(known.__name__ for known in types) or None
    return Clause(names, found, Match.CONTAINS if contains else Match.EXACT)


def query_of(*types: type[Struct], tags: str | Sequence[str] = (), contains: bool = False) -> Query:
    """Build a query of one clause."""
    return Query((clause(*types, tags=tags, contains=contains),))


def boundary_of(
    store: Store, query: Query, guard: Query | None = None, after: Position = 0
) -> Boundary:
    """Return the boundary of a read."""
    return demand_boundary(store.read(query, guard=guard, after=after), query)


def positions(events: Sequence[Event]) -> list[Position]:
    return [event.position for event in events]


def values(events: Sequence[Event]) -> list[Struct]:
    return [VOCABULARY.value(event) for event in events]


def whole_feed(store: Store, after: Position = 0, limit: int = 500) -> list[Event]:
    """Read everything after a position, page by page."""
    found: list[Event] = []
    while page := store.feed(after=after, limit=limit).events:
        found += page
        after = page[-1].position
    return found


def item(name: str) -> Key:
    return Key("items", name)


def row(**fields: str | int | None) -> bytes:
    """Encode an item."""
    return codec.encode(Item(**fields))  # type: ignore[arg-type]


def put(key: Key, data: bytes, expect: Position = ABSENT, fact: int = 0) -> Put:
    return Put(key, data, expect, fact)


def stored(store: Store, key: Key) -> Record:
    """Return the row, which must exist."""
    (record,) = store.get(key)
    assert record is not None, f"{key} is absent"
    return record


def write(store: Store, *writes: Write) -> Position:
    """Commit these writes without a fact. Return the number that they took."""
    receipt = land(store, commit_of(writes=writes))
    assert receipt.first == receipt.last
    return receipt.last


def ids(records: Sequence[Record]) -> list[str]:
    return [record.key.id for record in records]
