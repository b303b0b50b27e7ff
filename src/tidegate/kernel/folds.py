"""Rows as folds of facts: stepped in the commit that appends the fact, provable by replay.

    fact ──▶ fold ──▶ row                       written in the same commit, stamped with the fact
    fact ──▶ machine ──▶ row + effects          effects: follow-up facts, or intents for a worker
                              └─▶ follow-up facts are appended right behind their cause and fed
                                  to every fold in turn, until none is left

Follow-ups stand directly behind the fact that caused them, so replay can check them one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.errors import InvalidDefinition, LimitExceeded, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.model import (
    ABSENT,
    Check,
    Commit,
    Delete,
    Event,
    Fact,
    Key,
    Once,
    Position,
    Put,
    Record,
    Write,
)
from tidegate.kernel.policy import Collection, Writers
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import FOLD_NUMBERS, FoldNumber, Schema, Store
from tidegate.kernel.tags import Vocabulary

FOLLOW_UPS_MAX = 64  # per fact that was decided or reported
PAGE = 1_000
VERIFY_ROUNDS_MAX = 10


class Intent(Struct, frozen=True):
    """Work for a worker: a row of a kept collection, created in the same commit."""

    key: Key
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
    """A fold whose ``step`` returns ``(row, effects)``; an effect is a fact or an ``Intent``."""


class Folds:
    """The folds of a log, by the fact types that they read.

    Raises:
        InvalidDefinition: a collection with two folds or none that may write it, unknown facts.
    """

    def __init__(self, schema: Schema, folds: Sequence[Fold]) -> None:
        self.schema = schema
        self.vocabulary: Vocabulary = schema.vocabulary
        self.folds = tuple(folds)
        self._by_type: dict[str, tuple[Fold, ...]] = {}
        written: set[str] = set()
        for fold in self.folds:
            name = fold.collection.name
            if schema.collections.get(name) is not fold.collection:
                raise InvalidDefinition(f"the fold of {name} writes a collection unknown here")
            if fold.collection.writers is not Writers.FOLDED:
                raise InvalidDefinition(f"{name} is kept, so no fold may write it")
            if name in written:
                raise InvalidDefinition(f"{name} has two folds; one is its only writer")
            written.add(name)
            for struct in fold.reads:
                if struct.__name__ not in self.vocabulary.types:
                    raise InvalidDefinition(f"the fold of {name} reads {struct.__name__}")
                known = self._by_type.get(struct.__name__, ())
                self._by_type[struct.__name__] = (*known, fold)
        unwritten = {
            name for name, item in schema.collections.items() if item.writers is Writers.FOLDED
        } - written
        if unwritten:
            raise InvalidDefinition(f"no fold writes {sorted(unwritten)}")

    def of(self, fact_type: str) -> tuple[Fold, ...]:
        """The folds that read facts of this type, in their order."""
        return self._by_type.get(fact_type, ())

    def keys(self, value: Struct) -> tuple[Key, ...]:
        """The rows that this fact steps, apart from those of its follow-ups."""
        return tuple(
            Key(fold.collection.name, id)
            for fold in self.of(type(value).__name__)
            for id in fold.ids(value)
        )


# ── stepping: from facts to the writes of one commit ──────────────────────────────────────────────


@dataclass(slots=True)
class _Row:
    """A row while a commit is being built."""

    version: Position  # as stored; ABSENT if there is none
    value: Any
    fact: int | None = None  # the last fact that changed it; None: only read

    @property
    def stored(self) -> bool:
        return self.version != ABSENT

    def settled(self, first: Position) -> Position:
        """Its version once the commit landed at ``first``."""
        if self.value is None:
            return ABSENT
        return self.version if self.fact is None else first + self.fact


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where an unfolding stood, to return to if what comes next is refused."""

    facts: int
    intents: int
    loaded: int
    indexes: int
    row_cost: int
    rows: dict[Key, _Row]  # as they were before they changed


