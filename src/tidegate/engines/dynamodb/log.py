"""Reads the log slot by slot, in the order of their numbers, and never past a hole.

A hole is a number that was taken and whose slot is empty. A young hole may still be filled, so the
read stops before it. A hole older than ``GRACE_SECONDS``, by this reader's own monotonic clock, is
voided: VOID is put into the slot if it is still empty, and the writer will take another number. If
that is too early, the writer only has to send its transaction again. So no result depends on a
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from threading import Lock
from typing import Final

from tidegate.engines.dynamodb import items, transport as dynamodb_transport
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.kernel.model import Event, Position

GRACE_SECONDS = 2.0
HISTORY_STEP_SECONDS = 0.05  # the least time between two readings of the counter that are kept
HOLE_POLLS_MAX = 400  # how often a read of the whole log checks one hole
HOLE_WAIT_SECONDS_MAX = 0.100
PAGE_SLOTS_MIN, PAGE_SLOTS_MAX = 16, 1_000
PART_MAX = 99
PARTS_READS_MAX = 30
PARTS_WAIT_SECONDS_MAX = 0.050

Numbered = tuple[int, list[Event]]
Found = tuple[dynamodb_transport.Item | None, list[dynamodb_transport.Item]]  # a slot and its parts


class CounterHistory:
    """Remembers when the counter had which number, to tell how long ago a number was taken."""

    def __init__(self, pace: RetryPace) -> None:
        self._pace = pace
        self._lock = Lock()
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, number: int) -> None:
        """Remember that the counter has this number now."""
        now = self._pace.now()
        with self._lock:
            if not self._seen or now - self._seen[-1][0] >= HISTORY_STEP_SECONDS:
                self._seen.append((now, number))
            while len(self._seen) > 1 and now - self._seen[1][0] >= GRACE_SECONDS:
                self._seen.popleft()  # the next one is old enough, too, and has a higher number

    def is_old(self, number: int) -> bool:
        """Whether the number was taken at least ``GRACE_SECONDS`` ago."""
        now = self._pace.now()
        with self._lock:
            return any(seen >= number and now - at >= GRACE_SECONDS for at, seen in self._seen)


class SlotLog:
    """The slots of one table."""

    def __init__(self, transport: dynamodb_transport.Transport, pace: RetryPace) -> None:
        self._transport = transport
        self._pace = pace
        self._history = CounterHistory(pace)
        self._lock = Lock()
        # A position and a slot after it, with no event in between: idle polls start after the slot.
        self._idle: tuple[Position, int] = (0, 0)

    def feed(self, after: Position, limit: int) -> tuple[Event, ...]:
        """The next events, up to the first young hole."""
        found: list[Event] = []
        start = self._start(after)
        walked = start - 1
        for number, events in self._walk(start, self._head(), limit):
            walked = number
            found += [event for event in events if event.position > after]
            if len(found) >= limit:
                return tuple(found[:limit])
        with self._lock:
            self._idle = (found[-1].position if found else after, walked)
        return tuple(found)

    def last_position(self) -> Position:
        """The highest position that any number taken so far can have; 0 in an empty log."""
        number = self._head()
        return (number + 1) * items.SPAN - 1 if number else 0

    def scan(self, after: Position = 0) -> Iterator[Event]:
        """Yield every event that was committed before the call; wait until each hole is voided.

        Raises:
            StoreUnavailable: a hole cannot be voided.
        """
        number, head = max(1, after // items.SPAN), self._head()
        while number <= head:  # each round passes at least the hole that it waited for
            for walked, events in self._walk(number, head, PAGE_SLOTS_MAX):
                number = walked + 1
                yield from (event for event in events if event.position > after)
            if number <= head:
                self._wait_until_void(number)

    def _wait_until_void(self, number: int) -> None:
        for waits in range(HOLE_POLLS_MAX):
            if self._void_hole(number) is not None:
                return
            self._pace.wait(waits, longest=HOLE_WAIT_SECONDS_MAX)
        raise StoreUnavailable(f"slot {number} of the log is still empty")

    def _start(self, after: Position) -> int:
        """The first slot that can have an event after the position, as far as is known."""
        with self._lock:
            position, slot = self._idle
        if position <= after < (slot + 1) * items.SPAN:
            return slot + 1
        return max(1, after // items.SPAN)

    def _head(self) -> int:
        """The newest number taken."""
        found = self._pace.retry(partial(self._transport.get, [items.COUNTER]))
        number = items.integer(found.get(items.COUNTER, {}), items.COUNT_ATTRIBUTE)
        self._history.note(number)
        return number

    def _walk(self, number: int, head: int, limit: int) -> Iterator[Numbered]:
        """Yield slots with their events, in order without a gap, up to a young hole or the head."""
        while number <= head:
            last = min(head, (number // items.SEGMENT_SLOTS + 1) * items.SEGMENT_SLOTS - 1)
            for slot, parts in chain(self._slots(number, last, limit), (_END,)):
                upto = (
                    last + 1
                    if slot is None
                    else items.slot_number(dynamodb_transport.key_of_item(slot))[0]
                )
                for hole in range(number, upto):
                    if (closed := self._void_hole(hole)) is None:
                        return
                    yield hole, self._events(closed, [])
                if slot is not None:
                    yield upto, self._events(slot, parts)
                number = upto + (slot is not None)

    def _slots(self, first: int, last: int, limit: int) -> Iterator[Found]:
        """Yield the slots that exist in one segment, each with the parts that were found."""
        pk, low = items.slot_place(first)
        high = items.slot_place(last, PART_MAX).sk
        limit = min(max(limit, PAGE_SLOTS_MIN), PAGE_SLOTS_MAX)
        slot: dynamodb_transport.Item | None = None
        parts: list[dynamodb_transport.Item] = []
        start: str | None = None
        while True:
            page = self._pace.retry(
                partial(self._transport.query, pk, low=low, high=high, start=start, limit=limit)
            )
            for item in page.items:
                if items.slot_number(dynamodb_transport.key_of_item(item))[1]:
                    parts.append(item)
                    continue
                if slot is not None:
                    yield slot, parts
                slot, parts = item, []
            start = page.next
            if start is None:
                break
        if slot is not None:
            yield slot, parts

    def _void_hole(self, hole: int) -> dynamodb_transport.Item | None:
        """Void a hole if it is old enough, and return the content of its slot; None otherwise.

        A reader without permission to write waits until another one voids it.
        """
        if not self._history.is_old(hole):
            return None
        try:
            existing = self._transport.put_absent(items.void_slot(hole))
        except (dynamodb_transport.Busy, dynamodb_transport.AnswerLost, StoreRefused):
            return None
        return existing or items.void_slot(hole)

    def _events(
        self, slot: dynamodb_transport.Item, parts: Sequence[dynamodb_transport.Item]
    ) -> list[Event]:
        if "void" not in slot and len(parts) < len(places := items.part_places(slot)):
            parts = self.fetch_all(places)
        return items.slot_events(slot, parts)

    def fetch_all(
        self, places: Sequence[dynamodb_transport.ItemKey]
    ) -> list[dynamodb_transport.Item]:
        """Read items of transactions that were applied.

        The items of one transaction may become visible one by one, so this waits for all of them.

        Raises:
            StoreUnavailable: some did not become visible in time.
        """
        found: dict[dynamodb_transport.ItemKey, dynamodb_transport.Item] = {}
        for waits in range(PARTS_READS_MAX):
            found = self._pace.retry(partial(self._transport.get, places))
            if len(found) == len(places):
                return [found[place] for place in places]
            self._pace.wait(waits, longest=PARTS_WAIT_SECONDS_MAX)
        raise StoreUnavailable(
            f"only {len(found)} of {len(places)} items of the log are visible yet"
        )

    def events_at(self, positions: Sequence[Position]) -> list[Event]:
        """The events at these positions, from their slots. Raises: StoreUnavailable."""
        wanted = frozenset(positions)
        places = list(
            dict.fromkeys(items.slot_place(position // items.SPAN) for position in positions)
        )
        found = [event for slot in self.fetch_all(places) for event in self._events(slot, [])]
        return [event for event in found if event.position in wanted]


_END: Final[Found] = (None, [])
