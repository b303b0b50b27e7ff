"""The parameters of a simulation, and its result."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from msgspec import Struct, structs

from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, HostEdge, WaveSpec
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.windows.facts import WindowSpec
from tidegate.simulate.rates import ROUGH, Rates, Span

WAVES = (
    WaveSpec(name="canary", percent=10, soak_seconds=60),
    WaveSpec(name="half", percent=50, soak_seconds=30),
    WaveSpec(name="rest"),
)
RETENTION_SECONDS = 86_400
LONG_HOURS = 1.2
LONG_BETWEEN = Span(1_500.0, 2_400.0)
LARGE_EVERY = 50  # seeds; the others have small fleets


class ScenarioChannel(Struct, frozen=True, kw_only=True):
    """A channel of the scenario."""

    channel: str
    selector: str
    policy: ChannelPolicy


class Scenario(Struct, frozen=True, kw_only=True):
    """The parameters of one simulated world."""

    seed: int
    hosts: int = 20
    fleet: dict[str, dict[str, str]] = {}  # labels by host name; empty: ``hosts`` numbered ones
    doomed: frozenset[str] = frozenset()  # hosts whose probes always fail
    channels: tuple[ScenarioChannel, ...] = (
        ScenarioChannel(channel="web-stable", selector="*", policy=ChannelPolicy(waves=WAVES)),
    )
    budgets: dict[str, int] = {}  # selector → how many at once
    releases: int = 2
    rates: Rates = ROUGH
    hours: float = 0.6  # with faults; then they end and the fleet must converge
    starts_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    windows: tuple[WindowSpec, ...] = ()
    frozen_until: datetime | None = None  # a freeze of all channels, from the beginning
    pass_seconds: float = 15.0  # between two passes of the dispatcher
    idle_seconds: float = 120.0  # to the next pass, when the last one did nothing
    between: Span = Span(300.0, 1_500.0)  # two releases
    attended: bool = True  # an operator clears halted rollouts
    restless: bool = True  # the operator freezes, holds, pauses, enrolls and retires


class SimulationResult(Struct, frozen=True, kw_only=True):
    """The result of a simulation."""

    seed: int
    events: int
    host_events: int
    states: dict[str, str]  # rollout → state
    trace: str  # digest of every fact, in order: its time, type and body
    seconds: float  # virtual
    types: frozenset[str]  # of facts that occurred
    entered: frozenset[str]  # states that some rollout entered


def draw_scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed: its channels, policies, edges and budgets."""
    random = Random(f"scenario {seed}")
    varying = Random(f"members {seed}")
    hosts = random.randint(60, 200) if seed % LARGE_EVERY == LARGE_EVERY - 1 else 20
    policy = ChannelPolicy(
        waves=_waves(random, varying),
        on_failure=random.choice([OnFailure.ROLLBACK, OnFailure.ROLLBACK, OnFailure.HALT]),
        offline_grace_seconds=random.choice([None, 300, 900]),
        retention_seconds=random.choice([900, RETENTION_SECONDS]),
        host_edges=(HostEdge("web-000", "web-002"),) if random.random() < 0.3 else (),
    )
    if random.random() < 0.7:
        channels: tuple[ScenarioChannel, ...] = (
            ScenarioChannel(channel="web-stable", selector="*", policy=policy),
        )
    else:
        first = ChannelPolicy(waves=_waves(random, varying), retention_seconds=RETENTION_SECONDS)
        after = ChannelPolicy(
            waves=_waves(random, varying),
            edges=(ChannelEdge("web-a"),),
            retention_seconds=RETENTION_SECONDS,
        )
        channels = (
            ScenarioChannel(channel="web-a", selector="zone=a", policy=first),
            ScenarioChannel(channel="web-b", selector="zone=b", policy=after),
        )
    acting = Random(f"by itself {seed}")
    channels = tuple(_by_itself(lane, acting) for lane in channels)
    budgets = random.choice([{}, {"*": max(2, hosts // 3)}, {"*": hosts // 2, "zone=a": 3}])
    releases = random.choice([1, 1, 2])
    scenario = Scenario(
        seed=seed, hosts=hosts, channels=channels, budgets=budgets, releases=releases
    )
    if any(lane.policy.auto_rollback for lane in channels):
        # A rollback needs an earlier release that succeeded.
        return structs.replace(scenario, releases=2, hours=LONG_HOURS, between=LONG_BETWEEN)
    return scenario


def _by_itself(lane: ScenarioChannel, random: Random) -> ScenarioChannel:
    """Sometimes let the policy promote or roll back automatically."""
    policy = structs.replace(
        lane.policy,
        auto_rollback=random.random() < 0.25,
        auto_promote=bool(lane.policy.edges) and random.random() < 0.6,
    )
    return structs.replace(lane, policy=policy)


def _waves(random: Random, varying: Random) -> tuple[WaveSpec, ...]:
    tolerant = WaveSpec(name="rest", failures_max_percent=random.choice([None, 10, 30]))
    waves = random.choice([WAVES, (*WAVES[:2], tolerant), (tolerant,), ()])
    return tuple(_varied(wave, varying) for wave in waves)


def _varied(wave: WaveSpec, random: Random) -> WaveSpec:
    """Sometimes give the wave a share of hosts, a delay, or a wait for a person."""
    if random.random() < 0.6:
        return wave
    return structs.replace(
        wave,
        success_percent=random.choice([100, 80, 50]),
        delay_seconds=random.choice([0, 0, 90]),
        manual=random.random() < 0.3,
    )
