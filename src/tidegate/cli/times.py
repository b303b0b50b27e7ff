"""Parse times: 30d, 10 min ago, 13:26, yesterday 14:00, 2026-12-24, RFC 3339."""

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
    """Parse a time, in UTC if it has no offset.

    Raises:
        CommandExit: the text is not a time.
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
    """Parse a future time: RFC 3339, a date, a duration such as 3h from now, or the next 18:00.

    Raises:
        CommandExit: the text is not a time.
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
    """Convert an option with a future time for the API; None stays None. Raises: CommandExit."""
    if text is None:
        return None
    now = datetime.now(UTC)
    return as_api_time(parse_start(text, now))


def api_as_of(text: str | None) -> str | None:
    """Convert a time for the API; a log position stays as it is. Raises: CommandExit."""
    if text is None or text.strip().isdecimal():
        return text
    return as_api_time(parse_time(text, datetime.now(UTC)))


def parse_span(text: str) -> timedelta:
    """Parse a duration: 90s, 10 min, 2h, 30d. Raises: CommandExit: the text is not one."""
    found = _AGO.fullmatch(text.strip())
    if found is None or text.strip().endswith("ago") or not int(found[1]):
        raise CommandExit(ExitCode.USAGE, f"{text!r} is no duration; write 90s, 10 min, 2h or 30d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2][0]])


def parse_api_time(text: str) -> datetime:
    """Parse a time of the API."""
    return datetime.fromisoformat(text)


def as_api_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
