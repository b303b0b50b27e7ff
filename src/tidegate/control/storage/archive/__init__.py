"""The archive: a copy of the log as lines of JSON, in files or in a bucket, made asynchronously.

    feed ──▶ cut at fixed positions ──▶ mask ──▶ segment, durable ──▶ position advances
                                                      ▲                     │
                                     after a crash, write the same ◀────────┘

Segments are written at least once, and writing one again changes nothing: a segment is a function
of the log, and its name says which part of the log it holds. No decision reads the archive, and it
can be rebuilt.

The position is a row, written with the version that was read before the segment was written. Of two
concurrent archivers, one advances it; the other starts again from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import islice
from threading import Event as Signal
from typing import Final

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.storage.archive import redaction, segment_store, segments as archive_segments
from tidegate.errors import Conflict, TidegateError, Unavailable, Unknown
from tidegate.kernel import codec, model
from tidegate.kernel.collections import Collection
from tidegate.kernel.store import Store

RANGE: Final = 1_024  # positions per segment; the last one is written again until it is full
SEGMENTS_MAX = 16  # per round; then the lag is measured again
COUNTED_MAX = (
    10 * archive_segments.PAGE
)  # events that are counted to measure the lag; more count as so many
POLL_SECONDS = 2.0

ACTOR = "archive"


class ArchivePosition(Struct, frozen=True):
    """The position of an archive: all events up to here are in durable segments."""

    position: model.Position


ARCHIVE_POSITIONS: Final = Collection("archive_positions", ArchivePosition)


class ArchiveRound(Struct, frozen=True):
    """The result of a round. ``more``: it stopped at its limit, not at the end of the log."""

    events: int
    segments: int
    more: bool = False


class LagAlarm(Struct, frozen=True):
    """From which lag on a warning is logged."""

    events: int = 1_000
    seconds: float = 60.0


USUAL: Final = LagAlarm()


class Lag(Struct, frozen=True):
    """How far the archive is behind the log."""

    at: datetime  # when this was measured
    position: model.Position  # the last archived one
    events: int  # not archived yet; ``COUNTED_MAX`` means so many or more
    seconds: float  # since the commit of the oldest one
    alarming: bool
    trouble: str = ""  # the code of the error that ended the last round


class Differences(Struct, frozen=True):
    """Where an archive differs from the log: names of segments, in order."""

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)


Watch = Callable[[Lag], object]


@dataclass(frozen=True, slots=True)
class _Mark:
    """The position, and the version of its row, which a writer expects."""

    position: model.Position = 0
    version: model.Position = model.ABSENT


class Archive:
    """One log's archive in one place. Several processes may run it at once.

    ``log_id`` identifies the log; ``name`` identifies one of several archives of a log.

    Raises:
        ArchiveForeign: the place holds another log's archive, or one with other ranges.
        ArchiveUnavailable, InvalidDefinition, InvalidInput.
    """

    def __init__(
        self,
        store: Store,
        place: segment_store.SegmentStore,
        *,
        log_id: str,
        clock: Clock,
        name: str = "archive",
        allowed: redaction.Allowed | None = None,
        positions: int = RANGE,
        alarm: LagAlarm = USUAL,
    ) -> None:
        model.check_text("the name of an archive", name, model.ID_BYTES_MAX)
        segment_store.check_range_size(positions)
        store.schema.collection(ARCHIVE_POSITIONS.name)
        self._store = store
        self._place = place
        self._clock = clock
        self._key = model.Key(ARCHIVE_POSITIONS.name, name)
        self._cutter = archive_segments.SegmentCutter(
            store, redaction.FactRedactor(store.schema.vocabulary, allowed or {}), positions
        )
        self._alarm = alarm
        self._tidied = _Mark()
        place.claim(segment_store.ArchiveClaim(log_id, positions))

    # ── following the log ──

    def run(
        self,
        stop: Signal,
        watch: Watch,
        *,
        poll_seconds: float = POLL_SECONDS,
        wait: Callable[[Signal, float], object] = Signal.wait,
    ) -> None:
        """Follow the log until ``stop``; a segment that is being written is finished.

        ``watch`` receives the lag after each round. Errors of the store or the archive are retried;
        any other error is raised.
        """
        while not stop.is_set():
            trouble, more = "", False
            try:
                more = self.work(stop).more
            except (Unavailable, Unknown, Conflict) as error:
                trouble = error.code  # nothing is lost: the next round starts at the position
            self._report_lag(watch, trouble)
            if not more:
                wait(stop, poll_seconds)

    def work(self, stop: Signal | None = None, *, limit: int = SEGMENTS_MAX) -> ArchiveRound:
        """Run one round: archive new events, at most ``limit`` segments.

        Raises:
            Unavailable, Unknown, Conflict: what was archived until then remains.
        """
        mark = self._mark()
        if mark != self._tidied:
            self._tidy(mark)  # written by another archiver, or before a restart
        waiting = self._store.feed(after=mark.position, limit=1).events
        if not waiting:
            return ArchiveRound(0, 0)
        events = segments = 0
        found = self._cutter.segments(waiting[0].position)
        for segment in islice(found, min(limit, SEGMENTS_MAX)):
            events += sum(position > mark.position for position in segment.positions)
            segments += 1
            mark = self._keep(segment, mark)
            if stop is not None and stop.is_set():
                return ArchiveRound(events, segments)
        return ArchiveRound(events, segments, more=segments == min(limit, SEGMENTS_MAX))

    def lag(self, trouble: str = "") -> Lag:
        """Measure how far the archive is behind the log."""
        position = self._mark().position
        now = self._clock()
        waiting = list(islice(archive_segments.feed(self._store, position), COUNTED_MAX))
        # Clocks of servers differ, so the oldest event may have a time in the future.
        seconds = max((now - waiting[0].at).total_seconds(), 0.0) if waiting else 0.0
        alarming = len(waiting) > self._alarm.events or seconds > self._alarm.seconds
        return Lag(now, position, len(waiting), seconds, alarming, trouble)

    def _report_lag(self, watch: Watch, trouble: str) -> None:
        try:
            lag = self.lag(trouble)
        except (Unavailable, Unknown):
            return  # the log is unavailable; the age of the last lag shows this
        watch(lag)

    def _keep(self, segment: archive_segments.Segment, mark: _Mark) -> _Mark:
        """Write the segment, advance the position, then delete what the segment replaces."""
        self._place.write(segment.label, segment.content)
        moved = self._move(mark, segment.label.last)
        self._tidy(moved)
        return moved

    def _tidy(self, mark: _Mark) -> None:
        """Delete the shorter versions of the segment at the position."""
        kept = segment_store.SegmentName(self._cutter.start_of(mark.position), mark.position)
        for name in list(self._place.names(kept.start)):
            label = segment_store.parse_segment_name(name)
            if label is not None and label < kept:
                self._place.remove(label)
        self._tidied = mark

    # ── made again, and compared ──

    def rebuild(self) -> int:
        """Write everything up to the position again, and delete what does not belong to the log up
        to there; return how many segments. An archiver may run at the same time.

        Segments after the position stay, because an archiver may be about to advance it. Segments
        before it are safe to delete, because the position only grows.
        """
        upto = self._mark().position
        written = set()
        for segment in self._cutter.segments(0, upto):
            self._place.write(segment.label, segment.content)
            written.add(segment.label)
        for name in list(self._place.names()):
            label = segment_store.parse_segment_name(name)
            if label is not None and label.last <= upto and label not in written:
                self._place.remove(label)
        self._tidy(self._mark())  # the last segment may have grown meanwhile
        return len(written)

    def verify(self) -> Differences:
        """Compare the archive with the log, up to the position.

        If an archiver advances the position meanwhile, its range and later ones are skipped.
        """
        mark = self._mark()
        names = set(self._place.names())
        expected: set[str] = set()
        missing, different = [], []
        for segment in self._cutter.segments(0, mark.position):
            name = str(segment.label)
            expected.add(name)
            if (found := self._digest(segment.label)) is None:
                missing.append(name)
            elif found != _digest_of(segment):
                different.append(name)
        extra = sorted(names - expected)
        if self._mark() != mark:
            moving = self._cutter.start_of(mark.position)
            missing, extra, different = (
                [name for name in found if _is_below(name, moving)]
                for found in (missing, extra, different)
            )
        return Differences(tuple(missing), tuple(extra), tuple(different))

    def _digest(self, label: segment_store.SegmentName) -> bytes | None:
        known = sha256()
        try:
            for piece in self._place.read(label):
                known.update(piece)
        except segment_store.SegmentMissing:
            return None
        return known.digest()

    # ── the position ──

    def _mark(self) -> _Mark:
        (record,) = self._store.get(self._key)
        if record is None:
            return _Mark()
        return _Mark(codec.decode(record.data, ArchivePosition).position, record.version)

    def _move(self, mark: _Mark, position: model.Position) -> _Mark:
        """Write the row with this position. Raises: VersionConflict: another archiver wrote it."""
        data = codec.encode(ArchivePosition(position))
        write = model.Put(self._key, data, mark.version)
        (outcome,) = self._store.commit(
            model.Commit(self._clock(), model.Meta(actor=ACTOR), writes=(write,))
        )
        if isinstance(outcome, TidegateError):
            raise outcome
        return _Mark(position, outcome.first)


def _digest_of(segment: archive_segments.Segment) -> bytes:
    known = sha256()
    for line in segment.content:
        known.update(line)
    return known.digest()


def _is_below(name: str, start: model.Position) -> bool:
    label = segment_store.parse_segment_name(name)
    return label is None or label.start < start
