"""Freezes: times in which nothing is dispatched, on some channels or on all."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.channels import Reason, ReasonBody
from tidegate.api.routes.releases import ScopeName
from tidegate.control.operations.freezes import FreezeOperations, list_scopes
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import END_FREEZE, START_FREEZE
from tidegate.domain.channels.refusals import ChannelNotFound, FreezeExists, FreezeNotFound
from tidegate.domain.channels.rows import FREEZES, Freeze
from tidegate.domain.channels.slices import FROZEN_MAX
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_somewhere, requires_step
from tidegate.web.shapes import Listed, Written

FreezeId = Annotated[str, Meta(min_length=1, max_length=63)]


class FreezePath(Input, frozen=True):
    freeze_id: FreezeId


class NewFreeze(Input, frozen=True, kw_only=True):
    """None named: all channels. Without an end it holds until somebody ends it."""

    reason: Reason
    channels: Annotated[tuple[ScopeName, ...], Meta(max_length=FROZEN_MAX)] = ()
    until: Annotated[datetime, Meta(tz=True)] | None = None
    freeze_id: FreezeId | None = None


class FreezeShown(Freeze, frozen=True, kw_only=True):
    version: int


def list_all(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """The freezes that hold now."""
    found = reads.range(FREEZES, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [_shown(item) for item in found if _may_see(request.principal, item.row)]
    return Response(cursors.list_page(request, seen, last))


def _may_see(principal: Principal, row: Freeze) -> bool:
    """One of all channels concerns everybody."""
    return not row.channels or any(
        principal.may(Verb.READ, scope) for scope in list_scopes(row.channels)
    )


def _shown(found: Found[Freeze]) -> FreezeShown:
    return FreezeShown(**asdict(found.row), version=found.version)


def start(request: Request[Nothing, Nothing, NewFreeze], freezes: FreezeOperations) -> Response:
    """Dispatch nothing on these channels from now on."""
    body = request.body
    started = freezes.start(
        request.caller,
        body.reason,
        channels=body.channels,
        until=body.until,
        freeze_id=body.freeze_id,
    )
    shown = FreezeShown(**asdict(started.freeze), version=started.version)
    return Response(shown, version=started.version, position=started.position)


def end(request: Request[FreezePath, Nothing, ReasonBody], freezes: FreezeOperations) -> Response:
    """Dispatch again."""
    freeze_id, reason = request.path.freeze_id, request.body.reason
    position = freezes.end(request.caller, freeze_id, reason)
    return Response(Written(position), position=position)


def _of_new(request: Request[Nothing, Nothing, NewFreeze]) -> str:
    """The first of its scopes; the operation asks for all of them."""
    return list_scopes(request.body.channels)[0]


ROUTES = (
    Route("GET", "/v1/freezes", list_all, requires_somewhere(Verb.READ), Listed[FreezeShown]),
    Route(
        "POST",
        "/v1/freezes",
        start,
        requires_step(START_FREEZE, _of_new),
        FreezeShown,
        status=201,
        urgent=START_FREEZE.urgent,
        errors=(ChannelNotFound, FreezeExists),
    ),
    Route(
        "POST",
        "/v1/freezes/{freeze_id}/end",
        end,
        requires_step(END_FREEZE, None),  # the operation asks on each of its channels
        Written,
        requests=RequestShown,
        errors=(FreezeNotFound, BreakGlassForbidden),
    ),
)
