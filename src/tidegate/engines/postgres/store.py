"""The store: each read is one statement, hence one snapshot; commits go through the writer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import ClassVar

from tidegate.engines.key_ages import LogClock
from tidegate.engines.postgres import queries
from tidegate.engines.postgres.failures import translate_errors
from tidegate.engines.postgres.layout import Setting, open_log
from tidegate.engines.postgres.sessions import Address, SessionPool
from tidegate.engines.postgres.writer import PostgresWriter
from tidegate.errors import TidegateError
from tidegate.kernel.commit_limits import check_seen
from tidegate.kernel.model import (
    Boundary,
    Commit,
    EventPage,
    Key,
    Position,
    Put,
    Query,
    Receipt,
    Record,
)
from tidegate.kernel.store import Schema, check_range, is_fenced

BATCH_MAX = 512  # commits in one transaction
BATCH_BYTES_MAX = 16_000_000


class PostgresStore:
    """One log and its rows in one schema of a PostgreSQL database.

    ``?schema=name`` in the URL selects the schema, as ``namespace`` does; libpq never sees it.

    Raises:
        StoreUnavailable: the server cannot be reached.
        StoreRefused: it is too old, not in UTF-8, or holds a log of another format.
        InvalidInput, InvalidDefinition.
    """

    pack_cost_max: ClassVar[int] = 4_000

    def __init__(
        self,
        url: str,
        schema: Schema,
        namespace: str = "tidegate",
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.schema = schema
        address = Address(url, namespace)
        with translate_errors(), closing(address.connect()) as connection:
            layout = open_log(connection, address.namespace, schema)
        self.namespace = address.namespace
        self.log_id = layout.log_id
        self.durability: tuple[Setting, ...] = layout.durability
        self._readers = SessionPool(address)
        clock = LogClock(monotonic, layout.key_ages)
        self._writer = PostgresWriter(address, schema, layout.indexing, clock)

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
        # One more than asked for tells whether the limit cut the page.
        asked = None if limit is None else limit + 1
        found = self._readers.ask(queries.read(self.schema.vocabulary, query, after, asked))
        head = int(found[0][0])
        events = tuple(queries.event(row[1:]) for row in found if row[1] is not None)
        if limit is not None and len(events) > limit:
            return EventPage(events[:limit])
        if not guarded:
            return EventPage(events)
        return EventPage(events, Boundary(query, head, None if events else guard))

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            self.schema.collection(key.collection)
            if "\x00" not in key.id:  # no row has such an id, and libpq cannot be asked for it
                ids[key.collection].append(key.id)
        if not ids:
            return (None,) * len(keys)
        collections = [self.schema.collection(name) for name in ids]
        found: dict[Key, Record] = {}
        for place, *row in self._readers.ask(queries.rows_of_several(ids)):
            record = queries.record(collections[int(place)], row)
            found[record.key] = record
        return tuple(found.get(key) for key in keys)

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
        statement = queries.range_of(declared, index, prefix, after, limit, descending=descending)
        if statement is None:
            return ()
        return tuple(queries.record(declared, row) for row in self._readers.ask(statement))

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        answers: list[Receipt | TidegateError | None] = [self._refusal(c) for c in commits]
        waiting = [place for place, refusal in enumerate(answers) if refusal is None]
        for places in _batches(commits, waiting):
            found = self._writer.commit([commits[place] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return tuple(answer for answer in answers if answer is not None)

    def receipt(self, key: str) -> Receipt | None:
        if "\x00" in key:
            return None
        found = self._readers.ask(queries.receipt(key))
        return queries.receipt_of(found[0]) if found else None

    def head(self) -> Position:
        return int(self._readers.ask(queries.HEAD)[0][0])

    def feed(self, *, after: Position, limit: int) -> EventPage:
        check_range(after, limit)
        found = self._readers.ask(queries.feed(after, limit))
        return EventPage(tuple(queries.event(row) for row in found))

    def restore(self, collection: str, records: Iterable[Record]) -> None:
        self.schema.collection(collection)
        self._writer.restore(collection, records)

    def close(self) -> None:
        self._writer.close()
        self._readers.close()

    def _refusal(self, commit: Commit) -> TidegateError | None:
        try:
            self.schema.check(commit, self.pack_cost_max)
            check_seen(commit)
        except TidegateError as error:
            return error
        return None


def _batches(commits: tuple[Commit, ...], places: list[int]) -> Iterable[list[int]]:
    """The places of the commits to send, cut into transactions of bounded size."""
    batch: list[int] = []
    size = 0
    for place in places:
        content = _size(commits[place])
        if batch and (len(batch) == BATCH_MAX or size + content > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += content
    if batch:
        yield batch


def _size(commit: Commit) -> int:
    rows = sum(len(write.data) for write in commit.writes if isinstance(write, Put))
    return rows + sum(len(fact.body) for fact in commit.facts)
