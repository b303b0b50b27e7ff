"""A pool of connections for reads."""

from __future__ import annotations

from types import TracebackType

import apsw

from tidegate.engines.sqlite.connection import open_reader
from tidegate.errors import StoreUnavailable

KEPT_MAX = 16  # idle connections; more readers at once open and close their own


class ReadConnection:
    """A connection that one thread uses inside ``with``. Raises: StoreUnavailable.

    The statement is closed at the end of the block. Otherwise this thread would finish it later,
    while another one reads on the same connection.
    """

    __slots__ = ("_cursor", "_home", "connection")

    def __init__(self, home: ConnectionPool, connection: apsw.Connection) -> None:
        self._home = home
        self.connection = connection
        self._cursor: apsw.Cursor | None = None

    def __enter__(self) -> apsw.Cursor:
        self._cursor = self.connection.cursor()
        return self._cursor

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cursor, self._cursor = self._cursor, None
        if error is None and cursor is not None:
            cursor.close()
            self._home.take_back(self)
        elif isinstance(error, apsw.Error):
            raise StoreUnavailable(f"cannot read: {error}") from error


class ConnectionPool:
    """The idle read connections of one handle."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[ReadConnection] = []
        self._closed = False

    def reader(self) -> ReadConnection:
        """Take an idle connection, or open one. Raises: StoreUnavailable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return self._idle.pop()  # atomic, as append is
        except IndexError:
            pass
        try:
            return ReadConnection(self, open_reader(self._path))
        except apsw.Error as error:
            raise StoreUnavailable(f"cannot read: {error}") from error

    def take_back(self, reader: ReadConnection) -> None:
        """Keep the connection for the next read, or close it if there are enough."""
        if len(self._idle) < KEPT_MAX and not self._closed:
            self._idle.append(reader)
        else:
            reader.connection.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().connection.close()
