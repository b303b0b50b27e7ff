"""Rows as folds of facts: stepped in the commit that appends the fact, provable by replay.

    fact ──▶ fold ──▶ row                       written in the same commit, stamped with the fact
    fact ──▶ machine ──▶ row + effects          effects: follow-up facts, or intents for a worker
                              └─▶ follow-up facts are appended right behind their cause and fed
                                  to every fold in turn, until none is left

Follow-ups stand directly behind the fact that caused them, so replay can check them one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.errors import (
    ConditionFailed,
    InvalidDefinition,
    LimitExceeded,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.model import (
    ABSENT,
    COST_MAX,
    FACTS_MAX,
    POSITION_MAX,
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
    at_most,
)
from tidegate.kernel.policy import Collection, Writers
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import FOLD_NUMBERS, FoldNumber, Schema, Store
from tidegate.kernel.tags import Vocabulary

FOLLOW_UPS_MAX = 64  # per fact that was decided or reported
PAGE = 1_000
VERIFY_ROUNDS_MAX = 10

Rows = dict[Key, tuple[Position, Any]]  # decoded, with their versions; (ABSENT, None): no row


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


class PackFull(LimitExceeded):
    """The commit has no room left for this call; in the next one there is."""


@dataclass(slots=True)
class _Row:
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


@dataclass(slots=True)
class _Call:
    """One call on an unfolding: where it began, to return there, and what it touched."""

    facts: int
    loaded: int
    indexes: int
    row_cost: int
    rows: dict[Key, _Row]  # as they were before they changed
    filed: set[str]  # the indexes that its facts are written under
    intended_cost: int = 0


@dataclass(slots=True)
class Unfolding:
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

    # ── rows in ──

    def fetch(self, keys: Iterable[Key]) -> None:
        """Read the rows that are not known yet, in one go."""
        unread = [k for k in dict.fromkeys(keys) if k not in self._rows and k not in self.known]
        if unread:
            for key, record in zip(unread, self.get(*unread), strict=True):
                self.known[key] = self._decoded(key, record)
            self._fetched.update(unread)

    def row(self, key: Key) -> Any:
        """The row as the facts added so far leave it, None where there is none. The commit will
        demand that it did not move.
        """
        row = self._rows.get(key)
        if row is None:
            self.fetch((key,))
            row = _Row(*self.known[key])
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
        self._row_cost += self._cost_of(key)

    def _decoded(self, key: Key, record: Record | None) -> tuple[Position, Any]:
        if record is None:
            return ABSENT, None
        model = self.folds.schema.collection(key.collection).model
        return record.version, codec.decode(record.data, model)

    # ── facts in ──

    def decide(
        self, item: Slice, command: Struct, at: datetime
    ) -> tuple[tuple[Struct, ...], bytes]:
        """Let a slice that starts from rows decide on them, and add its facts; they and its answer.

        Raises:
            Refused: by the slice or by a fold; then nothing of this call is kept.
            PackFull: there is no room for it among the calls before it.
        """
        assert item.rows is not None
        with self._whole() as call:
            rows = tuple(self.row(key) for key in item.rows(command))
            values = tuple(item.decide(rows, command, at))
            for value in values:
                self._unfold(value, at, call)
            answer = item.answer(values)
            if not values:
                self._undo(call)
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

    @contextmanager
    def _whole(self) -> Iterator[_Call]:
        """All that is added inside stays, or, if an error leaves the block, none of it."""
        self.looked = {}
        call = _Call(
            len(self.facts), len(self._loaded), len(self._indexes), self._row_cost, {}, set()
        )
        try:
            yield call
            if self.pack_cost_max is not None:
                self._demand_room(call, self.pack_cost_max)
        except BaseException:
            self._undo(call)
            raise

    def _demand_room(self, call: _Call, pack_cost_max: int) -> None:
        rows = sum(map(self._cost_of, self.looked))
        alone = 1 + 2 * len(call.filed) + rows + call.intended_cost
        at_most("storage items of a report", alone, COST_MAX)
        at_most("facts of a report", len(self.facts) - call.facts, FACTS_MAX)
        if call.facts and self.cost() > pack_cost_max:
            raise PackFull("storage items of a pack", self.cost(), pack_cost_max)

    def _undo(self, call: _Call) -> None:
        del self.facts[call.facts :]
        self._rows.update(call.rows)
        for key in self._loaded[call.loaded :]:
            del self._rows[key]
        del self._loaded[call.loaded :]
        while len(self._indexes) > call.indexes:
            self._indexes.popitem()
        self._row_cost = call.row_cost

    def _unfold(self, value: Struct, at: datetime, call: _Call) -> None:
        waiting = deque((value,))
        follow_ups = 0
        while waiting:
            value = waiting.popleft()
            fact = self.folds.vocabulary.fact(value)
            self.facts.append(fact)
            indexes = self.folds.vocabulary.indexes(fact)
            self._indexes.update(dict.fromkeys(indexes))
            call.filed.update(indexes)
            caused: list[Struct] = []
            for fold in self.folds.of(fact.type):
                for id in fold.ids(value):
                    caused += self._step(fold, id, value, at, call)
            follow_ups += len(caused)
            if follow_ups > FOLLOW_UPS_MAX:
                raise LimitExceeded("follow-ups of a fact", follow_ups, FOLLOW_UPS_MAX)
            waiting.extendleft(reversed(caused))

    def _step(self, fold: Fold, id: str, value: Struct, at: datetime, call: _Call) -> list[Struct]:
        key = Key(fold.collection.name, id)
        old = self.row(key)
        new, effects = stepped(fold, id, old, value, at)
        if new != old:
            self._change(key, new, call)
        caused = []
        for effect in effects:
            if isinstance(effect, Intent):
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

    def _intend(self, intent: Intent, call: _Call) -> None:
        key = intent.key
        collection = self.folds.schema.collection(key.collection)
        assert collection.writers is Writers.KEPT, f"{key} is written by its fold, not by intents"
        if key not in self._rows:
            self._load(key, _Row(ABSENT, None))
        if self._rows[key].value is not None:
            raise ConditionFailed(f"{key} stands already", collection=key.collection, id=key.id)
        call.intended_cost += self._cost_of(key)
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
        return 1 + 2 * len(self._indexes) + self._row_cost

    def _cost_of(self, key: Key) -> int:
        return 1 + 2 * len(self.folds.schema.collection(key.collection).indexes)

    def commit(self, basis: Commit, once: Once | None = None) -> Commit:
        """The facts and rows as one commit on the basis of what was read to decide them."""
        return Commit(
            basis.at, basis.meta, tuple(self.facts), basis.boundaries, self.writes(), once
        )

    def settled(self, first: Position) -> Rows:
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
    """Rows folded from the log alone, by the very functions that wrote the live ones.

    ``only`` narrows it to some folds, and leaves follow-ups unchecked.
    """

    def __init__(self, folds: Folds, only: tuple[Fold, ...] | None = None) -> None:
        self._folds = folds
        self._only = None if only is None else {fold.collection.name for fold in only}
        self._awaited: deque[Struct] = deque()
        self.position: Position = 0
        self.rows: dict[Key, Record] = {}
        self._values: dict[Key, Any] = {}
        self.differences: list[Difference] = []

    def follow(self, store: Store, *, upto: Position = POSITION_MAX) -> int:
        """Fold what the feed has beyond the last position; how many events that were."""
        count = 0
        while self.position < upto:
            events = store.feed(after=self.position, limit=PAGE).events
            for event in events:
                if event.position > upto:
                    return count
                self.step(event)
                count += 1
            if len(events) < PAGE:
                break  # the end as it was now; on a live store there is always more
        return count

    def step(self, event: Event) -> None:
        """Fold one event, and compare it with the follow-up that its cause called for."""
        self.position = event.position
        value = self._folds.vocabulary.value(event)
        if self._awaited:
            self._compare(self._awaited.popleft(), value, event)
        caused: list[Struct] = []
        for fold in self._folds.of(event.type):
            if self._only is None or fold.collection.name in self._only:
                for id in fold.ids(value):
                    caused += self._fold(fold, id, value, event)
        if self._only is None:
            self._awaited.extendleft(reversed(caused))

    def _fold(self, fold: Fold, id: str, value: Struct, event: Event) -> list[Struct]:
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
        return [effect for effect in effects if not isinstance(effect, Intent)]

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

    def _compare(self, awaited: Struct, value: Struct, event: Event) -> None:
        wanted = self._folds.vocabulary.fact(awaited)
        # A fact of an older schema has other bytes; brought to the newest it is the same value.
        altered = wanted.schema == event.schema and wanted != Fact(
            event.kind, event.type, event.schema, event.tags, event.body
        )
        if awaited != value or altered:
            self.differences.append(
                Difference(
                    f"event_log/{event.position}",
                    "follow-up",
                    f"{wanted.type} {wanted.body.decode()}",
                    f"{event.type} {event.body.decode()}",
                )
            )

    def missing_follow_ups(self) -> list[Difference]:
        """The follow-ups that the last events called for and the log does not have."""
        where = f"event_log/{self.position}"
        return [
            Difference(where, "follow-up", type(awaited).__name__, "end of the log")
            for awaited in self._awaited
        ]


def differences(store: Store, folds: Folds) -> list[Difference]:
    """Replay the log and compare every folded row byte for byte, stamps included.

    The store may be live: a row that is ahead of the replay is compared when the replay stands
    exactly where the row was written.
    """
    replay = Replay(folds)
    replay.follow(store)
    names = [fold.collection.name for fold in folds.folds]
    found = [difference for name in names for difference in _compared(store, name, replay)]
    replay.follow(store)  # to the end of a commit, whose follow-ups are then all there
    return [*replay.differences, *replay.missing_follow_ups(), *found]


def _compared(store: Store, collection: str, replay: Replay) -> Iterator[Difference]:
    seen: set[str] = set()
    for page in _pages(store, collection):
        seen.update(record.key.id for record in page)
        yield from _compared_rows(store, page, replay)
    missing = [k for k in replay.rows if k.collection == collection and k.id not in seen]
    for _ in range(VERIFY_ROUNDS_MAX):
        if not missing:
            return
        found = [record for record in _get(store, missing) if record is not None]
        yield from _compared_rows(store, found, replay)
        # What is absent may have been deleted meanwhile: then the log says so by now.
        came = {record.key for record in found}
        count = replay.follow(store)
        missing = [key for key in missing if key not in came and key in replay.rows]
        if not count:
            break
    for key in missing:
        yield Difference(str(key), "missing row", replay.record(key).data.decode(), "")


def _compared_rows(store: Store, records: Sequence[Record], replay: Replay) -> Iterator[Difference]:
    """Rows that were read after the replay came to where it stands."""
    for record in sorted(records, key=lambda record: record.version):
        replay.follow(store, upto=record.version)
        key = record.key
        if key not in replay.rows:
            yield Difference(str(key), "extra row", "", record.data.decode())
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


def _pages(store: Store, collection: str) -> Iterator[tuple[Record, ...]]:
    after = ""
    while page := store.range(collection, after=after, limit=PAGE):
        yield page
        after = page[-1].key.id


def _get(store: Store, keys: Sequence[Key]) -> Iterator[Record | None]:
    for start in range(0, len(keys), PAGE):
        yield from store.get(*keys[start : start + PAGE])


def rebuild(store: Store, folds: Folds, *changed: Fold) -> int:
    """Make the rows of these folds anew, in one pass over the log; how many there are.

    Nothing else may write meanwhile.
    """
    replay = Replay(folds, only=changed)
    replay.follow(store)
    for fold in changed:
        name = fold.collection.name
        keys = [key for key in replay.rows if key.collection == name]
        store.restore(name, (replay.record(key) for key in keys))
    return len(replay.rows)


def rebuild_changed(store: Store, folds: Folds, at: datetime) -> tuple[str, ...]:
    """Rebuild each collection whose fold has another number than the one that wrote it.

    To be called at a start, before anything else writes.
    """
    keys = {Key(FOLD_NUMBERS.name, fold.collection.name): fold for fold in folds.folds}
    records = dict(zip(keys, _get(store, tuple(keys)), strict=True))
    changed = {key: fold for key, fold in keys.items() if not _is_of(fold, records[key])}
    if not changed:
        return ()
    rebuild(store, folds, *changed.values())
    for key, fold in changed.items():
        record = records[key]
        version = ABSENT if record is None else record.version
        number = codec.encode(FoldNumber(fold.number))
        (result,) = store.commit(Commit(at, writes=(Put(key, number, version),)))
        if isinstance(result, VersionConflict) and _is_of(fold, store.get(key)[0]):
            continue  # another process started with the same fold and was faster
        if isinstance(result, TidegateError):
            raise result
    return tuple(fold.collection.name for fold in changed.values())


def _is_of(fold: Fold, record: Record | None) -> bool:
    return record is not None and record.data == codec.encode(FoldNumber(fold.number))
