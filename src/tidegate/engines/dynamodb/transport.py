"""The seam between this engine and DynamoDB: five calls on one table, and what can come of them.

    get         items by place, read strongly, on request as one atomic cut
    query       one page of a partition in order, read strongly
    increment   the next number of a counter, if it is as demanded
    put_absent  a put where there is nothing yet
    transact    several actions, all or nothing

and the service's clock, as its last answer told it.

The engine above speaks in plain items and structured actions; expressions, attribute types and
error codes end here. Nothing is retried here: the engine owns every retry, because only it knows
what may be sent twice. Tests put faults, or a table with torn visibility, behind this seam.
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
EXPIRES: Final = "expires"  # by which the service sweeps what is over
ITEMS_MAX = 100  # of one transaction, of one atomic cut and of one batch of gets
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024


class ItemKey(NamedTuple):
    """Where an item lies."""

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
    """Put an item where none may stand."""

    item: Item

    @property
    def place(self) -> ItemKey:
        return key_of_item(self.item)


@dataclass(frozen=True, slots=True)
class ReplaceItem:
    """Put an item, whatever is there."""

    item: Item

    @property
    def place(self) -> ItemKey:
        return key_of_item(self.item)


@dataclass(frozen=True, slots=True)
class RemoveItem:
    """Delete an item, if it is there."""

    place: ItemKey


@dataclass(frozen=True, slots=True)
class UpdateItem:
    """Change an item, or make it, if its attributes are as demanded.

    ``equal`` names attributes and the values that they must have; None: the attribute is absent.
    ``below`` names attributes that must be absent or smaller.
    """

    place: ItemKey
    equal: Mapping[str, Value | None] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    sets: Mapping[str, Value] = field(default_factory=dict)
    adds: Mapping[str, int] = field(default_factory=dict)
    removes: Sequence[str] = ()


Action = AddItem | ReplaceItem | RemoveItem | UpdateItem


# ── what can come of a call ───────────────────────────────────────────────────────────────────────

FAILED: Final = "ConditionalCheckFailed"
CONTENDED: Final = frozenset(
    {"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}
)


class CancellationReason(NamedTuple):
    """Why one action stood in a transaction's way: a code, and the item as it was found.

    No code: nothing is known to be wrong with this action, which proves nothing.
    """

    code: str | None
    item: Item


class Busy(Exception):
    """The call was not taken: throttled, in contention, or never sent. Nothing was applied."""


class AnswerLost(Exception):
    """No answer that can be believed: the call may have been applied, or may yet be."""


class Cancelled(Exception):
    """The transaction was refused as a whole. Reasons stand by position; some may be left out."""

    def __init__(self, reasons: Sequence[CancellationReason]) -> None:
        super().__init__(", ".join(str(reason.code) for reason in reasons))
        self.reasons = tuple(reasons)


class ItemPage(NamedTuple):
    """One page of a query; ``next`` is where to go on, None at the end."""

    items: list[Item]
    next: str | None


class Transport(Protocol):
    """One table. Every call may raise Busy, Lost or StoreRefused; ``transact`` also Cancelled."""

    def get(self, places: Sequence[ItemKey], *, together: bool = False) -> dict[ItemKey, Item]:
        """The items that stand there; ``together`` as of one moment, ordered with transactions."""
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
        """Items of a partition with ``low`` ≤ sk ≤ ``high``, in order or the other way round,
        after ``start``.
        """
        ...

    def increment(
        self, place: ItemKey, attribute: str, equal: Mapping[str, Value | None]
    ) -> int | None:
        """The value after adding 1; None: the item is not as demanded (as in ``UpdateItem``)."""
        ...

    def put_absent(self, item: Item) -> Item | None:
        """None if the item was put, else the one that is already there."""
        ...

    def transact(self, actions: Sequence[Action], token: str) -> None:
        """All or nothing; the service takes one token once."""
        ...

    def now(self) -> float:
        """The service's clock, in seconds since 1970: it sweeps what is over by that one."""
        ...

    def close(self) -> None: ...


def overwrite(transport: Transport, actions: Sequence[Action], token: str) -> None:
    """Actions that may be sent again: but for the era, none has a condition.

    Raises:
        StoreRefused: it is another era. Busy: contention.
    """
    try:
        transport.transact(actions, token)
    except Cancelled as contention:
        if any(reason.code == FAILED for reason in contention.reasons):
            raise in_another_era() from contention
        raise Busy(str(contention)) from contention


def in_another_era() -> StoreRefused:
    """What was read before somebody was alone with the log must not be written after it."""
    return StoreRefused("the rows of the log were rebuilt since it was opened; start again")
