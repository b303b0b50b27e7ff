"""Freezes: times in which no orders are sent, on some channels or on all."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, structs

from tidegate.api.routes.channels import Reason, ReasonBody
from tidegate.api.routes.releases import ScopeName
from tidegate.control.operations.freezes import FreezeOperations, list_scopes
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import principals, roles, steps
from tidegate.domain.channels import refusals, rows, slices
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.errors import StaleVersion
from tidegate.web import inputs, paging, routing, shapes

FreezeId = Annotated[str, Meta(min_length=1, max_length=63)]


class FreezePath(inputs.Input, frozen=True):
    freeze_id: FreezeId


class NewFreeze(inputs.Input, frozen=True, kw_only=True):
    """Without channels it freezes all of them. Without an end it lasts until it is ended."""

    reason: Reason
    channels: Annotated[tuple[ScopeName, ...], Meta(max_length=slices.FROZEN_MAX)] = ()
    until: Annotated[datetime, Meta(tz=True)] | None = None
    freeze_id: FreezeId | None = None


class FreezeShown(rows.Freeze, frozen=True, kw_only=True):
    version: int
    operator_name: str | None = None  # null: erased, or not a person


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List the freezes that are in effect now."""
    found = reads.range(rows.FREEZES, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [_shown(item, people) for item in found if _may_see(request.principal, item.row)]
    return routing.Response(cursors.list_page(request, seen, last))


def _may_see(principal: principals.Principal, row: rows.Freeze) -> bool:
    """A freeze of all channels is visible to everyone."""
    return not row.channels or any(
        principal.may(roles.Verb.READ, scope) for scope in list_scopes(row.channels)
    )


def _shown(found: Found[rows.Freeze], people: PeopleNames) -> FreezeShown:
    return FreezeShown(
        **structs.asdict(found.row),
        version=found.version,
        operator_name=people.find_name(found.row.operator),
    )


def start(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewFreeze], freezes: FreezeOperations
) -> routing.Response:
    """Send no orders on these channels from now on."""
    body = request.body
    started = freezes.start(
        request.caller,
        body.reason,
        channels=body.channels,
        until=body.until,
        freeze_id=body.freeze_id,
    )
    shown = FreezeShown(**structs.asdict(started.freeze), version=started.version)
    return routing.Response(shown, version=started.version, position=started.position)


def end(
    request: routing.Request[FreezePath, inputs.Nothing, ReasonBody], freezes: FreezeOperations
) -> routing.Response:
    """End a freeze."""
    freeze_id, reason = request.path.freeze_id, request.body.reason
    position = freezes.end(request.caller, freeze_id, reason)
    return routing.Response(shapes.Written(position), position=position)


def _of_new(request: routing.Request[inputs.Nothing, inputs.Nothing, NewFreeze]) -> str:
    """The first scope of the freeze; the operation checks all of them."""
    return list_scopes(request.body.channels)[0]


ROUTES = (
    routing.Route(
        "GET",
        "/v1/freezes",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[FreezeShown],
    ),
    routing.Route(
        "POST",
        "/v1/freezes",
        start,
        routing.requires_step(steps.START_FREEZE, _of_new),
        FreezeShown,
        status=201,
        urgent=steps.START_FREEZE.urgent,
        errors=(refusals.ChannelNotFound, refusals.FreezeExists),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/freezes/{freeze_id}/end",
        end,
        routing.requires_step(steps.END_FREEZE, None),  # the operation checks each of its channels
        shapes.Written,
        requests=RequestShown,
        errors=(refusals.FreezeNotFound, StaleVersion, BreakGlassForbidden),
        dry_run=True,
    ),
)
