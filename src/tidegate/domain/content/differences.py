"""How the files of two revisions differ."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import Match, SequenceMatcher
from enum import StrEnum
from itertools import accumulate
from typing import Final

from msgspec import Struct

from tidegate.domain.content import entries, manifests

STEPS_MAX: Final = 4_000_000  # a few tenths of a second; without it, two long files took 40 s


class FileChangeKind(StrEnum):
    """What happened to a file between two revisions."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FileDifference(Struct, frozen=True):
    """One file that differs between two revisions."""

    path: str
    what: FileChangeKind
    before: entries.File | None
    after: entries.File | None


def diff(old: manifests.FileManifest, new: manifests.FileManifest) -> tuple[FileDifference, ...]:
    """List the files that differ, in the order of their paths."""
    before, after = old.by_path, new.by_path
    found = []
    for path in sorted(before.keys() | after.keys(), key=str.encode):
        left, right = before.get(path), after.get(path)
        if left == right:
            continue
        what = FileChangeKind.CHANGED
        if left is None:
            what = FileChangeKind.ADDED
        elif right is None:
            what = FileChangeKind.REMOVED
        found.append(FileDifference(path, what, left, right))
    return tuple(found)


# ── line by line ──────────────────────────────────────────────────────────────────────────────────


class ComparisonBudget:
    """The number of steps left for the line-by-line comparison of all files of two revisions."""

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self.steps = steps


class _TooDifferent(Exception):
    """The comparison would take more steps than are left in the budget."""


class _BoundedMatcher(SequenceMatcher[str]):
    """A ``SequenceMatcher``, which is quadratic in moved lines, that stops within the budget."""

    a: Sequence[str]
    b2j: dict[str, list[int]]

    def __init__(self, before: Sequence[str], after: Sequence[str], budget: ComparisonBudget):
        super().__init__(None, before, after)
        self._budget = budget
        places = self.b2j  # line → where it is in ``after``
        self._steps = list(accumulate((1 + len(places.get(x, ())) for x in before), initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        end = len(self.a) if ahi is None else ahi
        self._budget.steps -= self._steps[end] - self._steps[alo]
        if self._budget.steps < 0:
            raise _TooDifferent
        return super().find_longest_match(alo, ahi, blo, bhi)


def diff_lines(
    before: Sequence[str], after: Sequence[str], path: str, budget: ComparisonBudget
) -> str | None:
    """A patch in the unified format; None if the comparison exceeds the budget."""
    matcher = _BoundedMatcher(before, after, budget)
    try:
        groups = list(matcher.get_grouped_opcodes())
    except _TooDifferent:
        budget.steps = max(budget.steps, 0)
        return None
    found = [f"--- a/{path}\n", f"+++ b/{path}\n"] if groups else []
    for group in groups:
        first, last = group[0], group[-1]
        old, new = _range(first[1], last[2]), _range(first[3], last[4])
        found.append(f"@@ -{old} +{new} @@\n")
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                found += [f" {line}" for line in before[old_from:old_to]]
                continue
            found += [f"-{line}" for line in before[old_from:old_to]]
            found += [f"+{line}" for line in after[new_from:new_to]]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found)


def _range(start: int, stop: int) -> str:
    """Format a range of lines for a unified diff. A single line is its number alone."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"
