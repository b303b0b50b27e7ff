"""Presence on PostgreSQL: an advisory lock that lasts as long as a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final
from zlib import crc32

from tidegate.engines.postgres import failures, layout, sessions
from tidegate.engines.presence import open_elsewhere, rebuild_running

NAMESPACE: Final = "tidegate"  # the schema if the URL names none

_CLASS: Final = 0x7469_6465  # the first of two lock keys; the lock of commits has only one key
_SIGN: Final = 1 << 31
_ALONE: Final = "pg_try_advisory_lock"
_COUNTED: Final = "pg_try_advisory_lock_shared"
_COMMITS: Final = b"SELECT pg_advisory_xact_lock(%s)"


@contextmanager
def hold_lock(url: str, alone: bool) -> Iterator[None]:
    """Hold an exclusive or a shared lock during the block. Raises: StoreRefused, Unavailable."""
    with failures.translate_errors():
        address = sessions.Address(url, NAMESPACE)
        connection = address.connect()
    key = (crc32(address.namespace.encode()) ^ _SIGN) - _SIGN
    with closing(connection):
        with failures.translate_errors():
            if not _try_lock(connection, _ALONE if alone else _COUNTED, key):
                # If a shared lock is free, others hold shared ones too. Else one process is alone.
                is_joinable = alone and _try_lock(connection, _COUNTED, key)
                raise open_elsewhere() if is_joinable else rebuild_running()
            if alone:
                # A process that was killed may still have a commit running on the server: wait.
                connection.execute(_COMMITS, (layout.lock_key(address.namespace),))
        yield


def _try_lock(connection: sessions.Connection, function: str, key: int) -> bool:
    found = connection.execute(f"SELECT {function}(%s, %s)".encode(), (_CLASS, key)).fetchone()
    return found == (True,)
