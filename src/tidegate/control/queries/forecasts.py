"""What is asked of a forecast, and what it says: words that the simulator and its askers share.

The simulator itself is handed in where the program is composed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from tidegate.domain.channels.rows import Channel
from tidegate.domain.planner import Plan
from tidegate.errors import Unavailable

RUNS_MAX = 50  # seeds of one forecast


class Odds(Struct, frozen=True, kw_only=True):
    """How often things go wrong, as shares between 0 and 1; of hosts, but for ``lost``."""

    activation_fails: float = 0.0
    probe_fails: float = 0.0  # for good, once the release runs
    probe_flaps: float = 0.0  # fails, then passes again in time
    rollback_fails: float = 0.0
    dies: float = 0.0  # goes silent in the middle of its order
    offline: float = 0.0  # from the beginning, and stays so
    lost: float = 0.0  # of messages
    failing: tuple[str, ...] = ()  # hosts whose probes fail for certain


class Moment(Struct, frozen=True):
    """Something that happens, so many seconds after the opening."""

    seconds: int
    what: str


class Spread(Struct, frozen=True):
    """The middle and the worst of several runs."""

    median: int
    worst: int


class WaveForecast(Struct, frozen=True, kw_only=True):
    """A wave of the plan: in how many runs it came to its end, and when."""

    name: str
    hosts: int
    ended: int  # runs
    seconds: Spread | None = None  # to its end, of those runs; None: it never ended
    failed: Spread = Spread(0, 0)  # hosts


class Stopped(Struct, frozen=True):
    """What stopped the rollout, and in how many runs."""

    what: str
    runs: int


class Forecast(Struct, frozen=True, kw_only=True):
    """How a rollout would go. State, seconds and timeline are those of the first seed."""

    channel: str
    hosts: int
    runs: int
    seed: int  # the first one
    stands_for: int  # hosts of the plan, for each simulated one
    state: str
    seconds: int
    timeline: tuple[Moment, ...]
    waves: tuple[WaveForecast, ...]
    failed: Spread  # hosts
    ends: dict[str, int]  # state → runs
    stops: tuple[Stopped, ...]  # the most frequent first


Forecaster = Callable[[Channel, Plan, Odds, Sequence[int]], Forecast]


def no_forecast(channel: Channel, plan: Plan, odds: Odds, seeds: Sequence[int]) -> Forecast:
    """Where nobody handed a simulator in. Raises: Unavailable."""
    raise Unavailable("this process has no simulator", channel=plan.channel)
