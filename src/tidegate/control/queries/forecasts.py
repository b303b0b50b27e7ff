"""The input and the result of a forecast, shared by the simulator and its callers.

The simulator itself is passed in where the program is composed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.rows import FREEZES, Channel, Freeze
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord, record_id
from tidegate.domain.planner import Plan
from tidegate.domain.rollouts.rows import ROLLOUTS
from tidegate.domain.windows import evaluation, rows as window_rows
from tidegate.errors import Unavailable

RUNS_MAX = 50  # seeds of one forecast
HISTORY_ROLLOUTS_MAX = 10  # the newest ones of a channel
HISTORY_HOSTS_MAX = 500  # of each rollout
STRETCHES_MAX = 100  # of one forecast: hourly windows of a week are cut


class Odds(Struct, frozen=True, kw_only=True):
    """How often things go wrong, as shares of hosts between 0 and 1; ``lost``: of messages."""

    activation_fails: float = 0.0
    probe_fails: float = 0.0  # permanently, once the release runs
    probe_flaps: float = 0.0  # fails, then recovers in time
    rollback_fails: float = 0.0
    dies: float = 0.0  # goes silent during its order
    offline: float = 0.0  # from the beginning to the end
    lost: float = 0.0  # of messages
    failing: tuple[str, ...] = ()  # hosts whose probes fail for certain


class ForecastConditions(Struct, frozen=True, kw_only=True):
    """When a forecast starts, and what blocks orders. Edges and holds are assumed to be open."""

    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    windows: tuple[window_rows.Window, ...] = ()  # that cover the channel
    labels: dict[str, dict[str, str]] = {}  # of hosts, if windows need them
    frozen_until: datetime | None = None
    start_at: datetime | None = None  # no orders before; None: at once
    activation: tuple[float, float] | None = None  # seconds, from and to; None: unknown


AT_ONCE: Final = ForecastConditions()  # nothing blocks orders


class RolloutHistory(Struct, frozen=True, kw_only=True):
    """The results of a channel's hosts in its last rollouts."""

    rollouts: int
    hosts: int
    odds: Odds
    activation: (
        tuple[float, float] | None
    )  # seconds that switches took: the second and ninth decile


class HeldBy(StrEnum):
    """What holds hosts for a time that is known in advance."""

    START = "start"
    FREEZE = "freeze"
    WINDOW = "window"


class HeldStretch(Struct, frozen=True, kw_only=True):
    """A time in which hosts get no orders, in seconds after the opening."""

    by: HeldBy
    window_id: str = ""
    begins: int
    ends: int
    hosts: int  # number of hosts that it holds


class Moment(Struct, frozen=True):
    """Something that happens, and how many seconds after the opening."""

    seconds: int
    what: str


class Spread(Struct, frozen=True):
    """Over several runs: the median, the 90th percentile and the maximum."""

    median: int
    p90: int
    worst: int


class WaveForecast(Struct, frozen=True, kw_only=True):
    """A wave of the plan: in how many runs it ended, and when."""

    name: str
    hosts: int
    ended: int  # runs
    seconds: Spread | None = None  # until it ended, in those runs; None: it never ended
    failed: Spread = Spread(0, 0, 0)  # hosts


class Stopped(Struct, frozen=True):
    """A reason why the rollout stopped, and in how many runs."""

    what: str
    runs: int


class Forecast(Struct, frozen=True, kw_only=True):
    """The forecast of a rollout. State, seconds and timeline are those of the first seed."""

    channel: str
    hosts: int
    runs: int
    seed: int  # the first one
    stands_for: int  # hosts of the plan per simulated host
    waits_seconds: int = 0  # for the start, a freeze or a window; included in all other times
    held: tuple[HeldStretch, ...] = ()  # from the opening to the end of the first run
    holds: tuple[str, ...] = ()  # what would hold it now; the runs ignore closed edges and holds
    state: str
    seconds: int
    timeline: tuple[Moment, ...]
    waves: tuple[WaveForecast, ...]
    failed: Spread  # hosts
    ends: dict[str, int]  # state → runs
    stops: tuple[Stopped, ...]  # the most frequent first


Forecaster = Callable[[Channel, Plan, Odds, Sequence[int], ForecastConditions], Forecast]


