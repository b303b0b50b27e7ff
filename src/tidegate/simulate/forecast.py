"""Forecasts a rollout: simulates a real plan with simulated hosts, once per seed.

    plan ──▶ a fleet with the same waves, budgets and edges ──▶ World, seed by seed ──▶ Forecast

Only the hosts are simulated: planner, gates, machines and timers are those of production. In a
large plan one simulated host represents several. A requested start, maintenance windows and freezes
with an end delay hosts; the wait before the first order is added, not simulated. Edges and holds
are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from statistics import median_low

from msgspec import Struct, structs

from tidegate.control.queries import forecasts
from tidegate.domain.channels import facts as channel_facts, rows as channel_rows
from tidegate.domain.gates.earliest import list_earliest_starts
from tidegate.domain.hosts import facts as host_facts, rows as host_rows, states as host_states
from tidegate.domain.planner import Plan
from tidegate.domain.rollouts import facts, names, promotion, states
from tidegate.domain.windows.slices import spec_of
from tidegate.errors import InvalidInput
from tidegate.kernel.model import at_most
from tidegate.simulate.operator import PACKAGE
from tidegate.simulate.rates import Rates, Span
from tidegate.simulate.scenario import Scenario, ScenarioChannel
from tidegate.simulate.world import World

WAVE = "tidegate-wave"  # additional labels of simulated hosts
BUDGET = "tidegate-budget"
# A server makes a pass every second, and agents run probes right after the switch.
PASS_SECONDS = 1.0
TICK_SECONDS = 1.0
PROBE = Span(0.5, 2.0)
SWITCH = Span(1.0, 5.0)  # if there is no history of switches
IDLE_SECONDS = 120.0
SELDOM_SECONDS = 600.0
HOURS_OF_WINDOWS = 24.0  # that a rollout may wait for the next window
WAIT_MAX = timedelta(days=400)
SIMULATED_MAX = 200  # hosts of one run
HOURS_AT_LEAST = 6.0  # in addition to soaks
TIMELINE_MAX = 500
IDLE = Span(1_500.0, 1_800.0)  # polls; an order wakes its host, so they may be rare
SILENCE_SECONDS = 4_000
PAGE = 1_000
WAITS_FOR_WAVE = "wave-promotion"
ENDS = {
    states.RolloutState.TERMINAL: "the rollout succeeded",
    states.RolloutState.REVERTED: "the rollout was rolled back",
    states.RolloutState.FAILED: "the rollout failed",
}
OVER = frozenset(ENDS)


class SeedRun(Struct, frozen=True, kw_only=True):
    """The result of one seed."""

    state: states.RolloutState
    seconds: int
    timeline: tuple[forecasts.Moment, ...]
    wave_ends: dict[int, int]  # wave → seconds
    failed: dict[int, int]  # wave → hosts
    stop: str | None


def forecast(
    channel: channel_rows.Channel,
    plan: Plan,
    odds: forecasts.Odds,
    seeds: Sequence[int],
    conditions: forecasts.ForecastConditions = forecasts.AT_ONCE,
    progress: Callable[[int], None] = lambda runs: None,
) -> forecasts.Forecast:
    """Simulate the plan once per seed. ``progress`` is called with the number of finished runs.

    Raises:
        InvalidInput: no seeds, invalid odds, a start in the past, or failing hosts that are not
            in the plan.
        LimitExceeded.
    """
    at_most("runs of a forecast", len(seeds), forecasts.RUNS_MAX)
    if not seeds:
        raise InvalidInput("a forecast needs a seed", field="seeds")
    _check(plan, odds, conditions)
    stands_for = -(-plan.hosts // SIMULATED_MAX) or 1
    starts_at = _first_start(plan, conditions)
    waits = int((starts_at - conditions.at).total_seconds())
    scenario = _scenario(channel, plan, odds, stands_for, conditions)
    thaw = scenario.frozen_until
    is_frozen = thaw is not None and thaw > starts_at
    scenario = structs.replace(
        scenario, starts_at=starts_at, frozen_until=thaw if is_frozen else None
    )
    runs: list[SeedRun] = []
    for seed in seeds:
        runs.append(_shift(_run_seed(structs.replace(scenario, seed=seed)), waits))
        progress(len(runs))
    first = runs[0]
    return forecasts.Forecast(
        channel=plan.channel,
        hosts=plan.hosts,
        runs=len(runs),
        seed=seeds[0],
        stands_for=stands_for,
        waits_seconds=waits,
        held=forecasts.list_held(plan, conditions, first.seconds),
        state=first.state.value,
        seconds=first.seconds,
        timeline=first.timeline,
        waves=tuple(_wave(plan, number, runs, stands_for) for number in range(len(plan.waves))),
        failed=_spread([sum(run.failed.values()) * stands_for for run in runs]),
        ends=dict(Counter(str(run.state) for run in runs).most_common()),
        stops=_stops(runs),
    )


def _check(plan: Plan, odds: forecasts.Odds, conditions: forecasts.ForecastConditions) -> None:
    promotion.check_start(conditions.start_at, conditions.at)
    for name in odds.__struct_fields__:
        share = getattr(odds, name)
        if name != "failing" and not 0.0 <= share <= 1.0:
            raise InvalidInput(f"{name} is a share between 0 and 1, found {share}", field=name)
    known = {host for wave in plan.waves for host in wave.hosts}
    unknown = sorted({*odds.failing} - known)
    if unknown:
        raise InvalidInput(
            f"{unknown[0]} is in no wave of the plan, so it cannot fail", field="failing"
        )


def _first_start(plan: Plan, conditions: forecasts.ForecastConditions) -> datetime:
    """When the first host may get its order. Nothing happens before."""
    times = (conditions.at, conditions.start_at, conditions.frozen_until)
    begin = max(time for time in times if time is not None)
    starts = list_earliest_starts(plan, conditions.labels, conditions.windows, begin)
    opening = next((start.at for start in starts), None)
    return opening if opening is not None and opening - conditions.at <= WAIT_MAX else begin


def _shift(run: SeedRun, seconds: int) -> SeedRun:
    """Shift the run: its rollout was opened this many seconds earlier."""
    if not seconds:
        return run
    opened, *others = run.timeline
    moments = (forecasts.Moment(item.seconds + seconds, item.what) for item in others)
    held = forecasts.Moment(seconds, "the first host may start")
    return structs.replace(
        run,
        seconds=run.seconds + seconds,
        timeline=(opened, held, *moments),
        wave_ends={wave: end + seconds for wave, end in run.wave_ends.items()},
    )


# ── the world of a plan ───────────────────────────────────────────────────────────────────────────


def _scenario(
    channel: channel_rows.Channel,
    plan: Plan,
    odds: forecasts.Odds,
    stands_for: int,
    conditions: forecasts.ForecastConditions,
) -> Scenario:
    taken = [_sample(wave.hosts, odds.failing, stands_for) for wave in plan.waves]
    labels = conditions.labels
    fleet = {
        host: {**labels.get(host, {}), WAVE: str(number)}
        for number, hosts in enumerate(taken)
        for host in hosts
    }
    budgets: dict[str, int] = {}
    for number, budget in enumerate(plan.budgets):
        for host in fleet if budget.hosts is None else budget.hosts:
            if host in fleet:
                fleet[host][f"{BUDGET}{number}"] = "yes"
        budgets[f"{BUDGET}{number}=yes"] = max(1, budget.slots // stands_for)
    soaks = sum(wave.soak_seconds for wave in plan.waves) / 3_600
    return Scenario(
        seed=0,
        fleet=fleet,
        doomed=frozenset(odds.failing),
        channels=(
            ScenarioChannel(
                channel=channel.channel, selector="*", policy=_policy(plan, fleet, stands_for)
            ),
        ),
        budgets=budgets,
        releases=1,
        rates=_rates(odds, conditions.activation),
        hours=HOURS_AT_LEAST + 1.5 * soaks + (HOURS_OF_WINDOWS if conditions.windows else 0.0),
        windows=tuple(map(spec_of, conditions.windows)),
        frozen_until=conditions.frozen_until,
        pass_seconds=PASS_SECONDS,
        idle_seconds=SELDOM_SECONDS if conditions.windows else IDLE_SECONDS,
        attended=False,
        restless=False,
    )


def _sample(hosts: Sequence[str], failing: Sequence[str], stands_for: int) -> list[str]:
    """Every ``stands_for``-th host, and the hosts that shall fail."""
    named = {*failing}
    return [id for number, id in enumerate(hosts) if number % stands_for == 0 or id in named]


def _policy(
    plan: Plan, fleet: dict[str, dict[str, str]], stands_for: int
) -> channel_facts.ChannelPolicy:
    waves = tuple(
        channel_facts.WaveSpec(
            name=f"{number + 1} {wave.name}"[:63],
            selector=f"{WAVE}={number}",
            soak_seconds=wave.soak_seconds,
            failures_max=wave.failures_max // stands_for,
            converged_min=min(1, wave.converged_min),
            success_percent=wave.success_percent,
            delay_seconds=wave.delay_seconds,
        )
        for number, wave in enumerate(plan.waves)
    )
    edges = tuple(
        channel_facts.HostEdge(edge.before, edge.after)
        for edge in plan.policy.host_edges
        if edge.before in fleet and edge.after in fleet
    )
    return structs.replace(
        plan.policy,
        waves=waves,
        host_edges=edges,
        edges=(),
        operations=(),
        freshness_seconds=None,
        auto_promote=False,
        auto_rollback=False,
    )


def _rates(odds: forecasts.Odds, activation: tuple[float, float] | None) -> Rates:
    taken = SWITCH if activation is None else Span(*activation)
    return Rates(
        activation=taken,
        rollback=taken,
        probe=PROBE,
        tick=TICK_SECONDS,
        activation_fails=odds.activation_fails,
        probe_fails=odds.probe_fails,
        probe_flaps=odds.probe_flaps,
        rollback_fails=odds.rollback_fails,
        dies=odds.dies,
        off=odds.offline,
        lost=odds.lost,
        idle=IDLE,
    )


# ── one run ───────────────────────────────────────────────────────────────────────────────────────


def _run_seed(scenario: Scenario) -> SeedRun:
    (lane,) = scenario.channels
    opened = names.rollout_id(lane.channel, f"{PACKAGE}.1")
    world = World(scenario, watching=False, silence_seconds=SILENCE_SECONDS)
    if not scenario.fleet:
        moment = forecasts.Moment(0, "no host is in a wave: nothing to do")
        return SeedRun(
            state=states.RolloutState.TERMINAL,
            seconds=0,
            timeline=(moment,),
            wave_ends={},
            failed={},
            stop=None,
        )
    ended = Ending(world, opened)
    world.play(ended)
    return _read_timeline(world, opened)


class Ending:
    """Whether a rollout has ended. Called at every step, so it reads rows only after a commit."""

    def __init__(self, world: World, opened: str) -> None:
        self._world = world
        self._opened = opened
        self._seen = 0

    def __call__(self) -> bool:
        if self._world.commits == self._seen:
            return False
        self._seen = self._world.commits
        rows = self._world.control_plane.fleet_reader.open_rollouts()
        found = [row for row in rows if row.rollout_id == self._opened]
        return bool(self._world.operator.releases) and (not found or found[0].state in OVER)


def _read_timeline(world: World, opened: str) -> SeedRun:
    """Build the run's timeline from the log of its world."""
    timeline = RolloutTimeline(opened)
    after = 0
    while page := world.store.feed(after=after, limit=PAGE).events:
        for event in page:
            timeline.record(world.folds.vocabulary.value(event), event.at)
        after = page[-1].position
    stop = timeline.stop
    if stop is None and timeline.state not in OVER:
        stop = _describe_wait(world, opened, timeline)
    elif stop is not None and timeline.halted_by:
        record = world.control_plane.fleet_reader.row(
            host_rows.record_key(opened, timeline.halted_by), host_rows.HostRecord
        )
        why = "unknown" if record is None else record.row.failure or "unknown"
        stop = f"a host failed: {why}"
    end = timeline.at or world.now()
    return SeedRun(
        state=timeline.state,
        seconds=timeline.since(end),
        timeline=tuple(timeline.moments[:TIMELINE_MAX]),
        wave_ends=timeline.wave_ends,
        failed=dict(timeline.failed),
        stop=stop,
    )


