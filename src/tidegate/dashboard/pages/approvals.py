"""Approvals: requests on protected channels, emergency actions to review, and revisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, structs

from tidegate.clock import Clock
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.operations.requests import RequestOperations, RequestOutcome
from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Link, Option
from tidegate.dashboard.layout import (
    Layout,
    OptionalReason,
    PageQuery,
    PageView,
    Reason,
    page_route,
    step_route,
)
from tidegate.dashboard.pages.releases import list_pending_approvals
from tidegate.dashboard.request_lines import RequestLines
from tidegate.dashboard.view_models import Approvals, RequestPage
from tidegate.domain.access import steps
from tidegate.domain.access.principals import demand_permission
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.requests.refusals import RequestHostsMoved
from tidegate.domain.requests.states import RequestState
from tidegate.errors import TidegateError
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, requires_somewhere

RequestName = Annotated[str, Meta(min_length=1, max_length=64)]
Hosts = Annotated[int, Meta(ge=0, le=10_000_000)] | None  # of the plan, as the page said
TABS = {"open": "Open", "decided": "Decided"}


class ApprovalsQuery(PageQuery, frozen=True, kw_only=True):
    tab: Annotated[str, Meta(max_length=16)] = "open"


class RequestPagePath(Input, frozen=True):
    request_id: RequestName


class ApproveRequestForm(Input, frozen=True, kw_only=True):
    request_id: RequestName
    digest: Annotated[str, Meta(min_length=1, max_length=64)]  # of what the page showed
    hosts: Hosts = None
    reason: OptionalReason = ""


class RejectRequestForm(Input, frozen=True, kw_only=True):
    request_id: RequestName
    reason: Reason


class WithdrawRequestForm(Input, frozen=True, kw_only=True):
    request_id: RequestName
    reason: OptionalReason = ""


class RunRequestForm(Input, frozen=True, kw_only=True):
    request_id: RequestName
    hosts: Hosts = None


class ReviewForm(Input, frozen=True, kw_only=True):
    request_id: RequestName
    accepted: bool
    reason: Reason


@dataclass(frozen=True)
class ApprovalPages:
    """The list of what waits, and the page of one request."""

    reads: Reads
    guard: ProtectionGuard
    clock: Clock
    layout: Layout
    requests: RequestOperations

    def lines(self, request: Request[Any, Any, Any]) -> RequestLines:
        people = self.layout.names(request)
        return RequestLines(self.reads, self.guard, request.caller, people, self.clock())

    def list_page(self, request: Request[Any, Any, Any], tab: str = "open") -> PageView:
        tab = tab if tab in TABS else "open"
        lines, is_open = self.lines(request), tab == "open"
        requests = lines.list_open() if is_open else ()
        reviews = lines.list_to_review() if is_open else ()
        people = self.layout.names(request)
        waiting = list_pending_approvals(request, self.reads, people) if is_open else ()
        ended = () if is_open else lines.list_ended()
        count = len(requests) + len(reviews) + len(waiting)
        view = Approvals(
            tab=tab,
            tabs=tuple(
                Option(name, label, str(count) if name == tab == "open" and count else "")
                for name, label in TABS.items()
            ),
            requests=requests,
            reviews=reviews,
            waiting=waiting,
            ended=ended,
        )
        verbs = tuple(verb for line in (*requests, *reviews) for verb in line.verbs)
        return PageView(
            template="approvals.html", title="Approvals", here="/approvals", view=view, verbs=verbs
        )

    def page_of(
        self,
        request: Request[Any, Any, Any],
        request_id: str,
        note: str = "",
        hosts: int | None = None,
    ) -> PageView:
        """Raises: RequestNotFound, MissingPermission."""
        found = self.guard.demand(request_id)
        demand_permission(request.principal, (Verb.READ,), channel_scope(found.row.channel))
        line = self.lines(request).line(found, hosts)
        line = structs.replace(line, notes=self.requests.list_notes(found.row))
        return PageView(
            template="request.html",
            title=request_id,
            here="/approvals",
            view=RequestPage(request=line, note=note),
            crumbs=(Link("Approvals", "/approvals"), Link(request_id)),
            verbs=line.verbs,
        )


def approvals(
    request: Request[Nothing, ApprovalsQuery, Nothing], pages: ApprovalPages, layout: Layout
) -> Response:
    """What waits for a second person."""
    return layout.answer(request, pages.list_page(request, request.query.tab))


def show(
    request: Request[RequestPagePath, PageQuery, Nothing], pages: ApprovalPages, layout: Layout
) -> Response:
    """One request: what it changes, who asks, and who may decide."""
    return layout.answer(request, pages.page_of(request, request.path.request_id))


def approve(
    request: Request[Nothing, PageQuery, ApproveRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Agree to a request; the last approval carries it out."""
    body = request.body
    run = partial(
        requests.approve,
        *(request.caller, body.request_id, body.digest, body.reason, body.hosts),
    )
    return _decide(request, run, "request approved", pages, layout)


