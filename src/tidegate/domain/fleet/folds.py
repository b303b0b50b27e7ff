"""How the fleet's facts become its rows.

    hosts      each host's labels, key and status
    fleet      the one row that every change of a host or a channel's claim steps
    budgets    limits, and the slots in use: an order takes one, a host that is done frees it

A budget refuses an order that would take one slot too many, in the commit of that order. So the
limit holds however many dispatchers decide at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.channels.facts import ChannelCreated, ChannelDeleted, ChannelEdited
from tidegate.domain.fleet import credentials, facts, joins, refusals, rows as fleet_rows
from tidegate.domain.fleet.budgets import current_bound
from tidegate.domain.fleet.selectors import fact_labels, split_labels
from tidegate.domain.hosts.facts import BudgetSlot, DispatchReserved, HostStateChanged
from tidegate.errors import IllegalTransition
from tidegate.kernel import folds, model

CHANNELS_MAX = 400  # one row holds their claims

HostChange = (
    facts.HostEnrolled
    | facts.HostLabelled
    | facts.HostFactsNoted
    | facts.HostRevoked
    | facts.HostRetired
    | facts.HostSilent
    | facts.HostHeard
)
FleetChange = (
    facts.HostEnrolled
    | facts.HostLabelled
    | facts.HostFactsNoted
    | facts.HostRevoked
    | facts.HostRetired
    | ChannelCreated
    | ChannelEdited
    | ChannelDeleted
)
BudgetChange = facts.BudgetSet | facts.BudgetRemoved | DispatchReserved | HostStateChanged


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def step_host(host: fleet_rows.Host | None, fact: HostChange, now: datetime) -> fleet_rows.Host:
    """Raises: IllegalTransition: not enrolled yet, or retired."""
    if host is None:
        if not isinstance(fact, facts.HostEnrolled):
            raise IllegalTransition("host", "unknown", type(fact).__name__)
        host = fleet_rows.Host(
            host_id=fact.host_id, enrolled_at=fact.at, public_key=fact.public_key
        )
    if host.status == fleet_rows.RETIRED and not (
        isinstance(fact, facts.HostEnrolled) and fact.returned
    ):
        raise IllegalTransition("host", host.status, type(fact).__name__)
    match fact:
        case facts.HostEnrolled():
            return fleet_rows.Host(
                host_id=host.host_id,
                enrolled_at=fact.at,
                public_key=fact.public_key,
                labels=fact.labels,
                replaced_key=fact.replaces,
            )
        case facts.HostLabelled():
            _, reported = split_labels(host.labels)
            return replace(host, labels={**fact.labels, **reported})
        case facts.HostFactsNoted():
            given, _ = split_labels(host.labels)
            labels = {**given, **fact_labels(fact.facts)}
            return replace(host, labels=labels, facts_at=fact.at)
        case facts.HostRevoked():
            return replace(host, status=fleet_rows.REVOKED)
        case facts.HostRetired():
            return replace(host, status=fleet_rows.RETIRED)
        case facts.HostSilent():
            return replace(host, silent_since=fact.last_seen_at)
        case facts.HostHeard():
            return replace(host, silent_since=None)


# ── the fleet ─────────────────────────────────────────────────────────────────────────────────────


def step_fleet(fleet: fleet_rows.Fleet, fact: FleetChange, now: datetime) -> fleet_rows.Fleet:
    """Raises: LimitExceeded."""
    fleet = replace(fleet, changes=fleet.changes + 1)
    match fact:
        case facts.HostEnrolled(again=False) | facts.HostEnrolled(returned=True):
            return replace(fleet, hosts=fleet.hosts + 1)
        case facts.HostRetired():
            return replace(fleet, hosts=fleet.hosts - 1)
        case (
            facts.HostEnrolled()
            | facts.HostLabelled()
            | facts.HostFactsNoted()
            | facts.HostRevoked()
        ):
            return fleet
        case ChannelCreated():
            model.at_most("channels of a fleet", len(fleet.channels) + 1, CHANNELS_MAX)
            return _claiming(fleet, _scope(fact, fact.package))
        case ChannelDeleted():
            others = (scope for scope in fleet.channels if scope.channel != fact.channel)
            return replace(fleet, channels=tuple(others))
        case ChannelEdited():
            known = {scope.channel: scope.package for scope in fleet.channels}
            if fact.channel not in known:
                raise IllegalTransition("channel", "unknown", type(fact).__name__)
            return _claiming(fleet, _scope(fact, known[fact.channel]))


def _scope(fact: ChannelCreated | ChannelEdited, package: str) -> fleet_rows.ChannelScope:
    before = tuple(edge.channel for edge in fact.policy.edges)
    return fleet_rows.ChannelScope(fact.channel, package, fact.selector, before)


def _claiming(fleet: fleet_rows.Fleet, scope: fleet_rows.ChannelScope) -> fleet_rows.Fleet:
    others = (other for other in fleet.channels if other.channel != scope.channel)
    ordered = sorted((*others, scope), key=lambda item: item.channel)
    return replace(fleet, channels=tuple(ordered))


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


def budget_ids(fact: BudgetChange) -> tuple[str, ...]:
    match fact:
        case facts.BudgetSet() | facts.BudgetRemoved():
            return (fact.budget_id,)
        case DispatchReserved():
            return tuple(slot.budget_id for slot in fact.budgets)
        case HostStateChanged():
            return (*fact.budgets, *(slot.budget_id for slot in fact.slots))


def step_budget(budget: fleet_rows.Budget, fact: BudgetChange, now: datetime) -> fleet_rows.Budget:
    """Raises: BudgetExhausted."""
    match fact:
        case facts.BudgetSet():
            return replace(
                budget,
                selector=fact.selector,
                max_in_flight=fact.max_in_flight,
                max_in_flight_pct=fact.max_in_flight_pct,
                removed=False,
            )
        case facts.BudgetRemoved():
            return replace(budget, removed=True)
        case DispatchReserved():
            return _reserved(budget, fact.budgets)
        case HostStateChanged() if fact.slots:
            return _reserved(budget, fact.slots)
        case HostStateChanged():
            assert budget.in_flight > 0, f"{budget.budget_id}: a slot is freed that was not taken"
            return replace(budget, in_flight=budget.in_flight - 1)


def _reserved(budget: fleet_rows.Budget, slots: Iterable[BudgetSlot]) -> fleet_rows.Budget:
    frozen = next(slot.slots for slot in slots if slot.budget_id == budget.budget_id)
    allowed = current_bound(budget, frozen)
    if allowed is not None and budget.in_flight >= allowed:
        raise refusals.BudgetExhausted(budget.budget_id, allowed)
    return replace(budget, in_flight=budget.in_flight + 1)


# ── join tokens ───────────────────────────────────────────────────────────────────────────────────


def step_join_token(
    token: joins.JoinToken | None,
    fact: facts.JoinTokenCreated | facts.JoinTokenDeleted | facts.HostEnrolled,
    now: datetime,
) -> joins.JoinToken | None:
    """Raises: IllegalTransition: it was never created, or is deleted."""
    if isinstance(fact, facts.JoinTokenCreated):
        return joins.JoinToken(
            join_id=fact.join_id,
            operator=fact.operator,
            created_at=fact.at,
            until=fact.until,
            limit=fact.limit,
            labels=fact.labels,
        )
    if token is None or (isinstance(fact, facts.HostEnrolled) and token.enrolled >= token.limit):
        raise IllegalTransition("join token", "unknown or used up", type(fact).__name__)
    if isinstance(fact, facts.JoinTokenDeleted):
        return None
    return replace(token, enrolled=token.enrolled + 1)


def _step_and_use(
    host: fleet_rows.Host | None, fact: HostChange, now: datetime
) -> tuple[fleet_rows.Host, tuple[folds.WorkRow, ...]]:
    """Step the host. The commit also uses up its agent's token, and revokes the previous key."""
    stepped = step_host(host, fact, now)
    if not isinstance(fact, facts.HostEnrolled):
        return stepped, ()
    rows = []
    if fact.token_id:
        rows.append(
            folds.WorkRow(credentials.replay_key(fact.token_id), credentials.used_token_of(fact))
        )
    if fact.revokes:
        rows.append(
            folds.WorkRow(
                credentials.revocation_key(fact.replaces), credentials.revocation_of(fact)
            )
        )
    return stepped, tuple(rows)


