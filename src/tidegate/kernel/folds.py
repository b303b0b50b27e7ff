"""Rows computed from facts, in the same commit. A replay of the log gives the same rows.

    fact ──▶ fold ──▶ row                       written in the same commit, stamped with the fact
    fact ──▶ machine ──▶ row + effects          effects: follow-up facts, or rows for a worker
                              └─▶ follow-up facts are appended right after their cause and passed
                                  to every fold in turn, until there are none

Follow-ups come directly after the fact that caused them, so a replay can check them one by one.
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
    """An effect that creates a row for a worker in the same commit, in a kept collection."""

    key: model.Key
    row: Struct


@dataclass(frozen=True, slots=True)
class Fold:
    """How facts become the rows of one collection.

    ``ids`` names the rows that a fact changes. ``start`` returns a row before its first fact.
    ``step`` returns the row after a fact, or None to delete it. All three are pure, because a
    replay calls them again. Increase ``number`` when their results change: the next start then
    rebuilds the rows.
    """

    collection: Collection
    number: int
    reads: tuple[type[Struct], ...]
    ids: Callable[[Any], tuple[str, ...]]
    start: Callable[[str, Any], Any]
    step: Callable[[Any, Any, datetime], Any]


@dataclass(frozen=True, slots=True)
class Machine(Fold):
    """A fold whose ``step`` returns ``(row, effects)``; an effect is a fact or a ``WorkRow``."""


class Folds:
    """The folds of a log, by the fact types that they read.

    Raises:
        InvalidDefinition: a folded collection has no fold or two, a fold writes a collection that
            is kept or unknown, or it reads an unknown fact.
    """

    def __init__(self, schema: store.Schema, folds: Sequence[Fold]) -> None:
        self.schema = schema
        self.vocabulary: vocabulary.Vocabulary = schema.vocabulary
        self.folds = tuple(folds)
        # The highest cost of writing a row: the row, and its old and new index entries.
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
        """The folds that read facts of this type, in the order of their declaration."""
        return self._by_type.get(fact_type, ())

    def steps(self, value: Struct) -> list[tuple[Fold, model.Key]]:
        """The folds that read this fact, each with a row that it changes, in order."""
        return [
            (fold, model.Key(fold.collection.name, id))
            for fold in self._by_type.get(type(value).__name__, ())
            for id in fold.ids(value)
        ]

    def keys(self, value: Struct) -> tuple[model.Key, ...]:
        """The rows that this fact changes, without those of its follow-ups."""
        return tuple([key for _, key in self.steps(value)])


def step_row(fold: Fold, id: str, row: Any, value: Any, at: datetime) -> tuple[Any, Sequence[Any]]:
    """Return the row after the fact, and the effects. Raises: Refused."""
    if row is None:
        row = fold.start(id, value)
    if isinstance(fold, Machine):
        return fold.step(row, value, at)  # type: ignore[no-any-return]
    return fold.step(row, value, at), ()
