"""Channels: which release is authoritative for which hosts, and how it reaches them.

What they are pinned to is moved in ``promotions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from tidegate import decoders
from tidegate.api.routes.releases import Happened, ScopeName
from tidegate.control.installation import Installation
from tidegate.control.queries import history
from tidegate.control.queries.as_of import HistoryTooLong
from tidegate.control.queries.edges import edge_of
from tidegate.control.queries.history import pinned_at
from tidegate.control.queries.reads import Found
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import principals
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.access.steps import VersionRule
from tidegate.domain.channels.facts import (
    ChannelEdge,
    ChannelPolicy,
    EdgeRequires,
    HostEdge,
    WaveSpec,
)
from tidegate.domain.channels.folds import channels
from tidegate.domain.channels.policy import check_named
from tidegate.domain.channels.refusals import (
    ChannelExists,
    ChannelNotFound,
    MalformedPolicy,
)
from tidegate.domain.channels.rows import CHANNELS, Channel, channel_key
from tidegate.domain.channels.slices import (
    CreateChannel,
    EditChannel,
    HoldChannel,
    UnholdChannel,
    create_channel,
    edit_channel,
    hold_channel,
    unhold_channel,
)
from tidegate.domain.fleet.claims import check_scope
from tidegate.domain.fleet.refusals import InvalidSelector, SelectorOverlap
from tidegate.domain.fleet.rows import ChannelScope, Fleet, fleet_key
from tidegate.domain.gates.edges import EdgeVerdict
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.planner import Plan
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts.facts import RolloutOpened
from tidegate.domain.rollouts.rows import Rollout, rollout_key
from tidegate.errors import StaleVersion
from tidegate.kernel.model import CLAUSES_MAX, Clause, Position, Query
from tidegate.web import paging
from tidegate.web.as_of import AsOf, position_of
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires, requires_somewhere
from tidegate.web.shapes import Listed

ATTEMPTS_MAX = 5  # of a claim, while hosts come and go
EDGES_MAX = 64

ChannelName = ScopeName
Reason = Annotated[str, Meta(min_length=1, max_length=1_024)]
SelectorText = Annotated[str, Meta(min_length=1, max_length=1_024)]

T = TypeVar("T")


# ── what comes ────────────────────────────────────────────────────────────────────────────────────


class WaveGiven(WaveSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class HostEdgeGiven(HostEdge, frozen=True, forbid_unknown_fields=True):
    pass


class EdgeGiven(ChannelEdge, frozen=True, forbid_unknown_fields=True):
    pass


class PolicyGiven(ChannelPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rollout policy; a member that it does not have is a fault. An edge that is a channel's name
    alone asks for the success of the release there.
    """

    waves: tuple[WaveGiven, ...] = ()
    edges: tuple[ChannelName | EdgeGiven, ...] = ()  # type: ignore[assignment]
    host_edges: tuple[HostEdgeGiven, ...] = ()


class ChannelPath(Input, frozen=True):
    channel: ChannelName


class ChannelReading(ReadQuery, frozen=True, kw_only=True):
    as_of: AsOf = ""


class NewChannel(Input, frozen=True, kw_only=True):
    channel: ChannelName
    package: Annotated[str, Meta(min_length=1, max_length=256)]
    selector: SelectorText
    policy: PolicyGiven = PolicyGiven()


class ChannelChange(Input, frozen=True, kw_only=True):
    """What is left out stays."""

    selector: SelectorText | None = None
    policy: PolicyGiven | None = None


class ReasonBody(Input, frozen=True, kw_only=True):
    reason: Reason


# ── what goes ─────────────────────────────────────────────────────────────────────────────────────


class EdgeShown(Struct, frozen=True):
    """A channel that comes first, and whether it holds back the release that is pinned here."""

    channel: str
    require: EdgeRequires
    soak_seconds: int
    blocks: bool
    reason: str
    until: datetime | None  # when it opens by itself


class ChannelListed(Channel, frozen=True, kw_only=True):
    version: int


class ChannelShown(Channel, frozen=True, kw_only=True):
    """A channel with its pin, the rollout that hosts follow, and what comes before it."""

    version: int
    pin: Actual | None = None
    confidence: str | None = None
    active_state: str | None = None
    edges: tuple[EdgeShown, ...] = ()


