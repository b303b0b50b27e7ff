"""Builds one commit from facts: it steps rows, appends follow-ups and adds version checks.

fact ──▶ append ──▶ step each row that reads it ──▶ follow-up facts ──▶ append …, until none
                          └─▶ a changed row becomes a write, guarded by the version read
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate import errors
from tidegate.kernel import codec, folds as kernel_folds, model as kernel_model, slices
from tidegate.kernel.collections import Writers

FOLLOW_UPS_MAX = 64  # per fact that was decided or reported

Rows = dict[
    kernel_model.Key, tuple[kernel_model.Position, Any]
]  # version and decoded value; (ABSENT, None) where there is no row


class PackFull(errors.LimitExceeded):
    """The commit has no room for this call any more; the next commit will have."""


class _Row(Struct):
    """A row while a commit is being built."""

    version: kernel_model.Position  # as stored; ABSENT if there is none
    value: Any
    fact: int | None = None  # the last fact that changed it; None: it was only read
    born: int | None = None  # the fact that created it; None: an earlier commit did
    intended: bool = False  # created for a worker by a ``WorkRow``; no fold steps it

    @property
    def stored(self) -> bool:
        return self.version != kernel_model.ABSENT

    def settled(self, first: kernel_model.Position) -> kernel_model.Position:
        """The row's version after the commit was applied at ``first``."""
        if self.value is None:
            return kernel_model.ABSENT
        return self.version if self.fact is None else first + self.fact


class _Call(Struct):
    """One call on a builder: its state before the call, to undo it, and what the call changed.

    It is a context manager: if the block raises, everything that it added is removed again.
    """

    builder: CommitBuilder
    facts: int
    loaded: int
    indexes: int
    row_cost: int
    slot_bytes: int
    rows: dict[kernel_model.Key, _Row]  # the changed rows, as they were before the call
    filed: set[str]  # the index names of its facts
    meta: kernel_model.Meta | None  # of its facts; None: the commit's
    intended_cost: int = 0

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.builder.undo(self)
            return
        try:
            self.builder.demand_room(self)
        except BaseException:
            self.builder.undo(self)
            raise


