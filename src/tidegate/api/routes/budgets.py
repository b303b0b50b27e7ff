"""Budgets: limits on how many hosts may be in flight at once, over all rollouts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from tidegate.api.routes.channels import SelectorText
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import roles, steps
from tidegate.domain.fleet import refusals, rows
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.web import inputs, paging, routing, shapes


class BudgetPath(inputs.Input, frozen=True):
    budget_id: Annotated[str, Meta(min_length=1, max_length=63)]


class Bound(inputs.Input, frozen=True, kw_only=True):
    """A number, a percentage of the hosts, or both: then the smaller one counts."""

    selector: SelectorText
    max_in_flight: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    max_in_flight_pct: Annotated[int, Meta(ge=1, le=100)] | None = None
    removed: bool = False  # remove the budget


class BudgetShown(rows.Budget, frozen=True, kw_only=True):
    version: int


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List all budgets, and how much of each is used now."""
    found = reads.range(rows.BUDGETS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        BudgetShown(**structs.asdict(item.row), version=item.version)
        for item in found
        if not item.row.removed
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def put(
    request: routing.Request[BudgetPath, inputs.Nothing, Bound],
    budgets: BudgetOperations,
    reads: Reads,
) -> routing.Response:
    """Limit how many hosts of a selector are in flight at once."""
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
    found = reads.demand(
        rows.budget_key(budget_id), rows.Budget, refusals.BudgetNotFound(budget_id)
    )
    shown = BudgetShown(**structs.asdict(found.row), version=found.version)
    return routing.Response(shown, version=found.version, position=position or found.version)


def remove(
    request: routing.Request[BudgetPath, inputs.Nothing, inputs.Nothing], budgets: BudgetOperations
) -> routing.Response:
    """Remove a budget."""
    position = budgets.remove(request.caller, request.path.budget_id)
    return routing.Response(shapes.Written(position), position=position)


ROUTES = (
    routing.Route(
        "GET",
        "/v1/budgets",
        list_all,
        routing.requires(roles.Verb.READ),
        shapes.Listed[BudgetShown],
    ),
    routing.Route(
        "PUT",
        "/v1/budgets/{budget_id}",
        put,
        routing.requires_step(steps.SET_BUDGET),
        BudgetShown,
        requests=RequestShown,
        errors=(refusals.BudgetNotFound, refusals.InvalidSelector, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "DELETE",
        "/v1/budgets/{budget_id}",
        remove,
        routing.requires_step(steps.REMOVE_BUDGET),
        shapes.Written,
        requests=RequestShown,
        errors=(refusals.BudgetNotFound, BreakGlassForbidden),
        dry_run=True,
    ),
)
