"""Channels: which release each one's hosts run, and how it reaches them.

The routes that move a channel's pin are in ``promotions``.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate import decoders, errors
from tidegate.api.routes import channel_documents, releases
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.promotion_planning import Promotions
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries import history, log_reader
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import default_policy, facts, refusals, rows as channel_rows, slices
from tidegate.domain.fleet.refusals import InvalidSelector, SelectorOverlap
from tidegate.domain.planner import Plan
from tidegate.domain.requests.refusals import BreakGlassForbidden, NobodyElseApproves
from tidegate.web import as_of, inputs, paging, routing, shapes

ChannelName = releases.ScopeName
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
PackageName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
SelectorText = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]


# ── request bodies ────────────────────────────────────────────────────────────────────────────────


class WaveGiven(facts.WaveSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


_DEFAULT_WAVES = tuple(
    WaveGiven(**msgspec.structs.asdict(wave)) for wave in default_policy.DEFAULT_WAVES
)


class HostEdgeGiven(facts.HostEdge, frozen=True, forbid_unknown_fields=True):
    pass


class EdgeGiven(facts.ChannelEdge, frozen=True, forbid_unknown_fields=True):
    channel: ChannelName


class PolicyGiven(facts.ChannelPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rollout policy. An unknown member is an error. An edge that is only a channel's name
    requires that the release succeeded there. Its defaults are those of the default policy.
    """

    waves: tuple[WaveGiven, ...] = _DEFAULT_WAVES
    offline_grace_seconds: int | None = default_policy.OFFLINE_GRACE_SECONDS
    edges: tuple[ChannelName | EdgeGiven, ...] = ()  # type: ignore[assignment]
    host_edges: tuple[HostEdgeGiven, ...] = ()


class ChannelPath(inputs.Input, frozen=True):
    channel: ChannelName


class NewChannel(inputs.Input, frozen=True, kw_only=True):
    channel: ChannelName
    package: PackageName
    selector: SelectorText
    policy: PolicyGiven | None = None


class ChannelChange(inputs.Input, frozen=True, kw_only=True):
    """Members that are left out do not change."""

    selector: SelectorText | None = None
    policy: PolicyGiven | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1_024)] = (
        ""  # of the request, on a protected channel
    )


class ProtectionGiven(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    approvals: Annotated[int, msgspec.Meta(ge=1, le=slices.APPROVALS_MAX)] = 1
    request_seconds: Annotated[
        int, msgspec.Meta(ge=slices.REQUEST_SECONDS_MIN, le=slices.REQUEST_SECONDS_MAX)
    ] = 86_400
    break_glass: bool = True


class ReasonBody(inputs.Input, frozen=True, kw_only=True):
    reason: Reason


def scope_of(request: routing.Request[ChannelPath, Any, Any]) -> str:
    return scopes.channel_scope(request.path.channel)


# ── channels ──────────────────────────────────────────────────────────────────────────────────────


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    documents: channel_documents.ChannelDocuments,
) -> routing.Response:
    """List the channels that you may read, by name."""
    found = reads.range(
        channel_rows.CHANNELS, after=cursors.after(request), limit=request.query.limit
    )
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        item
        for item in found
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
    ]
    return routing.Response(cursors.list_page(request, documents.list_now(seen), last))


def get(
    request: routing.Request[ChannelPath, as_of.AsOfQuery, inputs.Nothing],
    documents: channel_documents.ChannelDocuments,
    log: log_reader.LogReader,
    row_history: RowHistory,
) -> routing.Response:
    """Get a channel: wanted and actual releases, rollout, edges; as_of shows an earlier state."""
    channel = request.path.channel
    if not request.query.as_of:
        return documents.show_now(channel)
    position = as_of.position_of(log, request.query.as_of)
    found = history.channel_at(log, row_history, channel, position)
    if found is None:
        raise refusals.ChannelNotFound(channel)
    pin = history.pinned_at(row_history, channel, position)
    body = channel_documents.ChannelShown(
        **msgspec.structs.asdict(found.row),
        version=found.version,
        pin=None if pin is None else pin.row,
        confidence=None if pin is None else pin.row.confidence.level,
    )
    return routing.Response(body, version=found.version, position=position)


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewChannel],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Create a channel: a package, a selector, and a policy, or else the default policy."""
    body = request.body
    position = channels.create(
        request.caller,
        body.channel,
        package=body.package,
        selector=body.selector,
        policy=None if body.policy is None else _policy(body.policy),
    )
    return documents.show_written(body.channel, position)


def edit(
    request: routing.Request[ChannelPath, inputs.Nothing, ChannelChange],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Change the hosts or the policy of a channel; open rollouts keep their plan."""
    body, channel = request.body, request.path.channel
    position = channels.edit(
        request.caller,
        channel,
        selector=body.selector,
        policy=None if body.policy is None else _policy(body.policy),
        reason=body.reason,
    )
    return documents.show_written(channel, position)


decoders.build(facts.ChannelPolicy)


def _policy(given: PolicyGiven) -> facts.ChannelPolicy:
    """The policy as it is stored: with all defaults, and edges as objects."""
    members = {
        name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(given).items()
    }
    edges = [{"channel": edge} if isinstance(edge, str) else edge for edge in members["edges"]]
    return decoders.convert(members | {"edges": edges}, facts.ChannelPolicy)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


