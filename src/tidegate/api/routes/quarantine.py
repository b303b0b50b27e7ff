"""Quarantine: artifacts that failed on a channel and are not sent to its hosts again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from tidegate.api.routes import channels, releases
from tidegate.control.operations.protection import RequestShown
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import refusals, rows
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.rollouts.names import ref_of
from tidegate.web import inputs, paging, routing, shapes


class QuarantineFilter(inputs.Paging, frozen=True, kw_only=True):
    channel: releases.ScopeName | None = None


class Lifting(inputs.Input, frozen=True, kw_only=True):
    channel: releases.ScopeName
    # The digest, or a release that has it.
    closure_hash: Annotated[str, Meta(min_length=1, max_length=256)]
    reason: channels.Reason


class QuarantinedShown(rows.Quarantined, frozen=True, kw_only=True):
    version: int  # the position of the failure
    release_id: str  # the release of the rollout that failed


def list_all(
    request: routing.Request[inputs.Nothing, QuarantineFilter, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List what is quarantined, on which channel, and why."""
    channel, after = request.query.channel, cursors.after(request)
    found = reads.range(
        rows.QUARANTINE,
        prefix="" if channel is None else f"{channel}/",
        after=after,
        limit=request.query.limit,
    )
    if (
        not found and not after and channel is not None
    ):  # a deleted channel still has its quarantine
        releases.demand_channel(reads, channel)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        QuarantinedShown(
            **structs.asdict(item.row), version=item.version, release_id=ref_of(item.row.rollout_id)
        )
        for item in found
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def lift(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Lifting],
    quarantine: QuarantineOperations,
) -> routing.Response:
    """Lift the quarantine of an artifact on a channel."""
    body = request.body
    position = quarantine.lift(request.caller, body.channel, body.closure_hash, body.reason)
    return routing.Response(shapes.Written(position), position=position)


ROUTES = (
    routing.Route(
        "GET",
        "/v1/quarantine",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[QuarantinedShown],
        errors=(refusals.ChannelNotFound,),
    ),
    routing.Route(
        "POST",
        "/v1/quarantine/lift",
        lift,
        routing.requires_step(
            steps.LIFT_QUARANTINE, lambda request: scopes.channel_scope(request.body.channel)
        ),
        shapes.Written,
        requests=RequestShown,
        errors=(refusals.QuarantineNotFound, BreakGlassForbidden),
        dry_run=True,
    ),
)
