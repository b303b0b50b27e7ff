"""A slice: one command, what it reads, and how it decides. A value, run by ``control.runtime``.

    command ──▶ query (derived) ──▶ read ──▶ evolve … evolve ──▶ decide ──▶ facts, or a refusal

A slice starts either from a query over facts (``reads``, ``start``, ``evolve``) or from rows
(``rows``), never from both: its boundary is then exactly what it read.
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

    ``decide`` returns facts (none: nothing changes, nothing is committed) or raises a ``Refused``.
    It is pure: it may run several times for one command.
    """

    name: str
    command: type[Struct]
    writes: tuple[type[Struct], ...]
    decide: Callable[[Any, Any, datetime], Sequence[Struct]]

    # From facts: a state folded from the events that the command's own query finds.
    reads: tuple[type[Struct], ...] = ()
    start: Callable[[Any], Any] | None = None
    evolve: Callable[[Any, Any], Any] | None = None

    # From rows: the state is the tuple of decoded rows, None where a row is absent.
    rows: Callable[[Any], tuple[Key, ...]] | None = None

    # From rows: the versions that the client saw; another one is a StaleVersion before deciding.
    expects: Callable[[Any], dict[Key, Position]] | None = None

    # From rows: kept rows among them, such as a lease, that the decided facts use up.
    spends: Callable[[Any], tuple[Key, ...]] | None = None

    # What the caller is told, from the decided facts; stored with the idempotency key.
    answer: Callable[[Sequence[Any]], bytes] = lambda facts: b""

    # Whether a refusal is checked against the current state before it is believed.
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
