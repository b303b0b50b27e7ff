"""What a handle wrote last itself: it need not ask the database whether that has moved."""

from __future__ import annotations

from tidegate.kernel.model import Position

PAIRS_MAX = 65_536  # remembered; past it, it begins anew


class Recent:
    """The newest position of each index name and type, or any type (None), behind ``since``.

    It is whole as long as nobody else writes, which the head tells. So a boundary that was seen at
    ``since`` or later is settled here; an older one is looked up.
    """

    def __init__(self) -> None:
        self.since: Position = 0
        self.newest: dict[tuple[str, str | None], Position] = {}
        self._left_at: Position | None = None  # None: what was noted then may not have landed

    def meet(self, head: Position) -> None:
        """Begin anew if the log is not where we left it, or if too much is remembered."""
        if head != self._left_at or len(self.newest) > PAIRS_MAX:
            self.since = head
            self.newest.clear()
        self._left_at = None

    def leave(self, head: Position) -> None:
        """All up to the head is noted, and durable."""
        self._left_at = head
