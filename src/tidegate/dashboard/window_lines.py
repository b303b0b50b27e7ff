"""Maintenance windows as lines of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tidegate.control.operations.windows import Occurrence
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.windows import evaluation, facts, rows as window_rows, sentences

WINDOWS_MAX = 64
RULES = (  # offered by a form; people see the words
    components.Option("", "once"),
    components.Option("FREQ=DAILY", "every day"),
    components.Option("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "Monday to Friday"),
    components.Option("FREQ=WEEKLY;BYDAY=SA,SU", "on weekends"),
    components.Option("FREQ=WEEKLY", "every week"),
    components.Option("FREQ=MONTHLY", "every month"),
    components.Option("FREQ=MONTHLY;BYDAY=-1SU", "on the last Sunday of a month"),
)
LEAST_WIDTH = 1.0  # percent of the axis, so that a short occurrence stays visible


def list_lines(
    reads: Reads, now: datetime, shows: Callable[[window_rows.Window], bool]
) -> tuple[components.Option, ...]:
    """The windows for which ``shows`` is true, by name."""
    rows = [item.row for item in reads.range(window_rows.WINDOWS, limit=WINDOWS_MAX)]
    return tuple(
        components.Option(row.window_id, row.window_id, _describe(row, now))
        for row in rows
        if shows(row)
    )


def _describe(row: window_rows.Window, now: datetime) -> str:
    zone = evaluation.zone_of(row, {}) or "UTC"
    ahead = evaluation.next_occurrences(row, zone, now, 1)
    when = "does not occur within 400 days"
    if ahead:
        start, end = ahead[0]
        when = f"next {sentences.local_text(start, zone)}"
        if start <= now:
            when = f"lasts until {sentences.local_text(end, zone)}"
    return f"{row.kind} on {describe_scope(row)}: {when}. {row.reason}"


def describe_scope(row: facts.WindowSpec) -> str:
    """What a window covers, how long and how often."""
    whom = ", ".join(row.channels) or "all channels"
    if row.repositories:
        whom += f" of {', '.join(row.repositories)}"
    hosts = "" if row.hosts == "*" else f", hosts {row.hosts}"
    length = sentences.span_text(timedelta(seconds=row.duration_seconds))
    rule = next((item.label for item in RULES if item.value == row.rule), row.rule)
    return f"{whom}{hosts} for {length}, {rule}, {row.zone}"


def draw_openings(
    occurrences: Sequence[Occurrence], now: datetime, kind: facts.WindowKind
) -> tuple[form_screens.OpeningLine, ...]:
    """Draw occurrences on one axis, from now to the end of the last one."""
    if not occurrences:
        return ()
    whole = max(1.0, (occurrences[-1].ends_at - now).total_seconds())
    tone = "good" if kind is facts.WindowKind.ALLOW else "bad"
    return tuple(_opening(item, now, whole, tone) for item in occurrences)


def _opening(item: Occurrence, now: datetime, whole: float, tone: str) -> form_screens.OpeningLine:
    start = max(0.0, (item.starts_at - now).total_seconds())
    length = (item.ends_at - now).total_seconds() - start
    width = max(LEAST_WIDTH, round(100 * length / whole, 2))
    return form_screens.OpeningLine(
        starts=item.starts,
        ends=_without_day(item.ends, item.starts),
        at=item.starts_at,
        lasts=sentences.span_text(item.ends_at - item.starts_at),
        tone=tone,
        x=min(round(100 * start / whole, 2), 100 - width),
        width=width,
    )


def _without_day(end: str, start: str) -> str:
    """The end of an occurrence; on the day of its start, only the time."""
    day = start.rsplit(" ", 2)[0]
    return end.removeprefix(day).strip()
