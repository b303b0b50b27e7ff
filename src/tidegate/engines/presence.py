"""Who has a log open: any number who read and commit, or one who rebuilds its rows.

    sqlite       a lock on a file beside the database; the system frees it when a process dies
    postgresql   an advisory lock of a connection of its own; the server frees it
    dynamodb     a lease, renewed while the process lives; one that died is counted until it is over
    memory       none: nobody else can have it open

What commits holds rows in memory, and a row that is rebuilt may keep its version: no guard would
notice. So who rebuilds rows is alone. A lease may lapse under a process that lives on: on
DynamoDB no commit of it lands after somebody was alone since (ADR-0014).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from tidegate.errors import StoreRefused

OPEN_SUFFIX = ".open"
LEASE_SECONDS = 30.0  # how long a process that died is counted where presence is a lease
OPEN_ELSEWHERE: Final = "open_elsewhere"  # the ``reason`` of a refusal that ends with those others


def open_elsewhere(more: str = "") -> StoreRefused:
    """Nobody can be alone: others have the log open."""
    return StoreRefused(
        f"another process has the log open; stop every server and worker of it first{more}",
        reason=OPEN_ELSEWHERE,
    )


def being_made_anew() -> StoreRefused:
    """Nobody can be there: one is alone."""
    return StoreRefused("the rows of the log are being rebuilt; start again when that is done")


@contextmanager
def present(url: str, *, alone: bool = False, lease: float = LEASE_SECONDS) -> Iterator[None]:
    """Be counted among those who have the log open while the block lasts, or be the only one.

    A store that is to commit is opened inside the block. ``lease`` counts on DynamoDB only.

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

            with held(url, alone):
                yield
        case "dynamodb":
            from tidegate.engines.dynamodb.presence import leased

            with leased(url, alone, lease):
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
        if not _locked(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            # Whoever could join here is kept from being alone by others who joined.
            raise open_elsewhere() if alone and _locked(file, fcntl.LOCK_SH) else being_made_anew()
        yield


def _locked(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
