"""The store on one SQLite file, for any number of threads, handles and processes.

Writers take turns (``WriterLock``). Each writes all its waiting commits in one transaction with one
flush. Reads have their own connections and never wait for a writer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

import apsw
from msgspec.structs import replace

from tidegate import errors
from tidegate.engines.key_ages import LogClock
from tidegate.engines.sqlite import (
    batch as sqlite_batch,
    connection,
    events as sqlite_events,
    own_writes,
    readers,
)
from tidegate.engines.sqlite.layout import FileLayout, lay_out
from tidegate.engines.sqlite.records import Table
from tidegate.kernel import commit_limits, model, store

NAMES_KEPT_MAX = 65_536  # index names whose ids a handle caches

# With these errors the write itself failed. So the last frame of the transaction, without which it
# is not valid, cannot be in the WAL.
_NEVER_WRITTEN = frozenset({apsw.SQLITE_FULL, apsw.SQLITE_IOERR_WRITE})

_Answer = model.Receipt | errors.TidegateError


class SqliteStore:
    """A log and its rows in the file ``path``, which is created if it does not exist."""

    pack_cost_max: ClassVar[int] = 4_000

    def __init__(
        self, path: str, schema: store.Schema, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises: StoreRefused, InvalidDefinition."""
        self.schema = schema
        self._path = os.path.realpath(path)
        connection.check_platform(self._path)
        self._names: dict[str, int] = {}
        self._own_writes = own_writes.OwnWrites()
        self._readers = readers.ConnectionPool(self._path)
        self._closed = False
        try:
            self._lock = connection.WriterLock(f"{self._path}-lock")
        except OSError as error:
            raise errors.StoreRefused(f"cannot open {path}: {error}") from error
        self._writer: apsw.Connection | None = None
        self._wal_room = connection.WalRoom(self._path)
        self._is_wal_doubtful = False  # a flush failed: content of the WAL may not be on the disk
        self.fault: errors.WriterClosed | None = None  # why this handle no longer writes
        try:
            self._layout = self._lock.run(self._lay_out)
        except BaseException:
            self._drop_writer()
            self._lock.close()
            raise
        self._clock = LogClock(monotonic, self._layout.key_ages)

    @property
    def log_id(self) -> str:
        """The random id of this log. Files that belong to the log, such as blobs, carry it too."""
        return self._layout.log_id

    # ── reading ──

    def read(
        self,
        query: model.Query,
        *,
        guard: model.Query | None = None,
        after: model.Position = 0,
        limit: int | None = None,
    ) -> model.EventPage:
        store.check_range(after, limit)
        plans = [
            sqlite_events.ClausePlan.of(self.schema.vocabulary, clause) for clause in query.clauses
        ]
        guarded = None not in [plan.name for plan in plans]
        if guard is not None:
            guarded = store.is_fenced(self.schema, guard) and guarded
        with self._reader() as cursor:
            events, head = sqlite_events.EventRead(cursor, self._layout.types, after, limit).events(
                plans
            )
        if limit is not None and len(events) > limit:
            return model.EventPage(tuple(events[:limit]))
        if not guarded:
            return model.EventPage(tuple(events))
        return model.EventPage(
            tuple(events), model.Boundary(query, head, None if events else guard)
        )

    def head(self) -> model.Position:
        with self._reader() as cursor:
            found: model.Position = next(cursor.execute(sqlite_events.HEAD))[0]
        return found

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        store.check_range(after, limit)
        with self._reader() as cursor:
            return model.EventPage(
                tuple(sqlite_events.events_of(cursor.execute(sqlite_events.FEED, (after, limit))))
            )

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
        for key in keys:
            self.schema.collection(key.collection)
        tables = self._layout.tables
        found: list[model.Record | None] = []
        with self._reader() as cursor:
            if len(keys) > 1:  # in one transaction, so that all rows are from one moment
                cursor.execute("BEGIN")
            for key in keys:
                row = cursor.execute(tables[key.collection].get, (key.id,)).fetchone()
                found.append(
                    None if row is None else model.Record(key, row[0], row[1], row[2].encode())
                )
            if len(keys) > 1:
                cursor.execute("COMMIT")
        return tuple(found)

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
        self.schema.collection(collection)
        table = self._layout.tables[collection]
        statement = table.range(index, prefix, after, limit, descending=descending)
        if statement is None:
            return ()
        with self._reader() as cursor:
            rows = cursor.execute(*statement)
            return tuple(
                [
                    model.Record(model.Key(collection, id), v, b, data.encode())
                    for id, v, b, data in rows
                ]
            )

    def receipt(self, key: str) -> model.Receipt | None:
        with self._reader() as cursor:
            row = cursor.execute(sqlite_batch.RECEIPT, (key,)).fetchone()
        return None if row is None else replace(sqlite_batch.receipt_of(*row[1:]), replayed=True)

    def _reader(self) -> readers.ReadConnection:
        """Raises: StoreRefused, StoreUnavailable."""
        self._lock.check_process()
        return self._readers.reader()

    # ── writing ──

    def commit(self, *commits: model.Commit) -> tuple[_Answer, ...]:
        prepared = [self._prepare(commit) for commit in commits]
        drafts = [item for item in prepared if isinstance(item, sqlite_batch.PreparedCommit)]
        if not drafts:
            return tuple(
                item for item in prepared if not isinstance(item, sqlite_batch.PreparedCommit)
            )
        try:
            answers = iter(self._lock.run(partial(self._commit_drafts, drafts)))
        except (errors.StoreRefused, errors.StoreUnavailable) as error:
            answers = iter([error] * len(drafts))
        return tuple(
            next(answers) if isinstance(item, sqlite_batch.PreparedCommit) else item
            for item in prepared
        )

    def _prepare(self, commit: model.Commit) -> sqlite_batch.PreparedCommit | errors.TidegateError:
        try:
            self.schema.check(commit, self.pack_cost_max)
            commit_limits.check_seen(commit)
            return sqlite_batch.PreparedCommit.of(commit, self.schema.vocabulary)
        except errors.TidegateError as error:
            return error

    def _commit_drafts(self, drafts: Sequence[sqlite_batch.PreparedCommit]) -> Sequence[_Answer]:
        """Commit all in one transaction.

        Raises:
            StoreRefused, StoreUnavailable: nothing was applied.
        """
        cursor = self._begin()
        batch = sqlite_batch.SqliteBatch(
            cursor, self._layout, self._names, self._own_writes, self._clock
        )
        try:
            before = batch.observe(drafts)
            answers = [batch.decide(draft) for draft in drafts]
            if batch.accepted:
                batch.write()
        except (apsw.ConstraintError, apsw.SQLError) as error:
            self._roll_back()
            if len(drafts) > 1:  # a table refuses one of them; the others must not fail with it
                return self._commit_each(drafts)
            return [errors.InvalidInput(f"the database refuses the commit: {error}")]
        except apsw.Error as error:
            self._roll_back_after(error)
            raise errors.StoreUnavailable(f"nothing was written: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        if not batch.accepted:
            self._roll_back()
            self._own_writes.leave(before)
            return answers
        failure = self._commit_transaction(before)
        if failure is not None:
            # A conflict may be with a commit of this group, so it is not certain either. A receipt
            # of an earlier commit is.
            return [
                answer if isinstance(answer, model.Receipt) and answer.first <= before else failure
                for answer in answers
            ]
        self._own_writes.leave(batch.head)
        self._cache_names(batch.ids)
        return answers

    def _commit_each(self, drafts: Sequence[sqlite_batch.PreparedCommit]) -> Sequence[_Answer]:
        """Commit each in its own transaction, so that one failure does not affect the others."""
        answers: list[_Answer] = []
        for draft in drafts:
            try:
                answers += self._commit_drafts([draft])
            except (errors.StoreRefused, errors.StoreUnavailable) as error:
                answers.append(error)
        return answers

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Raises: StoreRefused, StoreUnavailable; OutcomeUnknown: it is safe to repeat."""
        self.schema.collection(collection)
        table = self._layout.tables[collection]
        rows = [(found.key.id, found.version, found.born, found.data.decode()) for found in records]
        self._lock.run(partial(self._replace, table, rows))

    def _replace(self, table: Table, rows: Sequence[tuple[str, int, int, str]]) -> None:
        cursor = self._begin()
        try:
            cursor.execute(table.clear)
            cursor.executemany(table.insert, rows)
        except apsw.Error as error:
            self._roll_back_after(error)
            raise errors.StoreUnavailable(f"nothing was restored: {error}") from error
        try:
            cursor.execute("COMMIT")
        except apsw.Error as error:  # the head does not change here, so it cannot tell the outcome
            self._close_after_failed_flush(error)
            raise errors.OutcomeUnknown(
                f"the flush of {table.collection.name} failed: {error}"
            ) from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._readers.close()
        try:
            self._lock.run(self._drop_writer)  # after the readers, so that it can empty the WAL
        except errors.StoreUnavailable:
            self._drop_writer()  # another process has the lock and the WAL, so that stays as it is
        self._lock.close()

    # ── transactions: call these only inside ``self._lock.run`` ──

    def _lay_out(self) -> FileLayout:
        cursor = self._begin()
        try:
            layout = lay_out(cursor.connection, self.schema)
            cursor.execute("COMMIT")
        except apsw.Error as error:
            self._roll_back()
            raise errors.StoreRefused(f"cannot lay out {self._path}: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        return layout

    def _begin(self) -> apsw.Cursor:
        """Raises: StoreRefused, StoreUnavailable, WriterClosed."""
        if self.fault is not None:
            raise self.fault
        try:
            if self._writer is not None and self._writer.in_transaction:
                self._roll_back()  # a signal handler interrupted the commit that began it
            cursor = (self._writer or self._open_writer()).cursor()
            cursor.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise errors.StoreUnavailable(f"cannot begin to write: {error}") from error
        self._wal_room.make()
        return cursor

    def _open_writer(self) -> apsw.Connection:
        """Open the writer's connection.

        After a failed flush it is unknown what part of the WAL is on the disk. So the valid part is
        first moved into the database file, before anything is added.
        """
        self._writer = connection.open_writer(self._path)
        if self._is_wal_doubtful:
            try:
                ((busy, _, _),) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                if busy:
                    raise errors.StoreUnavailable("the WAL cannot be emptied after a failed flush")
            except BaseException:
                self._drop_writer()
                raise
            self._is_wal_doubtful = False
        return self._writer

    def _commit_transaction(self, before: model.Position) -> errors.TidegateError | None:
        """Commit and flush. Return an error if the commit failed or may have failed."""
        assert self._writer is not None
        try:
            self._writer.execute("COMMIT")
        except apsw.Error as error:
            return self._find_outcome(error, before)
        return None

    def _find_outcome(
        self, failure: apsw.Error, before: model.Position
    ) -> errors.TidegateError | None:
        """Find out from the head whether a failed COMMIT was applied.

        The head is certain, because this handle still holds the writer's lock.
        """
        self._close_after_failed_flush(failure)
        try:
            head, _ = next(self._open_writer().execute(sqlite_events.HEAD))
        except (apsw.Error, errors.StoreRefused, errors.StoreUnavailable):
            return errors.OutcomeUnknown(f"the flush failed: {failure}")
        if head == before:
            return errors.StoreUnavailable(f"nothing was written: {failure}")
        return None

    def _roll_back_after(self, failure: apsw.Error) -> None:
        """Roll back after an error before COMMIT.

        Even then a flush may have failed: pages that do not fit into the cache go to the WAL
        before COMMIT, and SQLite flushes a WAL when it restarts it.
        """
        self._roll_back()
        if isinstance(failure, apsw.IOError):
            self._close_after_failed_flush(failure)

    def _close_after_failed_flush(self, failure: apsw.Error) -> None:
        """Close the writer after a failed flush, for good if data may be lost.

        The system may have dropped the pages that it could not write, and a later flush may succeed
        without them. So nothing more is added to the WAL; its content is recovered once.
        """
        was_written = getattr(failure, "extendedresult", None) not in _NEVER_WRITTEN
        self._is_wal_doubtful = was_written and not isinstance(failure, apsw.FullError)
        if self._is_wal_doubtful:
            self.fault = errors.WriterClosed(
                f"a flush of the log failed ({failure}), so this process writes no more. Check the"
                " disk and start it again."
            )
        self._drop_writer()

    def _roll_back(self) -> None:
        assert self._writer is not None
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except apsw.Error:
            self._drop_writer()  # closing it rolls back too

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(apsw.Error):  # what stays in the WAL is still valid there
                writer.close(force=True)

    def _cache_names(self, ids: dict[str, int]) -> None:
        """Cache the ids of index names. They are committed now, and never change."""
        if len(self._names) + len(ids) > NAMES_KEPT_MAX:
            self._names = {}
        self._names |= ids
