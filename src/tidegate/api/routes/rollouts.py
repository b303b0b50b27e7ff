"""Rollouts: the state of each, its events and hosts, and why it waits.

A rollout is found by its id only; its display name is shown, never looked up. Its ETag begins with
the position of its last transition, which is what the If-Match of a command refers to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field, structs

from tidegate.api.feed.cloud_events import CloudEvent, to_cloud_event
from tidegate.api.routes import releases
from tidegate.api.routes.releases import ScopeName
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries import log_reader, rollout_lists, rollout_waits
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.queries.remedy_offers import RemedyOffers
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing
from tidegate.domain.access import roles, scopes
from tidegate.domain.channels import refusals as channel_refusals
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import Explanation
from tidegate.domain.hosts import refusals, rows as host_rows, states as host_states
from tidegate.domain.planner import MalformedPlan, Plan, opened_waves
from tidegate.domain.rollouts import (
    facts,
    folds,
    names,
    rows as rollout_rows,
    states as rollout_states,
)
from tidegate.domain.rollouts.progress import RolloutProgress
from tidegate.errors import InvalidInput
from tidegate.kernel.model import ANY, Clause, Position, Query
from tidegate.web import as_of, inputs as web_inputs, paging, routing, shapes

PAGES_MAX = 20  # read for one response when a filter matches few rollouts of each

HostId = Annotated[str, Meta(min_length=1, max_length=128)]


# ── request bodies ────────────────────────────────────────────────────────────────────────────────


class RolloutPath(web_inputs.Input, frozen=True):
    rollout_id: Annotated[str, Meta(min_length=1, max_length=300)]


class RolloutFilter(web_inputs.Paging, frozen=True, kw_only=True):
    channel: ScopeName | None = None
    state: rollout_states.RolloutState | None = None
    outcome: Annotated[str, Meta(max_length=200)] = ""  # one or several, separated by commas
    since: datetime | None = None
    had_failures: bool = False


class RolloutHostFilter(web_inputs.Paging, frozen=True, kw_only=True):
    state: host_states.HostState | None = None
    wave: Annotated[int, Meta(ge=0, le=1_000)] | None = None


class RolloutWhyQuery(web_inputs.ReadQuery, frozen=True, kw_only=True):
    host_id: HostId | None = None  # only this host; null: all hosts that wait


# ── responses ─────────────────────────────────────────────────────────────────────────────────────


class RolloutListed(rollout_rows.Rollout, frozen=True, kw_only=True):
    version: int  # the position of its last transition
    outcome: rollout_states.Outcome | None = None  # null: it is open
    outcome_at: datetime | None = None
    failures: int = 0  # how often a host failed, also if it was retried later
    hosts: int = 0  # planned hosts
    converged: int = 0  # planned hosts that run the release
    waves_planned: int = 0
    halted_by: str | None = None  # the host whose failure halted it
    paused_at: datetime | None = None
    opened_by_name: str | None = None  # null: erased, or not a person


class PlanSummary(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The frozen plan in numbers; ``/plan`` has all of it."""

    digest: str
    display_name: str
    package: str
    selector: str
    policy: ChannelPolicy
    hosts: int
    unstaged: int
    waves: tuple[facts.OpenedWave, ...]
    budgets: tuple[str, ...] = ()


class RolloutShown(rollout_rows.Rollout, frozen=True, kw_only=True):
    """A rollout: its state, counts of its hosts, its gates, and a summary of its plan."""

    version: int
    attempt: int = 1
    waves: tuple[rollout_rows.WaveTally, ...] = ()
    late: dict[host_states.HostState, int] = field(default_factory=dict)
    halted_at: datetime | None = None
    halted_by: str | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_reason: str = ""
    opened_by_name: str | None = None  # null: erased, or not a person
    paused_by_name: str | None = None
    rollback_failed: int = 0
    degraded: bool = False
    outcome: rollout_states.Outcome | None = None  # null: it is open
    outcome_at: datetime | None = None
    cause: rollout_states.Cause | None = None  # why it ended with this outcome
    cause_id: str | None = None
    gates: tuple[rollout_waits.GateShown, ...] = ()
    progress: RolloutProgress | None = None  # what it does now; null: over, stopped or paused
    # Gates that it passes, and who overrode them.
    overrides: tuple[rollout_rows.GateOverride, ...] = ()
    plan: PlanSummary | None = None
    warnings: tuple[str, ...] = ()  # that a skip changed nothing