hosts = folds.Machine(
    collection=fleet_rows.HOSTS,
    number=2,
    reads=(
        *(facts.HostEnrolled, facts.HostLabelled, facts.HostFactsNoted),
        *(facts.HostRevoked, facts.HostRetired, facts.HostSilent, facts.HostHeard),
    ),
    ids=lambda fact: (fact.host_id,),
    start=lambda id, fact: None,
    step=_step_and_use,
)
fleet = folds.Fold(
    collection=fleet_rows.FLEETS,
    number=2,
    reads=(
        *(
            facts.HostEnrolled,
            facts.HostLabelled,
            facts.HostFactsNoted,
            facts.HostRevoked,
            facts.HostRetired,
        ),
        *(ChannelCreated, ChannelEdited, ChannelDeleted),
    ),
    ids=lambda fact: (fleet_rows.FLEET,),
    start=lambda id, fact: fleet_rows.Fleet(),
    step=step_fleet,
)
budgets = folds.Fold(
    collection=fleet_rows.BUDGETS,
    number=1,
    reads=(facts.BudgetSet, facts.BudgetRemoved, DispatchReserved, HostStateChanged),
    ids=budget_ids,
    start=lambda id, fact: fleet_rows.Budget(budget_id=id),
    step=step_budget,
)
join_tokens = folds.Fold(
    collection=joins.JOIN_TOKENS,
    number=1,
    reads=(facts.JoinTokenCreated, facts.JoinTokenDeleted, facts.HostEnrolled),
    ids=lambda fact: (fact.join_id,) if fact.join_id else (),
    start=lambda id, fact: None,
    step=step_join_token,
)
FOLDS = (hosts, fleet, budgets, join_tokens)
