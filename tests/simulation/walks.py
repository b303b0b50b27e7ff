"""Random walks of the rollout engine: small fleets, every verb, every gate, every policy member.

A walk is a simulated world (``tidegate.simulate.world``) with a policy drawn from all members, one
to three channels that wait for each other, and an operator who uses any verb at any time. Then the
faults end. From there on the operator only does what ``explain`` names, so a walk ends only if the
waits of every open rollout are named, and their verbs help. ``python -m bench walks`` runs many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from tidegate.control.operations.promotion_planning import Promote, RollBackChannel
from tidegate.domain.channels.facts import (
    ChannelEdge,
    ChannelPolicy,
    EdgeRequires,
    HostEdge,
    WaveSpec,
)
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.fleet.slices import LabelHost, label_host
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import Wait
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.rollouts.facts import GateChanged
from tidegate.domain.rollouts.rows import Rollout
from tidegate.domain.rollouts.states import (
    CLEARABLE,
    OPEN,
    Clearance,
    OverridableGate,
    RolloutState,
)
from tidegate.errors import Invalid
from tidegate.simulate.control_plane import SimulatedControlPlane
from tidegate.simulate.operator import NAME, OPERATOR, PACKAGE, SimulatedOperator
from tidegate.simulate.rates import ROUGH, Span
from tidegate.simulate.scenario import Scenario, ScenarioChannel, SimulationResult
from tidegate.simulate.world import World

ZONES = "abc"
DEEDS_A_LOOK = 2
NOBODY_THERE = "No host ran"  # on the channel that comes first, so nothing will succeed there
STROLL = Span(30.0, 120.0)  # between two actions of the operator
WALK_HOURS = 0.6
RATES = replace(ROUGH, torn=0.005, off=0.02, probe_fails=0.04, activation_fails=0.04, bare=0.1)

# Verbs that are rarely possible, or that much follows from: they get another turn.
USEFUL = (
    *("rollout clear", "rollout clear", "rollout retry", "rollout retry", "rollout continue"),
    *("channel rollback", "channel rollback --now", "channel rollback --to", "quarantine lift"),
)

# The channels that each channel waits for, by their places.
SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((),),
    ((), (0,)),
    ((), (0,)),
    ((), (0,), (1,)),  # a chain
    ((), (), (0, 1)),  # one that waits for two
)


def draw_walk(seed: int) -> Scenario:
    """Build the scenario of a seed: channels that wait for each other, with policies of all
    members.
    """
    dice = Random(f"walk {seed}")
    shape = dice.choice(SHAPES)
    hosts = dice.randint(2 * len(shape), 3 * len(shape) + 3)
    fleet = {
        f"web-{number:03}": {"zone": ZONES[number % len(shape)], "tier": "xy"[number % 2]}
        for number in range(hosts)
    }
    channels = tuple(
        ScenarioChannel(
            channel=f"web-{ZONES[place]}",
            selector=f"zone={ZONES[place]}",
            policy=draw_policy(
                dice, hosts_in(fleet, ZONES[place]), [f"web-{ZONES[n]}" for n in before]
            ),
        )
        for place, before in enumerate(shape)
    )
    return Scenario(
        seed=seed,
        fleet=fleet,
        channels=channels,
        budgets=dice.choice([{}, {"*": max(2, hosts // 2)}, {"*": hosts, "zone=a": 1}]),
        releases=dice.choice([2, 3]),
        rates=RATES,
        hours=WALK_HOURS,
        between=Span(200.0, 700.0),
        idle_seconds=60.0,
    )


def hosts_in(fleet: Mapping[str, Mapping[str, str]], zone: str) -> list[str]:
    return [host_id for host_id, labels in fleet.items() if labels["zone"] == zone]


def draw_policy(dice: Random, own: Sequence[str], before: Iterable[str] = ()) -> ChannelPolicy:
    """Draw a policy in which any member may be set. The last wave takes every remaining host.
    ``own``: the hosts of the channel, ``before``: the channels that it waits for.
    """
    edges = tuple(_draw_edge(dice, channel) for channel in before)
    asks_for_success = any(edge.require is EdgeRequires.SUCCEEDED for edge in edges)
    first: dict[str, Any] = dice.choice(
        [{"count": 1}, {"percent": 34}, {"selector": "tier=x"}, {"selector": "tier=x", "count": 1}]
    )
    named: tuple[dict[str, Any], ...] = ({"name": "canary", **first}, {"name": "rest"})
    waves = tuple(_draw_wave(dice, number, members) for number, members in enumerate(named))
    waves = dice.choice([waves, waves, waves[1:], ()])
    # Within one wave: a host must not wait for a host of a later wave.
    pair = (HostEdge(own[0], own[1]),) if len(own) > 1 > len(waves) - 1 else ()
    return ChannelPolicy(
        waves=waves,
        on_failure=dice.choice([OnFailure.ROLLBACK, OnFailure.ROLLBACK, OnFailure.HALT]),
        sustained_failure_seconds=dice.choice([30, 120]),
        ack_seconds=dice.choice([120, 900]),
        activation_seconds=dice.choice([90, 600]),
        topology_seconds=dice.choice([120, 300]),
        convergence_seconds=dice.choice([300, 900]),
        rollback_seconds=dice.choice([120, 600]),
        deferral_seconds=dice.choice([1_800, 604_800]),
        must_fit=dice.random() < 0.3,
        offline_grace_seconds=dice.choice([None, 300, 900]),
        retention_seconds=dice.choice([900, 86_400]),
        freshness_seconds=dice.choice([None, None, 600]),
        edges=edges,
        host_edges=pair if dice.random() < 0.5 else (),
        auto_promote=asks_for_success and dice.random() < 0.4,
        auto_rollback=dice.random() < 0.25,
    )


def _draw_edge(dice: Random, channel: str) -> ChannelEdge:
    if dice.random() < 0.3:
        return ChannelEdge(channel, require=EdgeRequires.IDLE)
    return ChannelEdge(channel, soak_seconds=dice.choice([0, 0, 240]))


def _draw_wave(dice: Random, number: int, members: dict[str, Any]) -> WaveSpec:
    return WaveSpec(
        **members,
        soak_seconds=dice.choice([0, 30, 90]),
        failures_max=dice.choice([None, None, 0, 1]),
        failures_max_percent=dice.choice([None, None, 34]),
        converged_min=dice.choice([0, 1, 1, 2]),
        success_percent=dice.choice([100, 100, 50]),
        delay_seconds=dice.choice([0, 0, 60]) if number else 0,
        manual=dice.random() < 0.2,
    )


class WalkingOperator(SimulatedOperator):
    """Uses any verb at any time until the faults end. Then does what ``explain`` names."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._dice = Random(f"walker {world.scenario.seed}")
        self.done: Counter[str] = Counter()  # verbs that were not refused
        self.refused: Counter[str] = Counter()

    @property
    def verbs(self) -> dict[str, Callable[[], object]]:
        """What the operator can do, in addition to what every simulated operator does."""
        return {
            "rollout pause": self._pause_one,
            "rollout abort": self._abort_one,
            "rollout retry": self._retry,
            "rollout clear": self._clear_one,
            "rollout skip": self._skip,
            "rollout continue": self._continue_one,
            "rollout skip-wave": self._skip_wave,
            "rollout promote-all": self._promote_all,
            "rollout override": self._override_one,
            "channel promote": self._promote_any,
            "channel promote --override": partial(self._promote_any, override=True),
            "channel promote --refresh": self._refresh,
            "channel rollback": self._go_back,
            "channel rollback --now": partial(self._go_back, now=True),
            "channel rollback --to": partial(self._go_back, named=True),
            "channel edit": self._edit,
            "channel hold": self._hold,
            "freeze create": self._freeze,
            "window create": self._set_window,
            "budget edit": self._edit_budget,
            "quarantine lift": self._lift,
            "host enroll": self._grow,
            "host retire": self._shrink,
            "host label": self._label,
        }

    def enroll(self, number: int) -> None:
        zone = ZONES[number % len(self._world.scenario.channels)]
        labels = {"zone": zone, "tier": "xy"[number % 2]}
        self._enroll(f"web-{number:03}", labels, number)

    def set_up(self) -> None:
        super().set_up()
        self._world.after(STROLL.draw(self._dice), self._stroll)

    def look(self, *, restless: bool) -> None:
        if not restless:
            self._follow_explain()

    def _stroll(self) -> None:
        """Do something, and act again soon, for as long as faults happen."""
        scenario = self._world.scenario
        if self._world.now() >= scenario.starts_at + timedelta(hours=scenario.hours):
            return
        self._world.after(STROLL.draw(self._dice), self._stroll)
        for row in self._plane.fleet_reader.open_rollouts():
            if row.state not in CLEARABLE and self._dice.random() < 0.3:
                self._continue(row.rollout_id)
        verbs = self.verbs
        for _ in range(self._dice.randint(1, DEEDS_A_LOOK)):
            name = self._dice.choice([*sorted(verbs), *USEFUL])
            before = self._plane.store.head()
            verbs[name]()
            counted = self.done if self._plane.store.head() > before else self.refused
            counted[name] += 1

    def _do(self, deed: Callable[[], object]) -> None:
        with suppress(Invalid):  # the verb makes no sense now
            super()._do(deed)

    # ── rollouts ──

    def _one(self, states: Iterable[RolloutState] = OPEN) -> Rollout | None:
        rows = [row for row in self._plane.fleet_reader.open_rollouts() if row.state in states]
        return self._dice.choice(rows) if rows else None

    def _pause_one(self) -> None:
        if (row := self._one()) is not None:
            self._pause(row.rollout_id)

    def _abort_one(self) -> None:
        if (row := self._one()) is not None:
            self._do(partial(self._give_up, row.rollout_id))

    def _clear_one(self) -> None:
        if (row := self._one(CLEARABLE)) is not None:
            self._clear(row)

    def _retry(self) -> None:
        """Retry all hosts that failed, or one of them."""
        if (row := self._one(CLEARABLE)) is not None:
            named = self._failed(row.rollout_id)[: self._dice.randrange(2)]
            rollouts = self._plane.rollouts
            self._do(lambda: rollouts.retry(OPERATOR, row.rollout_id, "again", named))

    def _skip(self) -> None:
        if (row := self._one()) is not None:
            host_id = self._dice.choice(sorted(self._world.agents))
            rollouts = self._plane.rollouts
            self._do(lambda: rollouts.skip(OPERATOR, row.rollout_id, host_id, "not this one"))

    def _continue_one(self) -> None:
        if (row := self._one()) is not None:
            self._continue(row.rollout_id)

    def _skip_wave(self) -> None:
        if (row := self._one()) is not None:
            wave = str(row.current_wave + self._dice.randrange(2))
            rollouts = self._plane.rollouts
            self._do(lambda: rollouts.skip_wave(OPERATOR, row.rollout_id, wave, "no use"))

    def _promote_all(self) -> None:
        if (row := self._one()) is not None:
            rollouts = self._plane.rollouts
            self._do(lambda: rollouts.promote_all(OPERATOR, row.rollout_id, "a hurry"))

    def _override_one(self) -> None:
        """Override any gate, to the end or for a while."""
        if (row := self._one()) is None:
            return
        gate = self._dice.choice(list(OverridableGate))
        until = self._dice.choice([None, self._world.now() + timedelta(seconds=300)])
        rollouts = self._plane.rollouts
        self._do(lambda: rollouts.override(OPERATOR, row.rollout_id, gate, "a fire", until))

    # ── channels ──

    def _channel(self) -> str:
        return self._dice.choice(self._world.scenario.channels).channel

    def _row(self, channel: str) -> Channel:
        found = self._plane.fleet_reader.row(channel_key(channel), Channel)
        assert found is not None, channel
        return found.row

    def _command_id(self) -> str:
        self.deeds += 1
        return f"walk{self.deeds}"

    def _promote_any(self, *, override: bool = False) -> None:
        """Promote any published release, also an older one, at once or somewhat later."""
        if self.releases == 0:
            return
        later = self._world.now() + timedelta(seconds=240)
        asked = Promote(
            channel=self._channel(),
            release_id=f"{PACKAGE}.{self._dice.randint(1, self.releases)}",
            command_id=self._command_id(),
            by=NAME,
            overrides=(OverridableGate.EDGES,) if override else (),
            start_at=self._dice.choice([None, None, later]),
            reason="try it",
        )
        self._do(partial(self._promote, asked))

    def _refresh(self, channel: str = "") -> None:
        channel = channel or self._channel()
        pin = self._pin(channel)
        if pin is None:
            return
        asked = Promote(
            channel=channel,
            release_id=pin,
            command_id=self._command_id(),
            by=NAME,
            refresh=True,
            reason="looked at it again",
        )
        self._do(partial(self._promote, asked))

    def _pin(self, channel: str) -> str | None:
        rollout_id = self._row(channel).newest_rollout_id
        if rollout_id is None:
            return None
        return self._plane.fleet_reader.tally(rollout_id).row.target_ref

    def _go_back(self, *, now: bool = False, named: bool = False) -> None:
        channel = self._channel()
        rungs = [rung.release_id for rung in self._row(channel).ladder]
        lifted = named and self._dice.random() < 0.5
        asked = RollBackChannel(
            channel=channel,
            command_id=self._command_id(),
            by=NAME,
            to=self._dice.choice(rungs) if named and rungs else None,
            now=now,
            ignore_budgets=now and self._dice.random() < 0.3,
            lift_quarantine=lifted and bool(rungs),
            reason="back",
        )
        self._do(lambda: self._plane.promotions.rollback(asked))

    def _edit(self) -> None:
        """Set another policy; the edges of the channel do not change."""
        channel = self._channel()
        known = self._row(channel).policy
        own = hosts_in(self._world.scenario.fleet, channel[-1])
        drawn = draw_policy(self._dice, own)
        policy = replace(drawn, edges=known.edges, auto_promote=known.auto_promote)
        self._do(lambda: self._plane.channels.edit(OPERATOR, channel, policy=policy))

    def _edit_budget(self) -> None:
        budgets = tuple(self._world.scenario.budgets)
        if budgets:
            number = self._dice.randrange(len(budgets))
            self._do(partial(self._limit, f"b{number}", budgets[number], self._dice.randint(1, 6)))

    def _label(self) -> None:
        """Move a host to another channel, or to another wave."""
        host_id = self._dice.choice(sorted(self._world.agents))
        found = self._plane.fleet_reader.row(host_key(host_id), Host)
        if found is None:
            return
        zone = ZONES[self._dice.randrange(len(self._world.scenario.channels))]
        labels = {"zone": zone, "tier": self._dice.choice("xy")}
        self._tell(label_host, LabelHost(host_id=host_id, labels=labels, operator=NAME))

    # ── when the faults have ended ──

    def _follow_explain(self) -> None:
        """Do what each wait that needs a person names, and nothing else."""
        plane = self._plane
        ids = [row.rollout_id for row in plane.fleet_reader.open_rollouts()]
        state = plane.fleet_reader.state(ids, self._world.now(), late=True)
        for rollout_id in ids:
            for wait in explain(state, rollout_id).waits:
                if self._answer(plane, rollout_id, wait):
                    break

    def _answer(self, plane: SimulatedControlPlane, rollout_id: str, wait: Wait) -> bool:
        """Carry out a verb of the wait, if a person must."""
        match wait.code:
            case "stopped":
                self._do(
                    lambda: plane.rollouts.clear(OPERATOR, rollout_id, Clearance.RESUME, "again")
                )
            case "paused":
                self._do(lambda: plane.rollouts.resume(OPERATOR, rollout_id, "on"))
            case "manual":
                self._do(lambda: plane.rollouts.continue_wave(OPERATOR, rollout_id))
            case "minimum":
                wave = wait.remedies[0].command.split()[4]  # … rollout skip-wave ROLLOUT WAVE
                self._do(lambda: plane.rollouts.skip_wave(OPERATOR, rollout_id, wave, "none left"))
            case "freshness":
                self._refresh(rollout_id.partition("@")[0])
            case "quarantine":
                self._lift()
            case "channel-edges" if NOBODY_THERE in wait.sentence:
                gate = OverridableGate.EDGES
                self._do(lambda: plane.rollouts.override(OPERATOR, rollout_id, gate, "no hosts"))
            case _:
                return False
        self.done[f"explain: {wait.code}"] += 1
        return True


