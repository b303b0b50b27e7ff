"""The forms of maintenance: a window with its next openings, a freeze, a budget."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.freezes import FreezeOperations, list_scopes
from tidegate.control.operations.windows import WindowOperations
from tidegate.dashboard import components, forms as dashboard_forms, layout as dashboard_layout
from tidegate.dashboard.pages import maintenance_fields
from tidegate.dashboard.pages.maintenance import HERE
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import roles, steps
from tidegate.domain.windows import checks, facts
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

HOSTS_MAX = 100_000
ID_CHARS_MAX = 63
PLACES = {
    "window_exists": "window_id",
    "channel_not_found": "channels",
    "duration_seconds": "minutes",
    "invalid_selector": "selector",
    "max_in_flight": "count",
    "max_in_flight_pct": "percent",
    "freeze_id": "until",
}


class WindowForm(inputs.Input, frozen=True, kw_only=True):
    """The members of a window as texts. Nothing selected means all."""

    kind: dashboard_forms.Typed
    start: dashboard_forms.Typed
    minutes: dashboard_forms.Typed
    reason: dashboard_forms.Typed
    rule: dashboard_forms.Typed = ""
    except_dates: dashboard_forms.Typed = ""
    channels: dashboard_forms.Ticked = ()
    repositories: dashboard_forms.Ticked = ()
    hosts: dashboard_forms.Typed = "*"
    zone: dashboard_forms.Typed = "UTC"
    zone_default: dashboard_forms.Typed = ""
    do: dashboard_forms.Typed = "save"


class NewWindowForm(WindowForm, frozen=True, kw_only=True):
    window_id: dashboard_forms.Typed


class WindowPagePath(inputs.Input, frozen=True):
    window_id: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]


class NewFreezeForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_forms.Typed
    channels: dashboard_forms.Ticked = ()
    until: dashboard_forms.Typed = ""
    do: dashboard_forms.Typed = "save"


class BudgetForm(inputs.Input, frozen=True, kw_only=True):
    selector: dashboard_forms.Typed
    count: dashboard_forms.Typed = ""
    percent: dashboard_forms.Typed = ""
    do: dashboard_forms.Typed = "save"


class NewBudgetForm(BudgetForm, frozen=True, kw_only=True):
    budget_id: dashboard_forms.Typed


class BudgetPagePath(inputs.Input, frozen=True):
    budget_id: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]


def _page(form: form_screens.FormPage) -> dashboard_layout.PageView:
    return dashboard_forms.form_page(form, HERE, components.Link("Maintenance", HERE))


def _refused(form: form_screens.FormPage, error: TidegateError) -> dashboard_layout.PageView:
    return _page(dashboard_forms.mark(form, error, PLACES))


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


def _read_window(body: WindowForm, window_id: str, *, reasoned: bool = True) -> facts.WindowSpec:
    """Parse the form of a window. Raises: InvalidRequest."""
    reader = dashboard_forms.FormReader()
    if body.kind not in list(facts.WindowKind):
        reader.refuse("kind", f"is {body.kind[:80]!r}; allowed are allow and deny")
    seconds = reader.minutes("minutes", body.minutes, checks.DURATION_MIN, checks.DURATION_MAX)
    if reasoned:
        reader.text("reason", body.reason, most=1_024)
    reader.check()
    return facts.WindowSpec(
        window_id=window_id,
        kind=facts.WindowKind(body.kind),
        start=body.start.strip()[:16],
        duration_seconds=seconds,
        rule=body.rule.strip(),
        except_dates=reader.names(body.except_dates),
        channels=body.channels,
        repositories=body.repositories,
        hosts=body.hosts.strip(),
        zone=body.zone.strip(),
        zone_default=body.zone_default.strip() or None,
    )


def _check(
    request: routing.Request[Any, Any, Any],
    layout: dashboard_layout.Layout,
    forms: maintenance_fields.MaintenanceForms,
    form: form_screens.FormPage,
    name: str,
) -> routing.Response:
    """Show when the window would open, or why it is invalid."""
    try:
        window = _read_window(request.body, name or "window", reasoned=False)
        form = forms.check_window(request.caller, form, window)
    except TidegateError as error:
        return layout.answer(request, _refused(form, error), problem=error)
    return layout.answer(request, _page(form))


def show_new_window(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new window."""
    return layout.answer(request, _page(forms.window(request)))


def create_window(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewWindowForm],
    windows: WindowOperations,
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Create a window, or show its openings first."""
    body = request.body
    form, name = dashboard_forms.fill_typed(forms.window(request), request), body.window_id.strip()
    if body.do == "check":
        return _check(request, layout, forms, form, name)

    def run() -> int:
        window = _read_window(body, name)
        return windows.create(request.caller, window, body.reason.strip())

    return dashboard_forms.send(
        request, layout, run, back=HERE, done="created", page=lambda error: _refused(form, error)
    )


def show_edit_window(
    request: routing.Request[WindowPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a window."""
    return layout.answer(request, _page(forms.window(request, request.path.window_id)))


