"""Events: the log by type and tag, up to any time, with their rate and payload."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from msgspec import Meta, structs

from tidegate.api.feed.tail import Tail
from tidegate.clock import Clock
from tidegate.control.queries.log_reader import LogReader
from tidegate.dashboard import components, event_rate, event_text, html, layout as dashboard_layout
from tidegate.dashboard.view_models import log_screens
from tidegate.domain.access.roles import Verb
from tidegate.errors import InvalidInput, TidegateError
from tidegate.kernel.model import ANY, Clause, Event, Match, Position, Query
from tidegate.web import authentication, inputs, routing

SHOWN = 60
WINDOWS = (4_096, 65_536)  # positions to search back if a filter matches few events
READ_MAX = 4_096  # events of one window that are read
NEW_MAX = 500  # new events that are counted


class EventsQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    time: Annotated[str, Meta(max_length=40)] = ""  # in UTC, if no zone is given
    type: Annotated[str, Meta(max_length=128)] = ""
    tag: Annotated[str, Meta(max_length=256)] = ""


class NewEventsQuery(inputs.Input, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=2**53 - 1)]
    type: Annotated[str, Meta(max_length=128)] = ""
    tag: Annotated[str, Meta(max_length=256)] = ""


Asked = routing.Request[inputs.Nothing, EventsQuery, inputs.Nothing]
Counted = routing.Request[inputs.Nothing, NewEventsQuery, inputs.Nothing]


def index(
    request: Asked, log: LogReader, tail: Tail, clock: Clock, layout: dashboard_layout.Layout
) -> routing.Response:
    """List events up to a position or a time, newest first, and show their rate."""
    head = tail.position
    query = request.query
    people = layout.names(request)
    fault: components.FormError | None = None
    read = _Window((), False)
    at = head
    try:
        at = _position(query, log, head)
        read = before(request, log, at)
    except TidegateError as error:
        fault = dashboard_layout.to_form_error(error)
    following = at >= head
    found = read.events[-SHOWN:]
    lines = tuple(
        _line(log, event, people, opened=not following and event.position == query.at)
        for event in reversed(found)
    )
    filters = {"type": query.type, "tag": query.tag}
    newest = found[-1].at if found else None
    older = found[0].position - 1 if len(found) == SHOWN else 0
    view = log_screens.Events(
        events=lines,
        types=_types(request, log),
        type=query.type,
        tag=query.tag,
        at=at,
        head=head,
        following=following,
        older=components.address("/events", at=str(older or ""), **filters) if older else "",
        newer=""
        if following
        else components.address("/events", at=str(min(head, at + SHOWN)), **filters),
        back=components.address("/events", **filters),
        rate=event_rate.rate_of(
            read.events,
            log.package_of,
            until=clock() if following else newest or clock(),
            cut=read.cut,
            link=lambda time: components.address(
                "/events", time=f"{time:%Y-%m-%dT%H:%M:%S}", **filters
            ),
        ),
        new=_new_events(head, filters),
        at_time=newest,
        fault=fault,
    )
    page = dashboard_layout.PageView(
        template="events.html",
        title="Events",
        here="/events",
        view=view,
        still=not following,
        redraws=False,  # rows do not move: the page announces new ones
    )
    return layout.answer(request, page)


def count_new(request: Counted, log: LogReader) -> routing.Response:
    """Count the events since the page was rendered. The result is a part of that page."""
    query = request.query
    found = _read(request, log, after=query.after, limit=NEW_MAX)
    filters = {"type": query.type, "tag": query.tag}
    part = structs.replace(
        _new_events(query.after, filters), count=len(found), is_more=len(found) == NEW_MAX
    )
    return routing.Response(html.render_part("new_events.html", part), media=dashboard_layout.UTF8)


def _new_events(after: Position, filters: dict[str, str]) -> log_screens.NewEvents:
    return log_screens.NewEvents(
        ask=components.address("/events/new", after=str(after), **filters),
        href=components.address("/events", **filters),
    )


def _position(query: EventsQuery, log: LogReader, head: Position) -> Position:
    """The position up to which events are shown. Raises: InvalidInput: malformed time."""
    if query.time:
        try:
            time = datetime.fromisoformat(query.time)
        except ValueError:
            raise InvalidInput(
                f"{query.time!r} is not a time; write it like 2026-11-18T14:05", field="query.time"
            ) from None
        return log.position_at(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    return head if query.at is None else min(query.at, head)


class _Window(NamedTuple):
    """Events in order; ``cut``: there are older ones."""

    events: Sequence[Event]
    cut: bool


def before(request: Asked, log: LogReader, at: Position) -> _Window:
    """Find the last matching events up to a position; search further back if there are few.

    Raises:
        InvalidInput: a type or tag that does not exist.
    """
    found: list[Event] = []
    after = 0
    for window in WINDOWS:
        after = max(0, at - window)
        read = _read(request, log, after=after, limit=READ_MAX)
        if len(read) == READ_MAX and found:
            break  # so many that the newest ones are not among them
        found = [event for event in read if event.position <= at]
        if len(found) >= SHOWN or after == 0:
            break
    return _Window(found, after > 0)


def _read(request: Asked | Counted, log: LogReader, *, after: Position, limit: int) -> list[Event]:
    """Read matching events after a position that the reader may see. Raises: InvalidInput."""
    query = request.query
    audits = request.principal.may(Verb.AUDIT)
    events: Sequence[Event]
    if query.type or query.tag:
        types = frozenset({query.type}) if query.type else ANY
        tags = frozenset({query.tag}) if query.tag else frozenset()
        asked = Query((Clause(types, tags, Match.CONTAINS),))
        log.check_query(asked)
        events = log.events(asked, after=after, limit=limit)
    else:
        events = log.feed(after=after, limit=limit)
    return [event for event in events if audits or event.kind != authentication.SECURITY]


def _types(request: Asked, log: LogReader) -> tuple[str, ...]:
    audits = request.principal.may(Verb.AUDIT)
    types = log.vocabulary.types
    return tuple(
        sorted(
            name for name, fact in types.items() if audits or fact.kind != authentication.SECURITY
        )
    )


def _line(
    log: LogReader, event: Event, people: dashboard_layout.UserDirectory, opened: bool
) -> log_screens.EventLine:
    icon, tone, title, sub = event_text.line(log, event, people)
    return log_screens.EventLine(
        position=event.position,
        at=event.at,
        type=event.type,
        kind=event.kind,
        icon=icon,
        tone=tone,
        title=f"{title} · {sub}" if sub else title,
        actor=people(event.meta.actor),
        tags=event.tags,
        body=event_text.payload(event),
        request=event.meta.request,
        open=opened,
    )


ROUTES = (
    dashboard_layout.page_route("/events", index, routing.requires(Verb.READ)),
    dashboard_layout.page_route("/events/new", count_new, routing.requires(Verb.READ)),
)
