"""A slice: one command, what it reads, and how it decides. ``control.runtime`` runs it.

    command ──▶ query (derived) ──▶ read ──▶ evolve … evolve ──▶ decide ──▶ facts, or a refusal

A slice starts either from a query over facts (``reads``, ``start``, ``evolve``) or from rows
(``rows``), never from both. So its boundary is exactly what it read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.errors import InvalidDefinition
from tidegate.kernel.model import Key, Position


@dataclass(frozen=True, slots=True)
class Slice:
    """How one kind of command becomes facts.

    ``decide`` returns facts or raises a ``Refused``. If it returns none, nothing is committed. It
    is pure, because it may run several times for one command.
    """

    name: str
    command: type[Struct]
    writes: tuple[type[Struct], ...]
    decide: Callable[[Any, Any, datetime], Sequence[Struct]]

    # From facts: the state is folded from the events that match the command's query.
    reads: tuple[type[Struct], ...] = ()
    start: Callable[[Any], Any] | None = None
    evolve: Callable[[Any, Any], Any] | None = None

    # From rows: the state is the tuple of decoded rows, None where a row is absent.
    rows: Callable[[Any], tuple[Key, ...]] | None = None

    # From rows: the versions that the client saw. If a row has another version, the runtime raises
    # StaleVersion before it decides.
    expects: Callable[[Any], dict[Key, Position]] | None = None

    # From rows: the kept rows among them, such as a lease, that the commit of the facts deletes.
    spends: Callable[[Any], tuple[Key, ...]] | None = None

    # The answer for the caller, from the decided facts; stored with the idempotency key.
    answer: Callable[[Sequence[Any]], bytes] = lambda facts: b""

    # Whether a refusal is checked against the current state before the caller gets it.
    certify: bool = False

    def __post_init__(self) -> None:
        folded = self.start is not None and self.evolve is not None and bool(self.reads)
        if self.rows is None and (self.expects or self.spends):
            raise InvalidDefinition(f"slice {self.name} expects or spends rows, but reads none")
        if folded == (self.rows is not None):
            raise InvalidDefinition(
                f"slice {self.name} must start from facts (reads, start, evolve) or from rows, "
                "one of the two"
            )


class Alongside(Struct, frozen=True):
    """A command that is decided before another one and committed together with it."""

    item: Slice
    command: Struct


class CommandPair(Struct, frozen=True):
    first: Any
    second: Any


def put_together(first: Slice, second: Slice) -> Slice:
    """Make one slice of two that start from rows.

    It returns the facts of both, or raises the refusal of one. Its name and answer are those of
    the second.
    """
    rows_of_first, rows_of_second = first.rows, second.rows
    if rows_of_first is None or rows_of_second is None:
        raise InvalidDefinition(f"{first.name} and {second.name} do not both start from rows")

    def rows(pair: CommandPair) -> tuple[Key, ...]:
        return *rows_of_first(pair.first), *rows_of_second(pair.second)

    def expects(pair: CommandPair) -> dict[Key, Position]:
        found = {} if first.expects is None else first.expects(pair.first)
        return found | ({} if second.expects is None else second.expects(pair.second))

    def spends(pair: CommandPair) -> tuple[Key, ...]:
        spent = () if first.spends is None else first.spends(pair.first)
        return *spent, *(() if second.spends is None else second.spends(pair.second))

    def decide(state: tuple[Any, ...], pair: CommandPair, now: datetime) -> Sequence[Struct]:
        split = len(rows_of_first(pair.first))
        before = first.decide(state[:split], pair.first, now)
        return *before, *second.decide(state[split:], pair.second, now)

    return Slice(
        name=second.name,
        command=CommandPair,
        writes=(*first.writes, *second.writes),
        rows=rows,
        expects=expects,
        spends=spends,
        decide=decide,
        answer=second.answer,
        certify=first.certify or second.certify,
    )


def join(first: Alongside | None, second: Alongside) -> Alongside:
    """Join two commands into one that can be committed along with a third."""
    if first is None:
        return second
    item = put_together(first.item, second.item)
    return Alongside(item, CommandPair(first.command, second.command))
