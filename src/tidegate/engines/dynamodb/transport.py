"""The interface between this engine and DynamoDB: five calls on one table, and their outcomes.

    get         items by key, strongly consistent, optionally all as of one moment
    query       one page of a partition in order, strongly consistent
    increment   the next number of a counter, if its item fulfils a condition
    put_absent  a put where there is no item yet
    transact    several actions, all or nothing

and the service's clock, from its last response.

The engine above uses plain items and structured actions; expressions, attribute types and error
codes stay below. Nothing is retried here, because only the engine knows what is safe to send twice.
Tests replace this interface by one with faults, or by a table that shows a transaction's items one
by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from tidegate.errors import StoreRefused

Value = str | int | bytes
Item = dict[str, Value]

PK: Final = "pk"
SK: Final = "sk"
EXPIRES: Final = "expires"  # the attribute with the time after which the service deletes the item
ITEMS_MAX = 100  # of one transaction, of one atomic get and of one batch get
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024


class ItemKey(NamedTuple):
    """The primary key of an item."""

    pk: str
    sk: str


def key_of_item(item: Mapping[str, Value]) -> ItemKey:
    pk, sk = item[PK], item[SK]
    assert isinstance(pk, str)
    assert isinstance(sk, str)
    return ItemKey(pk, sk)


# ── actions of a transaction ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AddItem:
    """Put an item. The transaction fails if there is one already."""

    item: Item

    @property
    def place(self) -> ItemKey:
        return key_of_item(self.item)


@dataclass(frozen=True, slots=True)
class ReplaceItem:
    """Put an item, over an existing one if there is one."""

    item: Item

    @property
    def place(self) -> ItemKey:
        return key_of_item(self.item)


@dataclass(frozen=True, slots=True)
class RemoveItem:
    """Delete an item, which may be absent."""

    place: ItemKey


@dataclass(frozen=True, slots=True)
class UpdateItem:
    """Change or create an item if its attributes fulfil a condition.

    ``equal`` maps attributes to the values that they must have; None: the attribute must be absent.
    ``below`` maps attributes to bounds: each must be absent or smaller.
    """

    place: ItemKey
    equal: Mapping[str, Value | None] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    sets: Mapping[str, Value] = field(default_factory=dict)
    adds: Mapping[str, int] = field(default_factory=dict)
    removes: Sequence[str] = ()


Action = AddItem | ReplaceItem | RemoveItem | UpdateItem


# ── outcomes of a call ────────────────────────────────────────────────────────────────────────────

FAILED: Final = "ConditionalCheckFailed"
CONTENDED: Final = frozenset(
    {"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}
)


class CancellationReason(NamedTuple):
    """Why one action made a transaction fail: a code, and the item that was found.

    No code does not prove that the action would succeed: the service may omit reasons.
    """

    code: str | None
    item: Item


class Busy(Exception):
    """The call was throttled, met contention, or was never sent. Nothing was applied."""


class AnswerLost(Exception):
    """There is no reliable response: the call may have been applied, or may still be."""


class Cancelled(Exception):
    """The whole transaction failed. Reasons are in the order of the actions; some may be empty."""

    def __init__(self, reasons: Sequence[CancellationReason]) -> None:
        super().__init__(", ".join(str(reason.code) for reason in reasons))
        self.reasons = tuple(reasons)


class ItemPage(NamedTuple):
    """One page of a query; ``next`` is the start of the next page, None at the end."""

    items: list[Item]
    next: str | None


class Transport(Protocol):
    """One table. Calls may raise Busy, AnswerLost or StoreRefused; ``transact`` also Cancelled."""

    def get(self, places: Sequence[ItemKey], *, together: bool = False) -> dict[ItemKey, Item]:
        """The existing items; with ``together`` as of one moment, serialized with transactions."""
        ...

    def query(
        self,
        pk: str,
        *,
        low: str | None = None,
        high: str | None = None,
        start: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> ItemPage:
        """Items of a partition with ``low`` ≤ sk ≤ ``high``, after ``start``, in sort-key order."""
        ...

    def increment(
        self, place: ItemKey, attribute: str, equal: Mapping[str, Value | None]
    ) -> int | None:
        """The value after adding 1; None if the item does not fulfil ``equal`` (``UpdateItem``)."""
        ...

    def put_absent(self, item: Item) -> Item | None:
        """Put the item if there is none, and return None; else return the existing one."""
        ...

    def transact(self, actions: Sequence[Action], token: str) -> None:
        """Apply all actions or none. The service applies one token only once."""
        ...

    def now(self) -> float:
        """The service's clock in seconds since 1970. The service deletes expired items by it."""
        ...

    def close(self) -> None: ...


def overwrite(transport: Transport, actions: Sequence[Action], token: str) -> None:
    """Send actions without conditions, except for one on the era. This is safe to repeat.

    Raises:
        StoreRefused: the era has changed. Busy: contention.
    """
    try:
        transport.transact(actions, token)
    except Cancelled as contention:
        if any(reason.code == FAILED for reason in contention.reasons):
            raise in_another_era() from contention
        raise Busy(str(contention)) from contention


def in_another_era() -> StoreRefused:
    """Make the refusal for a process whose cached rows may be from before a rebuild."""
    return StoreRefused("the rows of the log were rebuilt since it was opened; start again")
