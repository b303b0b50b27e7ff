"""From facts to the writes of one commit: rows stepped, follow-ups appended, versions pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.errors import (
    ConditionFailed,
    LimitExceeded,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.collections import Writers
from tidegate.kernel.folds import Fold, Folds, WorkRow, step_row
from tidegate.kernel.model import (
    ABSENT,
    COST_MAX,
    FACTS_MAX,
    Check,
    Commit,
    CommitKey,
    Delete,
    Fact,
    Key,
    Meta,
    Position,
    Put,
    Record,
    Write,
    at_most,
    facts_max,
    slot_bytes,
    slots,
)
from tidegate.kernel.slices import Slice

FOLLOW_UPS_MAX = 64  # per fact that was decided or reported

Rows = dict[Key, tuple[Position, Any]]  # decoded, with their versions; (ABSENT, None): no row


class PackFull(LimitExceeded):
    """The commit has no room left for this call; in the next one there is."""


class _Row(Struct):
    """A row while a commit is being built."""

    version: Position  # as stored; ABSENT if there is none
    value: Any
    fact: int | None = None  # the last fact that changed it; None: only read
    born: int | None = None  # the fact that made it in this commit; None: an earlier commit did
    intended: bool = False  # made for a worker; no fold steps it

    @property
    def stored(self) -> bool:
        return self.version != ABSENT

    def settled(self, first: Position) -> Position:
        """Its version once the commit landed at ``first``."""
        if self.value is None:
            return ABSENT
        return self.version if self.fact is None else first + self.fact


class _Call(Struct):
    """One call on an unfolding: where it began, to return there, and what it touched.

    As a block: all that is added inside stays, or, if an error leaves the block, none of it.
    """

    builder: CommitBuilder
    facts: int
    loaded: int
    indexes: int
    row_cost: int
    slot_bytes: int
    rows: dict[Key, _Row]  # as they were before they changed
    filed: set[str]  # the indexes that its facts are written under
    meta: Meta | None  # of its facts; None: the commit's
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
    """The facts of one commit and the rows that they step, all or nothing per call.

    Rows are read through ``get``, or taken from ``known`` as an earlier commit left them: the
    versions guard both alike. With a ``pack_cost_max`` the calls of several callers share the
    commit: each may cost ``COST_MAX``, as if it were alone, and all of them that much.
    """

    folds: Folds
    get: Callable[..., tuple[Record | None, ...]]
    known: Rows = field(default_factory=dict)
    pack_cost_max: int | None = None
    facts: list[Fact] = field(default_factory=list)
    # The rows that the last call looked at, with their versions in the store; kept if it failed.
    looked: dict[Key, Position] = field(default_factory=dict)
    _fetched: set[Key] = field(default_factory=set)
    _rows: dict[Key, _Row] = field(default_factory=dict)
    _loaded: list[Key] = field(default_factory=list)  # the keys of _rows in the order they came
    _indexes: dict[str, None] = field(default_factory=dict)  # written by the facts, in order
    _row_cost: int = 0
    _slot_bytes: int = 0  # of the facts

    # ── rows in ──

    def fetch(self, keys: Iterable[Key]) -> None:
        """Read the rows that are not known yet, in one go."""
        rows, known = self._rows, self.known
        unread = [key for key in keys if key not in rows and key not in known]
        if unread:
            unread = list(dict.fromkeys(unread))
            for key, record in zip(unread, self.get(*unread), strict=True):
                known[key] = self._decoded(key, record)
            self._fetched.update(unread)

    def row(self, key: Key) -> Any:
        """The row as the facts added so far leave it, None where there is none. The commit will
        demand that it did not move.
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

    def demand_current(self, looked: Mapping[Key, Position]) -> None:
        """That rows which the commit does not guard are as they were when they became known.

        What was fetched here is fresh already.

        Raises:
            VersionConflict: one has moved.
        """
        doubtful = [k for k in looked if k not in self._fetched and k not in self._rows]
        records = self.get(*doubtful) if doubtful else ()
        for key, record in zip(doubtful, records, strict=True):
            found = ABSENT if record is None else record.version
            if found != looked[key]:
                raise VersionConflict(key.collection, key.id, looked[key], found)

    def _load(self, key: Key, row: _Row) -> None:
        self._rows[key] = row
        self._loaded.append(key)
        self._row_cost += self.folds.row_costs[key.collection]

    def _decoded(self, key: Key, record: Record | None) -> tuple[Position, Any]:
        if record is None:
            return ABSENT, None
        model = self.folds.schema.collection(key.collection).model
        return record.version, codec.decode(record.data, model)

    # ── facts in ──

    def decide(
        self,
        item: Slice,
        command: Struct,
        at: datetime,
        meta: Meta | None = None,
        keys: tuple[Key, ...] | None = None,
    ) -> tuple[tuple[Struct, ...], bytes]:
        """Let a slice that starts from rows decide on them, and add its facts; they and its answer.

        ``meta`` is told where somebody else than the commit's caused them, ``keys`` where it is
        known already on which rows the slice decides.

        Raises:
            Refused: by the slice or by a fold; then nothing of this call is kept.
            PackFull: there is no room for it among the calls before it.
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
        """Append facts and all that follows from them.

        Raises:
            Refused: some fold does not accept a fact; then nothing of this call is kept.
            PackFull: there is no room for it among the calls before it.
        """
        with self._whole() as call:
            for value in values:
                self._unfold(value, at, call)

    def spend(self, keys: Iterable[Key]) -> None:
        """Remove kept rows that were read, a lease for one, in the commit of the facts."""
        with self._whole() as call:
            for key in keys:
                collection = self.folds.schema.collection(key.collection)
                assert collection.writers is Writers.KEPT, f"{key} is folded, not to be spent"
                if self.row(key) is not None:
                    self._change(key, None, call)

    def _whole(self, meta: Meta | None = None) -> _Call:
        """A block that is kept as a whole or not at all."""
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
        """Raises: LimitExceeded: the call alone is too large. PackFull: with those before it."""
        pack_cost_max = self.pack_cost_max
        if pack_cost_max is None:
            return
        facts = slots(self._slot_bytes - call.slot_bytes) + 2 * len(call.filed)
        costs = self.folds.row_costs
        if facts + self.folds.row_cost_max * len(self.looked) + call.intended_cost > COST_MAX:
            rows = sum([costs[key.collection] for key in self.looked])
            at_most("storage items of a report", facts + rows + call.intended_cost, COST_MAX)
        at_most("facts of a report", len(self.facts) - call.facts, FACTS_MAX)
        if not call.facts:
            return
        if (cost := self.cost()) > pack_cost_max:
            raise PackFull("storage items of a pack", cost, pack_cost_max)
        if len(self.facts) > facts_max(pack_cost_max):
            raise PackFull("facts of a pack", len(self.facts), facts_max(pack_cost_max))

    def undo(self, call: _Call) -> None:
        """Return to where the call began."""
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
        waiting = [value]  # the next one stands last
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
                raise LimitExceeded("follow-ups of a fact", follow_ups, FOLLOW_UPS_MAX)
            waiting += reversed(caused)

    def _append(self, value: Struct, call: _Call) -> None:
        vocabulary = self.folds.vocabulary
        fact = vocabulary.fact(value, call.meta)
        self.facts.append(fact)
        self._slot_bytes += slot_bytes(fact)
        for index in vocabulary.indexes(fact):
            self._indexes.setdefault(index)
            call.filed.add(index)

    def _step(
        self, fold: Fold, key: Key, value: Struct, at: datetime, call: _Call
    ) -> Sequence[Struct]:
        old = self.row(key)
        new, effects = step_row(fold, key.id, old, value, at)
        if new is not old and new != old:
            self._change(key, new, call)
        if not effects:
            return ()
        caused = []
        for effect in effects:
            if isinstance(effect, WorkRow):
                self._intend(effect, call)
            else:
                caused.append(effect)
        return caused

    def _change(self, key: Key, value: Any, call: _Call) -> None:
        row = self._rows[key]
        call.rows.setdefault(key, row)
        fact = len(self.facts) - 1
        born = fact if row.value is None else row.born
        self._rows[key] = _Row(row.version, value, fact, born, row.intended)

    def _intend(self, intent: WorkRow, call: _Call) -> None:
        key = intent.key
        collection = self.folds.schema.collection(key.collection)
        assert collection.writers is Writers.KEPT, f"{key} is written by its fold, not by intents"
        if key not in self._rows:
            self._load(key, _Row(ABSENT, None))
        if self._rows[key].value is not None:
            raise ConditionFailed(f"{key} exists already", collection=key.collection, id=key.id)
        call.intended_cost += self.folds.row_costs[key.collection]
        self._change(key, intent.row, call)
        self._rows[key].intended = True

    # ── the commit out ──

    def writes(self) -> tuple[Write, ...]:
        """The rows that changed, and a check of those that were only looked at: a step that left
        its row alone decided on it too.
        """
        writes: list[Write] = []
        for key, row in self._rows.items():
            if row.fact is None or (row.value is None and not row.stored):
                writes.append(Check(key, row.version))
            elif row.value is None:
                writes.append(Delete(key, row.version, row.fact))
            else:
                data = codec.encode(row.value)
                writes.append(Put(key, data, row.version, row.fact, row.born))
        return tuple(writes)

    def pins(self) -> tuple[Check, ...]:
        """Checks of all that the last call and what stands here looked at, to prove a refusal."""
        stored = {key: row.version for key, row in self._rows.items()} | self.looked
        return tuple(Check(key, version) for key, version in stored.items())

    def intends(self, key: Key) -> bool:
        """Whether the commit makes this row for a worker."""
        row = self._rows.get(key)
        return row is not None and row.intended

    def cost(self) -> int:
        """At most this many storage items (``Schema.cost``), known at once at any moment."""
        return slots(self._slot_bytes) + 2 * len(self._indexes) + self._row_cost

    def commit(self, basis: Commit, once: CommitKey | None = None) -> Commit:
        """The facts and rows as one commit on the basis of what was read to decide them."""
        return Commit(
            basis.at, basis.meta, tuple(self.facts), basis.boundaries, self.writes(), once
        )

    def settled(self, first: Position) -> Rows:
        """The rows as they are after the commit landed at ``first``, for the next ``known``."""
        return {key: (row.settled(first), row.value) for key, row in self._rows.items()}
