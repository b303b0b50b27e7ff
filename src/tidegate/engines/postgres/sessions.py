"""Connections to the server: their address, their settings, and the protocol on them.

The driver's cursors send each statement of a pipeline separately, which wakes the server once per
statement. A ``PipelineSession`` writes all statements of a round trip at once and then reads all
results. Parameters and results stay text, because most of them are JSON anyway.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import compress
from select import POLLIN, POLLOUT, poll
from threading import BoundedSemaphore, Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from tidegate.engines.postgres.failures import error_of_state, is_lost, translate_errors
from tidegate.errors import InvalidInput, StoreUnavailable

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]  # of bytes, or None for NULL

READERS_MAX = 8  # connections of one handle in addition to its writer
READ_TRIES_MAX = 2  # an idle connection may have died unnoticed
STATEMENT_SECONDS_MAX = 5  # of the writer, including the wait for the log's lock
READ_SECONDS_MAX = 60
STALL_SECONDS_MAX = 5  # a writer that stops between its two round trips loses the lock after this
ANSWER_SECONDS_MAX = 5  # how long to wait for a result beyond the server's own limit
CONNECT_SECONDS_MAX = 5
STATEMENTS_MAX = 500  # prepared statements of one session

_NAMESPACE = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")

# A cached plan is made once, perhaps for an empty table that was never analysed. Without these
# settings the planner would choose a sequential scan then, and keep it while the log grows. They
# also raise the estimated costs, so that jit would compile every statement: hence jit is off.
_SETTINGS = """
    SET search_path TO "{namespace}", pg_catalog, pg_temp;
    SET plan_cache_mode = force_generic_plan; SET jit = off;
    SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '{seconds}s';
    SET idle_in_transaction_session_timeout = '{stall}s'
"""

# The defaults for libpq; the URL can override them. Decisions need the primary, and the keepalives
# and timeouts detect a server that vanished.
_PARAMETERS: dict[str, Any] = {
    "target_session_attrs": "read-write",
    "connect_timeout": CONNECT_SECONDS_MAX,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "tidegate",
}


class Address:
    """A server's URL and the schema of one log in it."""

    def __init__(self, url: str, namespace: str) -> None:
        """Raises: InvalidInput: libpq cannot read the URL, or the schema's name is not valid."""
        conninfo, chosen = _split(url)
        self.namespace = chosen or namespace
        if not _NAMESPACE.fullmatch(self.namespace):
            raise InvalidInput(
                f"a schema is named [a-z_][a-z0-9_]*, not pg_…, found {self.namespace!r}"
            )
        try:
            self._parameters = _PARAMETERS | conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"not a PostgreSQL URL: {error}") from None

    def connect(self, statement_seconds: int = STATEMENT_SECONDS_MAX) -> Connection:
        """Open a connection in autocommit mode. Raises: psycopg.Error."""
        connection: Connection = psycopg.connect(
            autocommit=True, client_encoding="UTF8", **self._parameters
        )
        connection.execute(
            _SETTINGS.format(
                namespace=self.namespace, seconds=statement_seconds, stall=STALL_SECONDS_MAX
            ).encode()
        )
        return connection


def _split(url: str) -> tuple[str, str | None]:
    """Split off the ``schema`` parameter, which libpq does not know, and return URL and schema."""
    parts = urlsplit(url)
    if not parts.scheme or not parts.query:
        return url, None
    kept = [term for term in parts.query.split("&") if term.partition("=")[0] != "schema"]
    chosen = dict(parse_qsl(parts.query)).get("schema")
    # Not ``urlunsplit``: it drops the empty host of ``postgresql:///name``.
    return url.partition("?")[0] + ("?" + "&".join(kept) if kept else ""), chosen


class Statement(NamedTuple):
    """SQL with the parameters $1, $2, … as text."""

    sql: bytes
    parameters: Sequence[bytes | None] = ()