def scope_of(request: Request[ChannelPath, Any, Any]) -> str:
    return channel_scope(request.path.channel)


def demand(installation: Installation, channel: str) -> Found[Channel]:
    """The channel's row. Raises: ChannelNotFound."""
    found = installation.reads.find(channel_key(channel), Channel)
    if found is None:
        raise ChannelNotFound(channel)
    return found


def _shown(installation: Installation, found: Found[Channel]) -> Response:
    """A channel as it stands, with the rows beside it."""
    row = found.row
    keys: list[Any] = [(actual_key(row.channel), Actual)]
    if row.active_rollout_id is not None:
        keys.append((rollout_key(row.active_rollout_id), Rollout))
    pin, *active = installation.reads.find_all(*keys)
    now = installation.clock()
    edges = [edge_of(installation, row, pin, edge, now) for edge in row.policy.edges]
    body = ChannelShown(
        **asdict(row),
        version=found.version,
        pin=None if pin is None else pin.row,
        confidence=None if pin is None else pin.row.confidence.level,
        active_state=active[0].row.state if active and active[0] is not None else None,
        edges=tuple(map(_edge, row.policy.edges, edges)),
    )
    beside = [item.version for item in (pin, *active) if item is not None]
    beside += [0 if edge.evidence is None else edge.evidence.position for edge in edges]
    if any(edge.until is not None for edge in edges):
        beside.append(int(now.timestamp()))  # time alone opens one of them
    return Response(body, version=found.version, beside=tuple(beside))


def _edge(edge: ChannelEdge, found: EdgeVerdict) -> EdgeShown:
    return EdgeShown(
        channel=edge.channel,
        require=edge.require,
        soak_seconds=edge.soak_seconds,
        blocks=not found.passed,
        reason=found.reason,
        until=found.until,
    )


# ── channels ──────────────────────────────────────────────────────────────────────────────────────


def list_all(request: Request[Nothing, Paging, Nothing], installation: Installation) -> Response:
    """The channels that you may read, by name."""
    found = installation.reads.range(
        CHANNELS, after=paging.after(request, installation), limit=request.query.limit
    )
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        ChannelListed(**asdict(item.row), version=item.version)
        for item in found
        if request.principal.may(Verb.READ, channel_scope(item.row.channel))
    ]
    return Response(paging.list_page(request, installation, seen, last))


def get(
    request: Request[ChannelPath, ChannelReading, Nothing], installation: Installation
) -> Response:
    """A channel: pin, confidence, rollout, and which edges block; as_of shows what was."""
    channel = request.path.channel
    if not request.query.as_of:
        return _shown(installation, demand(installation, channel))
    position = position_of(installation, request.query.as_of)
    found = _at(installation, channel, position)
    if found is None:
        raise ChannelNotFound(channel)
    pin = pinned_at(installation.row_history, channel, position)
    body = ChannelShown(
        **asdict(found.row),
        version=found.version,
        pin=None if pin is None else pin.row,
        confidence=None if pin is None else pin.row.confidence.level,
    )
    beside = () if pin is None else (pin.version,)
    return Response(body, version=found.version, beside=beside, position=position)


def _at(installation: Installation, channel: str, position: Position) -> Found[Channel] | None:
    """The channel as its own facts and those of its rollouts had left it.

    Raises:
        HistoryTooLong.
    """
    own = frozenset({f"channel:{channel}"})
    opened = Query((Clause(frozenset({RolloutOpened.__name__}), own),))
    events = installation.log.events(opened, limit=CLAUSES_MAX)
    if len(events) == CLAUSES_MAX:
        raise HistoryTooLong
    rollouts = [installation.log.value(event) for event in events if event.position <= position]
    moves = frozenset({"RolloutTransitioned", "SuccessorOpened"})
    clauses = [
        Clause(moves, frozenset({f"rollout_id:{item.rollout_id}"}))
        for item in rollouts
        if isinstance(item, RolloutOpened)
    ]
    named = frozenset(fact.__name__ for fact in channels.reads) - moves
    query = Query((Clause(named, own), *clauses))
    return installation.row_history.row_at(channels, channel, query, position)