def reject(
    request: Request[Nothing, PageQuery, RejectRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Say no to a request."""
    run = partial(requests.reject, request.caller, request.body.request_id, request.body.reason)
    return _decide(request, run, "request rejected", pages, layout)


def withdraw(
    request: Request[Nothing, PageQuery, WithdrawRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Take your own request back."""
    run = partial(requests.withdraw, request.caller, request.body.request_id, request.body.reason)
    return _decide(request, run, "request withdrawn", pages, layout)


def run(
    request: Request[Nothing, PageQuery, RunRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Carry out a request that enough people have approved."""
    run = partial(requests.run, request.caller, request.body.request_id, request.body.hosts)
    return _decide(request, run, "request carried out", pages, layout)


def review(
    request: Request[Nothing, PageQuery, ReviewForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Say whether what another person did alone was right."""
    body = request.body
    run = partial(
        requests.review, request.caller, body.request_id, body.reason, accepted=body.accepted
    )
    return _decide(request, run, "reviewed", pages, layout)


def _decide(
    request: Request[Nothing, PageQuery, Any],
    run: Callable[[], RequestOutcome],
    done: str,
    pages: ApprovalPages,
    layout: Layout,
) -> Response:
    """Decide, and lead to the request; refused, show the request and say why."""
    request_id = request.body.request_id
    try:
        outcome = run()
    except TidegateError as error:
        moved = error.facts["found"] if isinstance(error, RequestHostsMoved) else None
        hosts = moved if isinstance(moved, int) else None
        page = _shown(request, pages, request_id, hosts)
        return layout.answer(request, page, problem=error)
    if outcome.not_carried_out:
        page = pages.page_of(request, request_id, outcome.not_carried_out)
        return layout.answer(request, page)
    if done == "request approved" and outcome.request.state is RequestState.EXECUTED:
        done = "request carried out"
    return layout.attempt(
        request,
        lambda: outcome.position,
        f"/approvals/{request_id}",
        done,
        partial(pages.page_of, request, request_id),
    )


def _shown(
    request: Request[Nothing, PageQuery, Any],
    pages: ApprovalPages,
    request_id: str,
    hosts: int | None,
) -> PageView:
    """The request, or the list for who may not see it."""
    try:
        return pages.page_of(request, request_id, hosts=hosts)
    except TidegateError:
        return pages.list_page(request)


# The operation asks on the request's channel.
ROUTES = (
    page_route("/approvals", approvals, requires_somewhere(Verb.READ)),
    page_route("/approvals/{request_id}", show, requires_somewhere(Verb.READ)),
    step_route("/approvals/approve", approve, steps.APPROVE_REQUEST, None),
    step_route("/approvals/reject", reject, steps.REJECT_REQUEST, None),
    step_route("/approvals/withdraw", withdraw, steps.WITHDRAW_REQUEST, None),
    step_route("/approvals/run", run, steps.RUN_REQUEST, None),
    step_route("/approvals/review", review, steps.REVIEW_REQUEST, None),
)
