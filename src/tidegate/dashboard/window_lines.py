"""Maintenance windows in one line each, for the pages that list them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Option
from tidegate.domain.windows.evaluation import next_occurrences, zone_of
from tidegate.domain.windows.rows import WINDOWS, Window
from tidegate.domain.windows.sentences import local_text, span_text

WINDOWS_MAX = 64


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
    whom = ", ".join(row.channels) or "all channels"
    hosts = "" if row.hosts == "*" else f", hosts {row.hosts}"
    length = span_text(timedelta(seconds=row.duration_seconds))
    rule = row.rule or "once"
    return f"{row.kind} on {whom}{hosts} for {length}, {rule}, {row.zone}: {when}. {row.reason}"
