"""A rollout's plan: which hosts go with which wave, frozen when the rollout opens.

    policy + hosts + budgets ──▶ plan ──▶ a blob by its digest ──▶ RolloutOpened names it

A host goes with the first wave that takes it. A wave takes hosts by name, as many of the remaining
ones as its share or count allows. Waves without hosts are dropped, so numbers are dense. Hosts that
no wave takes are listed and get no order; host edges are listed if one of their hosts has left the
channel. The order in which hosts and budgets are given does not matter: equal fleets have equal
plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from msgspec import Struct, structs

from tidegate import decoders, errors
from tidegate.domain.channels import (
    facts as channel_facts,
    policy as channel_policy,
    rows as channel_rows,
)
from tidegate.domain.fleet import claims, rows as fleet_rows
from tidegate.domain.fleet.budgets import slots
from tidegate.domain.fleet.selectors import parse
from tidegate.domain.hosts import facts as host_facts, states
from tidegate.domain.rollouts.facts import OpenedWave
from tidegate.kernel import codec, model

HOSTS_MAX = 100_000  # of one plan
BUDGETS_MAX = 100  # budgets of one plan
BUDGETS_OF_HOST_MAX = 16  # one commit of an order steps the row of each
POLICIES_MAX = 256  # cached policies of waves, shared by their hosts
NOW = "now"  # the one wave of an emergency rollback
ALL_AT_ONCE = "rest"  # the one wave of a policy without waves


class MalformedPlan(errors.Invalid):
    """A plan has a host in two waves, so the planner did not make it."""

    code = "malformed_plan"


class PlannedWave(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Hosts that go together, by name."""

    name: str
    hosts: tuple[str, ...]
    soak_seconds: int = 0
    failures_max: int = 0
    converged_min: int = 1
    success_percent: int = 100
    delay_seconds: int = 0
    manual: bool = False


