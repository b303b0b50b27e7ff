"""Rows as folds of facts: stepped in the commit that appends the fact, provable by replay.

    fact ──▶ fold ──▶ row                       written in the same commit, stamped with the fact
    fact ──▶ machine ──▶ row + effects          effects: follow-up facts, or intents for a worker
                              └─▶ follow-up facts are appended right behind their cause and fed
                                  to every fold in turn, until none is left

Follow-ups stand directly behind the fact that caused them, so replay can check them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate import errors
from tidegate.kernel import model, store, vocabulary
from tidegate.kernel.collections import Collection, Writers


class WorkRow(Struct, frozen=True):
    """Work for a worker: a row of a kept collection, created in the same commit."""

    key: model.Key
    row: Struct


@dataclass(frozen=True, slots=True)
class Fold:
    """How facts become the rows of one collection.

    ``ids`` names the rows that a fact touches, ``start`` is a row before its first fact, ``step``
    the row after a fact (None: it is deleted). All are pure. A new ``number`` rebuilds the rows.
    """

    collection: Collection
    number: int
    reads: tuple[type[Struct], ...]
    ids: Callable[[Any], tuple[str, ...]]
    start: Callable[[str, Any], Any]
    step: Callable[[Any, Any, datetime], Any]


@dataclass(frozen=True, slots=True)
class Machine(Fold):
    """A fold whose ``step`` returns ``(row, effects)``; an effect is a fact or an ``WorkRow``."""


class Folds:
    """The folds of a log, by the fact types that they read.

    Raises:
        InvalidDefinition: a collection with two folds or none that may write it, unknown facts.
    """

    def __init__(self, schema: store.Schema, folds: Sequence[Fold]) -> None:
        self.schema = schema
        self.vocabulary: vocabulary.Vocabulary = schema.vocabulary
        self.folds = tuple(folds)
        # What a row costs at most when it is written: itself, and its entries before and after.
        self.row_costs = {
            name: 1 + 2 * len(item.indexes) for name, item in schema.collections.items()
        }
        self.row_cost_max = max(self.row_costs.values())
        self._by_type: dict[str, tuple[Fold, ...]] = {}
        written: set[str] = set()
        for fold in self.folds:
            name = fold.collection.name
            if schema.collections.get(name) is not fold.collection:
                raise errors.InvalidDefinition(
                    f"the fold of {name} writes a collection unknown here"
                )
            if fold.collection.writers is not Writers.FOLDED:
                raise errors.InvalidDefinition(f"{name} is kept, so no fold may write it")
            if name in written:
                raise errors.InvalidDefinition(f"{name} has two folds; one is its only writer")
            written.add(name)
            for struct in fold.reads:
                if struct.__name__ not in self.vocabulary.types:
                    raise errors.InvalidDefinition(f"the fold of {name} reads {struct.__name__}")
                known = self._by_type.get(struct.__name__, ())
                self._by_type[struct.__name__] = (*known, fold)
        unwritten = {
            name for name, item in schema.collections.items() if item.writers is Writers.FOLDED
        } - written
        if unwritten:
            raise errors.InvalidDefinition(f"no fold writes {sorted(unwritten)}")

    def of(self, fact_type: str) -> tuple[Fold, ...]:
        """The folds that read facts of this type, in their order."""
        return self._by_type.get(fact_type, ())

    def steps(self, value: Struct) -> list[tuple[Fold, model.Key]]:
        """The folds that this fact goes through, each with a row that it steps, in their order."""
        return [
            (fold, model.Key(fold.collection.name, id))
            for fold in self._by_type.get(type(value).__name__, ())
            for id in fold.ids(value)
        ]

    def keys(self, value: Struct) -> tuple[model.Key, ...]:
        """The rows that this fact steps, apart from those of its follow-ups."""
        return tuple([key for _, key in self.steps(value)])


def step_row(fold: Fold, id: str, row: Any, value: Any, at: datetime) -> tuple[Any, Sequence[Any]]:
    """The row after the fact, and the effects. Raises: Refused."""
    if row is None:
        row = fold.start(id, value)
    if isinstance(fold, Machine):
        return fold.step(row, value, at)  # type: ignore[no-any-return]
    return fold.step(row, value, at), ()
