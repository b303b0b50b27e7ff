"""Builds the forms of maintenance: windows, freezes and budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from msgspec import structs

from tidegate.clock import Clock
from tidegate.control.operations.freezes import list_scopes
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, forms as dashboard_forms, protected_verbs, window_lines
from tidegate.dashboard.pages.maintenance import HERE, OPENINGS
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import callers, roles
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.fleet import refusals as fleet_refusals, rows as fleet_rows
from tidegate.domain.packages.rows import REPOSITORIES
from tidegate.domain.windows import checks, facts, refusals as window_refusals, rows as window_rows
from tidegate.web import routing

CHANNELS_MAX = 400
REPOSITORIES_MAX = 400
LOOSER = " What gives its hosts more time or more room makes"
REASON = components.Field(
    name="reason", label="Reason", required=True, placeholder="Why, for the log"
)


@dataclass(frozen=True)
class MaintenanceForms:
    """Builds the forms before anything is typed."""

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
        """The form of a window: a new one, or an existing one. Raises: WindowNotFound."""
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
        """A note that looser limits may make a request, and the fields of break-glass."""
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
        self, caller: callers.Caller, form: form_screens.FormPage, window: facts.WindowSpec
    ) -> form_screens.FormPage:
        """Add the next openings to the form. Raises: MalformedWindow, ChannelNotFound."""
        ahead = self.windows.check(caller, window, OPENINGS)
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
                    hint="Empty: until you end it.",
                ),
                REASON,
            ),
            submits=(components.Option("save", "Freeze", "snow"),),
        )

    def budget(
        self, request: routing.Request[Any, Any, Any], budget_id: str | None = None
    ) -> form_screens.FormPage:
        """The form of a budget: a new one, or an existing one. Raises: BudgetNotFound."""
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
