"""The oracle: a store written the obvious way, to compare every other engine with.

One lock, one list, one dict. A read filters the whole log; a commit checks, then applies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from threading import RLock
from typing import ClassVar

from msgspec.structs import replace

from tidegate.errors import (
    BoundaryMoved,
    IdempotencyMismatch,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.collections import SEPARATOR
from tidegate.kernel.commit_limits import check_seen
from tidegate.kernel.model import (
    ABSENT,
    Boundary,
    Check,
    Clause,
    Commit,
    Delete,
    Event,
    EventPage,
    Key,
    Position,
    Put,
    Query,
    Receipt,
    Record,
    Write,
)
from tidegate.kernel.store import Schema, check_range, is_fenced


class MemoryStore:
    """A log and its rows in this process. Handles on one log are this one object."""

    pack_cost_max: ClassVar[int] = 4_000

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._lock = RLock()
        self._head: Position = 0
        self._found: Position = 0  # the head when the present group came
        self._events: list[Event] = []
        self._filed: dict[Position, tuple[str, ...]] = {}
        self._rows: dict[Key, Record] = {}
        self._once: dict[str, Receipt] = {}

    def read(
        self,
        query: Query,
        *,
        guard: Query | None = None,
        after: Position = 0,
        limit: int | None = None,
    ) -> EventPage:
        check_range(after, limit)
        guarded = is_fenced(self.schema, query)
        if guard is not None:
            guarded = is_fenced(self.schema, guard) and guarded
        with self._lock:
            matching = [
                event
                for event in self._events
                if event.position > after and self._matches(query, event)
            ]
            events = tuple(matching[:limit])
            if not guarded or len(events) < len(matching):
                return EventPage(events)
            return EventPage(events, Boundary(query, self._head, None if matching else guard))

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        with self._lock:
            for key in keys:
                self.schema.collection(key.collection)
            return tuple(self._rows.get(key) for key in keys)

    def range(
        self,
        collection: str,
        *,
        index: str | None = None,
        prefix: str = "",
        after: str = "",
        limit: int,
        descending: bool = False,
    ) -> tuple[Record, ...]:
        check_range(0, limit)
        declared = self.schema.collection(collection)
        if index is not None:
            declared.index(index)
        with self._lock:
            entries: list[tuple[str, Record]] = []
            for record in self._rows.values():
                if record.key.collection != collection:
                    continue
                if index is None:
                    entries.append((record.key.id, record))
                elif (entry := declared.entries(record.data).get(index)) is not None:
                    entries.append((entry + SEPARATOR + record.key.id, record))
        entries.sort(key=lambda item: item[0].split(SEPARATOR), reverse=descending)
        follows = operator.lt if descending else operator.gt
        found = [
            record
            for entry, record in entries
            if entry.startswith(prefix)
            and (not after or follows(entry.split(SEPARATOR), after.split(SEPARATOR)))
        ]
        return tuple(found[:limit])

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        with self._lock:
            self._found = self._head
            return tuple(self._commit(commit) for commit in commits)

    def receipt(self, key: str) -> Receipt | None:
        with self._lock:
            seen = self._once.get(key)
            return None if seen is None else replace(seen, replayed=True)

    def head(self) -> Position:
        with self._lock:
            return self._head

    def feed(self, *, after: Position, limit: int) -> EventPage:
        check_range(after, limit)
        with self._lock:
            newer = [event for event in self._events if event.position > after]
            return EventPage(tuple(newer[:limit]))

    def restore(self, collection: str, records: Iterable[Record]) -> None:
        with self._lock:
            kept = {k: r for k, r in self._rows.items() if k.collection != collection}
            self._rows = kept | {record.key: record for record in records}

    def close(self) -> None:
        """Nothing is open."""

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        try:
            self.schema.check(commit, self.pack_cost_max)
            check_seen(commit)
            for fact in commit.facts:
                self.schema.vocabulary.indexes(fact)
            if commit.once is not None and (seen := self._once.get(commit.once.key)) is not None:
                if seen.digest != commit.once.digest:
                    raise IdempotencyMismatch(commit.once.key)
                return replace(seen, replayed=True)
            for boundary in commit.boundaries:
                self._check_boundary(boundary)
            for write in commit.writes:
                self._check_version(write)
        except TidegateError as error:
            return error
        return self._apply(commit)

    def _apply(self, commit: Commit) -> Receipt:
        first = self._head + 1
        self._head += commit.span
        for offset, fact in enumerate(commit.facts):
            self._filed[first + offset] = self.schema.vocabulary.indexes(fact)
            self._events.append(
                Event(
                    first + offset,
                    commit.at,
                    fact.kind,
                    fact.type,
                    fact.schema,
                    fact.tags,
                    commit.meta_of(fact),
                    fact.body,
                )
            )
        for write in commit.writes:
            match write:
                case Put(key, data, expect, cause):
                    before = ABSENT if expect == ABSENT else self._rows[key].born
                    born = write.born_at(first, before)
                    self._rows[key] = Record(key, first + cause, born, data)
                case Delete(key):
                    del self._rows[key]
                case Check():
                    pass
        if commit.once is None:
            return Receipt(first, self._head, commit.at)
        once = commit.once
        receipt = Receipt(first, self._head, commit.at, once.answer, digest=once.digest)
        self._once[once.key] = receipt
        return receipt

    def _check_boundary(self, boundary: Boundary) -> None:
        """Nobody can have read past the head: such a boundary is of a log that was longer."""
        for clause in boundary.clauses:
            found = [event.position for event in self._events if self._fences(clause, event)]
            newest = found[-1] if found else 0
            if newest > boundary.seen or boundary.seen > self._found:
                raise BoundaryMoved(clause, newest)

    def _fences(self, clause: Clause, event: Event) -> bool:
        """Whether the event moves the clause's fence: it stands under its index, with its type."""
        in_types = clause.types is None or event.type in clause.types
        return in_types and self.schema.vocabulary.index(clause) in self._indexes(event)

    def _indexes(self, event: Event) -> tuple[str, ...]:
        """Under which the event is filed; one of a newer program, as that one filed it."""
        vocabulary = self.schema.vocabulary
        known = event.type in vocabulary.types
        return vocabulary.indexes(event) if known else self._filed[event.position]

    def _check_version(self, write: Write) -> None:
        record = self._rows.get(write.key)
        found = ABSENT if record is None else record.version
        if found != write.expect:
            raise VersionConflict(write.key.collection, write.key.id, write.expect, found)

    def _matches(self, query: Query, event: Event) -> bool:
        filed = self._indexes(event)
        matches = self.schema.vocabulary.matches
        return any(matches(clause, event, filed) for clause in query.clauses)