def _describe_wait(world: World, opened: str, timeline: RolloutTimeline) -> str:
    """What a rollout that did not end waits for."""
    state = world.control_plane.fleet_reader.state([opened], world.now())
    sight = state.sight(opened)
    for wave in sight.chart.plan.waves[: sight.tally.row.current_wave + 1]:
        for host_id in wave.hosts:
            found = sight.standings.get(host_id)
            if found is None or not (found.row.left or found.row.state in host_states.SETTLED):
                where = "without an order" if found is None else found.row.state
                return f"wave {wave.name} waits for a host that is {where}{timeline.held()}"
    return f"it waits{timeline.held()}"


class RolloutTimeline:
    """The timeline of one rollout, in seconds since its opening."""

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._opened_at: datetime | None = None
        self._gates: dict[str, str] = {}
        self._wave = 0
        self.state = states.RolloutState.OPENING
        self.at: datetime | None = None  # of its end
        self.moments: list[forecasts.Moment] = []
        self.wave_ends: dict[int, int] = {}
        self.failed: Counter[int] = Counter()
        self.stop: str | None = None
        self.halted_by: str | None = None

    def since(self, at: datetime) -> int:
        return 0 if self._opened_at is None else int((at - self._opened_at).total_seconds())

    def held(self) -> str:
        """The reasons of closed gates at the end, without the gate that waits for the wave."""
        return "".join(f"; {gate}" for gate in self._gates if gate != WAITS_FOR_WAVE)

    def record(self, fact: Struct, at: datetime) -> None:
        if getattr(fact, "rollout_id", None) != self._rollout_id:
            return
        match fact:
            case facts.RolloutOpened():
                self._opened_at = at
                self._add(at, f"opened, {sum(wave.hosts for wave in fact.waves)} hosts simulated")
            case host_facts.HostStateChanged(to=host_states.HostState.FAILED, from_=before) if (
                before != host_states.HostState.FAILED
            ):
                self.failed[fact.wave] += 1
                self._add(at, f"{fact.host_id} failed")
            case host_facts.HostStateChanged(to=host_states.HostState.REVERTED):
                self._add(at, f"{fact.host_id} rolled back")
            case host_facts.HostSkipped():
                self._add(at, f"{fact.host_id} was skipped: {fact.reason}")
            case facts.RolloutHalted():
                self._record_halt(fact.host_id, at)
            case facts.WaveAdvanced(to_wave=wave):
                self._record_wave_end(at)
                self._wave = wave
            case facts.RolloutTerminal():
                self._record_wave_end(at)
            case facts.GateChanged():
                self._record_gate(fact)
            case facts.RolloutTransitioned():
                self._record_state(fact, at)
            case _:
                pass

    def _record_wave_end(self, at: datetime) -> None:
        self.wave_ends[self._wave] = self.since(at)
        self._add(at, f"wave {self._wave + 1} is done")

    def _record_halt(self, host_id: str, at: datetime) -> None:
        self.halted_by = host_id
        self.stop = "halted"
        self._add(at, f"halted: {host_id} failed")

    def _record_gate(self, fact: facts.GateChanged) -> None:
        if fact.blocked:
            self._gates[fact.gate] = fact.reason
        else:
            self._gates.pop(fact.gate, None)

    def _record_state(self, fact: facts.RolloutTransitioned, at: datetime) -> None:
        self.state = fact.to
        if fact.to in OVER:
            self.at = at
            self._add(at, ENDS[fact.to])
            if fact.to is not states.RolloutState.TERMINAL and self.stop is None:
                self.stop = ENDS[fact.to]

    def _add(self, at: datetime, what: str) -> None:
        self.moments.append(forecasts.Moment(self.since(at), what))


# ── all runs ──────────────────────────────────────────────────────────────────────────────────────


def _wave(
    plan: Plan, number: int, runs: Sequence[SeedRun], stands_for: int
) -> forecasts.WaveForecast:
    ends = [run.wave_ends[number] for run in runs if number in run.wave_ends]
    return forecasts.WaveForecast(
        name=plan.waves[number].name,
        hosts=len(plan.waves[number].hosts),
        ended=len(ends),
        seconds=_spread(ends) if ends else None,
        failed=_spread([run.failed.get(number, 0) * stands_for for run in runs]),
    )


def _spread(values: Sequence[int]) -> forecasts.Spread:
    ordered = sorted(values)
    return forecasts.Spread(median_low(ordered), ordered[(len(ordered) * 9 - 1) // 10], ordered[-1])


def _stops(runs: Sequence[SeedRun]) -> tuple[forecasts.Stopped, ...]:
    found = Counter(run.stop for run in runs if run.stop is not None)
    return tuple(forecasts.Stopped(what, count) for what, count in found.most_common())
