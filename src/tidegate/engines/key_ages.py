"""How long idempotency keys have been kept, by the log's own time.

    age     seconds during which some process had the log open, by monotonic clocks
    marks   at which age the head was where: a key is as old as the first mark at or above it

The log's own time never runs faster than real time, never goes back, and knows no calendar. So
neither the time that a commit carries nor a wrong clock makes a key older than it is. Time in which
no process has the log open does not count: a key may be kept longer, never shorter.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidegate import decoders
from tidegate.kernel.model import ONCE_KEPT, Position

KEY_AGES = "key_ages"  # the name under which the log keeps them
TICK_SECONDS = 60  # between two times that a handle writes the age down
MARK_SECONDS = 24 * 3_600  # between two marks: a key is kept for up to so much longer


class KeyAges(msgspec.Struct, frozen=True):
    """The log's age, and its marks in order: (age, head at that age)."""

    age: int = 0
    marks: tuple[tuple[int, Position], ...] = ()

    def advance(self, age: int, head: Position) -> KeyAges:
        """The same log at this age, if it is that old, with its head there."""
        age = max(age, self.age)
        marks = self.marks
        if not marks or age - marks[-1][0] >= MARK_SECONDS:
            marks = (*marks, (age, head))
        outdated = [mark for mark in marks if age - mark[0] > ONCE_KEPT.total_seconds()]
        return KeyAges(age, marks[max(0, len(outdated) - 1) :])

    @property
    def floor(self) -> Position:
        """Keys of commits that began at or below it have been kept long enough."""
        if not self.marks:
            return 0
        age, head = self.marks[0]
        return head if self.age - age > ONCE_KEPT.total_seconds() else 0


_decode = decoders.build(KeyAges).decode
_encode = msgspec.json.Encoder().encode


class LogClock:
    """The log's age as one handle counts it. Call it under the writer's lock."""

    def __init__(self, monotonic: Callable[[], float], stored: str | None) -> None:
        """``stored`` is what the log held when the handle was opened."""
        self._monotonic = monotonic
        self._since = self._ticked = monotonic()
        self._base = _read(stored).age
        self.floor: Position = 0
        self._is_fresh = True

    @property
    def is_due(self) -> bool:
        """Whether the age should be read and written down again."""
        return self._is_fresh or self._monotonic() - self._ticked >= TICK_SECONDS

    def tick(self, stored: str | None, head: Position) -> str:
        """What the log shall hold now, given what it holds."""
        now = self._monotonic()
        before = _read(stored)
        found = before.advance(int(self._base + now - self._since), head)
        if before.age == found.age:  # another handle counted more than we did
            self._base, self._since = before.age, now
        self._ticked, self._is_fresh, self.floor = now, False, found.floor
        return _encode(found).decode()


def _read(stored: str | None) -> KeyAges:
    return KeyAges() if stored is None else _decode(stored)