class PlannedBudget(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A budget that limits this rollout: its slots, and which of the plan's hosts take one."""

    budget_id: str
    slots: int
    members: int  # members in the whole fleet when the plan was made
    hosts: tuple[str, ...] | None = None  # None: all of the plan


class IdleEdge(Struct, frozen=True):
    """A host edge of the policy without effect, because one of the two hosts does not take part."""

    before: str
    after: str
    reason: str


class Plan(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a rollout follows from its opening to its end, whatever is edited meanwhile."""

    channel: str
    package: str
    selector: str
    policy: channel_facts.ChannelPolicy
    waves: tuple[PlannedWave, ...] = ()
    budgets: tuple[PlannedBudget, ...] = ()
    unstaged: tuple[str, ...] = ()  # the channel's hosts that no wave takes
    empty_waves: tuple[str, ...] = ()  # the policy's waves without hosts, which are dropped
    idle_edges: tuple[IdleEdge, ...] = ()  # the policy's host edges without effect
    preempts: bool = False  # its orders replace those that soak

    @property
    def hosts(self) -> int:
        return sum(len(wave.hosts) for wave in self.waves)

    def host_policy(self, wave: int) -> states.HostPolicy:
        """Return the policy of a host of this wave. A late host has that of the last wave."""
        policy = self.policy
        return _share_policy(
            soak_seconds=self.waves[wave].soak_seconds if wave < len(self.waves) else 0,
            on_failure=policy.on_failure,
            sustained_failure_seconds=policy.sustained_failure_seconds,
            ack_seconds=policy.ack_seconds,
            activation_seconds=policy.activation_seconds,
            topology_seconds=policy.topology_seconds,
            convergence_seconds=policy.convergence_seconds,
            rollback_seconds=policy.rollback_seconds,
            deferral_seconds=policy.deferral_seconds,
            must_fit=policy.must_fit,
            preempts=self.preempts,
        )


decoders.build(states.HostPolicy)
decoders.build(Plan)


@lru_cache(POLICIES_MAX)
def _share_policy(**members: Any) -> states.HostPolicy:
    """Return one policy object for all hosts of a wave, as it is decoded from the log.

    Default values are the default objects, so that records are encoded on the fast path.
    """
    return codec.decode(codec.encode(states.HostPolicy(**members)), states.HostPolicy)


def plan(
    channel: channel_rows.Channel,
    hosts: Iterable[fleet_rows.Host],
    budgets: Iterable[fleet_rows.Budget],
) -> Plan:
    """Plan how a release would reach the channel's hosts now.

    ``hosts`` is the whole fleet: a budget's share counts all of its members.

    Raises:
        MalformedPolicy, InvalidSelector: the policy cannot be carried out with these hosts.
        LimitExceeded: HOSTS_MAX, BUDGETS_MAX or BUDGETS_OF_HOST_MAX is exceeded.
    """
    policy = channel.policy
    channel_policy.check_policy(channel.channel, policy)
    fleet = tuple(hosts)
    ours = sorted(claims.members(channel.selector, fleet), key=lambda host: host.host_id)
    model.at_most("hosts of a plan", len(ours), HOSTS_MAX)
    waves, unstaged = _fill_waves(policy, ours)
    names = channel_policy.wave_names(policy) or (ALL_AT_ONCE,)
    taken = {wave.name for wave in waves}
    placed = {name: number for number, wave in enumerate(waves) for name in wave.hosts}
    idle = _list_idle_edges(policy, fleet, {host.host_id for host in ours})
    channel_policy.refuse(
        _find_impossible_edges(policy, placed, {(edge.before, edge.after) for edge in idle})
    )
    return Plan(
        channel=channel.channel,
        package=channel.package,
        selector=channel.selector,
        policy=policy,
        waves=waves,
        budgets=_list_budgets(budgets, fleet, placed),
        unstaged=unstaged,
        empty_waves=tuple(name for name in names if name not in taken),
        idle_edges=idle,
    )


def rollback_policy(policy: channel_facts.ChannelPolicy) -> channel_facts.ChannelPolicy:
    """Return the policy for a release that succeeded before.

    A failed host stays as it is: it would otherwise return to the release that the channel leaves.
    The evidence is the operator's command, so it is fresh.
    """
    return structs.replace(policy, on_failure=states.OnFailure.HALT, freshness_seconds=None)


def automatic_policy(policy: channel_facts.ChannelPolicy) -> channel_facts.ChannelPolicy:
    """Return the policy of an automatic rollback: one wave, with the soak of the last one."""
    soak = policy.waves[-1].soak_seconds if policy.waves else 0
    return structs.replace(
        rollback_policy(policy),
        waves=(channel_facts.WaveSpec(name=ALL_AT_ONCE, soak_seconds=soak),),
    )


def emergency_policy(policy: channel_facts.ChannelPolicy) -> channel_facts.ChannelPolicy:
    """Return the policy of an emergency rollback: one wave without a soak.

    A failed host does not stop the others.
    """
    now = channel_facts.WaveSpec(name=NOW, failures_max_percent=100, converged_min=0)
    return structs.replace(rollback_policy(policy), waves=(now,), host_edges=(), must_fit=False)


def encode_plan(plan: Plan) -> tuple[bytes, str]:
    """Encode the plan as its blob; return it with its digest."""
    body = codec.encode(plan)
    return body, f"sha256:{sha256(body).hexdigest()}"


def decode_plan(body: bytes) -> Plan:
    """Decode the plan of a blob. Raises: InvalidInput."""
    return codec.decode(body, Plan)


def opened_waves(plan: Plan) -> tuple[OpenedWave, ...]:
    """Return the waves in numbers, for the fact that opens the rollout."""
    return tuple(
        OpenedWave(
            name=wave.name,
            hosts=len(wave.hosts),
            soak_seconds=wave.soak_seconds,
            failures_max=wave.failures_max,
            converged_min=wave.converged_min,
            success_percent=wave.success_percent,
            delay_seconds=wave.delay_seconds,
            manual=wave.manual,
        )
        for wave in plan.waves
    )


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def _fill_waves(
    policy: channel_facts.ChannelPolicy, ours: Sequence[fleet_rows.Host]
) -> tuple[tuple[PlannedWave, ...], tuple[str, ...]]:
    """Return the waves that have hosts, and the hosts that no wave takes."""
    specs = policy.waves or (channel_facts.WaveSpec(name=ALL_AT_ONCE),)
    names = channel_policy.wave_names(policy) or (ALL_AT_ONCE,)
    left = list(ours)
    waves = []
    for name, spec in zip(names, specs, strict=True):
        taken, left = _count_taken(spec, left, len(ours))
        if taken:
            waves.append(
                PlannedWave(
                    name=name,
                    hosts=taken,
                    soak_seconds=spec.soak_seconds,
                    failures_max=failures_max(spec, len(taken)),
                    converged_min=spec.converged_min,
                    success_percent=spec.success_percent,
                    delay_seconds=spec.delay_seconds,
                    manual=spec.manual,
                )
            )
    return tuple(waves), tuple(host.host_id for host in left)


def _count_taken(
    spec: channel_facts.WaveSpec, left: Sequence[fleet_rows.Host], total: int
) -> tuple[tuple[str, ...], list[fleet_rows.Host]]:
    selector = parse(spec.selector)
    size = wave_size(spec, total)
    taken: list[str] = []
    rest: list[fleet_rows.Host] = []
    for host in left:
        if len(taken) < size and selector.matches(host.labels, host.host_id):
            taken.append(host.host_id)
        else:
            rest.append(host)
    return tuple(taken), rest


def wave_size(spec: channel_facts.WaveSpec, total: int) -> int:
    """Return how many hosts a wave takes at most, in a channel of this many.

    A share is rounded down, but at least 1: a canary of 5 % of ten hosts is one host.
    """
    if spec.count is not None:
        return spec.count
    if spec.percent is not None:
        return max(1, spec.percent * total // 100)
    return total


def failures_max(spec: channel_facts.WaveSpec, hosts: int) -> int:
    """Return how many failures a wave of this many hosts tolerates. A share is rounded down."""
    bounds = []
    if spec.failures_max is not None:
        bounds.append(spec.failures_max)
    if spec.failures_max_percent is not None:
        bounds.append(spec.failures_max_percent * hosts // 100)
    return min(bounds, default=0)


def _list_idle_edges(
    policy: channel_facts.ChannelPolicy, fleet: Sequence[fleet_rows.Host], ours: set[str]
) -> tuple[IdleEdge, ...]:
    """Return the edges with a host that left the channel: retired, revoked or labelled otherwise.

    Raises:
        MalformedPolicy: an edge names a host that never existed.
    """
    channel_policy.check_named(policy, fleet)
    if all(edge.before in ours and edge.after in ours for edge in policy.host_edges):
        return ()
    status = {host.host_id: host.status for host in fleet}
    idle = []
    for edge in policy.host_edges:
        away = next((name for name in (edge.before, edge.after) if name not in ours), None)
        if away is not None:
            left = status[away] != fleet_rows.ENROLLED
            reason = f"{away} is {status[away] if left else 'no host of the channel any more'}"
            idle.append(IdleEdge(edge.before, edge.after, reason))
    return tuple(idle)


def _find_impossible_edges(
    policy: channel_facts.ChannelPolicy, placed: dict[str, int], idle: set[tuple[str, str]]
) -> Iterator[channel_policy.PolicyFinding]:
    """Return the host edges that no rollout of this plan can satisfy."""
    for place, edge in enumerate(policy.host_edges):
        after = placed.get(edge.after)
        before = placed.get(edge.before)
        if after is None or (edge.before, edge.after) in idle:
            continue  # no host waits here
        if before is None or before > after:
            where = "in no wave" if before is None else f"in wave {before + 1}"
            yield channel_policy.PolicyFinding(
                f"host_edges[{place}]",
                f"{edge.after}, in wave {after + 1}, waits for {edge.before}, {where}.",
            )


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


def _list_budgets(
    budgets: Iterable[fleet_rows.Budget], fleet: Sequence[fleet_rows.Host], placed: dict[str, int]
) -> tuple[PlannedBudget, ...]:
    """Return the budgets that cover some host of the plan, by name."""
    standing = [budget for budget in budgets if not budget.removed]
    model.at_most("budgets", len(standing), BUDGETS_MAX)
    planned = []
    times: dict[str, int] = {}
    for budget in sorted(standing, key=lambda item: item.budget_id):
        matching = claims.members(budget.selector, fleet)
        allowed = slots(budget, len(matching))
        bounded = tuple(sorted(host.host_id for host in matching if host.host_id in placed))
        if allowed is None or not bounded:
            continue
        for host_id in bounded:
            times[host_id] = times.get(host_id, 0) + 1
        planned.append(
            PlannedBudget(
                budget_id=budget.budget_id,
                slots=allowed,
                members=len(matching),
                hosts=None if len(bounded) == len(placed) else bounded,
            )
        )
    model.at_most("budgets of one host", max(times.values(), default=0), BUDGETS_OF_HOST_MAX)
    return tuple(planned)


# ── the plan, looked up by host ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PlanByHost:
    """A plan indexed by host, made once per plan in one pass over it."""

    plan: Plan
    waves: dict[str, int]  # host → wave
    before: dict[str, tuple[str, ...]]  # host → the hosts that it waits for
    budgets: dict[
        str, tuple[host_facts.BudgetSlot, ...]
    ]  # host → its budgets; not all of the plan's
    everyone: tuple[host_facts.BudgetSlot, ...]  # the budgets of every host of the plan

    def slots_of(self, host_id: str) -> tuple[host_facts.BudgetSlot, ...]:
        """Return the budgets of which an order for this host takes a slot."""
        own = self.budgets.get(host_id)
        return self.everyone if own is None else (*self.everyone, *own)


def index_by_host(plan: Plan) -> PlanByHost:
    """Index the plan by host. Raises: MalformedPlan."""
    waves = {host: number for number, wave in enumerate(plan.waves) for host in wave.hosts}
    if len(waves) != plan.hosts:
        times = Counter(host for wave in plan.waves for host in wave.hosts)
        host, count = times.most_common(1)[0]
        raise MalformedPlan(f"{host} is {count} times in the plan, allowed is once", host_id=host)
    before: dict[str, tuple[str, ...]] = {}
    for edge in plan.policy.host_edges:
        if edge.after in waves and edge.before in waves:
            before[edge.after] = (*before.get(edge.after, ()), edge.before)
    own: dict[str, tuple[host_facts.BudgetSlot, ...]] = {}
    for budget in plan.budgets:
        slot = host_facts.BudgetSlot(budget.budget_id, budget.slots)
        for host in budget.hosts or ():
            own[host] = (*own.get(host, ()), slot)
    everyone = tuple(
        host_facts.BudgetSlot(budget.budget_id, budget.slots)
        for budget in plan.budgets
        if budget.hosts is None
    )
    return PlanByHost(plan, waves, before, own, everyone)