@dataclass(slots=True)
class CommitBuilder:
    """The facts of one commit and the rows that they change. Each call is all or nothing.

    Rows are read with ``get``, or taken from ``known``, where they are as an earlier commit left
    them. That is safe, because the commit checks the version of either. With a ``pack_cost_max``,
    several callers share the commit: each call may cost ``COST_MAX``, as if it were alone, and all
    calls together ``pack_cost_max``.
    """

    folds: kernel_folds.Folds
    get: Callable[..., tuple[kernel_model.Record | None, ...]]
    known: Rows = field(default_factory=dict)
    pack_cost_max: int | None = None
    facts: list[kernel_model.Fact] = field(default_factory=list)
    # The rows that the last call read, with their versions in the store. A failed call keeps them,
    # because ``pins`` needs them to prove a refusal.
    looked: dict[kernel_model.Key, kernel_model.Position] = field(default_factory=dict)
    _fetched: set[kernel_model.Key] = field(default_factory=set)
    _rows: dict[kernel_model.Key, _Row] = field(default_factory=dict)
    _loaded: list[kernel_model.Key] = field(
        default_factory=list
    )  # the keys of _rows in the order in which they were loaded
    _indexes: dict[str, None] = field(default_factory=dict)  # the facts' index names, in order
    _row_cost: int = 0
    _slot_bytes: int = 0  # of the facts

    # ── reading rows ──

    def fetch(self, keys: Iterable[kernel_model.Key]) -> None:
        """Read the rows that are not known yet, in one read."""
        rows, known = self._rows, self.known
        unread = [key for key in keys if key not in rows and key not in known]
        if unread:
            unread = list(dict.fromkeys(unread))
            for key, record in zip(unread, self.get(*unread), strict=True):
                known[key] = self._decoded(key, record)
            self._fetched.update(unread)

    def row(self, key: kernel_model.Key) -> Any:
        """The row after the facts added so far; None if there is none.

        The commit will check that the row has not changed in the store since it was read.
        """
        row = self._rows.get(key)
        if row is None:
            known = self.known.get(key)
            if known is None:
                self.fetch((key,))
                known = self.known[key]
            row = _Row(*known)
            self._load(key, row)
        self.looked[key] = row.version
        return row.value

    def demand_current(self, looked: Mapping[kernel_model.Key, kernel_model.Position]) -> None:
        """Check that rows which the commit does not guard are still current.

        Rows that this builder has read itself need no check.

        Raises:
            VersionConflict: a row has changed.
        """
        doubtful = [k for k in looked if k not in self._fetched and k not in self._rows]
        records = self.get(*doubtful) if doubtful else ()
        for key, record in zip(doubtful, records, strict=True):
            found = kernel_model.ABSENT if record is None else record.version
            if found != looked[key]:
                raise errors.VersionConflict(key.collection, key.id, looked[key], found)

    def _load(self, key: kernel_model.Key, row: _Row) -> None:
        self._rows[key] = row
        self._loaded.append(key)
        self._row_cost += self.folds.row_costs[key.collection]

    def _decoded(
        self, key: kernel_model.Key, record: kernel_model.Record | None
    ) -> tuple[kernel_model.Position, Any]:
        if record is None:
            return kernel_model.ABSENT, None
        model = self.folds.schema.collection(key.collection).model
        return record.version, codec.decode(record.data, model)

    # ── adding facts ──

    def decide(
        self,
        item: slices.Slice,
        command: Struct,
        at: datetime,
        meta: kernel_model.Meta | None = None,
        keys: tuple[kernel_model.Key, ...] | None = None,
    ) -> tuple[tuple[Struct, ...], bytes]:
        """Let a slice that starts from rows decide, add its facts, and return them and its answer.

        Pass ``meta`` if the facts have another actor than the commit, and ``keys`` if the keys of
        the slice's rows are known already.

        Raises:
            Refused: by the slice or by a fold; nothing of this call is kept.
            PackFull: there is no room for it after the calls before it.
        """
        assert item.rows is not None
        with self._whole(meta) as call:
            rows = tuple([self.row(key) for key in keys or item.rows(command)])
            values = tuple(item.decide(rows, command, at))
            for value in values:
                self._unfold(value, at, call)
            answer = item.answer(values)
            if not values:
                self.undo(call)
        return values, answer

    def add(self, values: Sequence[Struct], at: datetime) -> None:
        """Append facts with all their follow-ups.

        Raises:
            Refused: a fold does not accept a fact; nothing of this call is kept.
            PackFull: there is no room for it after the calls before it.
        """
        with self._whole() as call:
            for value in values:
                self._unfold(value, at, call)

    def spend(self, keys: Iterable[kernel_model.Key]) -> None:
        """Delete kept rows that were read, such as a lease, in the commit of the facts."""
        with self._whole() as call:
            for key in keys:
                collection = self.folds.schema.collection(key.collection)
                assert collection.writers is Writers.KEPT, f"{key} is folded, not to be spent"
                if self.row(key) is not None:
                    self._change(key, None, call)

    def _whole(self, meta: kernel_model.Meta | None = None) -> _Call:
        """Begin a call: a block whose changes are kept as a whole or not at all."""
        self.looked = {}
        return _Call(
            self,
            len(self.facts),
            len(self._loaded),
            len(self._indexes),
            self._row_cost,
            self._slot_bytes,
            {},
            set(),
            meta,
        )

    def demand_room(self, call: _Call) -> None:
        """Check the limits of the call and of the pack.

        Raises:
            LimitExceeded: the call alone is too large.
            PackFull: it is too large together with the calls before it.
        """
        pack_cost_max = self.pack_cost_max
        if pack_cost_max is None:
            return
        facts = kernel_model.slots(self._slot_bytes - call.slot_bytes) + 2 * len(call.filed)
        costs = self.folds.row_costs
        if (
            facts + self.folds.row_cost_max * len(self.looked) + call.intended_cost
            > kernel_model.COST_MAX
        ):
            rows = sum([costs[key.collection] for key in self.looked])
            kernel_model.at_most(
                "storage items of a report",
                facts + rows + call.intended_cost,
                kernel_model.COST_MAX,
            )
        kernel_model.at_most(
            "facts of a report", len(self.facts) - call.facts, kernel_model.FACTS_MAX
        )
        if not call.facts:
            return
        if (cost := self.cost()) > pack_cost_max:
            raise PackFull("storage items of a pack", cost, pack_cost_max)
        if len(self.facts) > kernel_model.facts_max(pack_cost_max):
            raise PackFull(
                "facts of a pack", len(self.facts), kernel_model.facts_max(pack_cost_max)
            )

    def undo(self, call: _Call) -> None:
        """Remove everything that the call has added."""
        del self.facts[call.facts :]
        self._rows.update(call.rows)
        for key in self._loaded[call.loaded :]:
            del self._rows[key]
        del self._loaded[call.loaded :]
        while len(self._indexes) > call.indexes:
            self._indexes.popitem()
        self._row_cost = call.row_cost
        self._slot_bytes = call.slot_bytes

    def _unfold(self, value: Struct, at: datetime, call: _Call) -> None:
        """Append a fact, step its rows, and do the same with its follow-ups, depth first.

        A replay checks follow-ups in exactly this order.
        """
        waiting = [value]  # a stack: the next fact is the last one
        follow_ups = 0
        while waiting:
            value = waiting.pop()
            self._append(value, call)
            steps = self.folds.steps(value)
            self.fetch([key for _, key in steps])
            caused: list[Struct] = []
            for fold, key in steps:
                caused += self._step(fold, key, value, at, call)
            if not caused:
                continue
            follow_ups += len(caused)
            if follow_ups > FOLLOW_UPS_MAX:
                raise errors.LimitExceeded("follow-ups of a fact", follow_ups, FOLLOW_UPS_MAX)
            waiting += reversed(caused)

    def _append(self, value: Struct, call: _Call) -> None:
        vocabulary = self.folds.vocabulary
        fact = vocabulary.fact(value, call.meta)
        self.facts.append(fact)
        self._slot_bytes += kernel_model.slot_bytes(fact)
        for index in vocabulary.indexes(fact):
            self._indexes.setdefault(index)
            call.filed.add(index)

    def _step(
        self,
        fold: kernel_folds.Fold,
        key: kernel_model.Key,
        value: Struct,
        at: datetime,
        call: _Call,
    ) -> Sequence[Struct]:
        old = self.row(key)
        new, effects = kernel_folds.step_row(fold, key.id, old, value, at)
        if new is not old and new != old:
            self._change(key, new, call)
        if not effects:
            return ()
        caused = []
        for effect in effects:
            if isinstance(effect, kernel_folds.WorkRow):
                self._intend(effect, call)
            else:
                caused.append(effect)
        return caused

    def _change(self, key: kernel_model.Key, value: Any, call: _Call) -> None:
        row = self._rows[key]
        call.rows.setdefault(key, row)
        fact = len(self.facts) - 1
        born = fact if row.value is None else row.born
        self._rows[key] = _Row(row.version, value, fact, born, row.intended)

    def _intend(self, intent: kernel_folds.WorkRow, call: _Call) -> None:
        key = intent.key
        collection = self.folds.schema.collection(key.collection)
        assert collection.writers is Writers.KEPT, f"{key} is written by its fold, not by intents"
        if key not in self._rows:
            self._load(key, _Row(kernel_model.ABSENT, None))
        if self._rows[key].value is not None:
            raise errors.ConditionFailed(
                f"{key} exists already", collection=key.collection, id=key.id
            )
        call.intended_cost += self.folds.row_costs[key.collection]
        self._change(key, intent.row, call)
        self._rows[key].intended = True

    # ── building the commit ──

    def writes(self) -> tuple[kernel_model.Write, ...]:
        """Writes of the rows that changed, and checks of those that were only read.

        A row that a step left unchanged is checked too, because the step decided on it.
        """
        writes: list[kernel_model.Write] = []
        for key, row in self._rows.items():
            if row.fact is None or (row.value is None and not row.stored):
                writes.append(kernel_model.Check(key, row.version))
            elif row.value is None:
                writes.append(kernel_model.Delete(key, row.version, row.fact))
            else:
                data = codec.encode(row.value)
                writes.append(kernel_model.Put(key, data, row.version, row.fact, row.born))
        return tuple(writes)

    def pins(self) -> tuple[kernel_model.Check, ...]:
        """Checks of all rows that the last call and the kept calls read, to prove a refusal."""
        stored = {key: row.version for key, row in self._rows.items()} | self.looked
        return tuple(kernel_model.Check(key, version) for key, version in stored.items())

    def intends(self, key: kernel_model.Key) -> bool:
        """Whether the commit creates this row for a worker."""
        row = self._rows.get(key)
        return row is not None and row.intended

    def cost(self) -> int:
        """An upper bound of ``Schema.cost``, kept up to date with each call, so it is fast."""
        return kernel_model.slots(self._slot_bytes) + 2 * len(self._indexes) + self._row_cost

    def commit(
        self, basis: kernel_model.Commit, once: kernel_model.CommitKey | None = None
    ) -> kernel_model.Commit:
        """Make the commit. Its time, meta and boundaries are those of ``basis``."""
        return kernel_model.Commit(
            basis.at, basis.meta, tuple(self.facts), basis.boundaries, self.writes(), once
        )

    def settled(self, first: kernel_model.Position) -> Rows:
        """The rows after the commit was applied at ``first``, for the next builder's ``known``."""
        return {key: (row.settled(first), row.value) for key, row in self._rows.items()}
