"""Which processes have a log open: many that read and commit, or a single one that rebuilds rows.

    sqlite       a lock on a file next to the database; the system releases it if the process dies
    postgresql   an advisory lock of a separate connection; the server releases it
    dynamodb     a lease, renewed while the process runs; if it dies, the lease has to expire
    memory       none: no other process can have it open

Processes that commit cache rows, and a rebuilt row may keep its version, so no guard would notice
that it changed. That is why a process that rebuilds rows must be the only one. A lease may expire
while its process still runs. On DynamoDB such a process can commit no more once another one has
been alone with the log (ADR-0014).
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
LEASE_SECONDS = 30.0  # on DynamoDB: how long a process that died still counts as present
OPEN_ELSEWHERE: Final = "open_elsewhere"  # the ``reason`` of a refusal that others cause


def open_elsewhere(more: str = "") -> StoreRefused:
    """Make the refusal for a process that must be alone while others have the log open."""
    return StoreRefused(
        f"another process has the log open; stop every server and worker of it first{more}",
        reason=OPEN_ELSEWHERE,
    )


def rebuild_running() -> StoreRefused:
    """Make the refusal for a process that opens the log during a rebuild."""
    return StoreRefused("the rows of the log are being rebuilt; start again when that is done")


@contextmanager
def present(url: str, *, alone: bool = False, lease: float = LEASE_SECONDS) -> Iterator[None]:
    """Register this process as one that has the log open, or as the only one, during the block.

    Open a store that commits inside the block. ``lease`` matters on DynamoDB only.

    Raises:
        StoreRefused: another process has the log open, or is alone with it. Unavailable.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite":
            with _hold_file_lock(unquote(parts.path[1:]) + OPEN_SUFFIX, alone):
                yield
        case "postgresql" | "postgres":
            from tidegate.engines.postgres.presence import hold_lock

            with hold_lock(url, alone):
                yield
        case "dynamodb":
            from tidegate.engines.dynamodb.presence import hold_lease

            with hold_lease(url, alone, lease):
                yield
        case _:
            yield


@contextmanager
def _hold_file_lock(path: str, alone: bool) -> Iterator[None]:
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreRefused(f"cannot open {path}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        if not _try_lock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            # If a shared lock is free, others hold shared ones too. Else one process is alone.
            raise (
                open_elsewhere() if alone and _try_lock(file, fcntl.LOCK_SH) else rebuild_running()
            )
        yield


def _try_lock(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
