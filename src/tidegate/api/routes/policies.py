"""A channel's policy: shown with every member, and checked before it is used."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tidegate.api.routes.channels import (
    ChannelName,
    ChannelPath,
    PackageName,
    SelectorText,
    demand,
    scope_of,
)
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.policies import check_document
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.principals import demand_permission
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.policy import PolicyFinding
from tidegate.domain.channels.policy_document import PolicyChange, changes, write_out
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.fleet.refusals import InvalidSelector
from tidegate.domain.fleet.rows import ChannelScope
from tidegate.domain.fleet.selectors import parse
from tidegate.web.inputs import Input, Nothing, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires, requires_somewhere


class PolicyAsked(Input, frozen=True, kw_only=True):
    """A policy of any form: what is wrong with it is the answer."""

    policy: Any
    channel: ChannelName | None = None  # whose hosts it would meet
    package: PackageName | None = None  # of a channel that does not exist yet
    selector: SelectorText | None = None  # of a channel that does not exist yet


class PolicyShown(Struct, frozen=True):
    """A channel's policy with every member, also those that are at their default."""

    channel: str
    policy: dict[str, Any]


class PolicyChecked(Struct, frozen=True):
    """What there is to say about a policy. With a fault it would be refused."""

    faults: tuple[PolicyFinding, ...]
    warnings: tuple[PolicyFinding, ...]
    notes: tuple[PolicyFinding, ...]
    policy: dict[str, Any] | None  # as it would be stored; None: it has faults
    changes: tuple[PolicyChange, ...] | None  # against the channel's policy, if one is named


def show(request: Request[ChannelPath, ReadQuery, Nothing], reads: Reads) -> Response:
    """A channel's policy with every member written out."""
    found = demand(reads, request.path.channel)
    body = PolicyShown(found.row.channel, write_out(found.row.policy))
    return Response(body, version=found.version)


def check(
    request: Request[Nothing, Nothing, PolicyAsked], reads: Reads, fleet_reader: FleetReader
) -> Response:
    """Name every fault, warning and note of a policy; nothing changes."""
    body = request.body
    if body.channel is not None:
        demand_permission(request.principal, (Verb.READ,), channel_scope(body.channel))
    planned = None
    if body.channel is not None and body.package is not None and body.selector is not None:
        parse(body.selector)
        planned = ChannelScope(body.channel, body.package, body.selector)
    read, found, channel = check_document(reads, fleet_reader, body.policy, body.channel, planned)
    is_sound = not found.faults
    compared = is_sound and channel is not None
    answer = PolicyChecked(
        faults=found.faults,
        warnings=found.warnings,
        notes=found.notes,
        policy=write_out(read.policy) if is_sound else None,
        changes=changes(channel.policy, read.policy) if compared and channel is not None else None,
    )
    return Response(answer)


ROUTES = (
    Route(
        "GET",
        "/v1/channels/{channel}/policy",
        show,
        requires(Verb.READ, scope_of),
        PolicyShown,
        cached=True,
        errors=(ChannelNotFound,),
    ),
    Route(
        "POST",
        "/v1/policies/check",
        check,
        requires_somewhere(Verb.READ),
        PolicyChecked,
        errors=(ChannelNotFound, InvalidSelector),
    ),
)
