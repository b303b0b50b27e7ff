"""Maintenance: everything that holds orders: windows with their next openings, freezes, budgets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from tidegate.clock import Clock
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.freezes import FreezeOperations, list_scopes
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, layout as dashboard_layout, protected_verbs, window_lines
from tidegate.dashboard.view_models import settings_screens
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.channels.rows import FREEZES, Freeze
from tidegate.domain.fleet.rows import BUDGETS, Budget
from tidegate.domain.windows import facts, rows
from tidegate.web import inputs, routing

HERE = "/maintenance"
ROWS_MAX = 200
OPENINGS = 3
KINDS = {
    facts.WindowKind.ALLOW: components.Chip("check", "good", "Allow", "orders go out only then"),
    facts.WindowKind.DENY: components.Chip("ban", "bad", "Deny", "no order goes out then"),
}

Id = Annotated[str, Meta(min_length=1, max_length=63)]


class DeleteWindowForm(inputs.Input, frozen=True, kw_only=True):
    window_id: Id
    reason: dashboard_layout.Reason


class EndFreezeForm(inputs.Input, frozen=True, kw_only=True):
    freeze_id: Id
    reason: dashboard_layout.Reason


class RemoveBudgetForm(inputs.Input, frozen=True, kw_only=True):
    budget_id: Id


@dataclass(frozen=True)
class MaintenancePages:
    """Builds the page of windows, freezes and budgets."""

    reads: Reads
    clock: Clock
    windows: WindowOperations
    guard: ProtectionGuard
    layout: dashboard_layout.Layout

    def page(self, request: routing.Request[Any, Any, Any]) -> dashboard_layout.PageView:
        caller, people = request.caller, self.layout.names(request)
        windows = tuple(
            self._window(caller, item, number)
            for number, item in enumerate(
                self.reads.range(rows.WINDOWS, limit=window_lines.WINDOWS_MAX)
            )
            if _may_see(caller, item.row.channels)
        )
        freezes = tuple(
            self._freeze(caller, item.row, number, people)
            for number, item in enumerate(self.reads.range(FREEZES, limit=ROWS_MAX))
            if _may_see(caller, item.row.channels)
        )
        budgets = tuple(
            self._budget(caller, item.row, number)
            for number, item in enumerate(self.reads.range(BUDGETS, limit=ROWS_MAX))
            if not item.row.removed and caller.principal.may(roles.Verb.READ)
        )
        view = settings_screens.Maintenance(
            windows=windows, freezes=freezes, budgets=budgets, create=tuple(_creates(caller))
        )
        verbs = (
            *(line.delete for line in windows),
            *(line.end for line in freezes),
            *(line.remove for line in budgets),
        )
        return dashboard_layout.PageView(
            template="maintenance.html",
            title="Maintenance",
            here=HERE,
            view=view,
            verbs=verbs,
            address=HERE,
        )

    def _window(
        self, caller: callers.Caller, found: Found[rows.Window], number: int
    ) -> settings_screens.WindowLine:
        row = found.row
        name = row.window_id
        ahead = self.windows.list_next(name, OPENINGS)
        return settings_screens.WindowLine(
            window_id=name,
            chip=KINDS[row.kind],
            text=window_lines.describe_scope(row),
            reason=row.reason,
            openings=window_lines.draw_openings(ahead, self.clock(), row.kind),
            edit=components.LinkButton(
                id=f"edit-window-{number}",
                label="Edit",
                icon="pencil",
                href=f"/windows/{quote(name, safe='')}/edit",
                why=_why_not(caller, steps.EDIT_WINDOW, row.channels),
            ),
            delete=protected_verbs.ask_if_protected(
                components.VerbButton(
                    id=f"delete-window-{number}",
                    label="Delete",
                    icon="trash",
                    action="/maintenance/delete-window",
                    title=f"Delete the window {name}?",
                    text="Hosts that it covers get orders again as if it had never been."
                    if row.kind is facts.WindowKind.DENY
                    else "Hosts that it covers get orders at any time, if no other window holds "
                    "them.",
                    fields=(
                        components.Field(name="window_id", kind="hidden", value=name),
                        dashboard_layout.REASON,
                    ),
                    version=found.version,
                    why=_why_not(caller, steps.DELETE_WINDOW, row.channels),
                    danger=True,
                ),
                caller,
                self.guard.list_protected(row.channels),
                whole=bool(row.channels) and not row.repositories,
            ),
        )

    def _freeze(
        self,
        caller: callers.Caller,
        row: Freeze,
        number: int,
        people: dashboard_layout.UserDirectory,
    ) -> settings_screens.FreezeLine:
        own = row.operator == caller.id
        end = components.VerbButton(
            id=f"end-freeze-{number}",
            label="End",
            icon="play",
            action="/maintenance/end-freeze",
            title="End the freeze?",
            text="Orders go out again, if nothing else holds them back.",
            fields=(
                components.Field(name="freeze_id", kind="hidden", value=row.freeze_id),
                dashboard_layout.REASON,
            ),
            why=_why_not(caller, steps.END_FREEZE, row.channels),
        )
        protected = [] if own else self.guard.list_protected(row.channels)
        return settings_screens.FreezeLine(
            freeze_id=row.freeze_id,
            channels=", ".join(row.channels) or "all channels",
            by=people(row.operator),
            reason=row.reason,
            at=row.started_at,
            until=row.until,
            end=protected_verbs.ask_if_protected(end, caller, protected),
        )

    def _budget(
        self, caller: callers.Caller, row: Budget, number: int
    ) -> settings_screens.BudgetLine:
        limits = [] if row.max_in_flight is None else [f"{row.max_in_flight:,} hosts"]
        limits += [] if row.max_in_flight_pct is None else [f"{row.max_in_flight_pct} %"]
        remove = components.VerbButton(
            id=f"remove-budget-{number}",
            label="Delete",
            icon="trash",
            action="/maintenance/remove-budget",
            title=f"Delete the budget {row.budget_id}?",
            text="It no longer limits how many of these hosts are in flight at once.",
            fields=(components.Field(name="budget_id", kind="hidden", value=row.budget_id),),
            why=caller.why_not(steps.REMOVE_BUDGET, roles.EVERYWHERE),
            danger=True,
        )
        return settings_screens.BudgetLine(
            budget_id=row.budget_id,
            selector=row.selector,
            limit=f"At most {' or '.join(limits)} in flight at once"
            + (", whichever is less" if len(limits) > 1 else ""),
            in_flight=row.in_flight,
            edit=components.LinkButton(
                id=f"edit-budget-{number}",
                label="Edit",
                icon="pencil",
                href=f"/budgets/{quote(row.budget_id, safe='')}/edit",
                why=caller.why_not(steps.SET_BUDGET, roles.EVERYWHERE),
            ),
            remove=protected_verbs.ask_if_protected(
                remove, caller, self.guard.list_protected(()), whole=False
            ),
        )


def _creates(caller: callers.Caller) -> list[components.LinkButton]:
    principal = caller.principal
    return [
        components.LinkButton(
            id="new-freeze",
            label="Freeze",
            icon="snow",
            href="/new/freeze",
            why=dashboard_layout.why_nowhere(principal, steps.START_FREEZE),
        ),
        components.LinkButton(
            id="new-window",
            label="New window",
            icon="clock",
            href="/new/window",
            why=dashboard_layout.why_nowhere(principal, steps.CREATE_WINDOW),
        ),
        components.LinkButton(
            id="new-budget",
            label="New budget",
            icon="plus",
            href="/new/budget",
            why=caller.why_not(steps.SET_BUDGET, roles.EVERYWHERE),
        ),
    ]


def _may_see(caller: callers.Caller, channels: tuple[str, ...]) -> bool:
    """Whether the caller may see this. What covers all channels is visible to everyone."""
    scopes = list_scopes(channels)
    return not channels or any(caller.principal.may(roles.Verb.READ, scope) for scope in scopes)


def _why_not(caller: callers.Caller, step: steps.Step, channels: tuple[str, ...]) -> str:
    """Why the caller may not take the step on all of these channels; empty: they may."""
    reasons = (caller.why_not(step, scope) for scope in list_scopes(channels))
    return next(filter(None, reasons), "")


def maintenance(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    pages: MaintenancePages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List windows, freezes and budgets."""
    return layout.answer(request, pages.page(request))


