"""From a commit to its draft: what it demands of which fence, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.engines.dynamodb.items import (
    Fence,
    blob,
    fence_place,
    row_place,
    row_version,
)
from tidegate.engines.dynamodb.pack import OWN, CommitDraft, Entries, Observed, Pack, weight
from tidegate.engines.dynamodb.transport import (
    ITEMS_MAX,
    TRANSACTION_BYTES_MAX,
    Item,
    ItemKey,
    Value,
)
from tidegate.errors import BoundaryMoved, TidegateError, VersionConflict
from tidegate.kernel.commit_limits import foreign_boundary
from tidegate.kernel.model import (
    ABSENT,
    POSITION_MAX,
    Boundary,
    Check,
    Clause,
    Commit,
    Delete,
    Put,
    at_most,
)
from tidegate.kernel.store import Schema

SORT_KEY_BYTES_MAX = 1_024
SOME_TX: Final = "0" * 32  # as long as any, to measure with


class Drafter:
    """Makes drafts under one schema, and judges them."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._vocabulary = schema.vocabulary

    def check_seen(self, commit: Commit) -> None:
        """Raises: InvalidInput: a boundary that no read of this engine made."""
        for boundary, clause in _clauses(commit):
            for index, type_name in self.fences(clause):
                seen = boundary.seen
                types = seen.get(index) if type(seen) is dict else None
                position = types.get(type_name) if type(types) is dict else None
                if type(position) is not int or not 0 <= position <= POSITION_MAX:
                    raise foreign_boundary(boundary)

    def old_rows(self, commit: Commit) -> list[ItemKey]:
        """The rows whose present index entries must be known before the commit is drafted."""
        return [
            row_place(write.key)
            for write in commit.writes
            if not isinstance(write, Check)
            and write.expect != ABSENT
            and self._schema.collection(write.key.collection).indexes
        ]

    def draft(self, commit: Commit, old: Mapping[ItemKey, Item]) -> CommitDraft:
        """The commit, given those rows.

        Raises:
            LimitExceeded: it is too large to land, even alone.
        """
        produced: dict[str, list[int]] = {}
        for ordinal, fact in enumerate(commit.facts):
            for index in self._vocabulary.indexes(fact):
                produced.setdefault(index, []).append(ordinal)
        consumed, doubtful = self._consumed(commit)
        entries = {}
        for ordinal, write in enumerate(commit.writes):
            row = old.get(row_place(write.key), {})
            if not isinstance(write, Check):
                entries[ordinal] = self._entries(write, row)
        for place in self.old_rows(commit):
            expect = next(write.expect for write in commit.writes if row_place(write.key) == place)
            doubtful = doubtful or row_version(old.get(place, {})) != expect
        made = CommitDraft(commit, consumed, produced, entries, doubtful)
        steps = Pack((made,)).steps(number=1, tx=SOME_TX, now=0.0)
        made.own = sum(step.role in OWN for step in steps)
        made.weight = weight(steps)
        at_most("storage items of a commit", len(steps), ITEMS_MAX)
        at_most("bytes of a transaction", made.weight, TRANSACTION_BYTES_MAX)
        return made

    def _consumed(self, commit: Commit) -> tuple[Observed, bool]:
        """What the boundaries observed; and whether two of them saw one fence differently."""
        consumed: Observed = {}
        differs = False
        for boundary, clause in _clauses(commit):
            for index, type_name in self.fences(clause):
                seen = boundary.seen[index][type_name]
                known = consumed.setdefault(index, {}).setdefault(type_name, seen)
                differs = differs or known != seen
        return consumed, differs

    def _entries(self, write: Put | Delete, row: Mapping[str, Value]) -> tuple[Entries, Entries]:
        collection = self._schema.collection(write.key.collection)
        new = frozenset(collection.entries(write.data).items() if isinstance(write, Put) else ())
        for _, entry in new:
            length = len(entry.encode()) + 1 + len(write.key.id.encode())
            at_most("bytes of an index entry and its id", length, SORT_KEY_BYTES_MAX)
        present: Entries = frozenset()
        if row_version(row) != ABSENT:
            present = frozenset(collection.entries(blob(row, "data")).items())
        return present - new, new - present

    def fences(self, clause: Clause) -> list[tuple[str, str | None]]:
        """The index and the types on whose fence the clause depends: those that can stand there."""
        index = self._vocabulary.index(clause)
        assert index is not None, f"{clause} has no index and cannot be a condition"
        types = self._vocabulary.fenced(clause)
        names: Iterable[str | None] = (None,) if types is None else sorted(types)
        return [(index, name) for name in names]

    def judge(self, draft: CommitDraft, found: Mapping[ItemKey, Item]) -> TidegateError | None:
        """The first thing in the draft's way, as far as these items show; places not among them
        are not judged. Boundaries count before rows, each in their order.
        """
        for boundary, clause in _clauses(draft.commit):
            fences = self.fences(clause)
            if not fences or (item := found.get(fence_place(fences[0][0]))) is None:
                continue
            fence = Fence(item)
            if any(fence.position(name) != boundary.seen[index][name] for index, name in fences):
                return BoundaryMoved(clause, max(fence.position(name) for _, name in fences))
        for write in draft.commit.writes:
            item = found.get(row_place(write.key))
            if item is not None and row_version(item) != write.expect:
                key = write.key
                return VersionConflict(key.collection, key.id, write.expect, row_version(item))
        return None


def _clauses(commit: Commit) -> Iterator[tuple[Boundary, Clause]]:
    for boundary in commit.boundaries:
        for clause in boundary.clauses:
            yield boundary, clause
