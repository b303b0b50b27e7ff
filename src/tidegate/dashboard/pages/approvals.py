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
from tidegate.dashboard import components, layout as dashboard_layout, request_lines
from tidegate.dashboard.pages.releases import list_pending_approvals
from tidegate.dashboard.view_models import channel_screens
from tidegate.domain.access import principals, roles, scopes, steps
from tidegate.domain.requests import refusals, states
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

RequestName = Annotated[str, Meta(min_length=1, max_length=64)]
Hosts = Annotated[int, Meta(ge=0, le=10_000_000)] | None  # of the plan, as the page showed it
TABS = {"open": "Open", "decided": "Decided"}


class ApprovalsQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    tab: Annotated[str, Meta(max_length=16)] = "open"


class RequestPagePath(inputs.Input, frozen=True):
    request_id: RequestName


class ApproveRequestForm(inputs.Input, frozen=True, kw_only=True):
    request_id: RequestName
    digest: Annotated[str, Meta(min_length=1, max_length=64)]  # of the content that the page showed
    hosts: Hosts = None
    reason: dashboard_layout.OptionalReason = ""


class RejectRequestForm(inputs.Input, frozen=True, kw_only=True):
    request_id: RequestName
    reason: dashboard_layout.Reason


class WithdrawRequestForm(inputs.Input, frozen=True, kw_only=True):
    request_id: RequestName
    reason: dashboard_layout.OptionalReason = ""


class RunRequestForm(inputs.Input, frozen=True, kw_only=True):
    request_id: RequestName
    hosts: Hosts = None


class ReviewForm(inputs.Input, frozen=True, kw_only=True):
    request_id: RequestName
    accepted: bool
    reason: dashboard_layout.Reason


@dataclass(frozen=True)
class ApprovalPages:
    """The list of what waits for approval, and the page of one request."""

    reads: Reads
    guard: ProtectionGuard
    clock: Clock
    layout: dashboard_layout.Layout
    requests: RequestOperations

    def lines(self, request: routing.Request[Any, Any, Any]) -> request_lines.RequestLines:
        people = self.layout.names(request)
        return request_lines.RequestLines(
            self.reads, self.guard, request.caller, people, self.clock()
        )

    def list_page(
        self, request: routing.Request[Any, Any, Any], tab: str = "open"
    ) -> dashboard_layout.PageView:
        tab = tab if tab in TABS else "open"
        lines, is_open = self.lines(request), tab == "open"
        requests = lines.list_open() if is_open else ()
        reviews = lines.list_to_review() if is_open else ()
        people = self.layout.names(request)
        waiting = list_pending_approvals(request, self.reads, people) if is_open else ()
        ended = () if is_open else lines.list_ended()
        count = len(requests) + len(reviews) + len(waiting)
        view = channel_screens.Approvals(
            tab=tab,
            tabs=tuple(
                components.Option(
                    name, label, str(count) if name == tab == "open" and count else ""
                )
                for name, label in TABS.items()
            ),
            requests=requests,
            reviews=reviews,
            waiting=waiting,
            ended=ended,
        )
        verbs = tuple(verb for line in (*requests, *reviews) for verb in line.verbs)
        return dashboard_layout.PageView(
            template="approvals.html",
            title="Approvals",
            here="/approvals",
            view=view,
            verbs=verbs,
            address="/approvals",
        )

    def page_of(
        self,
        request: routing.Request[Any, Any, Any],
        request_id: str,
        note: str = "",
        hosts: int | None = None,
    ) -> dashboard_layout.PageView:
        """Build the page of one request. Raises: RequestNotFound, MissingPermission."""
        found = self.guard.demand(request_id)
        principals.demand_permission(
            request.principal, (roles.Verb.READ,), scopes.channel_scope(found.row.channel)
        )
        line = self.lines(request).line(found, hosts)
        line = structs.replace(line, notes=self.requests.list_notes(found.row))
        return dashboard_layout.PageView(
            template="request.html",
            address=f"/approvals/{request_id}",
            title=request_id,
            here="/approvals",
            view=channel_screens.RequestPage(
                request=line,
                note=note,
                alternatives=self.requests.list_alternatives(request.caller, found.row),
            ),
            crumbs=(components.Link("Approvals", "/approvals"), components.Link(request_id)),
            verbs=line.verbs,
        )


