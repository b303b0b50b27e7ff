"""Freezes: times in which nothing is dispatched, on some channels or on all."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.channels import Reason, ReasonBody
from tidegate.api.routes.releases import ScopeName
from tidegate.control.installation import Installation
from tidegate.control.operations.freezes import list_scopes
from tidegate.control.queries.reads import Found
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import EVERYWHERE, Verb
from tidegate.domain.access.steps import END_FREEZE, START_FREEZE
from tidegate.domain.channels.refusals import ChannelNotFound, FreezeExists, FreezeNotFound
from tidegate.domain.channels.rows import FREEZES, Freeze, freeze_key
from tidegate.domain.channels.slices import FROZEN_MAX
from tidegate.web import paging
from tidegate.web.inputs import Input, Nothing, Paging
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


def list_all(request: Request[Nothing, Paging, Nothing], installation: Installation) -> Response:
    """The freezes that hold now."""
    found = installation.reads.range(
        FREEZES, after=paging.after(request, installation), limit=request.query.limit
    )
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [_shown(item) for item in found if _may_see(request.principal, item.row)]
    return Response(paging.list_page(request, installation, seen, last))


def _may_see(principal: Principal, row: Freeze) -> bool:
    """One of all channels concerns everybody."""
    return not row.channels or any(
        principal.may(Verb.READ, scope) for scope in list_scopes(row.channels)
    )


def _shown(found: Found[Freeze]) -> FreezeShown:
    return FreezeShown(**asdict(found.row), version=found.version)


def start(request: Request[Nothing, Nothing, NewFreeze], installation: Installation) -> Response:
    """Dispatch nothing on these channels from now on."""
    body = request.body
    started = installation.freezes.start(
        request.caller,
        body.reason,
        channels=body.channels,
        until=body.until,
        freeze_id=body.freeze_id,
    )
    shown = FreezeShown(**asdict(started.freeze), version=started.version)
    return Response(shown, version=started.version, position=started.position)


def end(request: Request[FreezePath, Nothing, ReasonBody], installation: Installation) -> Response:
    """Dispatch again."""
    freeze_id, reason = request.path.freeze_id, request.body.reason
    position = installation.freezes.end(request.caller, freeze_id, reason)
    return Response(Written(position), position=position)


def _of_new(request: Request[Nothing, Nothing, NewFreeze]) -> str:
    """The first of its scopes; the operation asks for all of them."""
    return list_scopes(request.body.channels)[0]


def _of_path(request: Request[FreezePath, Any, Any]) -> str:
    """Where the freeze holds. One that is over may be ended again by its key alone."""
    key = freeze_key(request.path.freeze_id)
    found = request.server.installation.reads.find(key, Freeze)
    return EVERYWHERE if found is None else list_scopes(found.row.channels)[0]


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
        requires_step(END_FREEZE, _of_path),
        Written,
        errors=(FreezeNotFound,),
    ),
)
