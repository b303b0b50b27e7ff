"""Budgets: how many hosts may be disrupted at once, whatever rolls out."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.channels import SelectorText
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import REMOVE_BUDGET, SET_BUDGET
from tidegate.domain.fleet.refusals import BudgetNotFound, InvalidSelector
from tidegate.domain.fleet.rows import BUDGETS, Budget, budget_key
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires, requires_step
from tidegate.web.shapes import Listed, Written


class BudgetPath(Input, frozen=True):
    budget_id: Annotated[str, Meta(min_length=1, max_length=63)]


class Bound(Input, frozen=True, kw_only=True):
    """A number, a share of the hosts, or both: then the smaller one counts."""

    selector: SelectorText
    max_in_flight: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    max_in_flight_pct: Annotated[int, Meta(ge=1, le=100)] | None = None
    removed: bool = False  # take the bound away instead


class BudgetShown(Budget, frozen=True, kw_only=True):
    version: int


def list_all(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """All budgets, and how much of each is taken now."""
    found = reads.range(BUDGETS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        BudgetShown(**asdict(item.row), version=item.version)
        for item in found
        if not item.row.removed
    ]
    return Response(cursors.list_page(request, seen, last))


def put(
    request: Request[BudgetPath, Nothing, Bound], budgets: BudgetOperations, reads: Reads
) -> Response:
    """Bound how many of some hosts are in flight at once."""
    body, budget_id = request.body, request.path.budget_id
    if body.removed:
        position = budgets.remove(request.caller, budget_id)
    else:
        position = budgets.set(
            request.caller,
            budget_id,
            body.selector,
            max_in_flight=body.max_in_flight,
            max_in_flight_pct=body.max_in_flight_pct,
        )
    found = reads.demand(budget_key(budget_id), Budget, BudgetNotFound(budget_id))
    shown = BudgetShown(**asdict(found.row), version=found.version)
    return Response(shown, version=found.version, position=position or found.version)


def remove(request: Request[BudgetPath, Nothing, Nothing], budgets: BudgetOperations) -> Response:
    """Take a bound away."""
    position = budgets.remove(request.caller, request.path.budget_id)
    return Response(Written(position), position=position)


ROUTES = (
    Route("GET", "/v1/budgets", list_all, requires(Verb.READ), Listed[BudgetShown]),
    Route(
        "PUT",
        "/v1/budgets/{budget_id}",
        put,
        requires_step(SET_BUDGET),
        BudgetShown,
        requests=RequestShown,
        errors=(BudgetNotFound, InvalidSelector, BreakGlassForbidden),
    ),
    Route(
        "DELETE",
        "/v1/budgets/{budget_id}",
        remove,
        requires_step(REMOVE_BUDGET),
        Written,
        requests=RequestShown,
        errors=(BudgetNotFound, BreakGlassForbidden),
    ),
)
