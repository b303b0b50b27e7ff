"""The outbox: what is owed to the world, what became of it; trying again, giving up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, structs

from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.queries.documents import OutboxReader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import state_labels
from tidegate.dashboard.components import Chip, Field, Option, VerbButton
from tidegate.dashboard.layout import (
    REASON,
    ROWS,
    Layout,
    ListQuery,
    PageQuery,
    PageView,
    SortWish,
    page_route,
    step_route,
)
from tidegate.dashboard.sorting import SortColumn, SortColumns, SortOrder, list_page
from tidegate.dashboard.view_models import DriftLine, Outbox, OutboxLine
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import CANCEL_INTENT, REDRIVE_INTENT, Step
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.names import scope_of_intent
from tidegate.domain.outbox.rows import DRIFTS
from tidegate.domain.outbox.states import DriftState, IntentState
from tidegate.web.inputs import Input, Nothing
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, requires_somewhere

BACKLOG_MAX = 100
SORTED_MAX = 500  # intents of a state, the newest, that are sorted
TABS = {
    "open": ("Pending and dead", (IntentState.DEAD, IntentState.PENDING)),
    "done": ("Done", (IntentState.DONE,)),
    "other": ("Superseded or cancelled", (IntentState.SUPERSEDED, IntentState.CANCELLED)),
}
DRIFT = {
    DriftState.OPEN: Chip("warning", "warn", "Open"),
    DriftState.REFUSED: Chip("ban", "bad", "Refused"),
    DriftState.REPAIRED: Chip("check", "good", "Repaired"),
}


COLUMNS: Final[SortColumns[OutboxDocument]] = SortColumns(
    "-changed",
    SortColumn(label="Operation", name="operation", key=lambda it: it.operation),
    SortColumn(label="State", name="state", key=lambda it: str(it.state)),
    SortColumn(
        label="Release",
        name="release",
        key=lambda it: it.requested_state.release_id,
        classes="optional",
    ),
    SortColumn(
        label="Attempts",
        name="attempts",
        key=lambda it: it.attempts,
        newest_first=True,
        classes="right",
    ),
    SortColumn(label="Last error", classes="optional"),
    SortColumn(label="Next", name="next", key=lambda it: it.next_attempt_at, classes="right"),
    SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: it.updated_at,
        newest_first=True,
        classes="right optional",
    ),
)


class OutboxQuery(ListQuery, frozen=True, kw_only=True):
    tab: Annotated[str, Meta(max_length=16)] = "open"
    sort: SortWish = ""


class IntentForm(Input, frozen=True, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=512)]
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


Action = Request[Nothing, PageQuery, IntentForm]


def backlog(outbox_reader: OutboxReader) -> tuple[OutboxLine, ...]:
    """What is still owed: given up first, then what is tried again, the longest first."""
    found = [
        item
        for state in (IntentState.DEAD, IntentState.PENDING)
        for item in outbox_reader.list_in_state(state, limit=BACKLOG_MAX)
    ]
    return tuple(map(_line, found))


def outbox(
    request: Request[Nothing, OutboxQuery, Nothing],
    reads: Reads,
    outbox_reader: OutboxReader,
    cursors: Cursors,
    layout: Layout,
) -> Response:
    """Intents by state, newest first."""
    query = request.query
    order = COLUMNS.order(query.sort)
    wanted = _Wanted(query.tab, order, cursors.after(request))
    page, last = _page(request.principal, reads, outbox_reader, wanted)
    tab = query.tab if query.tab in TABS else "open"
    following = layout.next_page(request, "/outbox", last, tab=tab, sort=query.sort)
    assert isinstance(page.view, Outbox)
    page = replace(page, view=structs.replace(page.view, next=following))
    return layout.answer(request, page)


def redrive(
    request: Action,
    outbox: OutboxOperations,
    reads: Reads,
    outbox_reader: OutboxReader,
    layout: Layout,
) -> Response:
    """Try a dead intent again."""
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
    layout: Layout,
) -> Response:
    """Give an intent up."""
    intent_id, reason = request.body.id, request.body.reason
    run = partial(outbox.cancel, request.caller, intent_id, reason)
    return layout.attempt(
        request, run, "/outbox", "cancelled", partial(_open, request, reads, outbox_reader)
    )


def _open(request: Action, reads: Reads, outbox_reader: OutboxReader) -> PageView:
    """The page of the verbs: only what is open has any."""
    wanted = _Wanted("open", COLUMNS.order(""))
    return _page(request.principal, reads, outbox_reader, wanted)[0]


class _Wanted(NamedTuple):
    """Which intents are shown, and from where on."""

    tab: str
    order: SortOrder[OutboxDocument]
    after: str = ""


def _page(
    principal: Principal, reads: Reads, outbox_reader: OutboxReader, wanted: _Wanted
) -> tuple[PageView, str | None]:
    """The page, and where the next one starts; None: there is none."""
    tab = wanted.tab if wanted.tab in TABS else "open"
    found = [
        item
        for state in TABS[tab][1]
        for item in outbox_reader.list_in_state(state, limit=SORTED_MAX, newest_first=True)
        if principal.may(Right.READ, channel_scope(item.scope))
    ]
    shown = list_page(found, wanted.order, lambda it: it.id, wanted.after, ROWS)
    lines = tuple(
        _line(item, _redrive(item, number, principal), _cancel(item, number, principal))
        for number, item in enumerate(shown.rows)
    )
    owed = len(found) if tab == "open" else 0
    view = Outbox(
        tab=tab,
        tabs=tuple(
            Option(name, label, str(owed) if name == "open" and owed else "")
            for name, (label, _) in TABS.items()
        ),
        intents=lines,
        headings=COLUMNS.headings(wanted.order, "/outbox", tab=tab),
        drifts=_drifts(principal, reads),
        oldest=min((item.created_at for item in found), default=None) if tab == "open" else None,
    )
    verbs = tuple(
        verb for line in lines for verb in (line.redrive, line.cancel) if verb is not None
    )
    page = PageView(template="outbox.html", title="Outbox", here="/outbox", view=view, verbs=verbs)
    return page, shown.last


def _line(
    item: OutboxDocument, redrive: VerbButton | None = None, cancel: VerbButton | None = None
) -> OutboxLine:
    return OutboxLine(
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


def _redrive(item: OutboxDocument, number: int, principal: Principal) -> VerbButton | None:
    if item.state is not IntentState.DEAD:
        return None
    return VerbButton(
        id=f"redrive-{number}",
        label="Redrive",
        icon="retry",
        action="/outbox/redrive",
        title=f"Try {item.operation} again?",
        text="Its attempts are forgiven; the worker takes it up at once, under the same key.",
        fields=(Field(name="id", kind="hidden", value=item.id), REASON),
        why=_why_not(REDRIVE_INTENT, item, principal),
    )


def _cancel(item: OutboxDocument, number: int, principal: Principal) -> VerbButton | None:
    if item.state not in (IntentState.PENDING, IntentState.DEAD):
        return None
    return VerbButton(
        id=f"cancel-{number}",
        label="Give up",
        icon="ban",
        action="/outbox/cancel",
        title=f"Give {item.operation} up?",
        text="It is never attempted again. What an attempt did already stays done.",
        fields=(Field(name="id", kind="hidden", value=item.id), REASON),
        why=_why_not(CANCEL_INTENT, item, principal),
        danger=True,
    )


def _why_not(step: Step, item: OutboxDocument, principal: Principal) -> str:
    return Caller(principal=principal).why_not(step, channel_scope(item.scope))


def _drifts(principal: Principal, reads: Reads) -> tuple[DriftLine, ...]:
    rows = reads.range(DRIFTS, limit=BACKLOG_MAX)
    return tuple(
        DriftLine(
            scope=found.row.scope,
            subject=found.row.subject,
            chip=DRIFT[found.row.state],
            finding=str(found.row.finding),
            at=found.row.updated_at,
        )
        for found in rows
        if found.row.state is not DriftState.REPAIRED
        and principal.may(Right.READ, channel_scope(found.row.scope))
    )


def _scope(request: Action) -> str:
    return channel_scope(scope_of_intent(request.body.id))


ROUTES = (
    page_route("/outbox", outbox, requires_somewhere(Right.READ)),
    step_route("/outbox/redrive", redrive, REDRIVE_INTENT, _scope),
    step_route("/outbox/cancel", cancel, CANCEL_INTENT, _scope),
)
