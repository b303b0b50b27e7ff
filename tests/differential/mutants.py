"""Stores with one planted bug each, to prove that the comparison finds it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from time import sleep
from typing import Any

from msgspec.structs import replace

from tidegate.control.runtime import CommandOutcome, Control
from tidegate.engines.dynamodb.items import void_slot
from tidegate.engines.dynamodb.log import SlotLog
from tidegate.engines.dynamodb.transport import Item
from tidegate.engines.memory import MemoryStore
from tidegate.engines.postgres.log_tail import LogTail as PostgresRecent, Pair
from tidegate.engines.postgres.sessions import Row
from tidegate.engines.postgres.writer import PostgresWriter
from tidegate.engines.sqlite import SqliteStore
from tidegate.engines.sqlite.own_writes import OwnWrites as SqliteRecent
from tidegate.errors import IdempotencyMismatch, TidegateError
from tidegate.kernel.model import (
    ABSENT,
    ANY,
    Boundary,
    Clause,
    Commit,
    CommitKey,
    Event,
    EventPage,
    Match,
    Position,
    Query,
    Receipt,
)
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

# ── bugs of an engine, planted in the oracle's own code ───────────────────────────────────────────


class BoundaryOffByOne(MemoryStore):
    """The first event after the read is not noticed."""

    def _check_boundary(self, boundary: Boundary) -> None:
        super()._check_boundary(replace(boundary, seen=boundary.seen + 1))


class TypesIgnoredInRead(MemoryStore):
    """A read returns every type under the tags."""

    def _matches(self, query: Query, event: Event) -> bool:
        clauses = (replace(clause, types=ANY) for clause in query.clauses)
        return any(self.schema.vocabulary.matches(clause, event) for clause in clauses)


class TypesIgnoredInCheck(MemoryStore):
    """A sibling type under the same tag conflicts."""

    def _fences(self, clause: Clause, event: Event) -> bool:
        vocabulary = self.schema.vocabulary
        return vocabulary.index(clause) in vocabulary.indexes(event)


class CheckNeedsAWrite(MemoryStore):
    """A boundary counts only for a commit that writes a fact under its index (log.md, F9)."""

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        vocabulary = self.schema.vocabulary
        written = {name for fact in commit.facts for name in vocabulary.indexes(fact)}
        kept = tuple(
            boundary
            for boundary in commit.boundaries
            if any(vocabulary.index(clause) in written for clause in boundary.clauses)
        )
        return super()._commit(replace(commit, boundaries=kept))


class KeyAfterConditions(MemoryStore):
    """A repeated commit gets a conflict, mostly with itself, instead of its first receipt."""

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        try:
            self.schema.check(commit, self.pack_cost_max)
            for boundary in commit.boundaries:
                self._check_boundary(boundary)
            for write in commit.writes:
                self._check_version(write)
        except TidegateError as error:
            return error
        return super()._commit(commit)


class DigestIgnored(MemoryStore):
    """A key that was used for another request answers as if it were the same one."""

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        answer = super()._commit(commit)
        if isinstance(answer, IdempotencyMismatch) and commit.once is not None:
            return super()._commit(replace(commit, once=replace(commit.once, digest=b"first")))
        return answer


class ExactAsContains(MemoryStore):
    """A composite clause finds events that carry more than its tags."""

    def _matches(self, query: Query, event: Event) -> bool:
        clauses = (
            replace(clause, match=Match.CONTAINS) if len(clause.tags) > 1 else clause
            for clause in query.clauses
        )
        return any(self.schema.vocabulary.matches(clause, event) for clause in clauses)


ENGINE_BUGS: tuple[tuple[type[MemoryStore], str], ...] = (
    (BoundaryOffByOne, r"(oracle|engine): .*BoundaryMoved"),  # it read what is not there yet
    (TypesIgnoredInRead, r"oracle: \((?s:.*)engine: \(Event"),
    (TypesIgnoredInCheck, r"engine: .*BoundaryMoved"),
    (CheckNeedsAWrite, r"oracle: .*BoundaryMoved"),
    (KeyAfterConditions, r"oracle: .*(replayed=True|IdempotencyMismatch)"),
    (DigestIgnored, r"oracle: .*IdempotencyMismatch"),
    (ExactAsContains, r"engine: \(Event"),
)


# ── bugs planted in the SQLite engine ─────────────────────────────────────────────────────────────


class SqliteOffByOne(SqliteStore):
    """A read claims to have reached one position more than it did."""

    def read(self, query: Query, **scope: Any) -> EventPage:
        page = super().read(query, **scope)
        if not page.has_boundary:
            return page
        return replace(page, guarded=replace(page.boundary, seen=page.boundary.seen + 1))


class _OfAnyType(Vocabulary):
    def served(self, clause: Clause) -> tuple[str | None, frozenset[str] | None]:
        return super().served(clause)[0], ANY


class SqliteTypesIgnored(SqliteStore):
    """Reads and fences take every type under the index."""

    def __init__(self, path: str, schema: Schema) -> None:
        super().__init__(path, schema)
        self.schema = copy(schema)
        self.schema.vocabulary = copy(schema.vocabulary)
        self.schema.vocabulary.__class__ = _OfAnyType


class SqliteCheckNeedsAWrite(SqliteStore):
    """A commit that writes nothing is not checked."""

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        return super().commit(
            *(
                commit if commit.facts or commit.writes else replace(commit, boundaries=())
                for commit in commits
            )
        )


SQLITE_BUGS: tuple[tuple[type[SqliteStore], str], ...] = (
    (SqliteOffByOne, r"(oracle|engine): .*BoundaryMoved"),  # it read what is not there yet
    (SqliteTypesIgnored, r"engine: (\(Event|.*BoundaryMoved)"),
    (SqliteCheckNeedsAWrite, r"oracle: .*BoundaryMoved"),
)


# ── bugs planted in caches of the end of the log ──────────────────────────────────────────────────


class SqliteForgets(SqliteRecent):
    """Empties its cache without recording it, and still checks older boundaries by the cache."""

    def meet(self, head: Position) -> None:
        since, others = self.since, head != self._left_at
        super().meet(head)
        if not others:
            self.since = since


class PostgresForgets(PostgresRecent):
    """Drops its older half without recording it."""

    def add(self, facts: Iterable[tuple[Pair, Position]], head: Position) -> None:
        floor = self.floor
        super().add(facts, head)
        self.floor = floor


class FloorOfBefore(PostgresWriter):
    """Looks up what is below the floor that its cache had before it caught up."""

    def _update_tail(self, found: list[Row]) -> PostgresRecent:
        before = self._tail
        floor = 0 if before is None else before.floor
        recent = super()._update_tail(found)
        if recent is not before:
            return recent
        judged_by = copy(recent)
        judged_by.floor = floor
        return judged_by


MEMORY_BUGS: tuple[tuple[str, str, type[Any]], ...] = (
    ("sqlite", "tidegate.engines.sqlite.own_writes.OwnWrites", SqliteForgets),
    ("postgres", "tidegate.engines.postgres.log_tail.LogTail", PostgresForgets),
    ("postgres", "tidegate.engines.postgres.writer.PostgresWriter", FloorOfBefore),
)


# ── a bug planted in the DynamoDB engine ──────────────────────────────────────────────────────────


class VoidOnlyInMind(SlotLog):
    """A reader passes an old hole without closing it, so its writer can still commit."""

    def _void_hole(self, hole: int) -> Item | None:
        return void_slot(hole) if self._history.is_old(hole) else None


# ── bugs that only a race shows ───────────────────────────────────────────────────────────────────


class GuardOutside:
    """Any store, with the boundary checked in a transaction of its own before the commit's."""

    GAP_SECONDS = 0.001  # between the two: the time that the network would take

    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        return tuple(self._commit(commit) for commit in commits)

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        if commit.boundaries:
            (checked,) = self._store.commit(Commit(commit.at, boundaries=commit.boundaries))
            if isinstance(checked, TidegateError):
                return checked
            sleep(self.GAP_SECONDS)
        (answer,) = self._store.commit(replace(commit, boundaries=()))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


# ── bugs of the write path above the engines ──────────────────────────────────────────────────────


class KeyAfterDecide(Control):
    """The key is looked up by the commit alone, after the command was decided again."""

    def _earlier(self, once: CommitKey) -> CommandOutcome | None:
        return None


class FoldWithoutGuard:
    """Any store, with folded rows written over any existing version."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        return tuple(self._store.commit(self._unguarded(commit))[0] for commit in commits)

    def _unguarded(self, commit: Commit) -> Commit:
        rows = self._store.get(*(write.key for write in commit.writes))
        return replace(
            commit,
            writes=tuple(
                replace(write, expect=ABSENT if row is None else row.version)
                for write, row in zip(commit.writes, rows, strict=True)
            ),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
