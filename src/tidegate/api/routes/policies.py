"""A channel's policy: shown with every member, and checked before it is used."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from tidegate.api.routes import channel_documents, channels
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.policies import check_document
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import principals, roles, scopes
from tidegate.domain.channels import policy_document, refusals as channel_refusals
from tidegate.domain.channels.policy import PolicyFinding
from tidegate.domain.fleet import refusals as fleet_refusals, rows, selectors
from tidegate.web import inputs, routing

UNNAMED: Final = "the channel"  # if the check names no channel


class PolicyAsked(inputs.Input, frozen=True, kw_only=True):
    """A policy to check, of any form: its faults are the response."""

    policy: Any
    channel: channels.ChannelName | None = None  # the channel whose hosts it is checked against
    package: channels.PackageName | None = None  # of a channel that does not exist yet
    selector: channels.SelectorText | None = None  # of a channel that does not exist yet


class PolicyShown(Struct, frozen=True):
    """A channel's policy with every member, including defaults."""

    channel: str
    policy: dict[str, Any]


class PolicyChecked(Struct, frozen=True):
    """The findings about a policy. A policy with faults would be refused."""

    faults: tuple[PolicyFinding, ...]
    warnings: tuple[PolicyFinding, ...]
    notes: tuple[PolicyFinding, ...]
    policy: dict[str, Any] | None  # as it would be stored; null: it has faults
    changes: (
        tuple[policy_document.PolicyChange, ...] | None
    )  # against the channel's policy, if one is named


def show(
    request: routing.Request[channels.ChannelPath, inputs.ReadQuery, inputs.Nothing], reads: Reads
) -> routing.Response:
    """Get a channel's policy with every member, including defaults."""
    found = channel_documents.demand(reads, request.path.channel)
    body = PolicyShown(found.row.channel, policy_document.write_out(found.row.policy))
    return routing.Response(body, version=found.version)


def check(
    request: routing.Request[inputs.Nothing, inputs.Nothing, PolicyAsked],
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
) -> routing.Response:
    """Check a policy and list every fault, warning and note; nothing changes."""
    body = request.body
    if body.channel is not None:
        principals.demand_permission(
            request.principal, (roles.Verb.READ,), scopes.channel_scope(body.channel)
        )
    planned, name = None, body.channel
    if body.package is not None and body.selector is not None:
        if name is None:  # its hosts and edges may belong to any channel
            principals.demand_permission(request.principal, (roles.Verb.READ,), roles.EVERYWHERE)
            name = UNNAMED
        selectors.parse(body.selector)
        planned = rows.ChannelScope(name, body.package, body.selector)
    read, found, channel = check_document(
        reads, fleet_reader, body.policy, name, planned, now=clock()
    )
    is_sound = not found.faults
    compared = is_sound and channel is not None
    answer = PolicyChecked(
        faults=found.faults,
        warnings=found.warnings,
        notes=found.notes,
        policy=policy_document.write_out(read.policy) if is_sound else None,
        changes=policy_document.changes(channel.policy, read.policy)
        if compared and channel is not None
        else None,
    )
    return routing.Response(answer)


ROUTES = (
    routing.Route(
        "GET",
        "/v1/channels/{channel}/policy",
        show,
        routing.requires(roles.Verb.READ, channels.scope_of),
        PolicyShown,
        cached=True,
        errors=(channel_refusals.ChannelNotFound,),
    ),
    routing.Route(
        "POST",
        "/v1/policies/check",
        check,
        routing.requires_somewhere(roles.Verb.READ),
        PolicyChecked,
        errors=(channel_refusals.ChannelNotFound, fleet_refusals.InvalidSelector),
    ),
)
