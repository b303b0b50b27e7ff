"""When the occurrences of a window begin, in UTC.

    local start ──▶ UTC, with the offset before a gap, and the first of a doubled hour
    end = start + duration, in real seconds; an occurrence is [start, end)

The times are computed in chunks of days and cached, so a question costs a few look-ups. Nothing
here is stored: a new version of tzdata applies after a restart, and no row must be rebuilt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

from tidegate.domain.windows import facts, rules, zones

HORIZON: Final = timedelta(days=400)  # how far ahead a search goes
CHUNK: Final = timedelta(days=16)
CHUNKS_MAX = 8_192  # cached chunks
START_FORM: Final = "%Y-%m-%dT%H:%M"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MARGIN: Final = timedelta(hours=36)  # more than any zone's distance from UTC, gaps included


def read_start(text: str) -> datetime:
    """Read a window's start as a naive time. Raises: ValueError."""
    return datetime.strptime(text, START_FORM)  # noqa: DTZ007 (local, of a zone named elsewhere)


def to_utc(local: datetime, zone: str) -> datetime:
    """Convert a local time to UTC: with the offset before a gap, and the first of two."""
    return local.replace(tzinfo=zones.find_zone(zone), fold=0).astimezone(UTC)


def rule_of(times: facts.WindowTimes) -> rules.Rule | None:
    return rules.parse_rule(times.rule) if times.rule else None


def starts_between(
    times: facts.WindowTimes, zone: str, lower: datetime, upper: datetime
) -> Iterator[datetime]:
    """Return the starts in [lower, upper), ascending, each once."""
    number = (lower - _EPOCH) // CHUNK
    while _EPOCH + number * CHUNK < upper:
        for start in _chunk(times, zone, number):
            if lower <= start < upper:
                yield start
        number += 1


def last_start(times: facts.WindowTimes, zone: str, at: datetime) -> datetime | None:
    """Return the start of the occurrence that lasts at this time; the last one, if several do."""
    number = (at - _EPOCH) // CHUNK
    for chunk in (number, number - 1):  # an occurrence is shorter than a chunk
        starts = _chunk(times, zone, chunk)
        place = bisect_right(starts, at)
        if place:
            found = starts[place - 1]
            return found if at < found + timedelta(seconds=times.duration_seconds) else None
    return None


def next_start(times: facts.WindowTimes, zone: str, after: datetime) -> datetime | None:
    """Return the first start after this time, within ``HORIZON``."""
    step = timedelta(microseconds=1)
    return next(starts_between(times, zone, after + step, after + HORIZON), None)


def end_of_stretch(times: facts.WindowTimes, zone: str, at: datetime) -> datetime | None:
    """Return when the window, which lasts at this time, ends; None: not within ``HORIZON``.

    Occurrences that overlap or touch form one stretch.
    """
    duration = timedelta(seconds=times.duration_seconds)
    latest = last_start(times, zone, at)
    assert latest is not None, "the window does not last at this time"
    end = latest + duration
    for start in starts_between(times, zone, end - duration, at + HORIZON):
        if start > end:
            return end
        end = max(end, start + duration)
    return end if end < at + HORIZON else None


@lru_cache(CHUNKS_MAX)
def _chunk(times: facts.WindowTimes, zone: str, number: int) -> tuple[datetime, ...]:
    """Compute the starts in one chunk of days, ascending."""
    lower = _EPOCH + number * CHUNK
    upper = lower + CHUNK
    rule = rule_of(times)
    until = None if rule is None else rule.until
    skipped = {date.fromisoformat(text) for text in times.except_dates}
    found = {
        start
        for local in rules.local_starts(
            rule,
            read_start(times.start),
            (lower - _MARGIN).replace(tzinfo=None),
            (upper + _MARGIN).replace(tzinfo=None),
        )
        if local.date() not in skipped
        for start in (to_utc(local, zone),)
        if lower <= start < upper and (until is None or start <= until)
    }
    return tuple(sorted(found))
