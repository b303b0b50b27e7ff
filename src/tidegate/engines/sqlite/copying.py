"""Copies a database file as of one moment, while other processes read and write it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from tidegate.engines.sqlite import connection, events
from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.kernel.model import Position

ALL_PAGES = -1  # in one read transaction: the copy is of one moment, and the writer can continue


def copy(source: Path, destination: Path) -> Position:
    """Copy the database with its WAL into a new file, and return the head of the log in the copy.

    Raises:
        StoreRefused: the file exists already, or the copy fails the integrity check.
        StoreUnavailable.
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
