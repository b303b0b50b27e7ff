"""What the writer remembers of the end of the log, so that most boundaries need no look-up.

A decision is made on a read of moments ago, so the facts that could have moved its boundary are
nearly always the last few. The writer made most of them itself; those of other processes it reads
with the head, under the lock. What is older than its memory is looked up in the index.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.kernel.model import Position

PAIRS_MAX = 50_000  # in each of the two halves: about 10 MB

Pair = tuple[str, str]  # index name, fact type


class LogTail:
    """The newest fact of each pair among all facts after ``floor``, up to ``head``.

    A boundary that was read below the floor must be looked up. ``learn`` may raise the floor, so
    compare with the floor after the last ``learn``.
    """

    def __init__(self, head: Position) -> None:
        self.floor = head
        self.head = head
        self._older: dict[Pair, Position] = {}
        self._newer: dict[Pair, Position] = {}
        self._newer_from = head

    def newest(self, pair: Pair) -> Position:
        """0 where no fact after the floor is of this pair."""
        return self._newer.get(pair) or self._older.get(pair, 0)

    def learn(self, facts: Iterable[tuple[Pair, Position]], head: Position) -> None:
        """Remember the facts between the old head and the new one, in position order."""
        self._newer.update(facts)
        self.head = head
        if len(self._newer) > PAIRS_MAX:
            # First the marks, then the facts: an exception between two lines forgets nothing.
            self.floor = self._newer_from
            self._newer_from = head
            self._older, self._newer = self._newer, {}