def delete(
    request: routing.Request[ChannelPath, inputs.Nothing, ReasonBody], channels: ChannelOperations
) -> routing.Response:
    """Delete a channel that nothing uses. Its history is kept."""
    position = channels.delete(request.caller, request.path.channel, request.body.reason)
    return routing.Response(shapes.Written(position), position=position)


def hold(
    request: routing.Request[ChannelPath, inputs.Nothing, ReasonBody],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Hold a channel: no promotions and no orders until the hold is released."""
    channel = request.path.channel
    change = channels.hold(request.caller, channel, request.body.reason)
    return documents.show_written(channel, change.position, change.warnings)


def unhold(
    request: routing.Request[ChannelPath, inputs.Nothing, ReasonBody],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Release the hold of a channel."""
    channel = request.path.channel
    change = channels.unhold(request.caller, channel, request.body.reason)
    return documents.show_written(channel, change.position, change.warnings)


def protect(
    request: routing.Request[ChannelPath, inputs.Nothing, ProtectionGiven],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Require a second person to move the channel forward, loosen it, or bypass a gate."""
    channel, body = request.path.channel, request.body
    protection = facts.ChannelProtection(
        approvals=body.approvals, request_seconds=body.request_seconds, break_glass=body.break_glass
    )
    position = channels.protect(request.caller, channel, protection, body.reason)
    return documents.show_written(channel, position)


def unprotect(
    request: routing.Request[ChannelPath, inputs.Nothing, ReasonBody],
    documents: channel_documents.ChannelDocuments,
    channels: ChannelOperations,
) -> routing.Response:
    """Remove the protection of a channel; this needs a second person itself."""
    channel = request.path.channel
    position = channels.protect(request.caller, channel, None, request.body.reason)
    return documents.show_written(channel, position)


def happened(
    request: routing.Request[ChannelPath, inputs.Paging, inputs.Nothing],
    reads: Reads,
    scope_history: history.ScopeHistory,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the changes of the channel's pin and their evidence, in the log's order."""
    channel = request.path.channel
    channel_documents.demand(reads, channel)
    after = int(cursors.after(request) or "0")
    limit = request.query.limit
    found = scope_history.list(channel, after=after, limit=limit)
    last = str(found[-1].position) if len(found) == limit else None
    return routing.Response(cursors.list_page(request, found, last))


def plan(
    request: routing.Request[ChannelPath, inputs.ReadQuery, inputs.Nothing], promotions: Promotions
) -> routing.Response:
    """Show the plan that a release would get on the channel now; nothing changes."""
    return routing.Response(promotions.plan(request.path.channel).plan)


_READ = routing.requires(roles.Verb.READ, scope_of)
_CLAIMS = (InvalidSelector, refusals.MalformedPolicy, SelectorOverlap, LaneBusy)
ROUTES = (
    routing.Route(
        "GET",
        "/v1/channels",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[channel_documents.ChannelListed],
    ),
    routing.Route(
        "POST",
        "/v1/channels",
        create,
        routing.requires_step(
            steps.CREATE_CHANNEL, lambda request: scopes.channel_scope(request.body.channel)
        ),
        channel_documents.ChannelShown,
        status=201,
        errors=(*_CLAIMS, refusals.ChannelExists, refusals.ChannelNameUsed),
    ),
    routing.Route(
        "GET",
        "/v1/channels/{channel}",
        get,
        _READ,
        channel_documents.ChannelShown,
        cached=True,
        errors=(refusals.ChannelNotFound, HistoryTooLong),
    ),
    routing.Route(
        "PATCH",
        "/v1/channels/{channel}",
        edit,
        routing.requires_step(steps.EDIT_CHANNEL, scope_of),
        channel_documents.ChannelShown,
        guard=steps.EDIT_CHANNEL.version,
        requests=RequestShown,
        errors=(*_CLAIMS, refusals.ChannelNotFound, errors.StaleVersion, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/delete",
        delete,
        routing.requires_step(steps.DELETE_CHANNEL, scope_of),
        shapes.Written,
        requests=RequestShown,
        errors=(refusals.ChannelNotFound, refusals.ChannelInUse, LaneBusy, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/hold",
        hold,
        routing.requires_step(steps.HOLD_CHANNEL, scope_of),
        channel_documents.ChannelShown,
        urgent=steps.HOLD_CHANNEL.urgent,
        errors=(refusals.ChannelNotFound,),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/unhold",
        unhold,
        routing.requires_step(steps.UNHOLD_CHANNEL, scope_of),
        channel_documents.ChannelShown,
        requests=RequestShown,
        errors=(refusals.ChannelNotFound, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/protect",
        protect,
        routing.requires_step(steps.PROTECT_CHANNEL, scope_of),
        channel_documents.ChannelShown,
        requests=RequestShown,
        errors=(refusals.ChannelNotFound, NobodyElseApproves, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/unprotect",
        unprotect,
        routing.requires_step(steps.PROTECT_CHANNEL, scope_of),
        channel_documents.ChannelShown,
        requests=RequestShown,
        errors=(refusals.ChannelNotFound, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "GET",
        "/v1/channels/{channel}/history",
        happened,
        _READ,
        shapes.Listed[releases.Happened],
        errors=(refusals.ChannelNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/channels/{channel}/plan",
        plan,
        _READ,
        Plan,
        errors=(refusals.ChannelNotFound, refusals.MalformedPolicy),
    ),
)
