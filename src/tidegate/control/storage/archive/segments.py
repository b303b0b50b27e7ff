"""Cut the log into segments: the content of an archive, as a function of the log alone.

A segment holds the events of one fixed range of positions. So every archiver makes the same bytes
at any time. Only the last segment grows, with a new name each time.
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
SPOOLED_BYTES_MAX = 8 * 1024 * 1024  # larger segments are spooled to disk


@dataclass(frozen=True, slots=True)
class Segment:
    """A complete segment. Its content can be read until the next segment is requested."""

    label: segment_store.SegmentName
    content: IO[bytes]  # at its beginning
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class SegmentCutter:
    """Cuts a log into segments, with secrets masked."""

    store: Store
    shield: redaction.FactRedactor
    size: int  # positions per segment

    def start_of(self, position: Position) -> Position:
        """Return the start of the range that holds this position."""
        return position - position % self.size

    def segments(self, first: Position, upto: Position = POSITION_MAX) -> Iterator[Segment]:
        """Yield the segments from the range of ``first`` on, with the events up to ``upto``."""
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
    """Yield all current events after a position, page by page."""
    page = store.feed(after=after, limit=PAGE).events
    while page:
        yield from page
        if len(page) < PAGE:
            return
        page = store.feed(after=page[-1].position, limit=PAGE).events
