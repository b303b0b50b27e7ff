"""The outbox: intents, what became of them, and the forms to retry or cancel them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, structs

from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, layout as dashboard_layout, sorting, state_labels
from tidegate.dashboard.view_models import log_screens
from tidegate.domain.access import callers, principals, roles, scopes, steps
from tidegate.domain.outbox import documents, names, rows as outbox_rows, states
from tidegate.web import inputs, paging, routing

BACKLOG_MAX = 100
SORTED_MAX = 500  # the newest intents of a state that can be sorted
TABS = {
    "open": ("Pending and dead", (states.IntentState.DEAD, states.IntentState.PENDING)),
    "done": ("Done", (states.IntentState.DONE,)),
    "other": (
        "Replaced or cancelled",
        (states.IntentState.SUPERSEDED, states.IntentState.CANCELLED),
    ),
}
DRIFT = {
    states.DriftState.OPEN: components.Chip("warning", "warn", "Open"),
    states.DriftState.REFUSED: components.Chip("ban", "bad", "Refused"),
    states.DriftState.REPAIRED: components.Chip("check", "good", "Repaired"),
}


COLUMNS: Final[sorting.SortColumns[documents.OutboxDocument]] = sorting.SortColumns(
    "-changed",
    sorting.SortColumn(label="Operation", name="operation", key=lambda it: it.operation),
    sorting.SortColumn(label="State", name="state", key=lambda it: str(it.state)),
    sorting.SortColumn(
        label="Release",
        name="release",
        key=lambda it: it.requested_state.release_id,
        classes="optional",
    ),
    sorting.SortColumn(
        label="Attempts",
        name="attempts",
        key=lambda it: it.attempts,
        newest_first=True,
        classes="right",
    ),
    sorting.SortColumn(label="Last error", classes="optional"),
    sorting.SortColumn(
        label="Next", name="next", key=lambda it: it.next_attempt_at, classes="right"
    ),
    sorting.SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: it.updated_at,
        newest_first=True,
        classes="right optional",
    ),
)


class OutboxQuery(dashboard_layout.ListQuery, frozen=True, kw_only=True):
    tab: Annotated[str, Meta(max_length=16)] = "open"
    sort: dashboard_layout.SortWish = ""


class IntentForm(inputs.Input, frozen=True, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=512)]
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


Action = routing.Request[inputs.Nothing, dashboard_layout.PageQuery, IntentForm]


def backlog(outbox_reader: OutboxReader) -> tuple[log_screens.OutboxLine, ...]:
    """Intents that are not delivered: dead letters first, then retries, oldest first."""
    found = [
        item
        for state in (states.IntentState.DEAD, states.IntentState.PENDING)
        for item in outbox_reader.list_in_state(state, limit=BACKLOG_MAX)
    ]
    return tuple(map(_line, found))


def outbox(
    request: routing.Request[inputs.Nothing, OutboxQuery, inputs.Nothing],
    reads: Reads,
    outbox_reader: OutboxReader,
    cursors: paging.Cursors,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List intents by state, newest first."""
    query = request.query
    order = COLUMNS.order(query.sort)
    selection = _Selection(query.tab, order, cursors.after(request))
    page, last = _page(request.principal, reads, outbox_reader, selection)
    tab = query.tab if query.tab in TABS else "open"
    following = layout.next_page(request, "/outbox", last, tab=tab, sort=query.sort)
    assert isinstance(page.view, log_screens.Outbox)
    page = replace(page, view=structs.replace(page.view, next=following))
    return layout.answer(request, page)


