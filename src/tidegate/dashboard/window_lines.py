"""Maintenance windows in one line each, for the pages that list them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tidegate.control.operations.windows import Occurrence
from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Option
from tidegate.dashboard.view_models import OpeningLine
from tidegate.domain.windows.evaluation import next_occurrences, zone_of
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.rows import WINDOWS, Window
from tidegate.domain.windows.sentences import local_text, span_text

WINDOWS_MAX = 64
LEAST_WIDTH = 1.0  # percent of the axis: a short occurrence among rare ones is still seen


def list_lines(reads: Reads, now: datetime, shows: Callable[[Window], bool]) -> tuple[Option, ...]:
    """The windows of which ``shows`` is true, by name."""
    rows = [item.row for item in reads.range(WINDOWS, limit=WINDOWS_MAX)]
    return tuple(
        Option(row.window_id, row.window_id, _describe(row, now)) for row in rows if shows(row)
    )


def _describe(row: Window, now: datetime) -> str:
    zone = zone_of(row, {}) or "UTC"
    ahead = next_occurrences(row, zone, now, 1)
    when = "does not occur within 400 days"
    if ahead:
        start, end = ahead[0]
        when = f"next {local_text(start, zone)}"
        if start <= now:
            when = f"lasts until {local_text(end, zone)}"
    return f"{row.kind} on {describe_scope(row)}: {when}. {row.reason}"


def describe_scope(row: WindowSpec) -> str:
    """What a window covers, how long and how often."""
    whom = ", ".join(row.channels) or "all channels"
    if row.repositories:
        whom += f" of {', '.join(row.repositories)}"
    hosts = "" if row.hosts == "*" else f", hosts {row.hosts}"
    length = span_text(timedelta(seconds=row.duration_seconds))
    return f"{whom}{hosts} for {length}, {row.rule or 'once'}, {row.zone}"


def draw_openings(
    occurrences: Sequence[Occurrence], now: datetime, kind: WindowKind
) -> tuple[OpeningLine, ...]:
    """Occurrences on one axis, from now to the end of the last one."""
    if not occurrences:
        return ()
    whole = max(1.0, (occurrences[-1].ends_at - now).total_seconds())
    tone = "good" if kind is WindowKind.ALLOW else "bad"
    return tuple(_opening(item, now, whole, tone) for item in occurrences)


def _opening(item: Occurrence, now: datetime, whole: float, tone: str) -> OpeningLine:
    start = max(0.0, (item.starts_at - now).total_seconds())
    length = (item.ends_at - now).total_seconds() - start
    width = max(LEAST_WIDTH, round(100 * length / whole, 2))
    return OpeningLine(
        starts=item.starts,
        ends=_without_day(item.ends, item.starts),
        at=item.starts_at,
        lasts=span_text(item.ends_at - item.starts_at),
        tone=tone,
        x=min(round(100 * start / whole, 2), 100 - width),
        width=width,
    )


def _without_day(end: str, start: str) -> str:
    """The end of an occurrence; on the day of its start the time is enough."""
    day = start.rsplit(" ", 2)[0]
    return end.removeprefix(day).strip()
