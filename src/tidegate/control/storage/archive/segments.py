"""The log cut into segments: what an archive must hold, as a function of the log alone.

A segment holds the events of one fixed range of positions. So whoever makes it, whenever, by
whatever pages, makes the same bytes; only the last one grows, under a new name each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, takewhile
from tempfile import SpooledTemporaryFile
from typing import IO

from tidegate.control.storage.archive import redaction, segment_store
from tidegate.kernel.model import POSITION_MAX, Event, Position
from tidegate.kernel.store import Store

PAGE = 500  # events read from the feed at once
SPOOLED_BYTES_MAX = 8 * 1024 * 1024  # beyond, a segment waits on disk until it is whole


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, whole; its content lives until the next one is asked for."""

    label: segment_store.SegmentName
    content: IO[bytes]  # at its beginning
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class SegmentCutter:
    """Cuts a log into segments, each masked by the shield."""

    store: Store
    shield: redaction.FactRedactor
    size: int  # positions per segment

    def start_of(self, position: Position) -> Position:
        """Where the range of this position begins."""
        return position - position % self.size

    def segments(self, first: Position, upto: Position = POSITION_MAX) -> Iterator[Segment]:
        """The segments from the range of ``first`` on, with the events up to ``upto``."""
        after = max(self.start_of(first) - 1, 0)
        events = takewhile(lambda event: event.position <= upto, feed(self.store, after))
        for start, found in groupby(events, lambda event: self.start_of(event.position)):
            with SpooledTemporaryFile(SPOOLED_BYTES_MAX) as content:
                positions = self._fill(content, found)
                yield Segment(segment_store.SegmentName(start, positions[-1]), content, positions)

    def _fill(self, content: IO[bytes], events: Iterable[Event]) -> tuple[Position, ...]:
        positions = []
        for event in events:
            content.write(self.shield.line(event))
            positions.append(event.position)
        content.seek(0)
        return tuple(positions)


def feed(store: Store, after: Position) -> Iterator[Event]:
    """All events after a position that are there by now, page by page."""
    page = store.feed(after=after, limit=PAGE).events
    while page:
        yield from page
        if len(page) < PAGE:
            return
        page = store.feed(after=page[-1].position, limit=PAGE).events
