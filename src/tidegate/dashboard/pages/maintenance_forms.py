"""The forms of maintenance: a window with its next openings, a freeze, a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, structs

from tidegate.clock import Clock
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.freezes import FreezeOperations, list_scopes
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    components,
    forms as dashboard_forms,
    layout as dashboard_layout,
    protected_verbs,
    window_lines,
)
from tidegate.dashboard.pages.maintenance import HERE, OPENINGS
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import roles, steps
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.fleet import refusals as fleet_refusals, rows as fleet_rows
from tidegate.domain.packages.rows import REPOSITORIES
from tidegate.domain.windows import checks, facts, refusals as window_refusals, rows as window_rows
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

CHANNELS_MAX = 400
REPOSITORIES_MAX = 400
HOSTS_MAX = 100_000
ID_CHARS_MAX = 63
LOOSER = " What gives its hosts more time or more room makes"
REASON = components.Field(
    name="reason", label="Reason", required=True, placeholder="Why, for the log"
)
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
    """The members of a window as texts. None ticked: all."""

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
    return dashboard_layout.PageView(
        template="form.html",
        title=form.title,
        here=HERE,
        view=form,
        crumbs=(components.Link("Maintenance", HERE), components.Link(form.title)),
        still=True,
    )


def _typed(
    form: form_screens.FormPage, request: routing.Request[Any, Any, Any]
) -> form_screens.FormPage:
    return structs.replace(
        form,
        fields=dashboard_forms.fill(form.fields, dashboard_forms.typed_of(request)),
        version=request.version,
    )


def _refused(form: form_screens.FormPage, error: TidegateError) -> dashboard_layout.PageView:
    return _page(structs.replace(form, fields=dashboard_forms.mark(form.fields, error, PLACES)))


@dataclass(frozen=True)
class MaintenanceForms:
    """The forms as they are before anything is typed."""

    reads: Reads
    clock: Clock
    windows: WindowOperations
    guard: ProtectionGuard

    def channels(self, request: routing.Request[Any, Any, Any], hint: str) -> components.Field:
        names = [item.row.channel for item in self.reads.range(CHANNELS, limit=CHANNELS_MAX)]
        protected = {row.channel for row in self.guard.list_protected(())}
        return components.Field(
            name="channels",
            label="Channels",
            kind="many",
            hint=hint,
            options=tuple(
                components.Option(name, name, "protected" if name in protected else "")
                for name in names
                if request.principal.may(roles.Verb.READ, channel_scope(name))
            ),
        )

    def window(
        self, request: routing.Request[Any, Any, Any], window_id: str | None = None
    ) -> form_screens.FormPage:
        """Raises: WindowNotFound."""
        name = components.Field(
            name="window_id",
            label="Name",
            required=True,
            placeholder="nightly",
            hint="Small letters, digits, dots and dashes.",
        )
        form = form_screens.FormPage(
            title="New window",
            text="A maintenance window says when hosts may get orders, or may not.",
            action="/new/window",
            back=HERE,
            fields=(name, *self._window_fields(request)),
            submits=(
                components.Option("save", "Create", "check"),
                components.Option("check", "Show the next openings", "eye"),
            ),
        )
        if window_id is None:
            return form
        found = self.reads.demand(
            window_rows.window_key(window_id),
            window_rows.Window,
            window_refusals.WindowNotFound(window_id),
        )
        if not _may_see(request, found.row.channels):
            raise window_refusals.WindowNotFound(window_id)
        asks, glass = self._asks(request, found.row.channels)
        return structs.replace(
            form,
            title=f"Edit {window_id}",
            text="Orders that hosts have acknowledged are not interrupted.",
            action=f"/windows/{quote(window_id, safe='')}/edit",
            asks=asks,
            fields=(*dashboard_forms.fill(form.fields[1:], _texts(found.row)), *glass),
            version=found.version,
            submits=(components.Option("save", "Save", "check"), form.submits[1]),
        )

    def _asks(
        self, request: routing.Request[Any, Any, Any], channels: tuple[str, ...]
    ) -> tuple[str, tuple[components.Field, ...]]:
        """That loosening what holds these channels may make a request, and the way past it."""
        protected = self.guard.list_protected(channels)
        if not protected:
            return "", ()
        row = protected[0]
        return protected_verbs.describe_asking(row, LOOSER), protected_verbs.break_glass_fields(
            request.caller, row
        )

    def _window_fields(
        self, request: routing.Request[Any, Any, Any]
    ) -> tuple[components.Field, ...]:
        repositories = [
            item.row.name for item in self.reads.range(REPOSITORIES, limit=REPOSITORIES_MAX)
        ]
        return (
            components.Field(
                name="kind",
                label="Kind",
                kind="choice",
                value="allow",
                options=(
                    components.Option("allow", "Allow", "Hosts get orders only while it is open."),
                    components.Option("deny", "Deny", "Hosts get no order while it lasts."),
                ),
            ),
            components.Field(
                name="start",
                label="First start, local time",
                kind="datetime-local",
                required=True,
                hint="In the time zone below.",
            ),
            components.Field(
                name="minutes",
                label="Lasts, minutes",
                value="120",
                required=True,
                hint=f"{dashboard_forms.to_minutes(checks.DURATION_MIN)} to "
                f"{dashboard_forms.to_minutes(checks.DURATION_MAX)}.",
            ),
            components.Field(
                name="rule",
                label="Repeats",
                placeholder="Empty: once",
                options=window_lines.RULES,
                hint="A recurrence rule of RFC 5545, such as FREQ=DAILY.",
            ),
            components.Field(
                name="zone",
                label="Time zone",
                value="UTC",
                required=True,
                hint="Such as Europe/Berlin, or label:tz for each host's own.",
            ),
            components.Field(
                name="zone_default",
                label="Time zone of hosts without that label",
                placeholder="Only with label:…",
            ),
            self.channels(request, "Tick none for all channels."),
            components.Field(
                name="repositories",
                label="Repositories",
                kind="many",
                hint="Tick none for all repositories.",
                options=tuple(
                    components.Option(name, name)
                    for name in repositories
                    if request.principal.may(roles.Verb.READ, repository_scope(name))
                ),
            ),
            components.Field(
                name="hosts",
                label="Hosts",
                value="*",
                required=True,
                hint="A label selector; * is every host.",
            ),
            components.Field(
                name="except_dates",
                label="Not on these dates",
                placeholder="2026-12-24, 2026-12-31",
            ),
            REASON,
        )

    def check_window(
        self, form: form_screens.FormPage, window: facts.WindowSpec
    ) -> form_screens.FormPage:
        """The form with the next openings. Raises: MalformedWindow."""
        ahead = self.windows.check(window, OPENINGS)
        return structs.replace(
            form,
            found="Opens next" if window.kind is facts.WindowKind.ALLOW else "Denies next",
            openings=window_lines.draw_openings(ahead, self.clock(), window.kind),
        )

    def freeze(self, request: routing.Request[Any, Any, Any]) -> form_screens.FormPage:
        protected = self.guard.list_protected(())
        return form_screens.FormPage(
            title="Freeze",
            text="Nothing is dispatched on these channels until the freeze ends. Hosts that began "
            "to activate finish.",
            asks=f"Of protected channels: {protected_verbs.describe_end('freeze')}"
            if protected
            else "",
            action="/new/freeze",
            back=HERE,
            fields=(
                self.channels(request, "Tick none to freeze all channels."),
                components.Field(
                    name="until",
                    label="Until, UTC",
                    kind="datetime-local",
                    hint="Empty: until somebody ends it.",
                ),
                REASON,
            ),
            submits=(components.Option("save", "Freeze", "snow"),),
        )

    def budget(
        self, request: routing.Request[Any, Any, Any], budget_id: str | None = None
    ) -> form_screens.FormPage:
        """Raises: BudgetNotFound."""
        form = form_screens.FormPage(
            title="New budget",
            text="A budget limits how many of some hosts are in flight at once.",
            action="/new/budget",
            back=HERE,
            fields=(
                components.Field(
                    name="budget_id",
                    label="Name",
                    required=True,
                    placeholder="web-hosts",
                    hint="A budget that has this name is replaced.",
                ),
                components.Field(
                    name="selector",
                    label="Hosts",
                    required=True,
                    placeholder="app=web",
                    hint="A label selector.",
                ),
                components.Field(name="count", label="Hosts in flight at most", kind="number"),
                components.Field(
                    name="percent",
                    label="Percent of them at most",
                    kind="number",
                    hint="With both, the smaller one counts.",
                ),
            ),
            submits=(components.Option("save", "Create", "check"),),
        )
        if budget_id is None:
            return form
        found = self.reads.demand(
            fleet_rows.budget_key(budget_id),
            fleet_rows.Budget,
            fleet_refusals.BudgetNotFound(budget_id),
        )
        if found.row.removed:
            raise fleet_refusals.BudgetNotFound(budget_id)
        row = found.row
        texts = {
            "selector": row.selector,
            "count": row.max_in_flight or "",
            "percent": row.max_in_flight_pct or "",
        }
        asks, glass = self._asks(request, ())
        return structs.replace(
            form,
            title=f"Edit {budget_id}",
            action=f"/budgets/{quote(budget_id, safe='')}/edit",
            asks=asks,
            fields=(*dashboard_forms.fill(form.fields[1:], texts), *glass),
            submits=(components.Option("save", "Save", "check"),),
        )


def _may_see(request: routing.Request[Any, Any, Any], channels: tuple[str, ...]) -> bool:
    scopes = list_scopes(channels)
    return not channels or any(request.principal.may(roles.Verb.READ, scope) for scope in scopes)


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


def _texts(row: window_rows.Window) -> dict[str, Any]:
    return {
        "kind": str(row.kind),
        "start": row.start,
        "minutes": dashboard_forms.to_minutes(row.duration_seconds),
        "rule": row.rule,
        "except_dates": ", ".join(row.except_dates),
        "channels": row.channels,
        "repositories": row.repositories,
        "hosts": row.hosts,
        "zone": row.zone,
        "zone_default": row.zone_default or "",
        "reason": "",
    }


def _read_window(body: WindowForm, window_id: str, *, reasoned: bool = True) -> facts.WindowSpec:
    """Raises: InvalidRequest."""
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
    forms: MaintenanceForms,
    form: form_screens.FormPage,
    name: str,
) -> routing.Response:
    """What the window would open, or why it cannot work."""
    try:
        window = _read_window(request.body, name or "window", reasoned=False)
        form = forms.check_window(form, window)
    except TidegateError as error:
        return layout.answer(request, _refused(form, error), problem=error)
    return layout.answer(request, _page(form))


def show_new_window(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """The form of a new window."""
    return layout.answer(request, _page(forms.window(request)))


def create_window(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewWindowForm],
    windows: WindowOperations,
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Create a window, or show its openings first."""
    body = request.body
    form, name = _typed(forms.window(request), request), body.window_id.strip()
    if body.do == "check":
        return _check(request, layout, forms, form, name)

    def run() -> int:
        window = _read_window(body, name)
        return windows.create(request.caller, window, body.reason.strip())

    return dashboard_forms.send(
        request,
        layout,
        run,
        back=HERE,
        done="created",
        page=lambda error: _refused(form, error),
    )


