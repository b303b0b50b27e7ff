"""The recurrence rule of a window: the part of RFC 5545 that can be evaluated from any day.

    FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH;UNTIL=20271231T000000Z

COUNT is refused: one would have to count from the first occurrence to know whether it is used up.
Periods shorter than a day are refused: the time of day is that of the window's start.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct, structs

RULE_BYTES_MAX = 512
INTERVAL_MAX = 366
VALUES_MAX = 31  # of one part
RULES_MAX = 1_024  # cached rules
PERIODS_MAX = 4_096  # cached periods of rules with BYSETPOS

_DAY_STEP: Final = timedelta(days=1)
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"\d{8}T\d{6}Z")
_NUMBERS: Final = {
    "BYMONTHDAY": (1, 31, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 31, True),
}
_ALLOWED: Final = "FREQ, INTERVAL, BYDAY, BYMONTHDAY, BYMONTH, BYSETPOS and UNTIL"


class Frequency(StrEnum):
    """The period that a rule repeats."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


class Rule(Struct, frozen=True, kw_only=True):
    """A parsed rule."""

    freq: Frequency
    interval: int = 1
    days: tuple[tuple[int, int], ...] = ()  # weekday, and which of its month or year; 0: each
    month_days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    until: datetime | None = None


class RuleFault(ValueError):
    """What is wrong with a rule, as one sentence."""


@lru_cache(RULES_MAX)
def parse_rule(text: str) -> Rule:
    """Parse a rule. Raises: RuleFault."""
    if len(text.encode(errors="replace")) > RULE_BYTES_MAX:
        raise RuleFault(f"rule is longer than {RULE_BYTES_MAX} bytes")
    parts = _split(text)
    freq = parts.pop("FREQ", None)
    if freq is None or freq not in Frequency.__members__:
        found = "has no FREQ" if freq is None else f"has FREQ={freq[:40]}"
        raise RuleFault(f"rule {found}; allowed is {', '.join(Frequency)}")
    frequency = Frequency(freq)
    numbers = {name: _numbers(name, parts.pop(name, "")) for name in _NUMBERS}
    rule = Rule(
        freq=frequency,
        interval=_interval(parts.pop("INTERVAL", "1")),
        days=_days(parts.pop("BYDAY", ""), frequency),
        month_days=numbers["BYMONTHDAY"],
        months=numbers["BYMONTH"],
        positions=numbers["BYSETPOS"],
        until=_until(parts.pop("UNTIL", None)),
    )
    if rule.month_days and frequency is Frequency.WEEKLY:
        raise RuleFault("rule has BYMONTHDAY with FREQ=WEEKLY; use FREQ=MONTHLY")
    if rule.positions and not (rule.days or rule.month_days or rule.months):
        raise RuleFault("rule has BYSETPOS alone; it needs BYDAY, BYMONTHDAY or BYMONTH")
    return rule


def local_starts(
    rule: Rule | None, start: datetime, lower: datetime, upper: datetime
) -> Iterator[datetime]:
    """Return the local times from ``lower`` to ``upper`` at which the rule starts an occurrence.

    All are naive. ``start`` is the first; without a rule it is the only one. This looks at every
    day in between, so the number of days bounds the work, whatever the rule.
    """
    if rule is None:
        if lower <= start <= upper:
            yield start
        return
    full = _fill_in(rule, start)
    first = start.date()
    day = max(lower.date(), first)
    last = upper.date()
    while day <= last:
        if _is_due(full, first, day) and _is_taken(full, day):
            at = datetime.combine(day, start.time())
            if lower <= at <= upper:
                yield at
        day += _DAY_STEP


def _fill_in(rule: Rule, start: datetime) -> Rule:
    """Complete the rule with what RFC 5545 takes from the start."""
    if rule.days or rule.month_days:
        return rule
    match rule.freq:
        case Frequency.DAILY:
            return rule
        case Frequency.WEEKLY:
            return structs.replace(rule, days=((start.weekday(), 0),))
        case Frequency.MONTHLY:
            return structs.replace(rule, month_days=(start.day,))
        case Frequency.YEARLY:
            return structs.replace(
                rule, month_days=(start.day,), months=rule.months or (start.month,)
            )


def _is_due(rule: Rule, first: date, day: date) -> bool:
    """Whether the day is in a period that the interval selects.

    Periods are counted from the first day, so the phase stays the same for years.
    """
    if rule.interval == 1:
        return True
    match rule.freq:
        case Frequency.DAILY:
            apart = (day - first).days
        case Frequency.WEEKLY:  # weeks begin on Monday
            apart = ((day - first).days + first.weekday()) // 7
        case Frequency.MONTHLY:
            apart = (day.year - first.year) * 12 + day.month - first.month
        case _:
            apart = day.year - first.year
    return apart % rule.interval == 0


