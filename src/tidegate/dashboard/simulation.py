"""Simulates a rollout run by run while the user watches, and draws the result after each.

    page ──▶ /plan/forecast?runs=1 ──▶ a chart of one run ──▶ …?runs=2 ──▶ … ──▶ all RUNS

The browser requests one more run until all are done, which shows progress, and leaving the page
stops it. Results are cached until others simulate, so that each request simulates a single run.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from threading import Lock
from typing import Annotated, Final
from urllib.parse import urlencode

from msgspec import Meta, Struct, structs

from tidegate import errors, lru
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.promotion_planning import Promotions
from tidegate.control.queries import forecasts
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, forms, layout
from tidegate.dashboard.html import counted, render_part, seconds
from tidegate.dashboard.view_models import plan_screens
from tidegate.domain.access import roles, scopes
from tidegate.domain.channels import refusals, rows
from tidegate.domain.planner import Plan
from tidegate.domain.rollouts.states import RolloutState
from tidegate.web import inputs, routing

RUNS: Final = 12
KEPT_MAX = 4  # simulations whose runs are cached
TURN_SECONDS_MAX = 20.0  # one at a time, because a server has other work
TICKS = 6
MOMENTS_MAX = 30
FAILING_MAX = 20
HISTORY: Final = "history"
LUCK: Final = {
    "none": ("Nothing fails", forecasts.Odds()),
    "usual": (
        "Typical failures",
        forecasts.Odds(activation_fails=0.001, probe_fails=0.001, probe_flaps=0.005, lost=0.01),
    ),
    "bad": (
        "Bad day",
        forecasts.Odds(
            activation_fails=0.02,
            probe_fails=0.03,
            probe_flaps=0.1,
            dies=0.01,
            offline=0.02,
            lost=0.05,
        ),
    ),
}
HELD_BY: Final = {"start": "Start", "freeze": "Freeze"}
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)


class ForecastQuery(inputs.Input, frozen=True, kw_only=True):
    channel: Annotated[str, Meta(min_length=1, max_length=63)]
    luck: Annotated[str, Meta(pattern="^(none|history|usual|bad)$")] = "none"
    failing: Annotated[str, Meta(max_length=2_000)] = ""  # names separated by commas
    seed: Annotated[int, Meta(ge=0, le=999_999)] = 1
    # No order is sent earlier; without an offset UTC.
    start_at: Annotated[str, Meta(max_length=40)] = ""
    runs: Annotated[int, Meta(ge=1, le=RUNS)] = 1


Asked = routing.Request[inputs.Nothing, ForecastQuery, inputs.Nothing]


def forecast(request: Asked, simulations: Simulations) -> routing.Response:
    """Draw the first runs; the response requests the next one by itself."""
    query = request.query
    try:
        played = simulations.play(query)
    except errors.TidegateError as error:
        part = plan_screens.SimulationPart(wanted=RUNS, fault=error.detail)
    else:
        part = part_of(played, _next(query))
    return routing.Response(render_part("simulation.html", part), media=layout.UTF8)


def _next(query: ForecastQuery) -> str:
    if query.runs >= RUNS:
        return ""
    return address(structs.replace(query, runs=query.runs + 1))


def address(query: ForecastQuery) -> str:
    return "/plan/forecast?" + urlencode(structs.asdict(query))


# ── running ───────────────────────────────────────────────────────────────────────────────────────


class Simulation(Struct):
    """A simulation under way: its plan is that of its first run."""

    channel: rows.Channel
    plan: Plan
    odds: forecasts.Odds
    conditions: forecasts.ForecastConditions
    runs: list[forecasts.Forecast]


class Simulations:
    """The simulations that users watch. One run at a time."""

    def __init__(
        self,
        reads: Reads,
        fleet_reader: FleetReader,
        promotions: Promotions,
        forecast: forecasts.Forecaster,
    ) -> None:
        self._reads = reads
        self._fleet_reader = fleet_reader
        self._promotions = promotions
        self._forecast = forecast
        self._cached: lru.LruCache[tuple[object, ...], Simulation] = lru.LruCache(KEPT_MAX)
        self._lock = Lock()

    def play(self, query: ForecastQuery) -> tuple[forecasts.Forecast, ...]:
        """Return the first runs of a simulation, and simulate those that are not cached.

        Raises:
            NotFound, InvalidInput, InvalidRequest, MalformedPolicy: nothing can be simulated.
            Unavailable: others simulate now.
        """
        key = (query.channel, query.luck, query.failing, query.seed, query.start_at)
        if not self._lock.acquire(timeout=TURN_SECONDS_MAX):
            raise errors.Unavailable("another simulation is running; try again later")
        try:
            play = self._cached.find(key)
            if play is None or query.runs == 1:
                play = self._begin(query)
            while len(play.runs) < query.runs:
                seeds = (query.seed + len(play.runs),)
                run = self._forecast(play.channel, play.plan, play.odds, seeds, play.conditions)
                play.runs.append(run)
            self._cached.keep(key, play)
            return tuple(play.runs[: query.runs])
        finally:
            self._lock.release()

    def _begin(self, query: ForecastQuery) -> Simulation:
        found = self._reads.find(rows.channel_key(query.channel), rows.Channel)
        if found is None:
            raise refusals.ChannelNotFound(query.channel)
        names = tuple(filter(None, (name.strip() for name in query.failing.split(","))))
        history = forecasts.read_history(self._reads, query.channel)
        luck = history.odds if query.luck == HISTORY else LUCK[query.luck][1]
        odds = structs.replace(luck, failing=names[:FAILING_MAX])
        now = self._promotions.now()
        conditions = structs.replace(
            forecasts.read_conditions(self._fleet_reader, found.row, now),
            activation=history.activation,
            start_at=forms.read_moment("start_at", query.start_at),
        )
        plan = self._promotions.plan(query.channel).plan
        return Simulation(found.row, plan, odds, conditions, [])


# ── drawing ───────────────────────────────────────────────────────────────────────────────────────


def part_of(runs: Sequence[forecasts.Forecast], following: str) -> plan_screens.SimulationPart:
    """Draw runs on one time axis: where each wave usually ends, at worst, and in each run."""
    first = runs[0]
    axis = Axis.of(runs)
    return plan_screens.SimulationPart(
        runs=len(runs),
        wanted=RUNS,
        next=following,
        hosts=first.hosts,
        stands_for=first.stands_for,
        seed=first.seed,
        lanes=tuple(_lane(number, runs, axis) for number in range(len(first.waves))),
        ticks=axis.ticks(),
        waits=format_duration(first.waits_seconds) if first.waits_seconds else "",
        held=_held(max(runs, key=lambda run: run.seconds), axis),
        ends=_ends(runs),
        ends_bar=components.bar(
            [(item.chip.tone, item.chip.word, item.runs) for item in _ends(runs)], of=[len(runs)]
        ),
        stops=_stops(runs),
        failed=median_low([run.failed.median for run in runs]),
        failed_worst=max(run.failed.worst for run in runs),
        lasts=format_duration(median_low([run.seconds for run in runs])),
        lasts_worst=format_duration(axis.end),
        timeline=tuple(_timeline_entry(moment) for moment in first.timeline[:MOMENTS_MAX]),
        timeline_more=max(0, len(first.timeline) - MOMENTS_MAX),
    )


class Axis(Struct, frozen=True):
    """The time that is drawn. A wait longer than everything after it is cut."""

    begin: int
    first_start: int
    end: int

    @staticmethod
    def of(runs: Sequence[forecasts.Forecast]) -> Axis:
        first_start, end = runs[0].waits_seconds, max(run.seconds for run in runs) or 1
        rest = max(1, end - first_start)
        begin = 0 if first_start <= rest else first_start - -(-rest // 5)
        return Axis(begin, first_start, max(end, begin + 1))

    def x(self, at: int) -> float:
        return self.width(max(at, self.begin) - self.begin)

    def width(self, seconds: int) -> float:
        return round(seconds * 100 / (self.end - self.begin), 3)

    def ticks(self) -> tuple[plan_screens.AxisTick, ...]:
        """Round times at even distances, from the opening, or from the first start if it is cut."""
        origin = self.first_start if self.begin else 0
        whole = self.end - origin
        step = next((step for step in _STEPS if whole / step <= TICKS), -(-whole // TICKS))
        name = "first start" if self.begin else "opened"
        return tuple(
            plan_screens.AxisTick(
                self.x(at), f"+{format_duration(at - origin)}" if at > origin else name
            )
            for at in range(origin, self.end, step)
        )


def _lane(number: int, runs: Sequence[forecasts.Forecast], axis: Axis) -> plan_screens.WaveLane:
    wave = runs[0].waves[number]
    ends = _wave_ends(number, runs)
    starts = _wave_ends(number - 1, runs) if number else [axis.first_start] * len(runs)
    stops = [run.seconds for run in runs if _stopped_in(run) == number]
    start = median_low(starts) if starts else axis.end
    end = median_low(ends) if ends else max(stops, default=start)
    worst = max(ends, default=end)
    failed = median_low([run.waves[number].failed.median for run in runs])
    failed_worst = max(run.waves[number].failed.worst for run in runs)
    return plan_screens.WaveLane(
        number=number,
        name=wave.name or "all",
        hosts=wave.hosts,
        tone="good" if ends else "bad" if stops else "none",
        x=axis.x(start),
        width=axis.width(max(0, end - start)),
        worst=axis.width(max(0, worst - end)),
        marks=(
            *(
                plan_screens.RunMark(
                    axis.x(at), "good", f"a run ends it after {format_duration(at)}"
                )
                for at in ends
            ),
            *(
                plan_screens.RunMark(axis.x(at), "bad", f"a run stops after {format_duration(at)}")
                for at in stops
            ),
        ),
        ended=len(ends),
        stopped=len(stops),
        after=format_duration(median_low(ends)) if ends else "",
        after_worst=format_duration(max(ends)) if ends else "",
        failed=failed,
        failed_worst=failed_worst,
    )


def _held(run: forecasts.Forecast, axis: Axis) -> tuple[plan_screens.HeldLane, ...]:
    """When hosts get no order: a lane for the start, for freezes, and for each window."""
    found: dict[tuple[str, str], list[forecasts.HeldStretch]] = {}
    for item in run.held:
        if item.ends <= axis.begin:
            continue
        found.setdefault((item.by, item.window_id), []).append(item)
    return tuple(
        plan_screens.HeldLane(
            by=by,
            name=f"Window {window_id}" if window_id else HELD_BY[by],
            hosts=max(item.hosts for item in items),
            until=format_duration(items[0].ends) if len({item.ends for item in items}) == 1 else "",
            spans=tuple(_span(item, axis) for item in items),
        )
        for (by, window_id), items in found.items()
    )


def _span(item: forecasts.HeldStretch, axis: Axis) -> plan_screens.HeldSpan:
    begins, ends = (format_duration(at) for at in (item.begins, item.ends))
    hosts = f"{item.hosts:,} host{'' if item.hosts == 1 else 's'}"
    return plan_screens.HeldSpan(
        x=axis.x(item.begins),
        width=axis.width(item.ends - max(item.begins, axis.begin)),
        title=f"{hosts} without orders from {begins} to {ends}",
    )


def describe_history(history: forecasts.RolloutHistory) -> str:
    """How hosts did in the last rollouts of a channel."""
    if not history.hosts:
        return "No host got an order here yet, so there are no rates of its own to use."
    odds = history.odds
    rates = [
        f"{share * 100:.3g} % {what}"
        for what, share in (
            ("failed to activate", odds.activation_fails),
            ("failed their probes", odds.probe_fails),
            ("went silent", odds.dies),
            ("were offline", odds.offline),
        )
        if share
    ]
    rollouts = "rollout" if history.rollouts == 1 else f"{history.rollouts} rollouts"
    rates = rates or ["none failed"]
    sentence = (
        f"Of {counted(history.hosts, 'host')} in the last {rollouts} here {', '.join(rates)}."
    )
    if history.activation is None:
        return sentence
    least, most = (format_duration(round(count) or 1) for count in history.activation)
    if history.activation[1] < 1:
        return f"{sentence} A switch took less than 1 s."
    return f"{sentence} A switch took {least if least == most else f'{least} to {most}'}."


def _wave_ends(number: int, runs: Sequence[forecasts.Forecast]) -> list[int]:
    waves = (run.waves[number] for run in runs)
    return [wave.seconds.median for wave in waves if wave.seconds is not None]


def _stopped_in(run: forecasts.Forecast) -> int | None:
    """The wave in which a run halted; None: it completed."""
    if run.state == RolloutState.TERMINAL:
        return None
    numbers = (number for number, wave in enumerate(run.waves) if wave.seconds is None)
    return next(numbers, len(run.waves) - 1)


def _ends(runs: Sequence[forecasts.Forecast]) -> tuple[plan_screens.OutcomeCount, ...]:
    found: dict[str, int] = {}
    for run in runs:
        found[run.state] = found.get(run.state, 0) + 1
    ordered = sorted(found.items(), key=lambda item: (item[0] != RolloutState.TERMINAL, -item[1]))
    return tuple(
        plan_screens.OutcomeCount(chip=_end(state), runs=count) for state, count in ordered
    )


def _end(state: str) -> components.Chip:
    if state == RolloutState.TERMINAL:
        return components.Chip("check", "good", "Succeeds")
    if state == RolloutState.REVERTED:
        return components.Chip("undo", "back", "Stops, and hosts roll back")
    if state == RolloutState.FAILED:
        return components.Chip("cross", "bad", "Stops, and a host fails for good")
    return components.Chip("clock", "warn", "Does not end")


def _stops(runs: Sequence[forecasts.Forecast]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for run in runs:
        for stop in run.stops:
            found[stop.what] = found.get(stop.what, 0) + stop.runs
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


_LOOKS = (
    ("rolled back", ("undo", "back")),
    ("halted", ("stop", "bad")),
    ("failed", ("cross", "bad")),
    ("succeeded", ("check", "good")),
    ("wave", ("wave", "info")),
    ("opened", ("rollouts", "info")),
    ("may start", ("clock", "info")),
    ("holds", ("pause", "warn")),
)
_SENTENCES = ("opened", "wave", "the rollout", "the first", "halted")


def _timeline_entry(moment: forecasts.Moment) -> components.TimelineEntry:
    icon, tone = next((look for word, look in _LOOKS if word in moment.what), ("dots", "idle"))
    # Other texts begin with a host's name, which keeps its case.
    begins = moment.what.startswith(_SENTENCES)
    sentence = moment.what[:1].upper() + moment.what[1:] if begins else moment.what
    return components.TimelineEntry(icon, tone, sentence, format_duration(moment.seconds), None, 0)


def format_duration(count: int) -> str:
    """Format a duration in two units: 1 h 05 min."""
    minutes, rest = divmod(count, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"
    return seconds(rest)


ROUTES = (
    layout.page_route(
        "/plan/forecast",
        forecast,
        routing.requires(
            roles.Verb.READ, lambda request: scopes.channel_scope(request.query.channel)
        ),
    ),
)
