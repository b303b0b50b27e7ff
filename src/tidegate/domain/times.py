"""Format times for sentences that people read."""

from __future__ import annotations

from datetime import datetime


def describe_time(moment: datetime | None) -> str:
    """To the minute, in UTC: `2026-03-01 12:00 UTC`."""
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def describe_end(until: datetime | None) -> str:
    """The suffix for something that may end: ` until …`, or nothing."""
    return "" if until is None else f" until {describe_time(until)}"