def _is_taken(rule: Rule, day: date) -> bool:
    return day in _positioned(rule, _period(rule, day)[0]) if rule.positions else _picks(rule, day)


def _picks(rule: Rule, day: date) -> bool:
    """Whether each single part of the rule accepts the day."""
    if rule.months and day.month not in rule.months:
        return False
    if rule.month_days:
        from_end = day.day - monthrange(day.year, day.month)[1] - 1
        if day.day not in rule.month_days and from_end not in rule.month_days:
            return False
    if not rule.days:
        return True
    weekday = day.weekday()
    return any(
        weekday == named and (nth == 0 or nth in _places(rule, day)) for named, nth in rule.days
    )


def _places(rule: Rule, day: date) -> tuple[int, int]:
    """Return which one of its weekday the day is, counted from the start and from the end.

    A yearly rule without months counts within the year, others within the month.
    """
    if rule.freq is Frequency.YEARLY and not rule.months:
        first, last = date(day.year, 1, 1), date(day.year, 12, 31)
    else:
        first = day.replace(day=1)
        last = day.replace(day=monthrange(day.year, day.month)[1])
    return (day - first).days // 7 + 1, -((last - day).days // 7 + 1)


def _period(rule: Rule, day: date) -> tuple[date, int]:
    """Return the first day of the period around this day, and its number of days."""
    match rule.freq:
        case Frequency.DAILY:
            return day, 1
        case Frequency.WEEKLY:
            return day - timedelta(days=day.weekday()), 7
        case Frequency.MONTHLY:
            return day.replace(day=1), monthrange(day.year, day.month)[1]
        case Frequency.YEARLY:
            return date(day.year, 1, 1), (date(day.year, 12, 31) - date(day.year, 1, 1)).days + 1


@lru_cache(PERIODS_MAX)
def _positioned(rule: Rule, first: date) -> frozenset[date]:
    """Return the days of the period that begins here which BYSETPOS selects."""
    days = [first + timedelta(days=count) for count in range(_period(rule, first)[1])]
    picked = [day for day in days if _picks(rule, day)]
    places = {place - 1 if place > 0 else len(picked) + place for place in rule.positions}
    return frozenset(day for place, day in enumerate(picked) if place in places)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def _split(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, mark, value = part.partition("=")
        if not mark or not value:
            raise RuleFault(f"rule has {part[:40]!r} where NAME=VALUE is expected")
        if name in parts:
            raise RuleFault(f"rule has {name} twice")
        if name == "COUNT":
            raise RuleFault("rule has COUNT, which is not supported; use UNTIL")
        if name not in ("FREQ", "INTERVAL", "BYDAY", "UNTIL", *_NUMBERS):
            raise RuleFault(f"rule has {name[:40]}; allowed are {_ALLOWED}")
        parts[name] = value
    return parts


def _interval(value: str) -> int:
    found = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else 0
    if not 1 <= found <= INTERVAL_MAX:
        raise RuleFault(f"rule has INTERVAL={value[:40]}; allowed is 1 to {INTERVAL_MAX}")
    return found


def _values(name: str, value: str) -> list[str]:
    values = value.split(",") if value else []
    if len(values) > VALUES_MAX:
        raise RuleFault(f"rule has {len(values)} values of {name}; allowed are {VALUES_MAX}")
    if len(set(values)) != len(values):
        raise RuleFault(f"rule has a value of {name} twice")
    return values


def _numbers(name: str, value: str) -> tuple[int, ...]:
    least, most, may_be_negative = _NUMBERS[name]
    found = []
    for text in _values(name, value):
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,3}", text) else 0
        if not least <= (abs(number) if may_be_negative else number) <= most:
            also = f" or -{most} to -{least}" if may_be_negative else ""
            raise RuleFault(f"rule has {name}={text[:40]}; allowed is {least} to {most}{also}")
        found.append(number)
    return tuple(found)


def _days(value: str, freq: Frequency) -> tuple[tuple[int, int], ...]:
    found = []
    for text in _values("BYDAY", value):
        match = _DAY.fullmatch(text)
        nth = 0 if match is None or match[1] is None else int(match[1])
        if match is None or (match[1] is not None and not 1 <= abs(nth) <= 53):
            raise RuleFault(
                f"rule has BYDAY={text[:40]}; allowed are {', '.join(_DAYS)} and 1MO … -1SU"
            )
        if nth and freq not in (Frequency.MONTHLY, Frequency.YEARLY):
            raise RuleFault(f"rule has BYDAY={text}, which needs FREQ=MONTHLY or FREQ=YEARLY")
        found.append((_DAYS.index(match[2]), nth))
    return tuple(found)


def _until(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        if not _UNTIL.fullmatch(value):
            raise ValueError
        return datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise RuleFault(
            f"rule has UNTIL={value[:40]}; write a time in UTC: 20271231T000000Z"
        ) from None
