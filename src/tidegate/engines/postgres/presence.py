"""Being there: an advisory lock that lasts as long as a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final
from zlib import crc32

from tidegate.engines.postgres.failures import translated
from tidegate.engines.postgres.sessions import Address

NAMESPACE: Final = "tidegate"  # of a store whose URL names none

_CLASS: Final = 0x7469_6465  # of our advisory locks with two keys; that of commits has one
_SIGN: Final = 1 << 31


@contextmanager
def held(url: str, alone: bool) -> Iterator[bool]:
    """Whether the lock could be had: a shared one, or the only one. Raises: Unavailable."""
    name = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
    with translated():
        address = Address(url, NAMESPACE)
        connection = address.connect()
    key = (crc32(address.namespace.encode()) ^ _SIGN) - _SIGN
    with closing(connection):
        with translated():
            found = connection.execute(f"SELECT {name}(%s, %s)".encode(), (_CLASS, key)).fetchone()
        yield found == (True,)
