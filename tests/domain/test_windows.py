"""Maintenance windows: how long they last, through gaps and repeated hours, and which hosts they
cover.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

import pytest
from dateutil.rrule import rrule, rrulestr
from hypothesis import assume, given, settings, strategies as st
from msgspec.structs import replace

from tidegate.domain.windows.checks import check_window
from tidegate.domain.windows.evaluation import (
    HostWindow,
    WindowView,
    judge,
    lasts,
    list_windows,
    next_occurrences,
    repository_of,
    zone_of,
)
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.occurrences import end_of_stretch, next_start, starts_between
from tidegate.domain.windows.refusals import MalformedWindow
from tidegate.domain.windows.rules import local_starts, parse_rule
from tidegate.domain.windows.sentences import shut_text, span_text
from tidegate.domain.windows.zones import find_zone, is_zone, zone_names

HOUR = timedelta(hours=1)


def window(**members: Any) -> WindowSpec:
    usual: dict[str, Any] = {
        "window_id": "nightly",
        "kind": WindowKind.ALLOW,
        "start": "2026-11-17T02:00",
        "rule": "FREQ=DAILY",
        "duration_seconds": 7_200,
    }
    return WindowSpec(**{**usual, **members})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# ── the table of the reference ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("zone", "clock", "hours", "day", "begins", "ends", "seen"),
    [
        ("Europe/Berlin", "02:00", 2, "2027-03-27", "27T01:00", "27T03:00", "02:00 CET 04:00 CET"),
        (
            "Europe/Berlin",
            "02:00",
            2,
            "2027-03-28",
            "28T01:00",
            "28T03:00",
            "03:00 CEST 05:00 CEST",
        ),
        ("Europe/Berlin", "02:00", 2, "2027-10-31", "31T00:00", "31T02:00", "02:00 CEST 03:00 CET"),
        ("Europe/Berlin", "22:00", 6, "2027-10-30", "30T20:00", "31T02:00", "22:00 CEST 03:00 CET"),
        (
            "America/New_York",
            "02:30",
            1,
            "2027-03-14",
            "14T07:30",
            "14T08:30",
            "03:30 EDT 04:30 EDT",
        ),
        (
            "Australia/Lord_Howe",
            "01:45",
            1,
            "2027-04-04",
            "03T14:45",
            "03T15:45",
            "01:45 +11 02:15 +1030",
        ),
    ],
)
def test_lasts_its_duration_through_clock_changes(
    zone: str, clock: str, hours: int, day: str, begins: str, ends: str, seen: str
) -> None:
    spec = window(zone=zone, start=f"2026-11-17T{clock}", duration_seconds=hours * 3_600)
    begin, end = utc(f"{day[:8]}{begins}"), utc(f"{day[:8]}{ends}")

    found = list(starts_between(spec, zone, begin, begin + timedelta(minutes=1)))

    assert found == [begin]
    assert end_of_stretch(spec, zone, begin) == end
    assert lasts(HostWindow(spec, zone), end - timedelta(seconds=1))
    assert not lasts(HostWindow(spec, zone), end), "it is half-open"
    assert not lasts(HostWindow(spec, zone), begin - timedelta(seconds=1))
    local = [at.astimezone(find_zone(zone)) for at in (begin, end)]
    assert " ".join(f"{at:%H:%M} {at.tzname()}" for at in local) == seen


def test_a_day_that_a_zone_skipped_causes_no_second_occurrence() -> None:
    """Samoa skipped 30 December 2011: the start on that day coincides with the start on the
    31st.
    """
    spec = window(zone="Pacific/Apia", start="2011-12-28T02:00")

    found = list(
        starts_between(spec, "Pacific/Apia", utc("2011-12-28T00:00"), utc("2012-01-01T00:00"))
    )

    assert found == [
        utc("2011-12-28T12:00"),
        utc("2011-12-29T12:00"),
        utc("2011-12-30T12:00"),
        utc("2011-12-31T12:00"),
    ]


def test_reads_zones_from_the_package_alone() -> None:
    assert is_zone("Europe/Berlin")
    assert is_zone("Etc/GMT+1")
    assert not is_zone("localtime")
    assert not is_zone("../../etc/passwd")
    assert len(zone_names()) > 400
    for name in sorted(zone_names()):
        find_zone(name)


# ── stretches ─────────────────────────────────────────────────────────────────────────────────────


def test_merges_occurrences_that_overlap_or_touch() -> None:
    two_days = window(rule="FREQ=WEEKLY;BYDAY=TU,WE", duration_seconds=86_400)

    assert end_of_stretch(two_days, "UTC", utc("2026-11-17T03:00")) == utc("2026-11-19T02:00")


def test_a_window_that_is_always_open_has_no_end() -> None:
    always = window(duration_seconds=90_000)

    assert end_of_stretch(always, "UTC", utc("2027-01-01T00:00")) is None


def test_occurs_once_without_a_rule() -> None:
    once = window(rule="")

    assert next_start(once, "UTC", utc("2026-11-01T00:00")) == utc("2026-11-17T02:00")
    assert next_start(once, "UTC", utc("2026-11-17T02:00")) is None


def test_skips_occurrences_that_would_start_on_excluded_dates() -> None:
    spec = window(start="2026-12-23T22:00", except_dates=("2026-12-24",))

    found = next_occurrences(spec, "UTC", utc("2026-12-23T23:00"), 2)

    assert found == (
        (utc("2026-12-23T22:00"), utc("2026-12-24T00:00")),
        (utc("2026-12-25T22:00"), utc("2026-12-26T00:00")),
    )


def test_keeps_the_phase_of_an_interval_years_later() -> None:
    spec = window(start="2001-01-01T02:00", rule="FREQ=DAILY;INTERVAL=3")
    at = utc("2026-11-17T00:00")
    since = (date(2026, 11, 17) - date(2001, 1, 1)).days

    found = next_start(spec, "UTC", at)

    assert found is not None
    assert (found.date() - date(2001, 1, 1)).days == since + (-since % 3)


def test_keeps_the_day_of_a_month_that_the_anchor_lacks() -> None:
    spec = window(start="2026-01-31T02:00", rule="FREQ=MONTHLY")

    found = starts_between(spec, "UTC", utc("2027-01-01T00:00"), utc("2027-06-01T00:00"))

    assert [f"{start:%m-%d}" for start in found] == ["01-31", "03-31", "05-31"]


# ── brute force ───────────────────────────────────────────────────────────────────────────────────

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"),
    *("Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca", "Antarctica/Troll", "Asia/Gaza"),
)
MINUTE = timedelta(minutes=1)


def nth_of(day: date, first: date, last: date) -> tuple[int, int]:
    """Return the ordinal of the day among the same weekdays between these days, from both ends."""
    return (day - first).days // 7 + 1, -((last - day).days // 7 + 1)


def days_of_month(year: int, month: int) -> list[date]:
    return [date(year, month, day) for day in range(1, calendar.monthrange(year, month)[1] + 1)]


def days_of_period(day: date, freq: str) -> list[date]:
    match freq:
        case "DAILY":
            return [day]
        case "WEEKLY":
            monday = day - timedelta(days=day.weekday())
            return [monday + timedelta(days=count) for count in range(7)]
        case "MONTHLY":
            return days_of_month(day.year, day.month)
        case _:
            return [d for month in range(1, 13) for d in days_of_month(day.year, month)]


def is_day_of(parts: dict[str, str], start: date, day: date) -> bool:
    """Return whether a rule includes this day, read from RFC 5545 day by day."""
    freq = parts["FREQ"]
    interval = int(parts.get("INTERVAL", "1"))
    match freq:
        case "DAILY":
            apart = (day - start).days
        case "WEEKLY":
            mondays = [each - timedelta(days=each.weekday()) for each in (start, day)]
            apart = (mondays[1] - mondays[0]).days // 7
        case "MONTHLY":
            apart = (day.year - start.year) * 12 + day.month - start.month
        case _:
            apart = day.year - start.year
    if day < start or apart % interval:
        return False
    return day in days_taken(tuple(parts.items()), start, days_of_period(day, freq)[0])


@lru_cache(None)
def days_taken(rule: tuple[tuple[str, str], ...], start: date, first: date) -> frozenset[date]:
    """Return the days that a rule includes in the period that begins on this day."""
    parts = dict(rule)
    freq = parts["FREQ"]
    taken = [each for each in days_of_period(first, freq) if is_picked(parts, start, each)]
    if "BYSETPOS" in parts:
        places = [int(text) for text in parts["BYSETPOS"].split(",")]
        count = len(taken)
        wanted = {place - 1 if place > 0 else count + place for place in places}
        taken = [each for place, each in enumerate(taken) if place in wanted]
    return frozenset(taken)


def is_picked(parts: dict[str, str], start: date, day: date) -> bool:
    freq = parts["FREQ"]
    months = [int(text) for text in parts.get("BYMONTH", "").split(",") if text]
    month_days = [int(text) for text in parts.get("BYMONTHDAY", "").split(",") if text]
    weekdays = [text for text in parts.get("BYDAY", "").split(",") if text]
    if not weekdays and not month_days and freq != "DAILY":
        if freq == "WEEKLY":
            weekdays = [DAYS[start.weekday()]]
        else:
            month_days = [start.day]
            months = months or ([start.month] if freq == "YEARLY" else [])
    if months and day.month not in months:
        return False
    last = calendar.monthrange(day.year, day.month)[1]
    if month_days and not {day.day, day.day - last - 1} & set(month_days):
        return False
    if not weekdays:
        return True
    in_year = freq == "YEARLY" and not months
    months_of = (1, 12) if in_year else (day.month, day.month)
    ends = date(day.year, months_of[0], 1), days_of_month(day.year, months_of[1])[-1]
    places = nth_of(day, *ends)
    return any(
        text[-2:] == DAYS[day.weekday()] and (len(text) == 2 or int(text[:-2]) in places)
        for text in weekdays
    )


@lru_cache(None)
def begin_of(day: date, clock: str, zone: str) -> datetime:
    """Return when the local clock first shows this time on this day, minute by minute. If the clock
    skips the time, return when it would have been without the gap.
    """
    info = find_zone(zone)
    target = datetime.combine(day, time.fromisoformat(clock))
    at = target.replace(tzinfo=UTC) - timedelta(hours=15)
    before = at.astimezone(info)
    for _ in range(30 * 60 + 1):
        shown = at.astimezone(info)
        if shown.replace(tzinfo=None) == target:
            return at
        if shown.replace(tzinfo=None) > target:
            offset = before.utcoffset()
            assert offset is not None
            return target.replace(tzinfo=UTC) - offset
        before = shown
        at += MINUTE
    raise AssertionError("the clock never showed it")


def brute_spans(
    spec: WindowSpec, zone: str, day: date, days: int
) -> Iterator[tuple[datetime, datetime]]:
    parts = dict(part.split("=") for part in spec.rule.split(";")) if spec.rule else {}
    first, clock = spec.start.split("T")
    until = parts.pop("UNTIL", None)
    for count in range(days):
        each = day + timedelta(days=count)
        taken = is_day_of(parts, date.fromisoformat(first), each) if parts else str(each) == first
        if not taken or str(each) in spec.except_dates:
            continue
        begin = begin_of(each, clock, zone)
        if until is None or f"{begin:%Y%m%dT%H%M%SZ}" <= until:
            yield begin, begin + timedelta(seconds=spec.duration_seconds)


numbers = st.integers


@st.composite
def rules(draw: st.DrawFn) -> str:
    freq = draw(st.sampled_from(("", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")))
    if not freq:
        return ""
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.sampled_from((1, 1, 2, 3, 5)))}"]
    if freq == "YEARLY":
        parts[1] = f"INTERVAL={draw(st.sampled_from((1, 1, 2)))}"
    by_day = draw(st.booleans())
    if by_day:
        places = ("", "1", "2", "-1", "-2") if freq in ("MONTHLY", "YEARLY") else ("",)
        each = st.tuples(st.sampled_from(places), st.sampled_from(DAYS)).map("".join)
        parts.append(f"BYDAY={','.join(draw(st.lists(each, min_size=1, max_size=4, unique=True)))}")
    elif freq in ("MONTHLY", "YEARLY", "DAILY") and draw(st.booleans()):
        each_day = st.sampled_from((*range(1, 32), -1, -2, -31)).map(str)
        parts.append(
            f"BYMONTHDAY={','.join(draw(st.lists(each_day, min_size=1, max_size=8, unique=True)))}"
        )
    if draw(st.booleans()):
        each_month = st.sampled_from((3, 4, 9, 10, 11)).map(str)
        parts.append(
            f"BYMONTH={','.join(draw(st.lists(each_month, min_size=1, max_size=5, unique=True)))}"
        )
    if len(parts) > 2 and draw(st.booleans()):
        each_place = st.sampled_from((1, 2, 3, -1, -2)).map(str)
        parts.append(
            f"BYSETPOS={','.join(draw(st.lists(each_place, min_size=1, max_size=2, unique=True)))}"
        )
    if draw(numbers(0, 4)) == 0:
        parts.append(f"UNTIL=2027{draw(st.sampled_from(('0328', '0404', '1031')))}T010000Z")
    return ";".join(parts)


@st.composite
def specs(draw: st.DrawFn) -> WindowSpec:
    clock = f"{draw(numbers(0, 23)):02}:{draw(st.sampled_from((0, 0, 15, 30, 45, 59))):02}"
    day = draw(st.dates(date(2024, 1, 1), date(2027, 4, 3)))
    return window(
        window_id=draw(st.sampled_from(("a", "b", "c"))),
        kind=draw(st.sampled_from(tuple(WindowKind))),
        start=f"{day}T{clock}",
        rule=draw(rules()),
        duration_seconds=draw(st.sampled_from((300, 3_600, 7_200, 86_400, 90_000, 604_800))),
        except_dates=draw(
            st.lists(st.sampled_from(("2027-03-28", "2027-04-04", "2027-10-31")), unique=True).map(
                tuple
            )
        ),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rules(), st.dates(date(2024, 1, 1), date(2027, 4, 3)))
def test_agrees_with_dateutil_about_rules(text: str, day: date) -> None:
    """Compares only what dateutil does by RFC 5545. It searches a rule that never occurs to the
    year 9999, requires days to be both plain and numbered where BYDAY has both, and counts BYSETPOS
    in the first week from the start.
    """
    named = next((part[6:].split(",") for part in text.split(";") if part[:6] == "BYDAY="), [])
    assume(text and len({len(name) > 2 for name in named}) < 2)
    start = datetime.combine(day - timedelta(days=day.weekday()), datetime.min.time())

    found = list(local_starts(parse_rule(text), start, start, start + timedelta(days=1_500)))[:40]

    plain = ";".join(part for part in text.split(";") if not part.startswith("UNTIL"))
    theirs = rrulestr(plain, dtstart=start)
    assert isinstance(theirs, rrule)
    assert found == list(islice(theirs, len(found)))


# Weeks in which clocks change somewhere in ZONES.
CHANGES = tuple(
    date.fromisoformat(text)
    for text in ("2027-03-25", "2027-04-01", "2027-10-28", "2027-11-04", "2027-03-11", "2026-10-30")
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(specs(), st.sampled_from(ZONES), st.sampled_from(CHANGES))
def test_agrees_with_a_check_of_every_minute(spec: WindowSpec, zone: str, day: date) -> None:
    spans = list(brute_spans(spec, zone, day - timedelta(days=9), 14))
    begin = datetime.combine(day, datetime.min.time(), UTC)
    found = HostWindow(spec, zone)

    for count in range(0, 3 * 24 * 60, 7):  # every boundary is tested from both sides, below
        at = begin + count * MINUTE
        assert lasts(found, at) == any(first <= at < last for first, last in spans), at
    for first, last in spans:
        for at in (first - MINUTE, first, last - MINUTE, last):
            if begin <= at < begin + timedelta(days=3):
                assert lasts(found, at) == any(a <= at < b for a, b in spans), at


def brute_open(
    found: list[tuple[WindowSpec, list[tuple[datetime, datetime]]]], at: datetime
) -> bool:
    lasting = [spec.kind for spec, spans in found if any(a <= at < b for a, b in spans)]
    allows = [spec for spec, _ in found if spec.kind is WindowKind.ALLOW]
    return WindowKind.DENY not in lasting and (not allows or WindowKind.ALLOW in lasting)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(specs(), min_size=1, max_size=3),
    st.sampled_from(ZONES),
    st.sampled_from(CHANGES),
    st.sampled_from((None, 5, 60, 600)),
)
def test_opens_and_closes_at_the_minute_that_a_minute_by_minute_check_finds(
    several: list[WindowSpec], zone: str, day: date, need: int | None
) -> None:
    days = 3
    begin = datetime.combine(day, datetime.min.time(), UTC)
    brute = [(spec, list(brute_spans(spec, zone, day - timedelta(days=9), 14))) for spec in several]
    is_open = [brute_open(brute, begin + count * MINUTE) for count in range(days * 24 * 60)]
    covering = [HostWindow(spec, zone) for spec in several]
    wanted = None if need is None else timedelta(minutes=need)

    shuts_at = [len(is_open)] * (len(is_open) + 1)  # from each minute: the first that is closed
    for place in range(len(is_open) - 1, -1, -1):
        shuts_at[place] = shuts_at[place + 1] if is_open[place] else place
    enough = max(1, need or 0)

    for count in range(0, 24 * 60, 97):
        verdict = judge(covering, begin + count * MINUTE, wanted)
        fits = [
            place
            for place in range(count, len(is_open) - enough)
            if shuts_at[place] - place >= enough
        ]
        if verdict.is_open:
            assert fits, "the minute-by-minute check finds it closed"
            assert fits[0] == count
            shuts = next((at for at in range(count, len(is_open)) if not is_open[at]), None)
            if shuts is not None:
                assert verdict.until == begin + shuts * MINUTE
        else:
            assert not fits or fits[0] > count
            if fits:
                assert verdict.until == begin + fits[0] * MINUTE


# ── several windows ───────────────────────────────────────────────────────────────────────────────


def test_a_deny_window_inside_an_allow_window_cuts_it() -> None:
    allow = HostWindow(window(), "UTC")
    deny = HostWindow(
        window(
            window_id="backup",
            kind=WindowKind.DENY,
            start="2026-11-17T03:00",
            duration_seconds=1_800,
        ),
        "UTC",
    )
    both = [allow, deny]

    assert judge(both, utc("2026-11-17T02:10")) == (True, utc("2026-11-17T03:00"), None, None)
    shut = judge(both, utc("2026-11-17T03:10"))
    assert (shut.is_open, shut.until, shut.by) == (False, utc("2026-11-17T03:30"), deny)
    assert judge(both, utc("2026-11-17T03:40")).until == utc("2026-11-17T04:00")


def test_must_fit_requires_the_whole_time_until_it_closes() -> None:
    """The window is 02:00 to 04:00, activation 10 min, soak 30 min: the last start is 03:20:00."""
    nightly = [HostWindow(window(), "UTC")]
    need = timedelta(minutes=40)

    assert judge(nightly, utc("2026-11-17T03:20:00"), need).is_open
    late = judge(nightly, utc("2026-11-17T03:20:01"), need)

    assert not late.is_open
    assert late.until == utc("2026-11-18T02:00")
    said = shut_text(late, utc("2026-11-17T03:20:01"), "prod", "h-07", need=need)
    assert said.startswith("Window nightly closes in 39 min 59 s, h-07 needs up to 40 min")


def test_reports_that_no_opening_is_long_enough() -> None:
    verdict = judge(
        [HostWindow(window(duration_seconds=1_800), "UTC")], utc("2026-11-17T02:00"), HOUR
    )

    assert not verdict.is_open
    assert verdict.until is None
    said = shut_text(verdict, utc("2026-11-17T02:00"), "prod", "h-07", need=HOUR)
    assert said == (
        "Window nightly closes in 30 min, h-07 needs up to 1 h; "
        "no opening in the next 400 days is long enough"
    )


# ── which hosts a window covers ───────────────────────────────────────────────────────────────────


def test_reads_the_zone_from_the_label_of_each_host() -> None:
    spec = window(zone="label:tz", zone_default="Europe/Berlin")

    assert zone_of(spec, {"tz": "Asia/Tokyo"}) == "Asia/Tokyo"
    assert zone_of(spec, {"tz": "Nowhere/Town"}) == "Europe/Berlin"
    assert zone_of(spec, {}) == "Europe/Berlin"
    assert zone_of(replace(spec, zone_default=None), {}) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WindowKind.ALLOW, "Window nightly is closed for shop-12, which has no valid label tz"),
        (WindowKind.DENY, "Deny window nightly holds shop-12, which has no valid label tz"),
    ],
)
def test_a_host_without_a_zone_gets_no_order(kind: WindowKind, said: str) -> None:
    at = utc("2026-11-17T02:30")
    view = WindowView([window(kind=kind, zone="label:tz")], "prod", "default/web", at)

    verdict = view.judge("shop-12", {"tz": "Nowhere/Town"})

    assert not verdict.is_open
    assert shut_text(verdict, at, "prod", "shop-12") == said


def test_covers_what_matches_channel_repository_and_selector() -> None:
    spec = window(channels=("prod",), repositories=("shop",), hosts="role=web")
    at = utc("2026-11-17T12:00")

    def is_shut(channel: str, package: str, **labels: str) -> bool:
        return not WindowView([spec], channel, package, at).judge("h1", labels).is_open

    assert is_shut("prod", "shop/web", role="web")
    assert not is_shut("dev", "shop/web", role="web")
    assert not is_shut("prod", "default/web", role="web")
    assert not is_shut("prod", "shop/web", role="db")
    assert repository_of("web") == "default"


def test_gives_hosts_with_equal_labels_the_same_answer() -> None:
    at = utc("2026-11-17T02:30")
    view = WindowView(
        [
            window(zone="label:tz"),
            window(window_id="own", hosts="host=h9", start="2026-11-17T09:00"),
        ],
        "prod",
        "default/web",
        at,
    )

    assert view.judge("h1", {"tz": "UTC"}) == view.judge("h2", {"tz": "UTC", "role": "web"})
    assert not view.judge("h1", {"tz": "Asia/Tokyo"}).is_open
    assert view.judge("h9", {"tz": "UTC"}).is_open
    assert [item.window.window_id for item in view.of_host("h9", {})] == ["nightly", "own"]
    assert list_windows((), {}, "h1") == ()


# ── sentences ─────────────────────────────────────────────────────────────────────────────────────


def test_names_the_closed_window_and_when_it_opens() -> None:
    at = utc("2026-11-16T15:48")
    berlin = window(zone="label:tz")
    verdict = judge([HostWindow(berlin, "Europe/Berlin")], at)

    assert shut_text(verdict, at, "prod", "h1", scope=" for 31 of 40 hosts") == (
        "Window nightly is closed for 31 of 40 hosts; "
        "it opens Tue 17 Nov 02:00 CET (in 9 h 12 min) for 2 h"
    )
    assert shut_text(verdict, at, "prod", "h1").endswith("for 2 h (Europe/Berlin, label tz)")


def test_reports_until_when_a_deny_window_holds_a_channel() -> None:
    at = utc("2026-11-30T12:00")
    end = window(
        window_id="month-end",
        kind=WindowKind.DENY,
        zone="Europe/Berlin",
        start="2026-11-30T06:00",
        rule="FREQ=MONTHLY;BYMONTHDAY=-1",
        duration_seconds=86_400,
    )
    verdict = judge([HostWindow(end, "Europe/Berlin")], at)

    assert shut_text(verdict, at, "prod", "h1", reason="closing") == (
        "Deny window month-end holds prod until Tue 1 Dec 06:00 CET: closing"
    )


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"rule": ""}, "Window nightly never opens again"),
        (
            {"rule": "", "start": "2040-01-01T02:00"},
            "Window nightly does not open in the next 400 days",
        ),
        (
            {"rule": "FREQ=YEARLY;INTERVAL=3;UNTIL=20400101T000000Z"},
            "Window nightly does not open in the next 400 days",
        ),
        ({"rule": "FREQ=DAILY;UNTIL=20261201T000000Z"}, "Window nightly never opens again"),
        (
            {"rule": "FREQ=YEARLY;INTERVAL=3"},
            "Window nightly does not open in the next 400 days",
        ),
    ],
)
def test_reports_that_a_window_does_not_open_again(members: dict[str, Any], said: str) -> None:
    at = utc("2027-01-01T00:00")

    assert shut_text(judge([HostWindow(window(**members), "UTC")], at), at, "prod", "h1") == said


# ── faults ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"window_id": "Nightly!"}, "window_id is 'Nightly!'"),
        ({"channels": ("prod", "prod")}, "channels names prod twice"),
        ({"channels": ("Prod",)}, "channels has 'Prod'"),
        ({"channels": tuple(f"c{n}" for n in range(17))}, "channels has 17 names; allowed are 16"),
        ({"repositories": ("a/b",)}, "repositories has 'a/b'"),
        ({"hosts": "role="}, "hosts is not a selector"),
        ({"zone": "Berlin"}, "zone is 'Berlin', which is not a time zone"),
        ({"zone": "label:"}, "zone is 'label:'"),
        ({"zone": "label:tz", "zone_default": "Berlin"}, "zone_default is 'Berlin'"),
        ({"zone_default": "UTC"}, "zone_default is only for a zone that a label names"),
        ({"start": "2026-11-17T02:00Z"}, "start is '2026-11-17T02:00Z'"),
        ({"start": "2026-02-30T02:00"}, "start is '2026-02-30T02:00'"),
        ({"start": "0001-01-01T02:00"}, "start is '0001-01-01T02:00'"),
        ({"duration_seconds": 299}, "duration_seconds is 299; allowed is 300 to 604800"),
        ({"duration_seconds": 604_801}, "duration_seconds is 604801"),
        ({"rule": "FREQ=HOURLY"}, "rule has FREQ=HOURLY; allowed is DAILY, WEEKLY"),
        ({"rule": "BYDAY=MO"}, "rule has no FREQ"),
        ({"rule": "FREQ=DAILY;COUNT=3"}, "rule has COUNT, which is not supported; use UNTIL"),
        ({"rule": "FREQ=DAILY;BYHOUR=3"}, "rule has BYHOUR; allowed are FREQ"),
        ({"rule": "FREQ=DAILY;FREQ=DAILY"}, "rule has FREQ twice"),
        ({"rule": "FREQ=DAILY;"}, "rule has '' where NAME=VALUE is expected"),
        ({"rule": "FREQ=DAILY;INTERVAL=367"}, "rule has INTERVAL=367; allowed is 1 to 366"),
        ({"rule": "FREQ=DAILY;INTERVAL=0"}, "rule has INTERVAL=0"),
        ({"rule": "FREQ=WEEKLY;BYDAY=1MO"}, "rule has BYDAY=1MO, which needs FREQ=MONTHLY"),
        ({"rule": "FREQ=MONTHLY;BYDAY=0MO"}, "rule has BYDAY=0MO"),
        ({"rule": "FREQ=MONTHLY;BYMONTHDAY=32"}, "rule has BYMONTHDAY=32"),
        ({"rule": "FREQ=MONTHLY;BYMONTH=-1"}, "rule has BYMONTH=-1; allowed is 1 to 12"),
        ({"rule": "FREQ=WEEKLY;BYMONTHDAY=1"}, "rule has BYMONTHDAY with FREQ=WEEKLY"),
        ({"rule": "FREQ=MONTHLY;BYSETPOS=1"}, "rule has BYSETPOS alone"),
        ({"rule": "FREQ=DAILY;UNTIL=20271231"}, "rule has UNTIL=20271231; write a time in UTC"),
        ({"rule": "FREQ=DAILY;UNTIL=20271331T000000Z"}, "rule has UNTIL=20271331T000000Z"),
        ({"rule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31"}, "the window never occurs"),
        ({"rule": "FREQ=DAILY;UNTIL=20260101T000000Z"}, "the window never occurs"),
        ({"rule": "", "except_dates": ("2026-11-17",)}, "the window never occurs"),
        ({"except_dates": ("2026-11-31",)}, "except_dates has '2026-11-31'"),
        ({"except_dates": ("2026-12-24",) * 2}, "except_dates has a date twice"),
    ],
)
def test_explains_a_fault_in_a_sentence(members: dict[str, Any], said: str) -> None:
    with pytest.raises(MalformedWindow) as refused:
        check_window(window(**members))

    assert refused.value.facts["faults"] == (refused.value.detail,)
    assert refused.value.detail.startswith(said)


def test_names_every_fault_at_once() -> None:
    with pytest.raises(MalformedWindow) as refused:
        check_window(window(zone="Berlin", duration_seconds=1, rule="FREQ=HOURLY"))

    faults = refused.value.facts["faults"]
    assert isinstance(faults, tuple)
    assert len(faults) == 3


@settings(max_examples=100, deadline=None, derandomize=True)
@given(specs())
def test_reads_every_permitted_rule(spec: WindowSpec) -> None:
    if spec.rule:
        parse_rule(spec.rule)
    try:
        check_window(spec)
    except MalformedWindow as refused:
        assert refused.detail.startswith("the window never occurs")  # noqa: PT017


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (34, "34 s"), (36_034, "10 h"), (11_400, "3 h 10 min"), (86_460, "1 d")],
)
def test_a_duration_has_two_neighbouring_units_at_most(seconds: int, text: str) -> None:
    assert span_text(timedelta(seconds=seconds)) == text
