"""What a handle wrote last itself: it need not ask the database whether that has moved."""

from __future__ import annotations

from tidegate.kernel.model import Position

NAMES_MAX = 32_768  # remembered; past it, it starts again


class OwnWrites:
    """The newest positions under each index name, by type or of any type (None), behind ``since``.

    It is whole as long as nobody else writes, which the head tells. So a boundary that was seen at
    ``since`` or later is settled here; an older one is looked up.
    """

    def __init__(self) -> None:
        self.since: Position = 0
        self.newest: dict[str, dict[str | None, Position]] = {}
        self._left_at: Position | None = None  # None: what was noted then may not have landed

    def meet(self, head: Position) -> None:
        """Start again if the log is not where we left it, or if too much is remembered."""
        if head != self._left_at or len(self.newest) > NAMES_MAX:
            self.since = head
            self.newest.clear()
        self._left_at = None

    def note(self, name: str, type: str | None, position: Position) -> None:
        """This is the newest one there."""
        known = self.newest.get(name)
        if known is None:
            self.newest[name] = {type: position}
        else:
            known[type] = position

    def moved(self, name: str, types: frozenset[str] | None, seen: Position) -> Position:
        """The newest position of these types under the name, if it is behind ``seen``; else 0."""
        known = self.newest.get(name)
        if known is None:
            return 0
        newest = 0
        for position in known.values() if types is None else map(known.get, types):
            if position is not None and position > newest:
                newest = position
        return newest if newest > seen else 0

    def leave(self, head: Position) -> None:
        """All up to the head is noted, and durable."""
        self._left_at = head