def edit_window(
    request: routing.Request[WindowPagePath, dashboard_layout.PageQuery, WindowForm],
    windows: WindowOperations,
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change a window, or show its openings first."""
    body, name = request.body, request.path.window_id
    form = dashboard_forms.fill_typed(forms.window(request, name), request)
    if body.do == "check":
        return _check(request, layout, forms, form, name)

    def run() -> int:
        window = _read_window(body, name)
        members = {item: getattr(window, item) for item in window.__struct_fields__}
        members.pop("window_id")
        return windows.edit(request.caller, name, members, body.reason.strip())

    return dashboard_forms.send(
        request, layout, run, back=HERE, done="saved", page=lambda error: _refused(form, error)
    )


# ── freezes and budgets ───────────────────────────────────────────────────────────────────────────


def show_freeze(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a freeze."""
    return layout.answer(request, _page(forms.freeze(request)))


def start_freeze(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewFreezeForm],
    freezes: FreezeOperations,
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Freeze some channels, or all: their hosts get no orders."""
    body = request.body
    form = dashboard_forms.fill_typed(forms.freeze(request), request)

    def run() -> int:
        reader = dashboard_forms.FormReader()
        reason = reader.text("reason", body.reason, most=1_024)
        until = reader.moment("until", body.until) if body.until.strip() else None
        reader.check()
        started = freezes.start(request.caller, reason, channels=body.channels, until=until)
        return started.position

    return dashboard_forms.send(
        request, layout, run, back=HERE, done="frozen", page=lambda error: _refused(form, error)
    )


def show_new_budget(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new budget."""
    return layout.answer(request, _page(forms.budget(request)))


def create_budget(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewBudgetForm],
    budgets: BudgetOperations,
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Create a budget."""
    form = dashboard_forms.fill_typed(forms.budget(request), request)
    reader = dashboard_forms.FormReader()
    name = reader.text("budget_id", request.body.budget_id, most=ID_CHARS_MAX)
    return _set_budget(request, budgets, layout, form, name, reader, "created")


def show_edit_budget(
    request: routing.Request[BudgetPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a budget."""
    return layout.answer(request, _page(forms.budget(request, request.path.budget_id)))


def edit_budget(
    request: routing.Request[BudgetPagePath, dashboard_layout.PageQuery, BudgetForm],
    budgets: BudgetOperations,
    forms: maintenance_fields.MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change a budget."""
    name = request.path.budget_id
    form = dashboard_forms.fill_typed(forms.budget(request, name), request)
    return _set_budget(request, budgets, layout, form, name, dashboard_forms.FormReader(), "saved")


def _set_budget(
    request: routing.Request[Any, dashboard_layout.PageQuery, Any],
    budgets: BudgetOperations,
    layout: dashboard_layout.Layout,
    form: form_screens.FormPage,
    name: str,
    reader: dashboard_forms.FormReader,
    done: str,
) -> routing.Response:
    body = request.body

    def run() -> int:
        selector = reader.text("selector", body.selector)
        count = reader.optional_number("count", body.count, 1, HOSTS_MAX)
        percent = reader.optional_number("percent", body.percent, 1, 100)
        if count is None and percent is None and not body.count and not body.percent:
            reader.refuse("count", "is missing; say how many, or how many percent")
        reader.check()
        return budgets.set(
            request.caller, name, selector, max_in_flight=count, max_in_flight_pct=percent
        )

    return dashboard_forms.send(
        request, layout, run, back=HERE, done=done, page=lambda error: _refused(form, error)
    )


def _of_channels(request: routing.Request[Any, dashboard_layout.PageQuery, Any]) -> str:
    """The first scope of the form; the operation checks all of them."""
    return list_scopes(request.body.channels)[0]


_OPERATE = routing.requires_somewhere(roles.Verb.OPERATE)
_BUDGET = routing.requires_step(steps.SET_BUDGET)
ROUTES = (
    dashboard_layout.page_route("/new/window", show_new_window, _OPERATE),
    dashboard_layout.step_route("/new/window", create_window, steps.CREATE_WINDOW, _of_channels),
    dashboard_layout.page_route("/windows/{window_id}/edit", show_edit_window, _OPERATE),
    dashboard_layout.step_route("/windows/{window_id}/edit", edit_window, steps.EDIT_WINDOW, None),
    dashboard_layout.page_route("/new/freeze", show_freeze, _OPERATE),
    dashboard_layout.step_route("/new/freeze", start_freeze, steps.START_FREEZE, _of_channels),
    dashboard_layout.page_route("/new/budget", show_new_budget, _BUDGET),
    dashboard_layout.step_route("/new/budget", create_budget, steps.SET_BUDGET),
    dashboard_layout.page_route("/budgets/{budget_id}/edit", show_edit_budget, _BUDGET),
    dashboard_layout.step_route("/budgets/{budget_id}/edit", edit_budget, steps.SET_BUDGET),
)
