"""A copy of a database file as it is at one moment, while others read and write it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from tidegate.engines.sqlite import connection, events
from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.kernel.model import Position

ALL_PAGES = -1  # in one read transaction: the writer goes on, and the copy is of one moment


def copy(source: Path, destination: Path) -> Position:
    """Copy the database, its write-ahead log included, into a file that is not there yet; the
    head of the log in it.

    Raises:
        StoreRefused: there is something, or the copy is not sound. StoreUnavailable.
    """
    if destination.exists():
        raise StoreRefused(f"{destination.name} exists already")
    try:
        with (
            closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as before,
            closing(apsw.Connection(str(destination))) as after,
        ):
            before.set_busy_timeout(connection.BUSY_TIMEOUT_MS)
            with after.backup("main", before, "main") as backup:
                backup.step(ALL_PAGES)
            ((found,),) = after.execute("PRAGMA integrity_check(1)").fetchall()
            head, _ = next(after.execute(events.HEAD))
    except apsw.Error as error:
        raise StoreUnavailable(f"{source.name} cannot be copied: {error}") from error
    if found != "ok":
        raise StoreRefused(f"the copy of {source.name} is not sound: {found}")
    return int(head)