class PipelineSession:
    """One connection in pipeline mode.

    After an error its state is unknown, so the caller must close it.
    """

    def __init__(self, address: Address, statement_seconds: int) -> None:
        """Raises: psycopg.Error."""
        self._connection = address.connect(statement_seconds)
        self._seconds = statement_seconds + ANSWER_SECONDS_MAX
        self._pgconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._poll = poll()
        self._poll.register(self._pgconn.socket, POLLIN)
        self._prepared: dict[bytes, bytes] = {}

    def round_trip(self, *statements: Statement) -> list[PGresult]:
        """Send the statements, and return one result for each. Raises: psycopg.Error."""
        answers: list[bool] = []  # for each expected result: whether it is of a statement
        for sql, parameters in statements:
            self._send(sql, parameters, answers)
        self._pgconn.pipeline_sync()
        deadline = time.monotonic() + self._seconds
        self._flush(deadline)
        results = [self._result(deadline) for _ in answers]
        self._result(deadline, last=True)
        return list(compress(results, answers))

    def close(self) -> None:
        self._connection.close()

    def _send(self, sql: bytes, parameters: Sequence[bytes | None], answers: list[bool]) -> None:
        name = self._prepared.get(sql)
        if name is None and len(self._prepared) < STATEMENTS_MAX:
            name = self._prepared[sql] = b"s%d" % len(self._prepared)
            self._pgconn.send_prepare(name, sql)
            answers.append(False)
        if name is None:
            self._pgconn.send_query_params(sql, parameters)
        else:
            self._pgconn.send_query_prepared(name, parameters)
        answers.append(True)

    def _flush(self, deadline: float) -> None:
        if self._pgconn.flush() == 0:
            return
        self._poll.modify(self._pgconn.socket, POLLIN | POLLOUT)
        while self._pgconn.flush():
            # The server may stop reading until we have read its results.
            if self._wait(deadline) & ~POLLOUT:
                self._pgconn.consume_input()
        self._poll.modify(self._pgconn.socket, POLLIN)

    def _result(self, deadline: float, *, last: bool = False) -> PGresult:
        """The next result. Raises: psycopg.Error: the server's, or the connection is lost."""
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait(deadline)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None or result.status in _FAILED:
            raise _failure(result)
        if not last:
            ended = pgconn.get_result()  # the NULL that libpq puts between two results
            assert ended is None
        return result

    def _wait(self, deadline: float) -> int:
        """Wait until the socket can be read, or written if it is registered for that too."""
        found = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1_000)
        if not found:
            raise psycopg.OperationalError("the server did not respond in time")
        return found[0][1]


_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.PIPELINE_ABORTED)


def _failure(result: PGresult | None) -> psycopg.Error:
    if result is None:
        return error_of_state(None, "the server closed the connection without an error")
    state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
    return error_of_state(state.decode() if state else None, result.get_error_message())


def rows(result: PGresult) -> list[Row]:
    """All rows of a result, as text."""
    value = result.get_value
    columns = range(result.nfields)
    return [tuple([value(row, column) for column in columns]) for row in range(result.ntuples)]


class SessionPool:
    """A pool of sessions for reads. The last one used is used next, because its caches are warm."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[PipelineSession] = []
        self._room = BoundedSemaphore(READERS_MAX)
        self._lock = Lock()
        self._closed = False

    def run(self, statement: Statement) -> list[Row]:
        """Run the statement, and return its rows. It is retried if an idle session has died.

        Raises:
            StoreUnavailable, StoreRefused, InvalidInput.
        """
        with self._room, translate_errors():
            for tries_left in reversed(range(READ_TRIES_MAX)):
                session = self._take()
                try:
                    (answer,) = session.round_trip(statement)
                except BaseException as error:
                    session.close()
                    if not (is_lost(error) and tries_left):
                        raise
                    self._drop()  # the other idle sessions have probably died, too
                else:
                    self._put_back(session)
                    return rows(answer)
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _take(self) -> PipelineSession:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._idle:
                return self._idle.pop()
        return PipelineSession(self._address, READ_SECONDS_MAX)

    def _put_back(self, session: PipelineSession) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(session)
                return
        session.close()
