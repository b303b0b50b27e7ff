"""A batch of commits between its two round trips: what it looks up and how it decides. No I/O.

    PostgresBatch(commits) ──look up──▶ newest fact per (index, type), rows, idempotency keys
          │                                                   │
          └──────────────────◀── LookedUp ◀───────────────────┘
          ▼
    answers, one per commit, and the rows to write for those that were accepted

Commits are decided in order; each sees what the accepted ones before it would write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from tidegate.engines.postgres import log_tail, queries
from tidegate.engines.postgres.indexing import Indexing
from tidegate.errors import BoundaryMoved, IdempotencyMismatch, TidegateError, VersionConflict
from tidegate.kernel import codec, model
from tidegate.kernel.vocabulary import Vocabulary

Names = tuple[str, ...]  # of the indexes of a fact


class Stamp(NamedTuple):
    """The version and ``born`` of a row."""

    version: model.Position
    born: model.Position


class LookedUp(Struct):
    """What was read under the lock, updated by what the accepted commits would write."""

    head: model.Position
    before: model.Position  # the head that was read; a valid boundary cannot be beyond it
    newest: dict[log_tail.Pair, model.Position]
    rows: dict[model.Key, Stamp]
    once: dict[str, model.Receipt]
    ages: str | None = None  # the stored ``KeyAges``, if they were read


# The rows to write: one JSON parameter per table. Entries have short member names because there are
# many of them.


class _Event(Struct):
    seq: model.Position
    at: str
    kind: str
    type: str
    schema: int
    tags: str
    meta: str
    body: str


class _Entry(Struct):
    n: str
    t: str
    s: model.Position


class _Row(Struct):
    id: str
    version: model.Position
    born: model.Position
    data: str


class _Once(Struct):
    key: str
    digest: str
    first: model.Position
    last: model.Position
    at: str
    answer: str


class PostgresBatch:
    """Commits that share one transaction; each is accepted or refused on its own."""

    def __init__(
        self, vocabulary: Vocabulary, indexing: Indexing, commits: Sequence[model.Commit]
    ) -> None:
        self._vocabulary = vocabulary
        self._indexing = indexing
        self._commits = commits
        self._pairs: dict[model.Clause, tuple[log_tail.Pair, ...]] = {}
        for commit in commits:
            for boundary in commit.boundaries:
                for clause in boundary.clauses:
                    if clause not in self._pairs:
                        self._pairs[clause] = self._fence(clause)
        # The rows to write, filled by ``decide``.
        self.events: list[_Event] = []
        self.entries: list[_Entry] = []
        self.once: list[_Once] = []
        self._changed: dict[model.Key, _Row | None] = {}

    # ── what to look up ──

    def pairs(self) -> set[log_tail.Pair]:
        """The pairs whose newest fact is needed to check the boundaries."""
        return {pair for pairs in self._pairs.values() for pair in pairs}

    def pairs_seen_before(self, floor: model.Position) -> set[log_tail.Pair]:
        """The pairs of boundaries that were read below the floor."""
        return {
            pair
            for commit in self._commits
            for boundary in commit.boundaries
            if boundary.seen < floor
            for clause in boundary.clauses
            for pair in self._pairs[clause]
        }

    def pairs_seen_past(self, head: model.Position) -> set[log_tail.Pair]:
        """The pairs of boundaries beyond the head: the log has lost commits since their read."""
        return {
            pair
            for commit in self._commits
            for boundary in commit.boundaries
            if boundary.seen > head
            for clause in boundary.clauses
            for pair in self._pairs[clause]
        }

    def ids(self) -> dict[str, list[str]]:
        """Collection → ids of the rows that the commits write or check."""
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for commit in self._commits:
            for write in commit.writes:
                found[write.key.collection][write.key.id] = None
        return {collection: list(ids) for collection, ids in found.items()}

    def once_keys(self) -> list[str]:
        return [commit.once.key for commit in self._commits if commit.once is not None]

    def _fence(self, clause: model.Clause) -> tuple[log_tail.Pair, ...]:
        index = self._vocabulary.index(clause)
        if index is None:
            return ()  # a read with such a clause returns no boundary
        types: Iterable[str] | None = self._vocabulary.fenced(clause)
        if types is None:
            types = self._indexing.types_under(clause, index)
        return tuple((index, name) for name in types)

    # ── decisions ──

    def decide(self, seen: LookedUp) -> list[model.Receipt | TidegateError]:
        """Decide the commits, and return the answers for the case that the batch is committed."""
        answers: list[model.Receipt | TidegateError] = []
        for commit in self._commits:
            try:
                filed = [self._vocabulary.indexes(fact) for fact in commit.facts]
                replayed = _find_replay(commit, seen)
                if replayed is None:
                    for boundary in commit.boundaries:
                        self._check_boundary(boundary, seen)
                    for write in commit.writes:
                        _check_version(write, seen)
                answers.append(replayed or self._apply(commit, filed, seen))
            except TidegateError as error:
                answers.append(error)
        return answers

    def puts(self) -> dict[str, list[_Row]]:
        """Collection → rows to write."""
        found: defaultdict[str, list[_Row]] = defaultdict(list)
        for key, row in self._changed.items():
            if row is not None:
                found[key.collection].append(row)
        return found

    def deletes(self) -> dict[str, list[str]]:
        """Collection → ids of rows to delete."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key, row in self._changed.items():
            if row is None:
                found[key.collection].append(key.id)
        return found

    def _check_boundary(self, boundary: model.Boundary, seen: LookedUp) -> None:
        for clause in boundary.clauses:
            newest = max((seen.newest.get(pair, 0) for pair in self._pairs[clause]), default=0)
            if newest > boundary.seen or boundary.seen > seen.before:
                raise BoundaryMoved(clause, newest)

    def _apply(self, commit: model.Commit, filed: Sequence[Names], seen: LookedUp) -> model.Receipt:
        """Accept the commit.

        Nothing here may fail: the rows of a half-applied commit would be written with the others.
        """
        first = seen.head + 1
        seen.head += commit.span
        at = codec.time_text(commit.at)
        if commit.facts:
            self._append(commit, filed, first, at, seen)
        for write in commit.writes:
            self._write(write, first, seen)
        once = commit.once
        if once is None:
            return model.Receipt(first, seen.head, commit.at)
        self.once.append(
            _Once(once.key, once.digest.hex(), first, seen.head, at, once.answer.hex())
        )
        receipt = model.Receipt(first, seen.head, commit.at, once.answer, digest=once.digest)
        seen.once[once.key] = receipt
        return receipt

    def _append(
        self,
        commit: model.Commit,
        filed: Sequence[Names],
        first: model.Position,
        at: str,
        seen: LookedUp,
    ) -> None:
        shared = codec.meta_text(commit.meta)
        for seq, (fact, names) in enumerate(zip(commit.facts, filed, strict=True), first):
            self.events.append(
                _Event(
                    seq,
                    at,
                    fact.kind,
                    fact.type,
                    fact.schema,
                    queries.encode(fact.tags).decode(),
                    shared if fact.meta is None else codec.meta_text(fact.meta),
                    fact.body.decode(),
                )
            )
            for name in names:
                self.entries.append(_Entry(name, fact.type, seq))
                seen.newest[name, fact.type] = seq

    def _write(self, write: model.Write, first: model.Position, seen: LookedUp) -> None:
        if isinstance(write, model.Check):
            return
        if isinstance(write, model.Put):
            version = first + write.fact
            before = model.ABSENT if write.expect == model.ABSENT else seen.rows[write.key].born
            born = write.born_at(first, before)
            seen.rows[write.key] = Stamp(version, born)
            self._changed[write.key] = _Row(write.key.id, version, born, write.data.decode())
        else:
            del seen.rows[write.key]
            self._changed[write.key] = None


def _find_replay(commit: model.Commit, seen: LookedUp) -> model.Receipt | None:
    """The receipt of an earlier commit with the same key. Raises: IdempotencyMismatch."""
    if commit.once is None or (found := seen.once.get(commit.once.key)) is None:
        return None
    if found.digest != commit.once.digest:
        raise IdempotencyMismatch(commit.once.key)
    return structs.replace(found, replayed=True)


def _check_version(write: model.Write, seen: LookedUp) -> None:
    stamp = seen.rows.get(write.key)
    found = model.ABSENT if stamp is None else stamp.version
    if found != write.expect:
        raise VersionConflict(write.key.collection, write.key.id, write.expect, found)