def approvals(
    request: routing.Request[inputs.Nothing, ApprovalsQuery, inputs.Nothing],
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show what waits for a second person."""
    return layout.answer(request, pages.list_page(request, request.query.tab))


def show(
    request: routing.Request[RequestPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show one request: what it changes, who made it, and who may decide."""
    return layout.answer(request, pages.page_of(request, request.path.request_id))


def approve(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, ApproveRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Approve a request; the last approval carries it out."""
    caller, body = request.caller, request.body
    run = partial(requests.approve, caller, body.request_id, body.digest, body.reason, body.hosts)
    return _decide(request, run, "request approved", pages, layout)


def reject(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, RejectRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Reject a request."""
    run = partial(requests.reject, request.caller, request.body.request_id, request.body.reason)
    return _decide(request, run, "request rejected", pages, layout)


def withdraw(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, WithdrawRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Withdraw your own request."""
    run = partial(requests.withdraw, request.caller, request.body.request_id, request.body.reason)
    return _decide(request, run, "request withdrawn", pages, layout)


def run(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, RunRequestForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Carry out a request that enough people have approved."""
    run = partial(requests.run, request.caller, request.body.request_id, request.body.hosts)
    return _decide(request, run, "request carried out", pages, layout)


def review(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, ReviewForm],
    requests: RequestOperations,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Review another person's use of break-glass."""
    body = request.body
    run = partial(
        requests.review, request.caller, body.request_id, body.reason, accepted=body.accepted
    )
    return _decide(request, run, "reviewed", pages, layout)


def _decide(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, Any],
    run: Callable[[], RequestOutcome],
    done: str,
    pages: ApprovalPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Decide, and redirect to the request; after an error, show the request with it."""
    request_id = request.body.request_id
    try:
        outcome = run()
    except TidegateError as error:
        moved = error.facts["found"] if isinstance(error, refusals.RequestHostsMoved) else None
        hosts = moved if isinstance(moved, int) else None
        page = _shown(request, pages, request_id, hosts)
        return layout.answer(request, page, problem=error)
    if outcome.not_carried_out:
        page = pages.page_of(request, request_id, outcome.not_carried_out)
        return layout.answer(request, page)
    if done == "request approved" and outcome.request.state is states.RequestState.EXECUTED:
        done = "request carried out"
    return layout.attempt(
        request,
        lambda: outcome.position,
        f"/approvals/{request_id}",
        done,
        partial(pages.page_of, request, request_id),
    )


def _shown(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, Any],
    pages: ApprovalPages,
    request_id: str,
    hosts: int | None,
) -> dashboard_layout.PageView:
    """The request, or the list for users who may not see the request."""
    try:
        return pages.page_of(request, request_id, hosts=hosts)
    except TidegateError:
        return pages.list_page(request)


# The operation checks the permission on the request's channel.
ROUTES = (
    dashboard_layout.page_route(
        "/approvals", approvals, routing.requires_somewhere(roles.Verb.READ)
    ),
    dashboard_layout.page_route(
        "/approvals/{request_id}", show, routing.requires_somewhere(roles.Verb.READ)
    ),
    dashboard_layout.step_route("/approvals/approve", approve, steps.APPROVE_REQUEST, None),
    dashboard_layout.step_route("/approvals/reject", reject, steps.REJECT_REQUEST, None),
    dashboard_layout.step_route("/approvals/withdraw", withdraw, steps.WITHDRAW_REQUEST, None),
    dashboard_layout.step_route("/approvals/run", run, steps.RUN_REQUEST, None),
    dashboard_layout.step_route("/approvals/review", review, steps.REVIEW_REQUEST, None),
)
