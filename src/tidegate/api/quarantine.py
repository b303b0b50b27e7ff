"""Quarantine: closures that made hosts go back, and are not dispatched on their channel again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api import paging
from tidegate.api.channels import Reason
from tidegate.api.releases import ScopeName, channel_scope
from tidegate.api.routing import Answer, Request, Route, may, somewhere
from tidegate.control.installation import Installation
from tidegate.domain.access.roles import Verb
from tidegate.domain.channels.refusals import QuarantineNotFound
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.channels.slices import LiftQuarantine, lift_quarantine
from tidegate.wire import Input, Listed, Nothing, Paging, Written


class Which(Paging, frozen=True, kw_only=True):
    channel: ScopeName | None = None


class Lifting(Input, frozen=True, kw_only=True):
    channel: ScopeName
    closure_hash: Annotated[str, Meta(min_length=1, max_length=256)]
    reason: Reason


class QuarantinedShown(Quarantined, frozen=True, kw_only=True):
    version: int  # the position of what showed it first


def list_all(request: Request[Nothing, Which, Nothing], installation: Installation) -> Answer:
    """What is quarantined, on which channel, and why."""
    channel = request.query.channel
    found = installation.range(
        QUARANTINE,
        prefix="" if channel is None else f"{channel}/",
        after=paging.after(request, installation),
        limit=request.query.limit,
    )
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        QuarantinedShown(**asdict(item.row), version=item.version)
        for item in found
        if request.principal.may(Verb.READ, channel_scope(item.row.channel))
    ]
    return Answer(paging.listed(request, installation, seen, last))


def lift(request: Request[Nothing, Nothing, Lifting], installation: Installation) -> Answer:
    """Let a closure be dispatched on the channel again."""
    body = request.body
    command = LiftQuarantine(
        channel=body.channel,
        closure_hash=body.closure_hash,
        operator=request.by,
        reason=body.reason,
    )
    outcome = installation.execute(lift_quarantine, command, meta=request.meta, key=request.once)
    return Answer(Written(outcome.position), position=outcome.position)


ROUTES = (
    Route("GET", "/v1/quarantine", list_all, somewhere(Verb.READ), Listed[QuarantinedShown]),
    Route(
        "POST",
        "/v1/quarantine/lift",
        lift,
        may(Verb.OPERATE, lambda request: channel_scope(request.body.channel)),
        Written,
        errors=(QuarantineNotFound,),
    ),
)
