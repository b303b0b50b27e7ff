"""Times as people write them: 30d, 10 min ago, 13:26, yesterday 14:00, 2026-12-24, RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from tidegate.cli.exit_codes import CommandExit, ExitCode

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}  # by the first letter
_AGO: Final = re.compile(
    r"(\d{1,6})\s*(s|sec(?:ond)?s?|m|min(?:ute)?s?|h|hours?|d|days?|w|weeks?)(?:\s+ago)?"
)
_DAY: Final = re.compile(r"(?:(today|yesterday)\s+)?(\d{1,2}:\d\d(?::\d\d)?)|(today|yesterday)")


def parse_time(text: str, now: datetime) -> datetime:
    """The moment that a text names, in UTC; a time without an offset is UTC.

    Raises:
        CommandExit: it names none.
    """
    try:
        return _parsed(text.strip(), now)
    except (ValueError, OverflowError):
        raise CommandExit(
            ExitCode.USAGE,
            f"{text!r} is no time; write 30d, 12h, 10 min ago, 13:26, yesterday 14:00, "
            "2026-12-24 or 2026-12-24T18:00:00Z",
        ) from None


def _parsed(text: str, now: datetime) -> datetime:
    if ago := _AGO.fullmatch(text):
        return now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2][0]])
    if found := _DAY.fullmatch(text):
        days = 1 if "yesterday" in (found[1], found[3]) else 0
        clock = time.fromisoformat((found[2] or "00:00").zfill(5))
        return datetime.combine(now.date() - timedelta(days=days), clock, tzinfo=UTC)
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def parse_start(text: str, now: datetime) -> datetime:
    """A moment to come: RFC 3339, a date, a span such as 3h from now, or the next 18:00.

    Raises:
        CommandExit: it names none.
    """
    stripped = text.strip()
    try:
        ahead = _AGO.fullmatch(stripped.removeprefix("in ").strip())
        if ahead and not stripped.endswith("ago"):
            return now + timedelta(seconds=int(ahead[1]) * _UNITS[ahead[2][0]])
        moment = _parsed(stripped, now)
        is_clock = _DAY.fullmatch(stripped) is not None and ":" in stripped.split()[0]
        return moment + timedelta(days=1) if is_clock and moment <= now else moment
    except (ValueError, OverflowError):
        raise CommandExit(
            ExitCode.USAGE,
            f"{text!r} is no time; write 2h, in 30 min, 18:00, 2026-12-24 or 2026-12-24T18:00:00Z",
        ) from None


def api_start(text: str | None) -> str | None:
    """A moment to come of an option, as the API takes it; None stays. Raises: CommandExit."""
    if text is None:
        return None
    now = datetime.now(UTC)
    return as_api_time(parse_start(text, now))


def api_as_of(text: str | None) -> str | None:
    """A position stays as it is; a time becomes one that the API takes. Raises: CommandExit."""
    if text is None or text.strip().isdecimal():
        return text
    return as_api_time(parse_time(text, datetime.now(UTC)))


def parse_span(text: str) -> timedelta:
    """How long a text says: 90s, 10 min, 2h, 30d. Raises: CommandExit: it says no such thing."""
    found = _AGO.fullmatch(text.strip())
    if found is None or text.strip().endswith("ago") or not int(found[1]):
        raise CommandExit(ExitCode.USAGE, f"{text!r} is no duration; write 90s, 10 min, 2h or 30d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2][0]])


def parsed(text: str) -> datetime:
    """A time as the API writes it."""
    return datetime.fromisoformat(text)


def as_api_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
