"""Requests: what waits for a second person on protected channels, and what is to be reviewed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.channels import Reason, ReasonBody
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.protection import ProtectionGuard, RequestShown
from tidegate.control.operations.requests import RequestOperations, RequestOutcome
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.principals import demand_permission
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import (
    APPROVE_REQUEST,
    REJECT_REQUEST,
    REVIEW_REQUEST,
    RUN_REQUEST,
    WITHDRAW_REQUEST,
)
from tidegate.domain.requests.refusals import (
    ApprovalsMissing,
    NotOwnRequest,
    OwnRequest,
    RequestChanged,
    RequestExpiredAt,
    RequestHostsMoved,
    RequestNotFound,
    RequestOutdated,
    RequestOver,
)
from tidegate.domain.requests.rows import REQUESTS
from tidegate.domain.requests.states import RequestState
from tidegate.errors import Refused
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_somewhere, requires_step
from tidegate.web.shapes import Listed

RequestId = Annotated[str, Meta(min_length=1, max_length=64)]


class ChannelRequestPath(Input, frozen=True):
    request_id: RequestId


class RequestsQuery(Paging, frozen=True, kw_only=True):
    state: RequestState | None = None


class RequestApproval(Input, frozen=True, kw_only=True):
    digest: Annotated[str, Meta(min_length=1, max_length=64)]  # of the request, as you saw it
    hosts: Annotated[int, Meta(ge=0)] | None = None  # of the plan, as you saw it
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class RunBody(Input, frozen=True, kw_only=True):
    hosts: Annotated[int, Meta(ge=0)] | None = None  # of the plan, as you saw it


class Withdrawal(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class Review(Input, frozen=True, kw_only=True):
    accepted: bool
    reason: Reason


class DecidedRequest(RequestShown, frozen=True, kw_only=True):
    position: int
    not_carried_out: str  # why it was approved and not carried out; empty: it was, or still waits


def list_all(
    request: Request[Nothing, RequestsQuery, Nothing],
    reads: Reads,
    guard: ProtectionGuard,
    cursors: Cursors,
) -> Response:
    """Requests on the channels that you may read, the newest first."""
    state, limit = request.query.state, request.query.limit
    of = () if state is None else (str(state),)
    index = "by_state" if of else "by_making"
    page = reads.newest(REQUESTS, index, of=of, after=cursors.after(request), limit=limit)
    shown = [
        guard.show(item)
        for item in page
        if request.principal.may(Verb.READ, channel_scope(item.row.channel))
    ]
    last = page[-1].entry if len(page) == limit else None
    return Response(cursors.list_page(request, shown, last))


def get(
    request: Request[ChannelRequestPath, ReadQuery, Nothing],
    guard: ProtectionGuard,
    requests: RequestOperations,
) -> Response:
    """A request: what it asks for, who agreed, and who may still."""
    found = guard.demand(request.path.request_id)
    demand_permission(request.principal, (Verb.READ,), channel_scope(found.row.channel))
    return Response(requests.show(found), version=found.version)


def approve(
    request: Request[ChannelRequestPath, Nothing, RequestApproval], requests: RequestOperations
) -> Response:
    """Agree to a request; the last approval carries it out, in the same commit."""
    body = request.body
    return _decided(
        requests.approve(
            request.caller, request.path.request_id, body.digest, body.reason, body.hosts
        )
    )


def reject(
    request: Request[ChannelRequestPath, Nothing, ReasonBody], requests: RequestOperations
) -> Response:
    """Say no to a request."""
    return _decided(requests.reject(request.caller, request.path.request_id, request.body.reason))


def withdraw(
    request: Request[ChannelRequestPath, Nothing, Withdrawal], requests: RequestOperations
) -> Response:
    """Take your own request back."""
    return _decided(requests.withdraw(request.caller, request.path.request_id, request.body.reason))


def run(
    request: Request[ChannelRequestPath, Nothing, RunBody], requests: RequestOperations
) -> Response:
    """Carry out a request that enough people have approved."""
    return _decided(requests.run(request.caller, request.path.request_id, request.body.hosts))


def review(
    request: Request[ChannelRequestPath, Nothing, Review], requests: RequestOperations
) -> Response:
    """Say whether what another person did with break-glass was right; it undoes nothing."""
    body = request.body
    return _decided(
        requests.review(
            request.caller, request.path.request_id, body.reason, accepted=body.accepted
        )
    )


def _decided(outcome: RequestOutcome) -> Response:
    shown = DecidedRequest(
        **asdict(outcome.request),
        position=outcome.position,
        not_carried_out=outcome.not_carried_out,
    )
    return Response(shown, version=outcome.request.version, position=outcome.position)


_OPEN = (RequestNotFound, RequestOver)
_CURRENT = (*_OPEN, RequestOutdated, RequestExpiredAt)
_PATH = "/v1/requests/{request_id}"
# The operation asks on the request's channel.
ROUTES = (
    Route("GET", "/v1/requests", list_all, requires_somewhere(Verb.READ), Listed[RequestShown]),
    Route(
        "GET", _PATH, get, requires_somewhere(Verb.READ), RequestShown, errors=(RequestNotFound,)
    ),
    Route(
        "POST",
        f"{_PATH}/approve",
        approve,
        requires_step(APPROVE_REQUEST, None),
        DecidedRequest,
        errors=(*_CURRENT, OwnRequest, RequestChanged, RequestHostsMoved, LaneBusy),
    ),
    Route(
        "POST",
        f"{_PATH}/reject",
        reject,
        requires_step(REJECT_REQUEST, None),
        DecidedRequest,
        errors=_OPEN,
    ),
    Route(
        "POST",
        f"{_PATH}/withdraw",
        withdraw,
        requires_step(WITHDRAW_REQUEST, None),
        DecidedRequest,
        errors=(*_OPEN, NotOwnRequest),
    ),
    Route(
        "POST",
        f"{_PATH}/run",
        run,
        requires_step(RUN_REQUEST, None),
        DecidedRequest,
        errors=(*_CURRENT, ApprovalsMissing, RequestHostsMoved, Refused, LaneBusy),
    ),
    Route(
        "POST",
        f"{_PATH}/review",
        review,
        requires_step(REVIEW_REQUEST, None),
        DecidedRequest,
        errors=(*_OPEN, OwnRequest),
    ),
)
