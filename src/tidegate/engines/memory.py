"""The reference engine: written in the obvious way, to compare every other engine with.

It has one lock, one list and one dict. A read filters the whole log; a commit checks, then applies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from threading import RLock
from typing import ClassVar

from msgspec.structs import replace

from tidegate import errors
from tidegate.kernel import commit_limits, model, store
from tidegate.kernel.collections import SEPARATOR


class MemoryStore:
    """A log and its rows in the memory of this process. Share the object to share the log."""

    pack_cost_max: ClassVar[int] = 4_000

    def __init__(self, schema: store.Schema) -> None:
        self.schema = schema
        self._lock = RLock()
        self._head: model.Position = 0
        self._found: model.Position = 0  # the head before the current group of commits
        self._events: list[model.Event] = []
        self._filed: dict[model.Position, tuple[str, ...]] = {}
        self._rows: dict[model.Key, model.Record] = {}
        self._once: dict[str, model.Receipt] = {}

    def read(
        self,
        query: model.Query,
        *,
        guard: model.Query | None = None,
        after: model.Position = 0,
        limit: int | None = None,
    ) -> model.EventPage:
        store.check_range(after, limit)
        guarded = store.is_fenced(self.schema, query)
        if guard is not None:
            guarded = store.is_fenced(self.schema, guard) and guarded
        with self._lock:
            matching = [
                event
                for event in self._events
                if event.position > after and self._matches(query, event)
            ]
            events = tuple(matching[:limit])
            if not guarded or len(events) < len(matching):
                return model.EventPage(events)
            return model.EventPage(
                events, model.Boundary(query, self._head, None if matching else guard)
            )

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
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
    ) -> tuple[model.Record, ...]:
        store.check_range(0, limit)
        declared = self.schema.collection(collection)
        if index is not None:
            declared.index(index)
        with self._lock:
            entries: list[tuple[str, model.Record]] = []
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

    def commit(self, *commits: model.Commit) -> tuple[model.Receipt | errors.TidegateError, ...]:
        with self._lock:
            self._found = self._head
            return tuple(self._commit(commit) for commit in commits)

    def receipt(self, key: str) -> model.Receipt | None:
        with self._lock:
            seen = self._once.get(key)
            return None if seen is None else replace(seen, replayed=True)

    def head(self) -> model.Position:
        with self._lock:
            return self._head

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        store.check_range(after, limit)
        with self._lock:
            newer = [event for event in self._events if event.position > after]
            return model.EventPage(tuple(newer[:limit]))

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        with self._lock:
            kept = {k: r for k, r in self._rows.items() if k.collection != collection}
            self._rows = kept | {record.key: record for record in records}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _commit(self, commit: model.Commit) -> model.Receipt | errors.TidegateError:
        try:
            self.schema.check(commit, self.pack_cost_max)
            commit_limits.check_seen(commit)
            for fact in commit.facts:
                self.schema.vocabulary.indexes(fact)
            if commit.once is not None and (seen := self._once.get(commit.once.key)) is not None:
                if seen.digest != commit.once.digest:
                    raise errors.IdempotencyMismatch(commit.once.key)
                return replace(seen, replayed=True)
            for boundary in commit.boundaries:
                self._check_boundary(boundary)
            for write in commit.writes:
                self._check_version(write)
        except errors.TidegateError as error:
            return error
        return self._apply(commit)

    def _apply(self, commit: model.Commit) -> model.Receipt:
        first = self._head + 1
        self._head += commit.span
        for offset, fact in enumerate(commit.facts):
            self._filed[first + offset] = self.schema.vocabulary.indexes(fact)
            self._events.append(
                model.Event(
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
                case model.Put(key, data, expect, cause):
                    before = model.ABSENT if expect == model.ABSENT else self._rows[key].born
                    born = write.born_at(first, before)
                    self._rows[key] = model.Record(key, first + cause, born, data)
                case model.Delete(key):
                    del self._rows[key]
                case model.Check():
                    pass
        if commit.once is None:
            return model.Receipt(first, self._head, commit.at)
        once = commit.once
        receipt = model.Receipt(first, self._head, commit.at, once.answer, digest=once.digest)
        self._once[once.key] = receipt
        return receipt

    def _check_boundary(self, boundary: model.Boundary) -> None:
        """Raises: BoundaryMoved.

        A boundary beyond the head was read from a log that has lost its last commits since.
        """
        for clause in boundary.clauses:
            found = [event.position for event in self._events if self._fences(clause, event)]
            newest = found[-1] if found else 0
            if newest > boundary.seen or boundary.seen > self._found:
                raise errors.BoundaryMoved(clause, newest)

    def _fences(self, clause: model.Clause, event: model.Event) -> bool:
        """Whether the event counts against a boundary of the clause: same index, listed type."""
        in_types = clause.types is None or event.type in clause.types
        return in_types and self.schema.vocabulary.index(clause) in self._indexes(event)

    def _indexes(self, event: model.Event) -> tuple[str, ...]:
        """The event's index names. Those of an unknown type are as a newer version wrote them."""
        vocabulary = self.schema.vocabulary
        known = event.type in vocabulary.types
        return vocabulary.indexes(event) if known else self._filed[event.position]

    def _check_version(self, write: model.Write) -> None:
        record = self._rows.get(write.key)
        found = model.ABSENT if record is None else record.version
        if found != write.expect:
            raise errors.VersionConflict(write.key.collection, write.key.id, write.expect, found)

    def _matches(self, query: model.Query, event: model.Event) -> bool:
        filed = self._indexes(event)
        matches = self.schema.vocabulary.matches
        return any(matches(clause, event, filed) for clause in query.clauses)