def redrive(
    request: Action,
    outbox: OutboxOperations,
    reads: Reads,
    outbox_reader: OutboxReader,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Retry a dead letter."""
    intent_id, reason = request.body.id, request.body.reason
    run = partial(outbox.redrive, request.caller, intent_id, reason)
    return layout.attempt(
        request, run, "/outbox", "redriven", partial(_open, request, reads, outbox_reader)
    )


def cancel(
    request: Action,
    outbox: OutboxOperations,
    reads: Reads,
    outbox_reader: OutboxReader,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Cancel an intent."""
    intent_id, reason = request.body.id, request.body.reason
    run = partial(outbox.cancel, request.caller, intent_id, reason)
    return layout.attempt(
        request, run, "/outbox", "cancelled", partial(_open, request, reads, outbox_reader)
    )


def _open(request: Action, reads: Reads, outbox_reader: OutboxReader) -> dashboard_layout.PageView:
    """The page of open intents, because only these have verbs."""
    selection = _Selection("open", COLUMNS.order(""))
    return _page(request.principal, reads, outbox_reader, selection)[0]


class _Selection(NamedTuple):
    """Which intents to show, and from where on."""

    tab: str
    order: sorting.SortOrder[documents.OutboxDocument]
    after: str = ""


def _page(
    principal: principals.Principal,
    reads: Reads,
    outbox_reader: OutboxReader,
    selection: _Selection,
) -> tuple[dashboard_layout.PageView, str | None]:
    """The page, and where the next one starts; None: there is none."""
    tab = selection.tab if selection.tab in TABS else "open"
    found = [
        item
        for state in TABS[tab][1]
        for item in outbox_reader.list_in_state(state, limit=SORTED_MAX, newest_first=True)
        if principal.may(roles.Verb.READ, scopes.channel_scope(item.scope))
    ]
    shown = sorting.list_page(
        found, selection.order, lambda it: it.id, selection.after, dashboard_layout.ROWS
    )
    lines = tuple(
        _line(item, _redrive(item, number, principal), _cancel(item, number, principal))
        for number, item in enumerate(shown.rows)
    )
    open_count = len(found) if tab == "open" else 0
    view = log_screens.Outbox(
        tab=tab,
        tabs=tuple(
            components.Option(name, label, str(open_count) if name == "open" and open_count else "")
            for name, (label, _) in TABS.items()
        ),
        intents=lines,
        headings=COLUMNS.headings(selection.order, "/outbox", tab=tab),
        drifts=_drifts(principal, reads),
        oldest=min((item.created_at for item in found), default=None) if tab == "open" else None,
    )
    verbs = tuple(
        verb for line in lines for verb in (line.redrive, line.cancel) if verb is not None
    )
    page = dashboard_layout.PageView(
        template="outbox.html",
        title="Outbox",
        here="/outbox",
        view=view,
        verbs=verbs,
        address="/outbox",
    )
    return page, shown.last


def _line(
    item: documents.OutboxDocument,
    redrive: components.VerbButton | None = None,
    cancel: components.VerbButton | None = None,
) -> log_screens.OutboxLine:
    return log_screens.OutboxLine(
        id=item.id,
        scope=item.scope,
        operation=item.operation,
        release=item.requested_state.release_id,
        state=state_labels.OUTBOX[item.state],
        attempts=item.attempts,
        next_at=item.next_attempt_at,
        updated_at=item.updated_at,
        error=item.last_error or "",
        key=item.idempotency_key,
        redrive=redrive,
        cancel=cancel,
    )


def _redrive(
    item: documents.OutboxDocument, number: int, principal: principals.Principal
) -> components.VerbButton | None:
    if item.state is not states.IntentState.DEAD:
        return None
    return components.VerbButton(
        id=f"redrive-{number}",
        label="Redrive",
        icon="retry",
        action="/outbox/redrive",
        title=f"Try {item.operation} again?",
        text="Its attempts are forgiven; the worker takes it up at once, under the same key.",
        fields=(components.Field(name="id", kind="hidden", value=item.id), dashboard_layout.REASON),
        why=_why_not(steps.REDRIVE_INTENT, item, principal),
    )


def _cancel(
    item: documents.OutboxDocument, number: int, principal: principals.Principal
) -> components.VerbButton | None:
    if item.state not in (states.IntentState.PENDING, states.IntentState.DEAD):
        return None
    return components.VerbButton(
        id=f"cancel-{number}",
        label="Give up",
        icon="ban",
        action="/outbox/cancel",
        title=f"Give {item.operation} up?",
        text="It is never attempted again. What an attempt did already stays done.",
        fields=(components.Field(name="id", kind="hidden", value=item.id), dashboard_layout.REASON),
        why=_why_not(steps.CANCEL_INTENT, item, principal),
        danger=True,
    )


def _why_not(
    step: steps.Step, item: documents.OutboxDocument, principal: principals.Principal
) -> str:
    return callers.Caller(principal=principal).why_not(step, scopes.channel_scope(item.scope))


def _drifts(principal: principals.Principal, reads: Reads) -> tuple[log_screens.DriftLine, ...]:
    rows = reads.range(outbox_rows.DRIFTS, limit=BACKLOG_MAX)
    return tuple(
        log_screens.DriftLine(
            scope=found.row.scope,
            subject=found.row.subject,
            chip=DRIFT[found.row.state],
            finding=str(found.row.finding),
            at=found.row.updated_at,
        )
        for found in rows
        if found.row.state is not states.DriftState.REPAIRED
        and principal.may(roles.Verb.READ, scopes.channel_scope(found.row.scope))
    )


def _scope(request: Action) -> str:
    return scopes.channel_scope(names.scope_of_intent(request.body.id))


ROUTES = (
    dashboard_layout.page_route("/outbox", outbox, routing.requires_somewhere(roles.Verb.READ)),
    dashboard_layout.step_route("/outbox/redrive", redrive, steps.REDRIVE_INTENT, _scope),
    dashboard_layout.step_route("/outbox/cancel", cancel, steps.CANCEL_INTENT, _scope),
)
