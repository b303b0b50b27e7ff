"""Tidegate as a library: a log that you open by URL.

The names in ``__all__`` are the public interface, also available through ``import tidegate``.
Everything else may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

from msgspec import Struct

from tidegate.clock import Clock, system_clock
from tidegate.control.outbox.sender import perform_then_record
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.provenance import Rules, Subject, Triple
from tidegate.domain.releases.generic import transition_append_event
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit, PendingCommit
from tidegate.errors import (
    BoundaryMoved,
    Conflict,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreUnavailable,
    TidegateError,
    TooLarge,
    Unavailable,
    UnfencedQuery,
    Unknown,
    VersionConflict,
)
from tidegate.kernel.attributes import FieldRole
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.leases import LEASES, Leases
from tidegate.kernel.model import (
    ABSENT,
    ALL,
    NO_META,
    Boundary,
    Check,
    Clause,
    Commit,
    CommitKey,
    Delete,
    Event,
    EventPage,
    Fact,
    Key,
    Match,
    Meta,
    Position,
    Put,
    Query,
    Receipt,
    Record,
)
from tidegate.kernel.records.actions import (
    CheckRow,
    CreateRow,
    DeleteRow,
    PutRow,
    Stored,
    UpdateRow,
)
from tidegate.kernel.records.records import REPAIRS, RawRecords, Records
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.tags import Cross, Partition, Untagged
from tidegate.kernel.vocabulary import FactType, Vocabulary, facts

__all__ = [
    "ABSENT",
    "ALL",
    "LEASES",
    "REPAIRS",
    "Boundary",
    "BoundaryMoved",
    "Check",
    "CheckRow",
    "Clause",
    "Collection",
    "CommandOutcome",
    "Commit",
    "CommitKey",
    "Conflict",
    "CreateRow",
    "Cross",
    "Delete",
    "DeleteRow",
    "Event",
    "EventPage",
    "Fact",
    "FactType",
    "FieldRole",
    "Fold",
    "Folds",
    "Index",
    "Invalid",
    "Key",
    "Leases",
    "Log",
    "Match",
    "Meta",
    "Nature",
    "NotFound",
    "OutcomeUnknown",
    "Partition",
    "Put",
    "PutRow",
    "Query",
    "RawRecords",
    "Receipt",
    "Record",
    "Records",
    "Refused",
    "Rules",
    "Schema",
    "Slice",
    "Store",
    "StoreUnavailable",
    "Stored",
    "Subject",
    "TidegateError",
    "TooLarge",
    "Triple",
    "Unavailable",
    "UnfencedQuery",
    "Unknown",
    "Untagged",
    "UpdateRow",
    "VersionConflict",
    "Vocabulary",
    "WriteMode",
    "WritePolicy",
    "Writers",
    "differences",
    "facts",
    "perform_then_record",
    "transition_append_event",
]


FOLLOWED_AT_ONCE = 1_000  # events of one read


class Log:
    """One log and its rows. Threads may share it; open another one in another process.

    Every call either succeeds or raises a ``TidegateError``. Catch a family (``Conflict``,
    ``Refused``, ``Unavailable``, ``Unknown``, …), not a leaf.
    """

    def __init__(
        self, url: str, schema: Schema, folds: Folds | None = None, *, clock: Clock = system_clock
    ) -> None:
        """Open the log at this URL, and create it if it does not exist.

        Raises:
            InvalidInput: no engine has such a URL. StoreRefused, StoreUnavailable.
        """
        self.store = connect(url, schema)
        self.clock = clock
        self._writer = GroupCommit(self.store)
        self._folds = folds

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the commits that are waiting, then close."""
        self._writer.close()
        self.store.close()

    # ── reading ──

    def read(
        self,
        query: Query,
        *,
        guard: Query | None = None,
        after: Position = 0,
        limit: int | None = None,
    ) -> EventPage:
        """The events that match, in position order, with the boundary of a decision on them.

        To see later events too, use ``follow``.
        """
        return self.store.read(query, guard=guard, after=after, limit=limit)

    def follow(self, query: Query, *, after: Position = 0) -> Iterator[Event]:
        """Yield the events that match and exist now, in position order, read page by page.

        Call it again with ``after`` at the last one to see the events since. No engine misses one.
        """
        while page := self.store.read(query, after=after, limit=FOLLOWED_AT_ONCE).events:
            yield from page
            after = page[-1].position

    def feed(self, *, after: Position = 0, limit: int) -> tuple[Event, ...]:
        """All events in position order, without gaps."""
        return self.store.feed(after=after, limit=limit).events

    def head(self) -> Position:
        """The last position that was allocated."""
        return self.store.head()

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        """The rows as of one moment; None where there is no row."""
        return self.store.get(*keys)

    def receipt(self, key: str) -> Receipt | None:
        """The receipt of the commit or command with this idempotency key; None if there is none."""
        return self.store.receipt(key)

    # ── writing ──

    def fact(self, value: Struct) -> Fact:
        """Encode a declared fact for a commit. Raises: InvalidInput."""
        return self.store.schema.vocabulary.fact(value)

    def commit(
        self,
        *values: Struct,
        on: Iterable[Boundary] = (),
        writes: Iterable[Put | Delete | Check] = (),
        once: CommitKey | None = None,
        meta: Meta = NO_META,
    ) -> Receipt:
        """Append facts under boundaries, with row writes and an idempotency key: all or nothing.

        Raises:
            Conflict: an event was added inside a boundary (``BoundaryMoved.clause``), or a row has
                changed. Invalid, TooLarge.
            Unavailable: nothing was applied.
            Unknown: it may have been applied; repeat it with the same key.
        """
        encoded = tuple(self.fact(value) for value in values)
        return self.submit(
            Commit(self.clock(), meta, encoded, tuple(on), tuple(writes), once)
        ).result()

    def submit(self, commit: Commit) -> PendingCommit:
        """Queue the commit, and return a future of its receipt. Many commits share one flush."""
        return self._writer.submit(commit)

    def execute(
        self, item: Slice, command: Struct, *, meta: Meta = NO_META, key: str | None = None
    ) -> CommandOutcome:
        """Decide a command, fold its facts into rows, and commit both.

        Raises:
            Refused: a rule does not allow the command.
            Conflict: every attempt conflicted with another commit.
            InvalidDefinition: the log was opened without the folds of its folded collections.
            All errors of ``commit``.
        """
        folds = Folds(self.store.schema, ()) if self._folds is None else self._folds
        control = Control(self.store, folds, self._writer.submit, clock=self.clock)
        return control.execute(item, command, meta=meta, key=key)

    # ── rows of your own ──

    def records(self, meta: Meta = NO_META) -> Records:
        """Access to kept rows under their write policies; ``meta`` names the actor."""
        return Records(self.store, self.clock, meta)

    def raw_records(self) -> RawRecords:
        """Repair rows regardless of their write policies; each repair is an event in the log."""
        return RawRecords(self.store, self.clock)
