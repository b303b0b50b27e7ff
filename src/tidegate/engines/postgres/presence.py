"""Being there: an advisory lock that lasts as long as a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final
from zlib import crc32

from tidegate.engines.postgres import failures, layout, sessions
from tidegate.engines.presence import being_made_anew, open_elsewhere

NAMESPACE: Final = "tidegate"  # of a store whose URL names none

_CLASS: Final = 0x7469_6465  # of our advisory locks with two keys; that of commits has one
_SIGN: Final = 1 << 31
_ALONE: Final = "pg_try_advisory_lock"
_COUNTED: Final = "pg_try_advisory_lock_shared"
_COMMITS: Final = b"SELECT pg_advisory_xact_lock(%s)"


@contextmanager
def held(url: str, alone: bool) -> Iterator[None]:
    """Hold the lock, the only one or a shared one. Raises: StoreRefused, Unavailable."""
    with failures.translate_errors():
        address = sessions.Address(url, NAMESPACE)
        connection = address.connect()
    key = (crc32(address.namespace.encode()) ^ _SIGN) - _SIGN
    with closing(connection):
        with failures.translate_errors():
            if not _locked(connection, _ALONE if alone else _COUNTED, key):
                # Whoever could join here is kept from being alone by others who joined.
                is_joinable = alone and _locked(connection, _COUNTED, key)
                raise open_elsewhere() if is_joinable else being_made_anew()
            if alone:
                # Somebody who was killed may have a commit under way there: it ends first.
                connection.execute(_COMMITS, (layout.lock_key(address.namespace),))
        yield


def _locked(connection: sessions.Connection, function: str, key: int) -> bool:
    found = connection.execute(f"SELECT {function}(%s, %s)".encode(), (_CLASS, key)).fetchone()
    return found == (True,)