def read_conditions(reader: FleetReader, channel: Channel, now: datetime) -> ForecastConditions:
    """Read the windows, and the freezes with an end, that cover the channel now."""
    name = channel.channel
    windows = tuple(
        structs.replace(seen.row, channels=(), repositories=())
        for seen in reader.rows(window_rows.WINDOWS, window_rows.Window)
        if evaluation.covers_channel(seen.row, name, channel.package)
    )
    ends = [
        seen.row.until
        for seen in reader.rows(FREEZES, Freeze)
        if seen.row.until is not None and (not seen.row.channels or name in seen.row.channels)
    ]
    return ForecastConditions(
        at=now,
        windows=windows,
        labels={host.host_id: host.labels for host in reader.hosts()} if windows else {},
        frozen_until=max(ends, default=None),
    )


def list_held(plan: Plan, conditions: ForecastConditions, seconds: int) -> tuple[HeldStretch, ...]:
    """List when hosts of the plan get no orders, up to ``seconds`` after the opening."""
    opened = conditions.at
    end = opened + timedelta(seconds=seconds)
    found: Counter[tuple[HeldBy, str, datetime, datetime]] = Counter()
    for by, until in (
        (HeldBy.START, conditions.start_at),
        (HeldBy.FREEZE, conditions.frozen_until),
    ):
        if until is not None and until > opened:
            found[by, "", opened, until] = plan.hosts
    alike = Counter(  # groups of hosts with the same windows and zones
        evaluation.list_windows(conditions.windows, conditions.labels.get(host, {}), host)
        for wave in plan.waves
        for host in wave.hosts
    )
    for windows, hosts in alike.items():
        for window_id, begins, ends in _list_shut(windows, opened, end):
            found[HeldBy.WINDOW, window_id, begins, ends] += hosts
    stretches = [
        HeldStretch(
            by=by,
            window_id=window_id,
            begins=int((begins - opened).total_seconds()),
            ends=int((min(ends, end) - opened).total_seconds()),
            hosts=hosts,
        )
        for (by, window_id, begins, ends), hosts in found.items()
    ]
    return tuple(sorted(stretches, key=lambda item: (item.begins, item.ends, item.window_id)))[
        :STRETCHES_MAX
    ]


def _list_shut(
    windows: Sequence[evaluation.HostWindow], at: datetime, end: datetime
) -> Iterator[tuple[str, datetime, datetime]]:
    """List when a host is outside its windows, each time with the window that closes it."""
    for _ in range(STRETCHES_MAX):
        if not windows or at >= end:
            return
        verdict = evaluation.judge(windows, at)
        until = verdict.until or end
        if verdict.by is not None:
            yield verdict.by.window.window_id, at, until
        at = until


def read_history(reads: Reads, channel: str) -> RolloutHistory:
    """Read the results of a channel's last rollouts; without any, nothing fails."""
    rollouts = reads.newest(ROLLOUTS, "channel_opening", of=(channel,), limit=HISTORY_ROLLOUTS_MAX)
    records: list[HostRecord] = []
    for found in rollouts:
        prefix = record_id(found.row.rollout_id, "")
        rows = reads.range(HOST_RECORDS, prefix=prefix, limit=HISTORY_HOSTS_MAX)
        records += [item.row for item in rows]
    tried = [row for row in records if row.dispatch_acked_at is not None]
    spans = sorted(
        (row.activation_completed_at - row.dispatch_acked_at).total_seconds()
        for row in tried
        if row.activation_completed_at is not None and row.dispatch_acked_at is not None
    )
    failures = Counter(row.failure for row in tried if row.failure is not None)
    probes, activation = failures.pop("probes", 0), failures.pop("activation", 0)
    failed = probes + activation + failures.total()
    odds = Odds(
        activation_fails=_share(activation, len(tried)),
        probe_fails=_share(probes, len(tried)),
        dies=_share(failures.total(), len(tried)),
        rollback_fails=_share(sum(row.rollback_failed for row in tried), failed),
        offline=_share(sum(row.left == "skipped" for row in records), len(records)),
    )
    ends = None if not spans else (spans[len(spans) // 10], spans[len(spans) * 9 // 10])
    return RolloutHistory(rollouts=len(rollouts), hosts=len(tried), odds=odds, activation=ends)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def no_forecast(
    channel: Channel, plan: Plan, odds: Odds, seeds: Sequence[int], conditions: ForecastConditions
) -> Forecast:
    """Stand in for a simulator in programs that have none. Raises: Unavailable."""
    raise Unavailable("this process has no simulator", channel=plan.channel)
