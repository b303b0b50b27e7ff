"""The writer: it commits batches one after another under the log's lock, two round trips each.

    1   BEGIN · take the lock · head, newest facts, rows, idempotency keys
        (PostgresBatch.decide)
    2   facts · index · rows · keys · head and NOTIFY · COMMIT

A separate statement takes the lock. A statement sees what was committed before it began, so a check
in the statement that waits for the lock would miss the commit that it waited for. Positions are
allocated under the lock. So they have no gaps, and commits become visible in their order: readers
need no synchronization.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from threading import Lock
from uuid import uuid4

import psycopg

from tidegate.engines.key_ages import KEY_AGES, LogClock
from tidegate.engines.postgres import (
    batch as postgres_batch,
    failures,
    layout,
    log_tail,
    queries,
    sessions,
)
from tidegate.engines.postgres.indexing import Indexing, stored_tags
from tidegate.errors import OutcomeUnknown, StoreUnavailable, TidegateError
from tidegate.kernel import model, store

Answer = model.Receipt | TidegateError

TRIES_MAX = 4  # for a deadlock, a dead connection or a new generation
OUTCOME_SECONDS_MAX = 3.0  # how long to look for the outcome after a lost connection
OUTCOME_STATEMENT_SECONDS_MAX = 2
OUTCOME_PAUSE_SECONDS = 0.05
COLLECT_EVERY = 64  # batches between two deletions of old keys and heads
COLLECT_MAX = 256  # idempotency keys deleted at once
FOREIGN_MAX = 256  # facts of other processes read with the head; beyond it, the cache is emptied
HEADS_KEPT = 100_000  # positions; for older ones it is unknown which batch took them

_BEGIN = sessions.Statement(b"BEGIN")
_COMMIT = sessions.Statement(b"COMMIT")
_ROLLBACK = sessions.Statement(b"ROLLBACK")
_LOCK = b"SELECT pg_advisory_xact_lock($1)"
_HEAD = b"""
    SELECT h.seq, g.value, e.seq, e.type, e.tags
    FROM (SELECT seq FROM log_head ORDER BY seq DESC LIMIT 1) h
    JOIN log_meta g ON g.name = 'generation'
    LEFT JOIN LATERAL (
        SELECT l.seq, l.type, l.tags FROM event_log l WHERE l.seq > $1 ORDER BY l.seq LIMIT $2
    ) e ON true ORDER BY e.seq"""
_NEWEST = b"""
    SELECT p.n, p.t, (
        SELECT x.seq FROM event_index x
        WHERE x.name = p.n AND x.type = p.t ORDER BY x.seq DESC LIMIT 1
    ) FROM json_to_recordset($1::json) AS p(n text, t text)"""
_ONCE = b"""
    SELECT o.key, first, last, at, answer, digest
    FROM json_array_elements_text($1::json) k JOIN log_once o ON o.key = k"""

_ADD_EVENTS = b"""
    INSERT INTO event_log
    SELECT * FROM json_to_recordset($1::json) AS e(seq bigint, at text, kind text, type text,
        schema integer, tags text, meta text, body text)"""
_ADD_ENTRIES = b"""
    INSERT INTO event_index
    SELECT n, t, s FROM json_to_recordset($1::json) AS e(n text, t text, s bigint)"""
_ADD_ONCE = b"""
    INSERT INTO log_once
    SELECT key, decode(digest, 'hex'), first, last, at, decode(answer, 'hex')
    FROM json_to_recordset($1::json)
        AS o(key text, digest text, first bigint, last bigint, at text, answer text)"""
_ADD_HEAD = b"""
    WITH added AS (INSERT INTO log_head VALUES ($1, $2))
    SELECT pg_notify(current_schema(), $1::text)"""
_MARK = b"SELECT mark FROM log_head WHERE seq = $1"
_NEWEST_HEAD = sessions.Statement(b"SELECT max(seq) FROM log_head")

_COLLECT_ONCE = b"""
    DELETE FROM log_once
    WHERE key IN (SELECT key FROM log_once WHERE first <= $1 ORDER BY first LIMIT $2)"""
_AGES = b"SELECT value FROM log_meta WHERE name = $1"
_KEEP_AGES = b"""
    INSERT INTO log_meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_COLLECT_HEADS = b"DELETE FROM log_head WHERE seq < $1"

