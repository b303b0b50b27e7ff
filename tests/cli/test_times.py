"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidegate.cli.exit_codes import CommandExit
from tidegate.cli.symbols import duration
from tidegate.cli.times import as_api_time, parse_span, parse_start, parse_time

NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30d", "2026-10-19T09:30:00Z"),
        ("12h", "2026-11-17T21:30:00Z"),
        ("30days", "2026-10-19T09:30:00Z"),
        ("1 day ago", "2026-11-17T09:30:00Z"),
        ("2hours", "2026-11-18T07:30:00Z"),
        ("10 minutes", "2026-11-18T09:20:00Z"),
        ("1 week", "2026-11-11T09:30:00Z"),
        ("10 min ago", "2026-11-18T09:20:00Z"),
        ("2w", "2026-11-04T09:30:00Z"),
        ("08:26", "2026-11-18T08:26:00Z"),
        ("8:26", "2026-11-18T08:26:00Z"),
        ("yesterday", "2026-11-17T00:00:00Z"),
        ("yesterday 14:00", "2026-11-17T14:00:00Z"),
        ("2026-11-01", "2026-11-01T00:00:00Z"),
        ("2026-11-01T10:00:00+02:00", "2026-11-01T08:00:00Z"),
        ("2026-11-01 10:00:00Z", "2026-11-01T10:00:00Z"),  # as the command line prints it
    ],
)
def test_reads_times_as_people_write_them(text: str, moment: str) -> None:
    assert as_api_time(parse_time(text, NOW)) == moment


@pytest.mark.parametrize("text", ["", "soon", "30 years", "25:00", "2026-13-01", "999999w ago"])
def test_an_invalid_time_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(CommandExit, match="is no time; write 30d, 12h, 10 min ago"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10 min", 600), ("2h", 7_200), ("30d", 2_592_000)]
)
def test_reads_durations(text: str, seconds: int) -> None:
    assert parse_span(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["soon", "0h", "2h ago", "13:26"])
def test_an_invalid_duration_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(CommandExit, match="is no duration; write 90s, 10 min, 2h or 30d"):
        parse_span(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (1_380, "23 min"),
        (3_600, "1 h"),
        (3_900, "1 h 5 min"),
        (90_000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_prints_how_long_something_took(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1h", "2026-11-18T10:30:00Z"),
        ("in 2h", "2026-11-18T11:30:00Z"),
        ("10:00", "2026-11-18T10:00:00Z"),
        ("8:26", "2026-11-19T08:26:00Z"),  # it is past today
        ("2026-12-24", "2026-12-24T00:00:00Z"),
        ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00Z"),
    ],
)
def test_reads_future_times(text: str, moment: str) -> None:
    assert as_api_time(parse_start(text, NOW)) == moment


@pytest.mark.parametrize("text", ["", "soon", "in a while", "999999w"])
def test_shows_an_example_of_a_future_time(text: str) -> None:
    with pytest.raises(CommandExit, match="is no time; write 2h, in 30 min, 18:00, 2026-12-24"):
        parse_start(text, NOW)