def show_edit_window(
    request: routing.Request[WindowPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """The form of a window."""
    return layout.answer(request, _page(forms.window(request, request.path.window_id)))


def edit_window(
    request: routing.Request[WindowPagePath, dashboard_layout.PageQuery, WindowForm],
    windows: WindowOperations,
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change a window, or show its openings first."""
    body, name = request.body, request.path.window_id
    form = _typed(forms.window(request, name), request)
    if body.do == "check":
        return _check(request, layout, forms, form, name)

    def run() -> int:
        window = _read_window(body, name)
        members = {item: getattr(window, item) for item in window.__struct_fields__}
        members.pop("window_id")
        return windows.edit(request.caller, name, members, body.reason.strip())

    return dashboard_forms.send(
        request,
        layout,
        run,
        back=HERE,
        done="saved",
        page=lambda error: _refused(form, error),
    )


# ── freezes and budgets ───────────────────────────────────────────────────────────────────────────


def show_freeze(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """The form of a freeze."""
    return layout.answer(request, _page(forms.freeze(request)))


def start_freeze(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewFreezeForm],
    freezes: FreezeOperations,
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Dispatch nothing on some channels, or on all."""
    body = request.body
    form = _typed(forms.freeze(request), request)

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
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """The form of a new budget."""
    return layout.answer(request, _page(forms.budget(request)))


def create_budget(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewBudgetForm],
    budgets: BudgetOperations,
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Set a limit under a new name."""
    form = _typed(forms.budget(request), request)
    reader = dashboard_forms.FormReader()
    name = reader.text("budget_id", request.body.budget_id, most=ID_CHARS_MAX)
    return _set_budget(request, budgets, layout, form, name, reader, "created")


def show_edit_budget(
    request: routing.Request[BudgetPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """The form of a budget."""
    return layout.answer(request, _page(forms.budget(request, request.path.budget_id)))


def edit_budget(
    request: routing.Request[BudgetPagePath, dashboard_layout.PageQuery, BudgetForm],
    budgets: BudgetOperations,
    forms: MaintenanceForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change a limit."""
    name = request.path.budget_id
    form = _typed(forms.budget(request, name), request)
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
    """The first of its scopes; the operation asks for all of them."""
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