_PUT = """
    INSERT INTO {table} (id, version, born, data)
    SELECT id, version, born, data::json
    FROM json_to_recordset($1::json) AS r(id text, version bigint, born bigint, data text)
    ON CONFLICT (id) DO UPDATE
    SET version = excluded.version, born = excluded.born, data = excluded.data"""
_DELETE = "DELETE FROM {table} WHERE id IN (SELECT json_array_elements_text($1::json))"


class _NewGeneration(Exception):
    """Another process has opened the log with other fact types since we read the generation."""


class PostgresWriter:
    """The connection that writes. The threads of a handle use it one at a time."""

    def __init__(
        self, address: sessions.Address, schema: store.Schema, indexing: Indexing, clock: LogClock
    ) -> None:
        self._address = address
        self._schema = schema
        self._indexing = indexing
        self._clock = clock
        self._lock = Lock()
        self._key = layout.lock_key(address.namespace)
        self._take_lock = sessions.Statement(_LOCK, (queries.number(self._key),))
        self._session: sessions.PipelineSession | None = None
        self._tail: log_tail.LogTail | None = None
        self._batches = 0
        self._closed = False

    def commit(self, commits: Sequence[model.Commit]) -> list[Answer]:
        """Commit, and return an answer for each, in order. The commits were checked before."""
        with self._lock:
            try:
                return self._commit(commits)
            except psycopg.Error as error:
                if not failures.is_about_content(error) or len(commits) == 1:
                    return [failures.translate(error) for _ in commits]
                # The database refuses the content of one commit: the others must not fail with it.
                return [self._commit_alone(commit) for commit in commits]
            except TidegateError as error:
                return [error for _ in commits]

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Replace all rows of a collection.

        Raises:
            StoreUnavailable, StoreRefused, InvalidInput, OutcomeUnknown.
        """
        with (
            self._lock,
            failures.translate_errors(),
            closing(self._address.connect()) as connection,
        ):
            sent = False
            try:
                with connection.transaction():
                    self._replace(connection, queries.quoted(collection), records)
                    sent = True
            except psycopg.Error as error:
                if sent and failures.is_lost(error):
                    raise _unknown(error) from error
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    # ── one batch ──

    def _commit_alone(self, commit: model.Commit) -> Answer:
        try:
            return self._commit((commit,))[0]
        except psycopg.Error as error:
            return failures.translate(error)
        except TidegateError as error:
            return error

    def _commit(self, commits: Sequence[model.Commit]) -> list[Answer]:
        """Raises: psycopg.Error, TidegateError: nothing was applied."""
        for tries_left in reversed(range(TRIES_MAX)):
            reused = self._session is not None
            try:
                return self._attempt(commits)
            except _NewGeneration:
                self._reload_indexing()
            except psycopg.Error as error:
                again = failures.is_transient(error) or (reused and failures.is_lost(error))
                if not (again and tries_left):
                    raise
        raise StoreUnavailable("the log got new fact types at every attempt; try again")

    def _attempt(self, commits: Sequence[model.Commit]) -> list[Answer]:
        session = self._connect()
        batch = postgres_batch.PostgresBatch(self._schema.vocabulary, self._indexing, commits)
        mark = None
        answers: list[Answer] = []
        head = 0
        is_due = self._clock.is_due
        try:
            seen = self._look_up(session, batch, is_due)
            head = seen.head
            answers = batch.decide(seen)
            if seen.head == head:
                session.round_trip(_ROLLBACK)
            else:
                head, mark = seen.head, uuid4().hex
                ages = self._clock.tick(seen.ages, head) if is_due else None
                session.round_trip(*self._changes(batch, head, mark, ages))
        except BaseException as error:
            self._disconnect()
            if mark is None or not failures.is_lost(error):
                raise  # COMMIT was not sent, or the server reported that it failed
            return self._resolve_outcome(answers, head, mark, error)
        if mark is not None and self._tail is not None:
            self._tail.add((((e.n, e.t), e.s) for e in batch.entries), head)
        return answers

    def _look_up(
        self, session: sessions.PipelineSession, batch: postgres_batch.PostgresBatch, is_due: bool
    ) -> postgres_batch.LookedUp:
        """The first round trip. Raises: _NewGeneration, psycopg.Error."""
        tail = self._tail
        known = model.POSITION_MAX if tail is None else tail.head
        floor = model.POSITION_MAX if tail is None else tail.floor
        pairs = batch.pairs() if tail is None else batch.pairs_seen_before(floor)
        keys, touched = batch.once_keys(), batch.ids()
        asked = [
            *(_BEGIN, self._take_lock),
            sessions.Statement(_HEAD, (queries.number(known), queries.number(FOREIGN_MAX))),
            *([sessions.Statement(_AGES, (KEY_AGES.encode(),))] if is_due else []),
            *([_newest_of(pairs)] if pairs else []),
            *([sessions.Statement(_ONCE, (queries.encode(keys),))] if keys else []),
            *(queries.rows(name, ids, "id, version, born") for name, ids in touched.items()),
        ]
        _, _, head, *found = map(sessions.rows, session.round_trip(*asked))
        answers = iter(found)
        ages = next(answers) if is_due else []
        looked_up = next(answers) if pairs else []
        updated = self._update_tail(head)
        missing = batch.pairs_seen_past(updated.head)
        if updated.floor > floor:
            # The cache dropped facts when it caught up: look up the pairs that needed them.
            missing |= batch.pairs_seen_before(updated.floor)
        if missing := missing - pairs:
            looked_up += sessions.rows(session.round_trip(_newest_of(missing))[0])
        newest = {pair: updated.newest(pair) for pair in batch.pairs()}
        for name, type, seq in looked_up:
            newest[name.decode(), type.decode()] = int(seq or 0)
        once = {
            key.decode(): queries.receipt_of(receipt)
            for key, *receipt in (next(answers) if keys else ())
        }
        stamps = {
            model.Key(name, id.decode()): postgres_batch.Stamp(int(version), int(born))
            for name, stamped in zip(touched, answers, strict=True)
            for id, version, born in stamped
        }
        stored = ages[0][0].decode() if ages else None
        return postgres_batch.LookedUp(updated.head, updated.head, newest, stamps, once, stored)

    def _update_tail(self, found: list[sessions.Row]) -> log_tail.LogTail:
        """The cache, updated with the facts of other processes; a new one if those are too many.

        Raises:
            _NewGeneration.
        """
        head, generation = int(found[0][0]), int(found[0][1])
        if generation != self._indexing.generation:
            raise _NewGeneration
        tail = self._tail
        if tail is None or (head > tail.head and len(found) == FOREIGN_MAX):
            tail = self._tail = log_tail.LogTail(head)
        elif head > tail.head:
            types = self._indexing.types
            facts = (
                ((name, type.decode()), int(seq))
                for _, _, seq, type, tags in found
                if seq is not None
                for name in types[type.decode()].names(stored_tags(tags))
            )
            tail.add(facts, head)
        return tail

    def _changes(
        self, batch: postgres_batch.PostgresBatch, head: model.Position, mark: str, ages: str | None
    ) -> Iterator[sessions.Statement]:
        """The second round trip: everything that the batch writes, and COMMIT."""
        if batch.events:
            yield sessions.Statement(_ADD_EVENTS, (queries.encode(batch.events),))
        if batch.entries:
            yield sessions.Statement(_ADD_ENTRIES, (queries.encode(batch.entries),))
        for name, ids in batch.deletes().items():
            yield sessions.Statement(
                _DELETE.format(table=queries.quoted(name)).encode(), (queries.encode(ids),)
            )
        for name, changed in batch.puts().items():
            yield sessions.Statement(
                _PUT.format(table=queries.quoted(name)).encode(), (queries.encode(changed),)
            )
        if batch.once:
            yield sessions.Statement(_ADD_ONCE, (queries.encode(batch.once),))
        if ages is not None:
            yield sessions.Statement(_KEEP_AGES, (KEY_AGES.encode(), ages.encode()))
        self._batches += 1
        if self._batches % COLLECT_EVERY == 0:
            if self._clock.floor:
                bounds = (queries.number(self._clock.floor), queries.number(COLLECT_MAX))
                yield sessions.Statement(_COLLECT_ONCE, bounds)
            yield sessions.Statement(_COLLECT_HEADS, (queries.number(head - HEADS_KEPT),))
        yield sessions.Statement(_ADD_HEAD, (queries.number(head), mark.encode()))
        yield _COMMIT

    # ── after a connection was lost during COMMIT ──

    def _resolve_outcome(
        self, answers: list[Answer], head: model.Position, mark: str, error: BaseException
    ) -> list[Answer]:
        """The answers of a batch whose COMMIT was sent but not acknowledged."""
        is_committed = self._is_committed(head, mark)
        if is_committed:
            return answers
        lost = StoreUnavailable(f"PostgreSQL: {failures.message(error)}")
        if is_committed is None:
            # A conflict may be with a commit of this batch, whose outcome is unknown. Certain is
            # only that the refused commit was not applied.
            unknown = _unknown(error)
            return [unknown if isinstance(answer, model.Receipt) else lost for answer in answers]
        return [lost for _ in answers]

    def _is_committed(self, head: model.Position, mark: str) -> bool | None:
        """Whether our batch was committed at this head; None if that cannot be found out."""
        deadline = time.monotonic() + OUTCOME_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                with closing(
                    sessions.PipelineSession(self._address, OUTCOME_STATEMENT_SECONDS_MAX)
                ) as session:
                    # If our old session is still committing, this waits for its lock.
                    _, _, marked, newest, _ = session.round_trip(
                        _BEGIN,
                        self._take_lock,
                        sessions.Statement(_MARK, (queries.number(head),)),
                        _NEWEST_HEAD,
                        _COMMIT,
                    )
            except psycopg.OperationalError:
                time.sleep(OUTCOME_PAUSE_SECONDS)
                continue
            found = [value for (value,) in sessions.rows(marked)]
            if not found and int(sessions.rows(newest)[0][0]) - head > HEADS_KEPT:
                return None
            return found == [mark.encode()]
        return None

    # ── replacing a collection ──

    def _replace(
        self, connection: sessions.Connection, table: str, records: Iterable[model.Record]
    ) -> None:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._key,))
        connection.execute(f"DELETE FROM {table}".encode())
        copy = f"COPY {table} (id, version, born, data) FROM STDIN".encode()
        with connection.cursor().copy(copy) as copied:
            for record in records:
                data = record.data.decode()
                copied.write_row((record.key.id, record.version, record.born, data))

    # ── the session ──

    def _connect(self) -> sessions.PipelineSession:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._session is None:
            self._session = sessions.PipelineSession(self._address, sessions.STATEMENT_SECONDS_MAX)
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        self._tail = None

    def _reload_indexing(self) -> None:
        """Read the index rules again.

        Raises:
            StoreRefused: a newer version indexes a type differently from this one.
        """
        with closing(self._address.connect()) as connection:
            indexing = layout.load_indexing(connection)
        indexing.check(self._schema.vocabulary)
        self._indexing = indexing


def _newest_of(pairs: set[log_tail.Pair]) -> sessions.Statement:
    return sessions.Statement(
        _NEWEST, (queries.encode([{"n": name, "t": type} for name, type in pairs]),)
    )


def _unknown(error: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"PostgreSQL did not report whether the commit was applied: {failures.message(error)}"
    )
