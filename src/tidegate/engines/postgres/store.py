"""The store. Each read is one statement, so it sees one snapshot; commits go to the writer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import ClassVar

from tidegate.engines.key_ages import LogClock
from tidegate.engines.postgres import failures, queries, sessions, writer
from tidegate.engines.postgres.layout import Setting, open_log
from tidegate.errors import TidegateError
from tidegate.kernel import commit_limits, model, store

BATCH_MAX = 512  # commits in one transaction
BATCH_BYTES_MAX = 16_000_000


class PostgresStore:
    """One log and its rows in one schema of a PostgreSQL database.

    ``?schema=name`` in the URL selects the schema and overrides ``namespace``; libpq never sees it.

    Raises:
        StoreUnavailable: the server cannot be reached.
        StoreRefused: the server is too old, not in UTF-8, or holds a log of another format.
        InvalidInput, InvalidDefinition.
    """

    pack_cost_max: ClassVar[int] = 4_000

    def __init__(
        self,
        url: str,
        schema: store.Schema,
        namespace: str = "tidegate",
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.schema = schema
        address = sessions.Address(url, namespace)
        with failures.translate_errors(), closing(address.connect()) as connection:
            layout = open_log(connection, address.namespace, schema)
        self.namespace = address.namespace
        self.log_id = layout.log_id
        self.durability: tuple[Setting, ...] = layout.durability
        self._readers = sessions.SessionPool(address)
        clock = LogClock(monotonic, layout.key_ages)
        self._writer = writer.PostgresWriter(address, schema, layout.indexing, clock)

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
        # One more than the limit shows whether the limit cut the page.
        asked = None if limit is None else limit + 1
        found = self._readers.run(queries.read(self.schema.vocabulary, query, after, asked))
        head = int(found[0][0])
        events = tuple(queries.event(row[1:]) for row in found if row[1] is not None)
        if limit is not None and len(events) > limit:
            return model.EventPage(events[:limit])
        if not guarded:
            return model.EventPage(events)
        return model.EventPage(events, model.Boundary(query, head, None if events else guard))

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            self.schema.collection(key.collection)
            if "\x00" not in key.id:  # no row has such an id, and libpq cannot send it
                ids[key.collection].append(key.id)
        if not ids:
            return (None,) * len(keys)
        collections = [self.schema.collection(name) for name in ids]
        found: dict[model.Key, model.Record] = {}
        for place, *row in self._readers.run(queries.rows_of_several(ids)):
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
    ) -> tuple[model.Record, ...]:
        store.check_range(0, limit)
        declared = self.schema.collection(collection)
        statement = queries.range_of(declared, index, prefix, after, limit, descending=descending)
        if statement is None:
            return ()
        return tuple(queries.record(declared, row) for row in self._readers.run(statement))

    def commit(self, *commits: model.Commit) -> tuple[model.Receipt | TidegateError, ...]:
        answers: list[model.Receipt | TidegateError | None] = [self._refusal(c) for c in commits]
        waiting = [place for place, refusal in enumerate(answers) if refusal is None]
        for places in _batches(commits, waiting):
            found = self._writer.commit([commits[place] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return tuple(answer for answer in answers if answer is not None)

    def receipt(self, key: str) -> model.Receipt | None:
        if "\x00" in key:
            return None
        found = self._readers.run(queries.receipt(key))
        return queries.receipt_of(found[0]) if found else None

    def head(self) -> model.Position:
        return int(self._readers.run(queries.HEAD)[0][0])

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        store.check_range(after, limit)
        found = self._readers.run(queries.feed(after, limit))
        return model.EventPage(tuple(queries.event(row) for row in found))

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        self.schema.collection(collection)
        self._writer.restore(collection, records)

    def close(self) -> None:
        self._writer.close()
        self._readers.close()

    def _refusal(self, commit: model.Commit) -> TidegateError | None:
        try:
            self.schema.check(commit, self.pack_cost_max)
            commit_limits.check_seen(commit)
        except TidegateError as error:
            return error
        return None


def _batches(commits: tuple[model.Commit, ...], places: list[int]) -> Iterable[list[int]]:
    """Cut the places of the commits into batches of bounded size, a transaction each."""
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


def _size(commit: model.Commit) -> int:
    rows = sum(len(write.data) for write in commit.writes if isinstance(write, model.Put))
    return rows + sum(len(fact.body) for fact in commit.facts)
