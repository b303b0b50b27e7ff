"""The log: events up to a position of the slider, by type and tag, with their payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from tidegate.api.feed.tail import Tail
from tidegate.control.queries.log_reader import LogReader
from tidegate.dashboard.components import FormError
from tidegate.dashboard.event_text import line, payload
from tidegate.dashboard.layout import (
    Layout,
    PageQuery,
    PageView,
    UserDirectory,
    page_route,
    to_form_error,
)
from tidegate.dashboard.view_models import EventLine, Events
from tidegate.domain.access.roles import Verb
from tidegate.errors import TidegateError
from tidegate.kernel.model import ANY, Clause, Event, Match, Position, Query
from tidegate.web.authentication import SECURITY
from tidegate.web.inputs import Nothing
from tidegate.web.routing import Request, Response, requires

SHOWN = 60
WINDOWS = (256, 4_096, 65_536)  # positions that are looked back where a filter leaves little
READ_MAX = 4_096  # events of one window that are looked at
SAMPLES = 48  # of the curve over the slider


class EventsQuery(PageQuery, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    type: Annotated[str, Meta(max_length=128)] = ""
    tag: Annotated[str, Meta(max_length=256)] = ""


Asked = Request[Nothing, EventsQuery, Nothing]


def index(request: Asked, log: LogReader, tail: Tail, layout: Layout) -> Response:
    """Events up to a position, newest first."""
    head = tail.position
    query = request.query
    following = query.at is None or query.at >= head
    at = head if query.at is None else min(query.at, head)
    people = layout.names(request)
    fault: FormError | None = None
    found: Sequence[Event] = ()
    try:
        found = before(request, log, at)
    except TidegateError as error:
        fault = to_form_error(error)
    times, positions = _curve(log, head)
    lines = tuple(
        _line(log, event, people, opened=not following and event.position == at)
        for event in reversed(found)
    )
    view = Events(
        events=lines,
        types=_types(request, log),
        type=query.type,
        tag=query.tag,
        at=at,
        head=head,
        following=following,
        older=found[0].position - 1 if len(found) == SHOWN else 0,
        newer=0 if following else min(head, at + SHOWN),
        times=times,
        positions=positions,
        at_time=found[-1].at if found else None,
        fault=fault,
    )
    page = PageView(
        template="events.html",
        title="Events",
        here="/events",
        view=view,
        still=not following,
        forgets=("at",),  # it is at the head, wherever that will be
    )
    return layout.answer(request, page)


def before(request: Asked, log: LogReader, at: Position) -> Sequence[Event]:
    """The last events up to a position that fit, in order; a longer way back if there are few.

    Raises:
        InvalidInput: a type or tag that nothing has.
    """
    query = request.query
    audits = request.principal.may(Verb.AUDIT)
    asked: Query | None = None
    if query.type or query.tag:
        types = frozenset({query.type}) if query.type else ANY
        tags = frozenset({query.tag}) if query.tag else frozenset()
        asked = Query((Clause(types, tags, Match.CONTAINS),))
        log.check_query(asked)
    found: list[Event] = []
    for window in WINDOWS:
        after = max(0, at - window)
        if asked is None:
            events = log.feed(after=after, limit=READ_MAX)
        else:
            events = log.events(asked, after=after, limit=READ_MAX)
        found = [
            event for event in events if event.position <= at and (audits or event.kind != SECURITY)
        ]
        if len(found) >= SHOWN or after == 0:
            break
    return found[-SHOWN:]


def _types(request: Asked, log: LogReader) -> tuple[str, ...]:
    audits = request.principal.may(Verb.AUDIT)
    types = log.vocabulary.types
    return tuple(sorted(name for name, fact in types.items() if audits or fact.kind != SECURITY))


def _curve(log: LogReader, head: Position) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """When some positions were written: a curve that is steep where much happened."""
    times: list[int] = []
    positions: list[int] = []
    for number in range(SAMPLES + 1):
        wanted = max(0, head * number // SAMPLES - 1)
        found = log.feed(after=wanted, limit=1)
        if found and (not positions or found[0].position > positions[-1]):
            at = int(found[0].at.timestamp())
            times.append(max(at, times[-1] + 1) if times else at)
            positions.append(found[0].position)
    return tuple(times), tuple(positions)


def _line(log: LogReader, event: Event, people: UserDirectory, opened: bool) -> EventLine:
    icon, tone, title, sub = line(log, event, people)
    return EventLine(
        position=event.position,
        at=event.at,
        type=event.type,
        kind=event.kind,
        icon=icon,
        tone=tone,
        told=f"{title} · {sub}" if sub else title,
        actor=people(event.meta.actor),
        tags=event.tags,
        body=payload(event),
        request=event.meta.request,
        open=opened,
    )


ROUTES = (page_route("/events", index, requires(Verb.READ)),)