def scope_of(request: routing.Request[RolloutPath, Any, Any]) -> str:
    """The scope of the channel in the id. Raises: RolloutUnknown: the id is malformed."""
    try:
        return scopes.channel_scope(names.channel_of(request.path.rollout_id))
    except InvalidInput:
        raise refusals.RolloutUnknown(request.path.rollout_id[:80]) from None


def demand(reads: Reads, rollout_id: str) -> Found[rollout_rows.Rollout]:
    """Read the rollout's row. Raises: RolloutUnknown."""
    found = reads.find(rollout_rows.rollout_key(rollout_id), rollout_rows.Rollout)
    if found is None:
        raise refusals.RolloutUnknown(rollout_id)
    return found


def facts_of(rollout_id: str) -> Query:
    """The query for all events of a rollout and of its hosts in it."""
    return Query((Clause(ANY, frozenset({f"rollout_id:{rollout_id}"})),))


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def list_all(
    request: routing.Request[web_inputs.Nothing, RolloutFilter, web_inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List the rollouts that you may read, newest first.

    Filter by channel, state, outcomes, opening time or failed hosts.
    """
    query, after = request.query, cursors.after(request)
    wanted = rollout_lists.RolloutsWanted(
        channel=query.channel,
        state=query.state,
        outcomes=_outcomes(query.outcome),
        since=query.since,
        had_failures=query.had_failures,
    )
    found, last = rollout_lists.newest_rollouts(
        reads,
        wanted,
        lambda row: request.principal.may(roles.Verb.READ, scopes.channel_scope(row.channel)),
        after=after,
        limit=query.limit,
    )
    if (
        not found and not after and query.channel is not None
    ):  # a deleted channel still has its rollouts
        releases.demand_channel(reads, query.channel)
    return routing.Response(
        cursors.list_page(request, [_listed(item, people) for item in found], last)
    )


def _outcomes(text: str) -> frozenset[rollout_states.Outcome]:
    """Parse the outcomes of the filter. Raises: InvalidInput."""
    words = frozenset(text.split(",")) if text else frozenset()
    if unknown := sorted(words - set(rollout_states.Outcome)):
        raise InvalidInput(
            f"outcome is {unknown[0]!r}; allowed are {', '.join(rollout_states.Outcome)}, "
            "separated by commas",
            field="outcome",
        )
    return frozenset(map(rollout_states.Outcome, words))


def _listed(item: rollout_lists.ListedRollout, people: PeopleNames) -> RolloutListed:
    row = item.rollout.row
    listed = RolloutListed(
        **structs.asdict(row),
        version=item.rollout.version,
        opened_by_name=people.find_name(row.opened_by),
    )
    if (tally := item.tally) is None:
        return listed
    return structs.replace(
        listed,
        outcome=tally.outcome,
        outcome_at=tally.outcome_at,
        failures=tally.failures,
        hosts=sum(wave.hosts for wave in tally.waves),
        converged=sum(wave.count(host_states.HostState.CONVERGED) for wave in tally.waves),
        waves_planned=len(tally.waves),
        halted_by=tally.halted_by,
        paused_at=tally.paused_at,
    )


class RolloutEvent(CloudEvent, frozen=True, kw_only=True):
    """An event of a rollout, with the name of the person who caused it."""

    actorname: str | None  # null: erased, or not a person


@dataclass(frozen=True)
class RolloutDocuments:
    """Shows rollouts as API documents."""

    reads: Reads
    fleet_reader: FleetReader
    people: PeopleNames

    def show(self, rollout_id: str, position: Position = 0) -> routing.Response:
        """The rollout as it is now. Raises: RolloutUnknown."""
        row, tally, gates = self.reads.find_all(
            (rollout_rows.rollout_key(rollout_id), rollout_rows.Rollout),
            (rollout_rows.tally_key(rollout_id), rollout_rows.RolloutTally),
            (rollout_rows.gates_key(rollout_id), rollout_rows.RolloutGates),
        )
        if row is None or tally is None:
            raise refusals.RolloutUnknown(rollout_id)
        shut = None if gates is None else gates.row
        body = structs.replace(
            self.describe(row, tally.row),
            gates=rollout_waits.list_gates(self.fleet_reader, tally.row, shut),
            progress=rollout_waits.find_progress(self.reads, tally.row, shut),
        )
        return routing.Response(body, version=row.version, position=position)

    def describe(
        self, found: Found[rollout_rows.Rollout], tally: rollout_rows.RolloutTally
    ) -> RolloutShown:
        """What its rows say, without its gates and its progress."""
        return RolloutShown(
            **structs.asdict(found.row),
            version=found.version,
            attempt=tally.attempt,
            waves=tally.waves,
            late=tally.late,
            halted_at=tally.halted_at,
            halted_by=tally.halted_by,
            paused_at=tally.paused_at,
            paused_by=tally.paused_by,
            paused_reason=tally.paused_reason,
            opened_by_name=self.people.find_name(found.row.opened_by),
            paused_by_name=self.people.find_name(tally.paused_by),
            rollback_failed=tally.rollback_failed,
            degraded=tally.degraded,
            outcome=tally.outcome,
            outcome_at=tally.outcome_at,
            cause=tally.cause,
            cause_id=tally.cause_id,
            overrides=tally.overrides,
            plan=self._summarize(found.row),
        )

    def _summarize(self, row: rollout_rows.Rollout) -> PlanSummary | None:
        """The plan in numbers; None: its blob is missing, or is not a plan."""
        try:
            plan = self.fleet_reader.chart(row.plan_digest).plan
        except (BlobMissing, MalformedPlan):
            return None
        return PlanSummary(
            digest=row.plan_digest,
            display_name=row.display_name,
            package=plan.package,
            selector=plan.selector,
            policy=plan.policy,
            hosts=plan.hosts,
            unstaged=len(plan.unstaged),
            waves=opened_waves(plan),
            budgets=tuple(budget.budget_id for budget in plan.budgets),
        )


def get(
    request: routing.Request[RolloutPath, as_of.AsOfQuery, web_inputs.Nothing],
    documents: RolloutDocuments,
    log: log_reader.LogReader,
    row_history: RowHistory,
) -> routing.Response:
    """Get a rollout: state, waves, gates and frozen plan; as_of shows an earlier state."""
    rollout_id = request.path.rollout_id
    if not request.query.as_of:
        return documents.show(rollout_id)
    position = as_of.position_of(log, request.query.as_of)
    query = facts_of(rollout_id)
    row = row_history.row_at(folds.rollouts, rollout_id, query, position)
    tally = row_history.row_at(folds.rollout_tallies, rollout_id, query, position)
    if row is None or tally is None:
        raise refusals.RolloutUnknown(rollout_id)
    body = documents.describe(row, tally.row)
    return routing.Response(body, version=row.version, position=position)


def hosts(
    request: routing.Request[RolloutPath, RolloutHostFilter, web_inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the hosts of a rollout with an order, by name; filter by state or wave."""
    rollout_id, query = request.path.rollout_id, request.query
    demand(reads, rollout_id)
    prefix = host_rows.record_id(rollout_id, "")
    after = cursors.after(request)
    seen: list[host_rows.HostRecord] = []
    for _ in range(PAGES_MAX):
        page = reads.range(
            host_rows.HOST_RECORDS, prefix=prefix, after=after, limit=web_inputs.LIMIT_MAX
        )
        for item in page:
            after = item.id
            row: host_rows.HostRecord = item.row
            if query.state in (None, row.state) and query.wave in (None, row.wave):
                seen.append(row)
            if len(seen) == query.limit:
                return routing.Response(cursors.list_page(request, seen, after))
        if len(page) < web_inputs.LIMIT_MAX:
            return routing.Response(cursors.list_page(request, seen, None))
    return routing.Response(cursors.list_page(request, seen, after))


def events(
    request: routing.Request[RolloutPath, web_inputs.Paging, web_inputs.Nothing],
    reads: Reads,
    log: log_reader.LogReader,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List the events of a rollout and of its hosts in it, in the order of the log."""
    rollout_id, limit = request.path.rollout_id, request.query.limit
    demand(reads, rollout_id)
    after = int(cursors.after(request) or "0")
    found = log.events(facts_of(rollout_id), after=after, limit=limit)
    last = str(found[-1].position) if len(found) == limit else None
    shown = [
        RolloutEvent(
            **structs.asdict(to_cloud_event(event)),
            actorname=people.find_name(event.meta.actor),
        )
        for event in found
    ]
    return routing.Response(cursors.list_page(request, shown, last))


def plan(
    request: routing.Request[RolloutPath, web_inputs.ReadQuery, web_inputs.Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
) -> routing.Response:
    """Get the plan of a rollout, frozen when it opened: every host by its wave."""
    row = demand(reads, request.path.rollout_id).row
    return routing.Response(fleet_reader.chart(row.plan_digest).plan, tag=f'"{row.plan_digest}"')


def ask_why(
    request: routing.Request[RolloutPath, RolloutWhyQuery, web_inputs.Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
    log: log_reader.LogReader,
    people: PeopleNames,
    offers: RemedyOffers,
) -> routing.Response:
    """Explain why a rollout waits: every gate, its answer, and the row that decides it."""
    rollout_id = request.path.rollout_id
    demand(reads, rollout_id)
    state = fleet_reader.state((rollout_id,), clock(), late=True)
    host_id = request.query.host_id
    if host_id is None:
        found = explain(state, rollout_id)
    else:
        found = rollout_waits.explain_host(log, state, rollout_id, host_id)
    return routing.Response(offers.offer(people.name_in_explanation(found), request.principal))


_READ = routing.requires(roles.Verb.READ, scope_of)
_BLOBS = (refusals.RolloutUnknown, BlobMissing, BlobDamaged)

ROUTES = (
    routing.Route(
        "GET",
        "/v1/rollouts",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[RolloutListed],
        errors=(channel_refusals.ChannelNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/rollouts/{rollout_id}",
        get,
        _READ,
        RolloutShown,
        cached=True,
        errors=(refusals.RolloutUnknown, HistoryTooLong, BlobDamaged),
    ),
    routing.Route(
        "GET",
        "/v1/rollouts/{rollout_id}/hosts",
        hosts,
        _READ,
        shapes.Listed[host_rows.HostRecord],
        errors=(refusals.RolloutUnknown,),
    ),
    routing.Route(
        "GET",
        "/v1/rollouts/{rollout_id}/events",
        events,
        _READ,
        shapes.Listed[RolloutEvent],
        errors=(refusals.RolloutUnknown,),
    ),
    routing.Route(
        "GET", "/v1/rollouts/{rollout_id}/plan", plan, _READ, Plan, cached=True, errors=_BLOBS
    ),
    routing.Route(
        "GET", "/v1/rollouts/{rollout_id}/explain", ask_why, _READ, Explanation, errors=_BLOBS
    ),
)