@dataclass(slots=True)
class Unfolding:
    """The facts of one commit and the rows that they step, all or nothing per call.

    Rows are read through ``get``, or taken from ``known`` as an earlier commit left them: the
    versions guard both alike.
    """

    folds: Folds
    get: Callable[..., tuple[Record | None, ...]]
    known: dict[Key, tuple[Position, Any]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    intents: list[Intent] = field(default_factory=list)
    _rows: dict[Key, _Row] = field(default_factory=dict)
    _loaded: list[Key] = field(default_factory=list)  # the keys of _rows in the order they came
    _indexes: dict[str, None] = field(default_factory=dict)  # written by the facts, in order
    _row_cost: int = 0

    def fetch(self, keys: Iterable[Key]) -> None:
        """Read the rows that are not known yet, in one go."""
        unread = [k for k in dict.fromkeys(keys) if k not in self._rows and k not in self.known]
        if unread:
            for key, record in zip(unread, self.get(*unread), strict=True):
                self.known[key] = self._decoded(key, record)

    def row(self, key: Key) -> Any:
        """The row as the facts added so far leave it, None where there is none."""
        if key not in self._rows:
            self.fetch((key,))
            self._rows[key] = _Row(*self.known[key])
            self._loaded.append(key)
            self._row_cost += self._cost_of(key)
        return self._rows[key].value

    def decide(self, item: Slice, command: Struct, at: datetime) -> tuple[Struct, ...]:
        """Let a slice that starts from rows decide on them, and add its facts.

        Raises:
            Refused: by the slice or by a fold; then nothing of this call is kept.
        """
        assert item.rows is not None
        with self.kept_whole() as keep:
            rows = tuple(self.row(key) for key in item.rows(command))
            values = tuple(item.decide(rows, command, at))
            for value in values:
                self._unfold(value, at, keep)
            if not values:
                self._undo(keep)
        return values

    def add(self, values: Sequence[Struct], at: datetime) -> None:
        """Append facts and all that follows from them.

        Raises:
            Refused: some fold does not accept a fact; then nothing of this call is kept.
        """
        with self.kept_whole() as keep:
            for value in values:
                self._unfold(value, at, keep)

    @contextmanager
    def kept_whole(self) -> Iterator[_Mark]:
        """All that is added inside stays, or, if an error leaves the block, none of it."""
        mark = _Mark(
            len(self.facts),
            len(self.intents),
            len(self._loaded),
            len(self._indexes),
            self._row_cost,
            {},
        )
        try:
            yield mark
        except TidegateError:
            self._undo(mark)
            raise

    def _undo(self, mark: _Mark) -> None:
        del self.facts[mark.facts :]
        del self.intents[mark.intents :]
        self._rows.update(mark.rows)
        for key in self._loaded[mark.loaded :]:
            del self._rows[key]
        del self._loaded[mark.loaded :]
        while len(self._indexes) > mark.indexes:
            self._indexes.popitem()
        self._row_cost = mark.row_cost

    def _unfold(self, value: Struct, at: datetime, keep: _Mark) -> None:
        waiting = deque((value,))
        follow_ups = 0
        while waiting:
            value = waiting.popleft()
            fact = self.folds.vocabulary.fact(value)
            self.facts.append(fact)
            self._indexes.update(dict.fromkeys(self.folds.vocabulary.indexes(fact)))
            caused: list[Struct] = []
            for fold in self.folds.of(type(value).__name__):
                for id in fold.ids(value):
                    caused += self._step(fold, id, value, at, keep)
            follow_ups += len(caused)
            if follow_ups > FOLLOW_UPS_MAX:
                raise LimitExceeded("follow-ups of a fact", follow_ups, FOLLOW_UPS_MAX)
            waiting.extendleft(reversed(caused))

    def _step(self, fold: Fold, id: str, value: Struct, at: datetime, keep: _Mark) -> list[Struct]:
        key = Key(fold.collection.name, id)
        old = self.row(key)
        row = self._rows[key]
        assert not (row.fact is not None and old is None and row.stored), (
            f"{key} is deleted and made again in one commit; its birth would be lost"
        )
        new, effects = stepped(fold, id, old, value, at)
        if new != old:
            keep.rows.setdefault(key, row)
            self._rows[key] = _Row(row.version, new, len(self.facts) - 1)
        caused = []
        for effect in effects:
            if isinstance(effect, Intent):
                self.intents.append(effect)
                self._row_cost += self._cost_of(effect.key)
            else:
                caused.append(effect)
        return caused

    def _decoded(self, key: Key, record: Record | None) -> tuple[Position, Any]:
        if record is None:
            return ABSENT, None
        model = self.folds.schema.collection(key.collection).model
        return record.version, codec.decode(record.data, model)

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
                writes.append(Put(key, codec.encode(row.value), row.version, row.fact))
        for intent in self.intents:
            writes.append(Put(intent.key, codec.encode(intent.row), ABSENT))
        return tuple(writes)

    def cost(self) -> int:
        """At most this many storage items (``Schema.cost``), known at once at any moment."""
        return 1 + 2 * len(self._indexes) + self._row_cost

    def _cost_of(self, key: Key) -> int:
        return 1 + 2 * len(self.folds.schema.collection(key.collection).indexes)

    def commit(self, basis: Commit, once: Once | None = None) -> Commit:
        """The facts and rows as one commit on the basis of what was read to decide them."""
        return Commit(
            basis.at, basis.meta, tuple(self.facts), basis.boundaries, self.writes(), once
        )

    def settled(self, first: Position) -> dict[Key, tuple[Position, Any]]:
        """The rows as they stand after the commit landed at ``first``, for the next ``known``."""
        return {key: (row.settled(first), row.value) for key, row in self._rows.items()}


def stepped(fold: Fold, id: str, row: Any, value: Any, at: datetime) -> tuple[Any, Sequence[Any]]:
    """The row after the fact, and the effects. Raises: Refused."""
    if row is None:
        row = fold.start(id, value)
    if isinstance(fold, Machine):
        return fold.step(row, value, at)  # type: ignore[no-any-return]
    return fold.step(row, value, at), ()


# ── replay: what the log says the rows must be ────────────────────────────────────────────────────


class Difference(Struct, frozen=True):
    """Where the live rows or facts are not what the log says."""

    key: str
    what: str
    expected: str
    found: str


class Replay:
    """Rows folded from the log alone, by the very functions that wrote the live ones."""

    def __init__(self, folds: Folds, only: Fold | None = None) -> None:
        self._folds = folds
        self._only = only
        self._awaited: deque[Fact] = deque()
        self.position: Position = 0
        self.rows: dict[Key, Record] = {}
        self._values: dict[Key, Any] = {}
        self.differences: list[Difference] = []

    def follow(self, store: Store) -> int:
        """Fold what the feed has beyond the last position; how many events that were."""
        count = 0
        while events := store.feed(after=self.position, limit=PAGE).events:
            for event in events:
                self.step(event)
            count += len(events)
        return count

    def step(self, event: Event) -> None:
        """Fold one event, and compare it with the follow-up that its cause called for."""
        self.position = event.position
        folds = self._folds.of(event.type)
        value = self._folds.vocabulary.value(event)
        self._compare_awaited(event)
        caused: list[Fact] = []
        for fold in folds:
            if self._only is None or fold is self._only:
                for id in fold.ids(value):
                    caused += self._fold(fold, id, value, event)
        if self._only is None:
            self._awaited.extendleft(reversed(caused))

    def _fold(self, fold: Fold, id: str, value: Struct, event: Event) -> list[Fact]:
        key = Key(fold.collection.name, id)
        old = self._values.get(key)
        try:
            new, effects = stepped(fold, id, old, value, event.at)
        except TidegateError as error:
            self.differences.append(
                Difference(str(key), "refused fact in the log", "", f"{event.position} {error}")
            )
            return []
        if new != old:
            self._store(key, new, event.position)
        vocabulary = self._folds.vocabulary
        return [vocabulary.fact(effect) for effect in effects if not isinstance(effect, Intent)]

    def _store(self, key: Key, value: Any, position: Position) -> None:
        if value is None:
            del self._values[key], self.rows[key]
            return
        born = self.rows[key].born if key in self.rows else position
        self._values[key] = value
        self.rows[key] = Record(key, position, born, b"")

    def record(self, key: Key) -> Record:
        """The row with its bytes; encoded only now, because most rows change many times."""
        row = self.rows[key]
        return Record(key, row.version, row.born, codec.encode(self._values[key]))

    def _compare_awaited(self, event: Event) -> None:
        if not self._awaited:
            return
        awaited = self._awaited.popleft()
        if (awaited.type, awaited.body) != (event.type, event.body):
            self.differences.append(
                Difference(
                    f"event_log/{event.position}",
                    "follow-up",
                    f"{awaited.type} {awaited.body.decode()}",
                    f"{event.type} {event.body.decode()}",
                )
            )

    def missing_follow_ups(self) -> list[Difference]:
        """The follow-ups that the last events called for and the log does not have."""
        return [
            Difference(f"event_log/{self.position}", "follow-up", awaited.type, "end of the log")
            for awaited in self._awaited
        ]


def differences(store: Store, folds: Folds) -> list[Difference]:
    """Replay the log and compare every folded row byte for byte, stamps included.

    On a live store it follows the log until the rows and the log agree on where they stand.
    """
    replay = Replay(folds)
    replay.follow(store)
    found: list[Difference] = []
    for _ in range(VERIFY_ROUNDS_MAX):
        names = [fold.collection.name for fold in folds.folds]
        found = [difference for name in names for difference in _compare(store, name, replay)]
        if not found or not replay.follow(store):
            break
    return [*replay.differences, *replay.missing_follow_ups(), *found]


def _compare(store: Store, collection: str, replay: Replay) -> Iterable[Difference]:
    expected = {key.id: key for key in replay.rows if key.collection == collection}
    for record in _rows(store, collection):
        key = expected.pop(record.key.id, None)
        if key is None:
            yield Difference(str(record.key), "extra row", "", record.data.decode())
            continue
        wanted = replay.record(key)
        if wanted.data != record.data:
            yield Difference(str(key), "data", wanted.data.decode(), record.data.decode())
        if (wanted.version, wanted.born) != (record.version, record.born):
            yield Difference(
                str(key),
                "stamp",
                f"version {wanted.version}, born {wanted.born}",
                f"version {record.version}, born {record.born}",
            )
    for key in expected.values():
        yield Difference(str(key), "missing row", replay.record(key).data.decode(), "")


def _rows(store: Store, collection: str) -> Iterable[Record]:
    after = ""
    while page := store.range(collection, after=after, limit=PAGE):
        yield from page
        after = page[-1].key.id


def rebuild(store: Store, folds: Folds, fold: Fold) -> int:
    """Make the rows of one fold anew from the log; how many there are."""
    replay = Replay(folds, only=fold)
    replay.follow(store)
    store.restore(fold.collection.name, (replay.record(key) for key in replay.rows))
    return len(replay.rows)


def rebuild_changed(store: Store, folds: Folds, at: datetime) -> tuple[str, ...]:
    """Rebuild each collection whose fold has another number than the one that wrote it.

    To be called at a start, before anything else writes.
    """
    rebuilt = []
    for fold in folds.folds:
        key = Key(FOLD_NUMBERS.name, fold.collection.name)
        (record,) = store.get(key)
        wanted = codec.encode(FoldNumber(fold.number))
        if record is not None and record.data == wanted:
            continue
        rebuild(store, folds, fold)
        version = ABSENT if record is None else record.version
        (result,) = store.commit(Commit(at, writes=(Put(key, wanted, version),)))
        if isinstance(result, TidegateError):
            raise result
        rebuilt.append(fold.collection.name)
    return tuple(rebuilt)