class Walk(Struct, frozen=True):
    """How a walk ended, and what it encountered."""

    ended: SimulationResult
    verbs: Counter[str]  # that were not refused
    gates: frozenset[str]  # that were closed for some rollout
    members: frozenset[str]  # of policies and waves, set to something else than the default


def walk(seed: int) -> Walk:
    """Walk to the end, and compare replay and rows there.

    Raises:

        InvariantViolation: a rule is violated, or ``explain`` cannot name what a rollout waits for.

        AssertionError: it does not come to an end, or replay differs.
    """
    scenario = draw_walk(seed)
    world = World(scenario, operator=WalkingOperator)
    ended = world.run()
    assert isinstance(world.operator, WalkingOperator)
    policies = [lane.policy for lane in scenario.channels]
    waves = [wave for policy in policies for wave in policy.waves]
    edges = [edge for policy in policies for edge in policy.edges]
    return Walk(
        ended,
        world.operator.done,
        frozenset(_shut_gates(world)),
        frozenset(name for item in (*policies, *waves, *edges) for name in _members_set(item)),
    )


def _shut_gates(world: World) -> Iterator[str]:
    after = 0
    while page := world.store.feed(after=after, limit=1_000).events:
        for event in page:
            if event.type == GateChanged.__name__:
                fact = world.folds.vocabulary.value(event)
                assert isinstance(fact, GateChanged)
                if fact.blocked:
                    yield fact.gate
        after = page[-1].position


def _members_set(item: Struct) -> Iterator[str]:
    for field in fields(item):
        if getattr(item, field.name) != field.default:
            yield field.name
