"""Quarantine: closures that made hosts go back, and are not dispatched on their channel again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.channels import Reason
from tidegate.api.routes.releases import ScopeName
from tidegate.control.operations.protection import RequestShown
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import LIFT_QUARANTINE
from tidegate.domain.channels.refusals import QuarantineNotFound
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.rollouts.names import ref_of
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_somewhere, requires_step
from tidegate.web.shapes import Listed, Written


class QuarantineFilter(Paging, frozen=True, kw_only=True):
    channel: ScopeName | None = None


class Lifting(Input, frozen=True, kw_only=True):
    channel: ScopeName
    closure_hash: Annotated[str, Meta(min_length=1, max_length=256)]  # or a release that has it
    reason: Reason


class QuarantinedShown(Quarantined, frozen=True, kw_only=True):
    version: int  # the position of what showed it first
    release_id: str  # that the rollout was of


def list_all(
    request: Request[Nothing, QuarantineFilter, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """What is quarantined, on which channel, and why."""
    channel = request.query.channel
    found = reads.range(
        QUARANTINE,
        prefix="" if channel is None else f"{channel}/",
        after=cursors.after(request),
        limit=request.query.limit,
    )
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        QuarantinedShown(
            **asdict(item.row), version=item.version, release_id=ref_of(item.row.rollout_id)
        )
        for item in found
        if request.principal.may(Verb.READ, channel_scope(item.row.channel))
    ]
    return Response(cursors.list_page(request, seen, last))


def lift(request: Request[Nothing, Nothing, Lifting], quarantine: QuarantineOperations) -> Response:
    """Let a closure be dispatched on the channel again."""
    body = request.body
    position = quarantine.lift(request.caller, body.channel, body.closure_hash, body.reason)
    return Response(Written(position), position=position)


ROUTES = (
    Route(
        "GET", "/v1/quarantine", list_all, requires_somewhere(Verb.READ), Listed[QuarantinedShown]
    ),
    Route(
        "POST",
        "/v1/quarantine/lift",
        lift,
        requires_step(LIFT_QUARANTINE, lambda request: channel_scope(request.body.channel)),
        Written,
        requests=RequestShown,
        errors=(QuarantineNotFound, BreakGlassForbidden),
    ),
)
