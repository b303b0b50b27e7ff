"""What a handle wrote last itself, so that it can check most boundaries without the database."""

from __future__ import annotations

from tidegate.kernel.model import Position

NAMES_MAX = 32_768  # index names in memory; with more, it is emptied


class OwnWrites:
    """The newest positions after ``since`` under each index name, by type or of any type (None).

    It is complete while no other handle writes, which ``meet`` finds out from the head. So it can
    check every boundary that was read at ``since`` or later. Older ones need the database.
    """

    def __init__(self) -> None:
        self.since: Position = 0
        self.newest: dict[str, dict[str | None, Position]] = {}
        # The head after our last commit. None: a transaction was not finished, so a position that
        # was noted may never have been committed.
        self._left_at: Position | None = None

    def meet(self, head: Position) -> None:
        """Start a transaction: forget all if another handle has written, or if this is too full."""
        if head != self._left_at or len(self.newest) > NAMES_MAX:
            self.since = head
            self.newest.clear()
        self._left_at = None

    def note(self, name: str, type: str | None, position: Position) -> None:
        """Remember the newest position of this type under the index name."""
        known = self.newest.get(name)
        if known is None:
            self.newest[name] = {type: position}
        else:
            known[type] = position

    def moved(self, name: str, types: frozenset[str] | None, seen: Position) -> Position:
        """The newest position of these types under the name if it is after ``seen``; else 0."""
        known = self.newest.get(name)
        if known is None:
            return 0
        newest = 0
        for position in known.values() if types is None else map(known.get, types):
            if position is not None and position > newest:
                newest = position
        return newest if newest > seen else 0

    def leave(self, head: Position) -> None:
        """End a transaction: everything up to this head is noted and committed."""
        self._left_at = head
