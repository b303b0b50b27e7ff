"""Roll back a publication, and delete publications past their ttl."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tidegate.control.publication.generations import CollectedRows, collect_past
from tidegate.control.publication.publisher import Publisher
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import Control
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.channels import refusals, rows as channel_rows
from tidegate.kernel.model import Position


class PublicationCollection(Struct, frozen=True):
    """How many rows were deleted, and the log position after that; 0: none."""

    rows: CollectedRows
    position: Position


class PublicationOperations:
    """The verbs of publications."""

    def __init__(
        self,
        control: Control,
        reads: Reads,
        publisher: Publisher,
        log: LogReader,
        notify: Callable[[], None],
    ) -> None:
        self._control = control
        self._reads = reads
        self._publisher = publisher
        self._log = log
        self._notify = notify

    def roll_back(self, caller: callers.Caller, cache_key: str, version_id: str) -> Position:
        """Set a publication back to one of its generations, under a lease.

        Returns the log position of the change.

        Raises:
            MissingPermission, NotFound, PublicationOfChannel, BlobDamaged, LeaseHeld, LeaseLost,
            IdempotencyMismatch.
        """
        caller.demand(steps.ROLL_BACK_PUBLICATION, roles.EVERYWHERE)
        self._publisher.demand(cache_key)
        if self._reads.find(channel_rows.channel_key(cache_key), channel_rows.Channel) is not None:
            raise refusals.PublicationOfChannel(cache_key)
        outcome = self._publisher.roll_back(
            cache_key, version_id, by=caller.id, meta=caller.meta, key=caller.commit_key
        )
        self._notify()
        return outcome.position or self._publisher.demand(cache_key).version

    def collect(self, caller: callers.Caller) -> PublicationCollection:
        """Delete what is past its ttl: at most 500 publications and 500 requests.

        Raises:
            MissingPermission.
        """
        caller.demand(steps.COLLECT_PUBLICATIONS, roles.EVERYWHERE)
        rows = collect_past(self._control, caller.meta)
        if not any(rows):
            return PublicationCollection(rows, 0)
        self._notify()
        return PublicationCollection(rows, self._log.head())
