"""What a store must do to take part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from bench.speed.workload import Condition, Entry, Layout

FILL_BATCH = 1_000  # events per append while a log is filled


class ConditionFailed(Exception):
    """A conditional append met another writer's event: the workload forbids it."""


class Client(Protocol):
    """What one thread does to one log."""

    def head(self, tags: tuple[str, ...]) -> int:
        """Read the latest event under the tags; the position up to which the log was seen."""
        ...

    def append(self, entries: Sequence[Entry], condition: Condition) -> int:
        """Append all, durably; return the last position. Raises: ConditionFailed."""
        ...

    def read(self, tag: str) -> int:
        """Read the events under the tag, access type and payload of each, and count them."""
        ...


class RowClient(Client, Protocol):
    """A client that can commit rows with its event: none but ours can."""

    def append_with_rows(self, entries: Sequence[Entry], condition: Condition) -> int:
        """Do as `append`, with a versioned state row, an outbox row and an idempotency key."""
        ...


class Log(Protocol):
    """One open log of one contender."""

    @property
    def server(self) -> int | None:
        """The process that does the work, if it is not this one."""
        ...

    def client(self) -> Client: ...


class Contender(Protocol):
    """One store under measurement."""

    name: str
    title: str  # what it is, with its version
    rows: bool  # its clients are RowClients

    def empty(self) -> AbstractContextManager[Log]:
        """A new log, removed after the block."""
        ...

    def filled(self, layout: Layout) -> AbstractContextManager[Log]:
        """A copy, removed after the block, of a log that was filled once and is kept."""
        ...


def batches(entries: Iterable[Entry], size: int = FILL_BATCH) -> Iterable[list[Entry]]:
    """The entries in lists of at most `size`."""
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
