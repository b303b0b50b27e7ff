"""Whether a window can work as it is written. All faults are found, each as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Final

from tidegate.domain.fleet.refusals import InvalidSelector
from tidegate.domain.fleet.selectors import LABEL_KEY_CHARS_MAX, parse
from tidegate.domain.windows import facts, occurrences, refusals, rules, zones
from tidegate.errors import LimitExceeded

DURATION_MIN = 300
DURATION_MAX = 604_800
EXCEPT_DATES_MAX = 100
WINDOW_CHANNELS_MAX = 16  # each is a row of the commit, in addition to the copies for all channels
REPOSITORIES_MAX = 16
YEARS_AHEAD = 30  # a rule must have an occurrence within these years

WINDOW: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_./-]{{0,{LABEL_KEY_CHARS_MAX - 1}}}")
_START = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}")
_YEARS: Final = range(2000, 2200)


def check_window(window: facts.WindowSpec) -> None:
    """Raises: MalformedWindow."""
    faults = list(_faults(window))
    if faults:
        raise refusals.MalformedWindow(faults)


def _faults(window: facts.WindowSpec) -> Iterator[str]:
    if not WINDOW.fullmatch(window.window_id):
        yield (
            f"window_id is {window.window_id[:80]!r}; allowed are at most 63 of a-z 0-9 . _ -, "
            "with a letter or digit at both ends"
        )
    yield from _check_names("channels", window.channels, WINDOW_CHANNELS_MAX)
    yield from _check_names("repositories", window.repositories, REPOSITORIES_MAX)
    try:
        parse(window.hosts)
    except (InvalidSelector, LimitExceeded) as error:
        yield f"hosts is not a selector: {error.detail}"
    yield from _check_zones(window)
    if not DURATION_MIN <= window.duration_seconds <= DURATION_MAX:
        yield (
            f"duration_seconds is {window.duration_seconds}; "
            f"allowed is {DURATION_MIN} to {DURATION_MAX}"
        )
    yield from _check_times(window)


def _check_names(member: str, names: Sequence[str], most: int) -> Iterator[str]:
    if len(names) > most:
        yield f"{member} has {len(names)} names; allowed are {most}"
    for name in names[:most]:
        if not _NAME.fullmatch(name):
            yield f"{member} has {name[:80]!r}; allowed are at most 63 of a-z 0-9 -"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield f"{member} names {twice[0]} twice"


def _check_zones(window: facts.WindowSpec) -> Iterator[str]:
    if window.zone.startswith(facts.LABEL):
        if not _KEY.fullmatch(window.zone.removeprefix(facts.LABEL)):
            yield f"zone is {window.zone[:80]!r}; after label: comes the key of a label: label:tz"
        if window.zone_default is not None and not zones.is_zone(window.zone_default):
            yield f"zone_default is {window.zone_default[:80]!r}, which is not a time zone"
        return
    if not zones.is_zone(window.zone):
        yield (
            f"zone is {window.zone[:80]!r}, which is not a time zone; "
            "write one such as Europe/Berlin, or label:tz"
        )
    if window.zone_default is not None:
        yield "zone_default is only for a zone that a label names: zone is label:tz"


def _check_times(window: facts.WindowSpec) -> Iterator[str]:
    start: datetime | None = None
    rule: rules.Rule | None = None
    try:
        if not _START.fullmatch(window.start):
            raise ValueError
        start = occurrences.read_start(window.start)
        if start.year not in _YEARS:
            raise ValueError
    except ValueError:
        start = None
        yield (
            f"start is {window.start[:80]!r}; write a local date and time without an offset, "
            "from 2000 to 2199: 2026-11-17T02:00"
        )
    broken = False
    try:
        rule = rules.parse_rule(window.rule) if window.rule else None
    except rules.RuleFault as fault:
        broken = True
        yield str(fault)
    dates = window.except_dates
    if len(dates) > EXCEPT_DATES_MAX:
        yield f"except_dates has {len(dates)} dates; allowed are {EXCEPT_DATES_MAX}"
    bad = [text for text in dates[:EXCEPT_DATES_MAX] if not _is_date(text)]
    if bad:
        yield f"except_dates has {bad[0][:80]!r}; write a local date: 2026-12-24"
    if len(set(dates)) != len(dates):
        yield "except_dates has a date twice"
    if start is not None and not broken and not bad and not _occurs(window, start, rule):
        yield f"the window never occurs: neither at {window.start} nor by its rule after that"


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _occurs(window: facts.WindowSpec, start: datetime, rule: rules.Rule | None) -> bool:
    skipped = set(window.except_dates)
    until = None if rule is None or rule.until is None else rule.until.replace(tzinfo=None)
    upper = start + timedelta(days=366 * YEARS_AHEAD)
    if until is not None:
        upper = min(upper, until + timedelta(hours=14))  # in the zone with the largest offset
    found = rules.local_starts(rule, start, start, upper)
    return any(local.date().isoformat() not in skipped for local in found)