class _EditAsked(Struct, frozen=True):
    """What identifies an edit: what was asked, not what it was completed with."""

    channel: str
    selector: str | None
    policy: ChannelPolicy | None
    version: int | None


def _package_scope(package: str) -> str:
    """The repository that a package names; without one it is the default one."""
    repository, slash, _ = package.partition("/")
    return repository_scope(repository if slash else DEFAULT_REPOSITORY)


def create(request: Request[Nothing, Nothing, NewChannel], installation: Installation) -> Response:
    """Let a package reach the hosts of a selector."""
    body = request.body
    principals.demand_permission(request.principal, (Verb.READ,), _package_scope(body.package))
    policy = _policy(body.policy)
    _demand_readable(request.principal, policy.edges)
    asked = CreateChannel(
        channel=body.channel,
        package=body.package,
        selector=body.selector,
        operator=request.by,
        policy=policy,
    )

    def attempt() -> CommandOutcome:
        scope = ChannelScope(body.channel, body.package, body.selector)
        version = _checked(installation, scope, asked.policy)
        command = msgspec.structs.replace(asked, fleet_version=version)
        return installation.control.execute(
            create_channel, command, meta=request.meta, key=request.once, asked=asked
        )

    outcome = _claimed(installation, attempt)
    return _written(installation, body.channel, outcome)


def _demand_readable(principal: Principal, edges: Iterable[ChannelEdge]) -> None:
    """An edge shows how releases do on its channel, so that channel must be readable.

    Raises:
        MissingPermission.
    """
    for edge in edges:
        principals.demand_permission(principal, (Verb.READ,), channel_scope(edge.channel))


def edit(
    request: Request[ChannelPath, Nothing, ChannelChange], installation: Installation
) -> Response:
    """Change the hosts or the policy of a channel; open rollouts keep their plan."""
    body, channel = request.body, request.path.channel
    policy = None if body.policy is None else _policy(body.policy)
    asked = _EditAsked(channel, body.selector, policy, request.version)
    control = installation.control
    earlier = control.earlier(edit_channel, asked, meta=request.meta, key=request.once)
    if earlier is not None:
        return _written(installation, channel, earlier)

    def attempt() -> CommandOutcome:
        found = demand(installation, channel)
        if request.version is not None and request.version != found.version:
            raise _Stale(request.version, found.version)
        known = {edge.channel for edge in found.row.policy.edges}
        edges = () if policy is None else policy.edges
        _demand_readable(request.principal, [edge for edge in edges if edge.channel not in known])
        command = EditChannel(
            channel=channel,
            selector=body.selector or found.row.selector,
            policy=policy or found.row.policy,
            operator=request.by,
            expected_version=found.version,  # what it was completed from stands in the commit
        )
        scope = ChannelScope(channel, found.row.package, command.selector)
        version = _checked(installation, scope, command.policy)
        command = msgspec.structs.replace(command, fleet_version=version)
        return control.execute(
            edit_channel, command, meta=request.meta, key=request.once, asked=asked
        )

    outcome = _claimed(installation, attempt)
    return _written(installation, channel, outcome)


class _Stale(StaleVersion):
    """The client's own version, not that of the fleet: trying again is no use."""


def _claimed(installation: Installation, attempt: Callable[[], CommandOutcome]) -> CommandOutcome:
    """Have a claim decided, again if hosts or channels changed while it was checked."""
    for left in reversed(range(ATTEMPTS_MAX)):
        try:
            outcome = installation.run_in_fleet_lane(attempt)
        except _Stale:
            raise
        except StaleVersion:
            if not left:
                raise
        else:
            installation.nudge()
            return outcome
    raise AssertionError("the last attempt raises")


def _checked(installation: Installation, scope: ChannelScope, policy: ChannelPolicy) -> Position:
    """The version of the fleet by which no host is in two channels of one package, and every host
    that the policy names is one.

    Raises:
        SelectorOverlap, InvalidSelector, MalformedPolicy.
    """
    fleet = installation.reads.find(fleet_key(), Fleet)
    hosts = [] if fleet is None else installation.fleet_reader.hosts()
    check_named(policy, hosts)
    if fleet is None:
        return 0
    check_scope(fleet.row.channels, scope, hosts)
    return fleet.version


decoders.build(ChannelPolicy)


