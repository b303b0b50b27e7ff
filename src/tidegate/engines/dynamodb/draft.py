"""Makes drafts of commits, and finds out what a draft conflicts with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.engines.dynamodb import items, pack, transport
from tidegate.errors import BoundaryMoved, TidegateError, VersionConflict
from tidegate.kernel import commit_limits, model, store

SORT_KEY_BYTES_MAX = 1_024
SOME_TX: Final = "0" * 32  # as long as every transaction id, to compute sizes


class Drafter:
    """Makes and judges drafts under one schema."""

    def __init__(self, schema: store.Schema) -> None:
        self._schema = schema
        self._vocabulary = schema.vocabulary

    def check_seen(self, commit: model.Commit) -> None:
        """Raises: InvalidInput: no read of this engine made a boundary of the commit."""
        for boundary, clause in _clauses(commit):
            for index, type_name in self.fences(clause):
                seen = boundary.seen
                types = seen.get(index) if type(seen) is dict else None
                position = types.get(type_name) if type(types) is dict else None
                if type(position) is not int or not 0 <= position <= model.POSITION_MAX:
                    raise commit_limits.foreign_boundary(boundary)

    def old_rows(self, commit: model.Commit) -> list[transport.ItemKey]:
        """The rows whose current index entries are needed to draft the commit."""
        return [
            items.row_place(write.key)
            for write in commit.writes
            if not isinstance(write, model.Check)
            and write.expect != model.ABSENT
            and self._schema.collection(write.key.collection).indexes
        ]

    def draft(
        self, commit: model.Commit, old: Mapping[transport.ItemKey, transport.Item]
    ) -> pack.CommitDraft:
        """Draft the commit, given the items of ``old_rows``.

        Raises:
            LimitExceeded: it is too large for one transaction.
        """
        produced: dict[str, list[int]] = {}
        for ordinal, fact in enumerate(commit.facts):
            for index in self._vocabulary.indexes(fact):
                produced.setdefault(index, []).append(ordinal)
        consumed, doubtful = self._consumed(commit)
        entries = {}
        for ordinal, write in enumerate(commit.writes):
            row = old.get(items.row_place(write.key), {})
            if not isinstance(write, model.Check):
                entries[ordinal] = self._entries(write, row)
        for place in self.old_rows(commit):
            expect = next(
                write.expect for write in commit.writes if items.row_place(write.key) == place
            )
            doubtful = doubtful or items.row_version(old.get(place, {})) != expect
        made = pack.CommitDraft(commit, consumed, produced, entries, doubtful)
        steps = pack.Pack((made,)).steps(number=1, tx=SOME_TX, now=0.0)
        made.own = sum(step.role in pack.OWN for step in steps)
        made.weight = pack.weight(steps)
        model.at_most("storage items of a commit", len(steps), transport.ITEMS_MAX)
        model.at_most("bytes of a transaction", made.weight, transport.TRANSACTION_BYTES_MAX)
        return made

    def _consumed(self, commit: model.Commit) -> tuple[pack.Observed, bool]:
        """What the boundaries observed, and whether two of them differ on one fence."""
        consumed: pack.Observed = {}
        differs = False
        for boundary, clause in _clauses(commit):
            for index, type_name in self.fences(clause):
                seen = boundary.seen[index][type_name]
                known = consumed.setdefault(index, {}).setdefault(type_name, seen)
                differs = differs or known != seen
        return consumed, differs

    def _entries(
        self, write: model.Put | model.Delete, row: Mapping[str, transport.Value]
    ) -> tuple[pack.Entries, pack.Entries]:
        collection = self._schema.collection(write.key.collection)
        new = frozenset(
            collection.entries(write.data).items() if isinstance(write, model.Put) else ()
        )
        for _, entry in new:
            length = len(entry.encode()) + 1 + len(write.key.id.encode())
            model.at_most("bytes of an index entry and its id", length, SORT_KEY_BYTES_MAX)
        present: pack.Entries = frozenset()
        if items.row_version(row) != model.ABSENT:
            present = frozenset(collection.entries(items.blob(row, "data")).items())
        return present - new, new - present

    def fences(self, clause: model.Clause) -> list[tuple[str, str | None]]:
        """The pairs of index and type whose fence positions the clause depends on."""
        index = self._vocabulary.index(clause)
        assert index is not None, f"{clause} has no index and cannot be a condition"
        types = self._vocabulary.fenced(clause)
        names: Iterable[str | None] = (None,) if types is None else sorted(types)
        return [(index, name) for name in names]

    def judge(
        self, draft: pack.CommitDraft, found: Mapping[transport.ItemKey, transport.Item]
    ) -> TidegateError | None:
        """The first conflict of the draft with these items; None if there is none.

        Fences and rows that are not among the items are not checked. Boundaries come before rows,
        each in the order of the commit.
        """
        for boundary, clause in _clauses(draft.commit):
            fences = self.fences(clause)
            if not fences or (item := found.get(items.fence_place(fences[0][0]))) is None:
                continue
            fence = items.Fence(item)
            if any(fence.position(name) != boundary.seen[index][name] for index, name in fences):
                return BoundaryMoved(clause, max(fence.position(name) for _, name in fences))
        for write in draft.commit.writes:
            item = found.get(items.row_place(write.key))
            if item is not None and items.row_version(item) != write.expect:
                key = write.key
                return VersionConflict(
                    key.collection, key.id, write.expect, items.row_version(item)
                )
        return None


def _clauses(commit: model.Commit) -> Iterator[tuple[model.Boundary, model.Clause]]:
    for boundary in commit.boundaries:
        for clause in boundary.clauses:
            yield boundary, clause