def delete_window(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, DeleteWindowForm],
    windows: WindowOperations,
    pages: MaintenancePages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Delete a window."""
    run = partial(windows.delete, request.caller, request.body.window_id, request.body.reason)
    return layout.attempt(request, run, HERE, "deleted", partial(pages.page, request))


def end_freeze(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, EndFreezeForm],
    freezes: FreezeOperations,
    pages: MaintenancePages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """End a freeze."""
    run = partial(freezes.end, request.caller, request.body.freeze_id, request.body.reason)
    return layout.attempt(request, run, HERE, "freeze ended", partial(pages.page, request))


def remove_budget(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, RemoveBudgetForm],
    budgets: BudgetOperations,
    pages: MaintenancePages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Remove a budget."""
    run = partial(budgets.remove, request.caller, request.body.budget_id)
    return layout.attempt(request, run, HERE, "deleted", partial(pages.page, request))


# The operation checks the permission on each channel of a window or freeze.
ROUTES = (
    dashboard_layout.page_route(HERE, maintenance, routing.requires_somewhere(roles.Verb.READ)),
    dashboard_layout.step_route(
        "/maintenance/delete-window", delete_window, steps.DELETE_WINDOW, None
    ),
    dashboard_layout.step_route("/maintenance/end-freeze", end_freeze, steps.END_FREEZE, None),
    dashboard_layout.step_route("/maintenance/remove-budget", remove_budget, steps.REMOVE_BUDGET),
)