def _policy(given: PolicyGiven) -> ChannelPolicy:
    """The policy as it is stored: an edge that is a name alone is written out in full."""
    members = msgspec.to_builtins(given)
    edges = [
        {"channel": edge} if isinstance(edge, str) else edge for edge in members.get("edges", ())
    ]
    return decoders.convert(members | {"edges": edges}, ChannelPolicy)


def _written(installation: Installation, channel: str, outcome: CommandOutcome) -> Response:
    found = demand(installation, channel)
    if outcome.receipt is not None and found.version > outcome.receipt.last:
        found = _at(installation, channel, outcome.receipt.last) or found
    answer = _shown(installation, found)
    answer.position = outcome.position or found.version
    return answer


# ── steering ──────────────────────────────────────────────────────────────────────────────────────


def hold(
    request: Request[ChannelPath, Nothing, ReasonBody], installation: Installation
) -> Response:
    """No promotion and no order on the channel until it is let go."""
    command = HoldChannel(
        channel=request.path.channel, operator=request.by, reason=request.body.reason
    )
    outcome = installation.run(hold_channel, command, meta=request.meta, key=request.once)
    return _written(installation, request.path.channel, outcome)


def unhold(
    request: Request[ChannelPath, Nothing, ReasonBody], installation: Installation
) -> Response:
    """Let the channel go."""
    command = UnholdChannel(
        channel=request.path.channel, operator=request.by, reason=request.body.reason
    )
    outcome = installation.run(unhold_channel, command, meta=request.meta, key=request.once)
    return _written(installation, request.path.channel, outcome)


def happened(
    request: Request[ChannelPath, Paging, Nothing], installation: Installation
) -> Response:
    """What was authoritative on the channel, when, and on what evidence, in the log's order."""
    channel = request.path.channel
    demand(installation, channel)
    after = int(paging.after(request, installation) or "0")
    limit = request.query.limit
    found = history.list_scope_events(installation.store, channel, after=after, limit=limit)
    last = str(found[-1].position) if len(found) == limit else None
    return Response(paging.list_page(request, installation, found, last))


def plan(request: Request[ChannelPath, ReadQuery, Nothing], installation: Installation) -> Response:
    """By which plan a release would reach the channel's hosts now; nothing changes."""
    return Response(installation.promotions.plan(request.path.channel).plan)


_READ = requires(Verb.READ, scope_of)
_RELEASE = requires(Verb.RELEASE, scope_of)
_STEER = requires((Verb.OPERATE, Verb.RELEASE), scope_of)
_CLAIMS = (InvalidSelector, MalformedPolicy, SelectorOverlap)
ROUTES = (
    Route("GET", "/v1/channels", list_all, requires_somewhere(Verb.READ), Listed[ChannelListed]),
    Route(
        "POST",
        "/v1/channels",
        create,
        requires(Verb.RELEASE, lambda request: channel_scope(request.body.channel)),
        ChannelShown,
        status=201,
        errors=(*_CLAIMS, ChannelExists),
    ),
    Route(
        "GET",
        "/v1/channels/{channel}",
        get,
        _READ,
        ChannelShown,
        cached=True,
        errors=(ChannelNotFound, HistoryTooLong),
    ),
    Route(
        "PATCH",
        "/v1/channels/{channel}",
        edit,
        _RELEASE,
        ChannelShown,
        guard=VersionRule.DEMANDED,
        errors=(*_CLAIMS, ChannelNotFound, StaleVersion),
    ),
    Route(
        "POST",
        "/v1/channels/{channel}/hold",
        hold,
        _STEER,
        ChannelShown,
        urgent=True,
        errors=(ChannelNotFound,),
    ),
    Route(
        "POST",
        "/v1/channels/{channel}/unhold",
        unhold,
        _STEER,
        ChannelShown,
        errors=(ChannelNotFound,),
    ),
    Route(
        "GET",
        "/v1/channels/{channel}/history",
        happened,
        _READ,
        Listed[Happened],
        errors=(ChannelNotFound,),
    ),
    Route(
        "GET",
        "/v1/channels/{channel}/plan",
        plan,
        _READ,
        Plan,
        errors=(ChannelNotFound, MalformedPolicy),
    ),
)
