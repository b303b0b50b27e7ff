"""Who has a log open: any number who read and commit, or one who makes its rows anew.

    sqlite       a lock on a file beside the database; the system frees it when a process dies
    postgresql   an advisory lock of a connection of its own; the server frees it
    dynamodb     none: no lock there outlives a process and ends with it
    memory       none: nobody else can have it open

What commits holds rows in memory, and a row that is made anew may keep its version: no guard would
notice. So whoever makes rows anew is alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from tidegate.errors import StoreRefused

OPEN_SUFFIX = ".open"

_OTHERS = "another process has the log open; stop every server and worker of it first"
_REBUILT = "the rows of the log are being made anew; start when that is over"


@contextmanager
def present(url: str, *, alone: bool = False) -> Iterator[None]:
    """Be counted among those who have the log open while the block lasts, or be the only one.

    Raises:
        StoreRefused: somebody else has it open, or is alone with it. Unavailable.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite":
            with _file(unquote(parts.path[1:]) + OPEN_SUFFIX, alone):
                yield
        case "postgresql" | "postgres":
            from tidegate.engines.postgres.presence import held

            with held(url, alone) as is_held:
                if not is_held:
                    raise StoreRefused(_OTHERS if alone else _REBUILT)
                yield
        case _:
            yield


@contextmanager
def _file(path: str, alone: bool) -> Iterator[None]:
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreRefused(f"cannot open {path}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreRefused(_OTHERS if alone else _REBUILT) from None
        yield
