"""Time is a parameter: this is the one place that reads the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """The time now, aware and in UTC."""
    return datetime.now(UTC)


class ManualClock:
    """A clock that moves only when a caller moves it, backwards too."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> None:
        self.now += step
