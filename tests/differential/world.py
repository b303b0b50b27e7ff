"""Facts and rows for random programs: every scope of tag, and few values, so that they conflict.

Opened     order (partition)
Placed     order (partition), customer (cross), products (plain list)
Registered customer (partition)
Priced     product (partition; on Placed it is plain)
Stocked    shelf (partition), bin (plain): the exact pair is an index, a slice reads it
Moved      shelf (partition), bin (plain), pallet (plain, may be absent)
Announced  no tag, global order
Audited    order (partition), global order
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tidegate.kernel import codec
from tidegate.kernel.collections import Collection, Index, Nature, Writers, entry
from tidegate.kernel.model import ANY, Clause, Fact, Key, Match
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Cross, Partition, Tag
from tidegate.kernel.vocabulary import FactType, Vocabulary

# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


class Opened(Struct, frozen=True):
    order_id: str


class Placed(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_ids: tuple[str, ...] = ()


class Registered(Struct, frozen=True):
    customer_id: str


class Priced(Struct, frozen=True):
    product_id: str
    cents: int


class Stocked(Struct, frozen=True):
    shelf_id: Annotated[str, Partition()]
    bin_id: Annotated[str, Tag()]


class Moved(Struct, frozen=True):
    shelf_id: Annotated[str, Partition()]
    bin_id: Annotated[str, Tag()]
    pallet_id: Annotated[str | None, Tag()] = None


class Announced(Struct, frozen=True):
    text: str


class Audited(Struct, frozen=True):
    order_id: str


class CountBin(Struct, frozen=True):
    """A command whose two tags make one composite clause."""

    shelf_id: str
    bin_id: str


COUNT_BIN = Slice(
    name="count-bin",
    command=CountBin,
    writes=(Stocked,),
    reads=(Stocked,),
    start=lambda command: 0,
    evolve=lambda count, fact: count + 1,
    decide=lambda count, command, now: (),
)

# Values that break engines which join keys: a prefix of another, separators, beyond ASCII.
ORDERS = ("1", "1:1#")
CUSTOMERS = ("c", "C")
PRODUCTS = ("p/1", "p/1,p/2")
SHELVES = ("s", "é %_")
BINS = ("b", "𐍈")

# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


class Ticket(Struct, frozen=True, omit_defaults=True):
    state: str
    owner: str | None = None
    count: int = 0


TICKETS = Collection(
    "tickets",
    Ticket,
    columns=("state", "owner", "count"),
    allowed={"state": frozenset({"open", "shut"})},
    indexes=(Index("by_state", ("state",)), Index("by_owner", ("owner", "state"))),
)
TALLIES = Collection("tallies", Ticket, writers=Writers.FOLDED, nature=Nature.DERIVED)
COLLECTIONS = (TICKETS, TALLIES)
# Which indexes a collection has, and prefixes of their entries. None is the order of ids.
RANGES: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("tickets", None): ("", "a", "é"),
    ("tickets", "by_state"): ("", "op", entry("shut", "")),
    ("tickets", "by_owner"): ("", "ann", entry("ann", ""), entry("ann", "open")),
    ("tallies", None): ("", "a b"),
}
IDS = ("a", "a b", "B", "é", "𐍈")
KEYS = tuple(
    Key(collection.name, id)
    for collection, ids in ((TICKETS, IDS), (TALLIES, IDS[:2]))
    for id in ids
)
ROWS = tuple(
    codec.encode(ticket)
    for ticket in (
        Ticket("open"),
        Ticket("open", "ann", 1),
        Ticket("shut", "ann b"),
        Ticket("shut", "é", 2**53 - 1),
        Ticket("open", "", -1),
    )
)
ROW_NOT_ALLOWED = codec.encode(Ticket("ajar"))

SCHEMA = Schema(
    Vocabulary(
        (
            FactType(Opened, "order"),
            FactType(Placed, "order"),
            FactType(Registered, "customer"),
            FactType(Priced, "product"),
            FactType(Stocked, "shelf"),
            FactType(Moved, "shelf"),
            FactType(Announced, "notice", global_order=True),
            FactType(Audited, "order", global_order=True),
        ),
        (COUNT_BIN,),
    ),
    COLLECTIONS,
)


def _facts() -> dict[str, Fact]:
    values: list[Struct] = [Announced("hear"), Announced("é𐍈 \u2028")]
    for order in ORDERS:
        values += [Opened(order), Audited(order)]
        values += [Placed(order, customer) for customer in CUSTOMERS]
        values += [Placed(order, CUSTOMERS[0], (product,)) for product in PRODUCTS]
        values += [Placed(order, CUSTOMERS[1], PRODUCTS)]
    values += [Registered(customer) for customer in CUSTOMERS]
    values += [Priced(product, cents) for cents, product in enumerate(PRODUCTS)]
    for shelf in SHELVES:
        values += [Stocked(shelf, item) for item in BINS]
        values += [Moved(shelf, item) for item in BINS]
        values += [Moved(shelf, BINS[0], "q")]
    facts = (SCHEMA.vocabulary.fact(value) for value in values)
    return {f"{fact.type} {fact.body.decode()}": fact for fact in facts}


def _clauses() -> dict[str, Clause]:
    order, customer, product = (
        [f"{key}:{value}" for value in values]
        for key, values in (
            ("order_id", ORDERS),
            ("customer_id", CUSTOMERS),
            ("product_id", PRODUCTS),
        )
    )
    shelf, item = (
        [f"shelf_id:{value}" for value in SHELVES],
        [f"bin_id:{value}" for value in BINS],
    )
    pairs = [(a, b) for a in shelf for b in item]

    clauses: list[Clause] = []

    def add(types: str, *tags: str, match: Match = Match.EXACT) -> None:
        wanted = ANY if types == "*" else frozenset(types.split())
        clauses.append(Clause(wanted, frozenset(tags), match))

    for types in ("Announced", "Audited", "Announced Audited", "Opened", "*"):
        add(types)
    for tag in order:
        for types in ("Opened", "Placed", "Opened Placed Audited", "Audited Registered", "*"):
            add(types, tag)
    for tag in customer:
        for types in ("Placed", "Registered", "Placed Registered", "*"):
            add(types, tag)
    for tag in product:
        for types in ("Priced", "Placed Priced", "Placed", "*"):
            add(types, tag)
        add("Priced", tag, match=Match.CONTAINS)
        add("Placed", tag, match=Match.CONTAINS)
        add("*", tag, match=Match.CONTAINS)
        add("Placed", tag, customer[0], match=Match.CONTAINS)
    for tag in shelf:
        for types in ("Stocked", "Moved", "Stocked Moved", "*"):
            add(types, tag)
    for pair in pairs:
        for types in ("Stocked", "Stocked Moved", "*"):
            add(types, *pair)
        add("Stocked Moved", *pair, match=Match.CONTAINS)
        add("*", *pair, match=Match.CONTAINS)
    add("Moved", *pairs[0], "pallet_id:q")
    add("Placed", order[0], customer[0])
    add("Placed", order[0], customer[0], match=Match.CONTAINS)
    add("*", customer[1], match=Match.CONTAINS)
    add("Placed Opened", order[1], customer[1], match=Match.CONTAINS)
    return {str(clause): clause for clause in clauses}


FACTS = _facts()
CLAUSES = _clauses()
UNKNOWN_CLAUSES = {
    str(clause): clause
    for clause in (
        Clause(frozenset({"Vanished"}), frozenset({"order_id:1"})),
        Clause(frozenset({"Opened"}), frozenset({"nobody_id:1"})),
    )
}
