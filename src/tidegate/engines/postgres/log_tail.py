"""A cache of the newest facts, so that the writer can check most boundaries without a query.

A decision is made on a recent read, so only the last few facts can conflict with its boundary. The
writer wrote most of them itself, and reads those of other processes together with the head, under
the lock. A boundary that is older than the cache is looked up in the index.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.kernel.model import Position

PAIRS_MAX = 50_000  # in each of the two halves: about 10 MB

Pair = tuple[str, str]  # index name, fact type


class LogTail:
    """The newest fact of each pair, among all facts after ``floor`` and up to ``head``.

    A boundary that was read below the floor must be looked up. ``add`` may raise the floor, so
    use the floor after the last ``add``. When the newer half is full, the older one is dropped.
    """

    def __init__(self, head: Position) -> None:
        self.floor = head
        self.head = head
        self._older: dict[Pair, Position] = {}
        self._newer: dict[Pair, Position] = {}
        self._newer_from = head

    def newest(self, pair: Pair) -> Position:
        """The position of the newest fact of this pair; 0 if there is none after the floor."""
        return self._newer.get(pair) or self._older.get(pair, 0)

    def add(self, facts: Iterable[tuple[Pair, Position]], head: Position) -> None:
        """Remember the facts between the old head and the new one, in position order."""
        self._newer.update(facts)
        self.head = head
        if len(self._newer) > PAIRS_MAX:
            # The floor first: if an exception comes in between, the cache still has all facts
            # after it.
            self.floor = self._newer_from
            self._newer_from = head
            self._older, self._newer = self._newer, {}
