"""Requests on protected channels: approval by a second person, and review of break-glass."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from tidegate.api.routes.channels import Reason, ReasonBody
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.protection import ProtectionGuard, RequestShown
from tidegate.control.operations.requests import RequestOperations, RequestOutcome
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import principals, roles, scopes, steps
from tidegate.domain.requests import refusals, rows, states
from tidegate.errors import Refused
from tidegate.web import inputs, paging, routing, shapes

RequestId = Annotated[str, Meta(min_length=1, max_length=64)]


class ChannelRequestPath(inputs.Input, frozen=True):
    request_id: RequestId


class RequestsQuery(inputs.Paging, frozen=True, kw_only=True):
    state: states.RequestState | None = None


class RequestApproval(inputs.Input, frozen=True, kw_only=True):
    digest: Annotated[str, Meta(min_length=1, max_length=64)]  # of the request, as you saw it
    hosts: Annotated[int, Meta(ge=0)] | None = None  # of the plan, as you saw it
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class RunBody(inputs.Input, frozen=True, kw_only=True):
    hosts: Annotated[int, Meta(ge=0)] | None = None  # of the plan, as you saw it


class Withdrawal(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class Review(inputs.Input, frozen=True, kw_only=True):
    accepted: bool
    reason: Reason


class DecidedRequest(RequestShown, frozen=True, kw_only=True):
    position: int
    # Why it was not carried out after its approval; empty: it was, or it still waits.
    not_carried_out: str
    rollout_id: str | None  # the rollout that it opened
    warnings: tuple[str, ...]  # warnings about that rollout
    waits: bool  # whether its orders wait


def list_all(
    request: routing.Request[inputs.Nothing, RequestsQuery, inputs.Nothing],
    reads: Reads,
    guard: ProtectionGuard,
    cursors: paging.Cursors,
) -> routing.Response:
    """List requests on the channels that you may read, newest first."""
    state, limit = request.query.state, request.query.limit
    of = () if state is None else (str(state),)
    index = "by_state" if of else "by_making"
    page = reads.newest(rows.REQUESTS, index, of=of, after=cursors.after(request), limit=limit)
    shown = [
        guard.show(item)
        for item in page
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
    ]
    last = page[-1].entry if len(page) == limit else None
    return routing.Response(cursors.list_page(request, shown, last))


def get(
    request: routing.Request[ChannelRequestPath, inputs.ReadQuery, inputs.Nothing],
    guard: ProtectionGuard,
    requests: RequestOperations,
) -> routing.Response:
    """Get a request: what it asks for, who approved, and who still may."""
    found = guard.demand(request.path.request_id)
    principals.demand_permission(
        request.principal, (roles.Verb.READ,), scopes.channel_scope(found.row.channel)
    )
    return routing.Response(requests.show(found), version=found.version)


def approve(
    request: routing.Request[ChannelRequestPath, inputs.Nothing, RequestApproval],
    requests: RequestOperations,
) -> routing.Response:
    """Approve a request; the last approval carries it out, in the same commit."""
    body = request.body
    return _decided(
        requests.approve(
            request.caller, request.path.request_id, body.digest, body.reason, body.hosts
        )
    )


def reject(
    request: routing.Request[ChannelRequestPath, inputs.Nothing, ReasonBody],
    requests: RequestOperations,
) -> routing.Response:
    """Reject a request."""
    return _decided(requests.reject(request.caller, request.path.request_id, request.body.reason))


def withdraw(
    request: routing.Request[ChannelRequestPath, inputs.Nothing, Withdrawal],
    requests: RequestOperations,
) -> routing.Response:
    """Withdraw your own request."""
    return _decided(requests.withdraw(request.caller, request.path.request_id, request.body.reason))


def run(
    request: routing.Request[ChannelRequestPath, inputs.Nothing, RunBody],
    requests: RequestOperations,
) -> routing.Response:
    """Carry out a request that enough people have approved."""
    return _decided(requests.run(request.caller, request.path.request_id, request.body.hosts))


def review(
    request: routing.Request[ChannelRequestPath, inputs.Nothing, Review],
    requests: RequestOperations,
) -> routing.Response:
    """Review another person's use of break-glass; this undoes nothing."""
    body = request.body
    return _decided(
        requests.review(
            request.caller, request.path.request_id, body.reason, accepted=body.accepted
        )
    )


def _decided(outcome: RequestOutcome) -> routing.Response:
    shown = DecidedRequest(
        **structs.asdict(outcome.request),
        position=outcome.position,
        not_carried_out=outcome.not_carried_out,
        rollout_id=outcome.rollout_id,
        warnings=outcome.warnings,
        waits=outcome.waits,
    )
    return routing.Response(shown, version=outcome.request.version, position=outcome.position)


_OPEN = (refusals.RequestNotFound, refusals.RequestOver)
_CURRENT = (*_OPEN, refusals.RequestOutdated, refusals.RequestImpossible, refusals.RequestExpiredAt)
_PATH = "/v1/requests/{request_id}"
# The operation checks the permission on the request's channel.
ROUTES = (
    routing.Route(
        "GET",
        "/v1/requests",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[RequestShown],
    ),
    routing.Route(
        "GET",
        _PATH,
        get,
        routing.requires_somewhere(roles.Verb.READ),
        RequestShown,
        errors=(refusals.RequestNotFound,),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/approve",
        approve,
        routing.requires_step(steps.APPROVE_REQUEST, None),
        DecidedRequest,
        errors=(
            *_CURRENT,
            refusals.OwnRequest,
            refusals.RequestChanged,
            refusals.RequestHostsMoved,
            LaneBusy,
        ),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/reject",
        reject,
        routing.requires_step(steps.REJECT_REQUEST, None),
        DecidedRequest,
        errors=_OPEN,
    ),
    routing.Route(
        "POST",
        f"{_PATH}/withdraw",
        withdraw,
        routing.requires_step(steps.WITHDRAW_REQUEST, None),
        DecidedRequest,
        errors=(*_OPEN, refusals.NotOwnRequest),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/run",
        run,
        routing.requires_step(steps.RUN_REQUEST, None),
        DecidedRequest,
        errors=(
            *_CURRENT,
            refusals.ApprovalsMissing,
            refusals.RequestHostsMoved,
            Refused,
            LaneBusy,
        ),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/review",
        review,
        routing.requires_step(steps.REVIEW_REQUEST, None),
        DecidedRequest,
        errors=(*_OPEN, refusals.OwnRequest),
    ),
)
