"""How long idempotency keys have been kept, in the log's own time.

    age     seconds in which a process had the log open, by monotonic clocks
    marks   pairs of an age and the head at that age: a key is as old as the first mark at or
            above its position

The log's own time never runs faster than real time and never goes back. So neither the time in a
commit nor a wrong clock makes a key look older than it is. Time in which no process has the log
open does not count: a key may be kept longer than 30 days, never shorter.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidegate import decoders
from tidegate.kernel.model import ONCE_KEPT, Position

KEY_AGES = "key_ages"  # the name under which the log stores them
TICK_SECONDS = 60  # how often a handle stores the age
MARK_SECONDS = 24 * 3_600  # between two marks: a key may be kept this much longer


class KeyAges(msgspec.Struct, frozen=True):
    """The log's age, and its marks in order: (age, head at that age)."""

    age: int = 0
    marks: tuple[tuple[int, Position], ...] = ()

    def advance(self, age: int, head: Position) -> KeyAges:
        """The key ages at this age of the log, with a mark for the head if one is due.

        If the stored age is higher, because another handle counted more, it is kept.
        """
        age = max(age, self.age)
        marks = self.marks
        if not marks or age - marks[-1][0] >= MARK_SECONDS:
            marks = (*marks, (age, head))
        outdated = [mark for mark in marks if age - mark[0] > ONCE_KEPT.total_seconds()]
        return KeyAges(age, marks[max(0, len(outdated) - 1) :])

    @property
    def floor(self) -> Position:
        """Idempotency keys of commits at or below this position may be deleted."""
        if not self.marks:
            return 0
        age, head = self.marks[0]
        return head if self.age - age > ONCE_KEPT.total_seconds() else 0


_decode = decoders.build(KeyAges).decode
_encode = msgspec.json.Encoder().encode


class LogClock:
    """The log's age, as counted by one handle. Call it under the writer's lock."""

    def __init__(self, monotonic: Callable[[], float], stored: str | None) -> None:
        """``stored`` is the text in the log when the handle was opened."""
        self._monotonic = monotonic
        self._since = self._ticked = monotonic()
        self._base = _read(stored).age
        self.floor: Position = 0
        self._is_fresh = True

    @property
    def is_due(self) -> bool:
        """Whether it is time to call ``tick``."""
        return self._is_fresh or self._monotonic() - self._ticked >= TICK_SECONDS

    def tick(self, stored: str | None, head: Position) -> str:
        """Return the text to store in the log now, given the text that is in it."""
        now = self._monotonic()
        before = _read(stored)
        found = before.advance(int(self._base + now - self._since), head)
        if before.age == found.age:  # another handle counted more than we did
            self._base, self._since = before.age, now
        self._ticked, self._is_fresh, self.floor = now, False, found.floor
        return _encode(found).decode()


def _read(stored: str | None) -> KeyAges:
    return KeyAges() if stored is None else _decode(stored)
