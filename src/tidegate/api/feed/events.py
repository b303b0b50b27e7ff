"""Events for clients that follow the log: pages, long polls and streams from one shared tail.

The position of an event is its id everywhere: ``after=``, ``Last-Event-ID``, the CloudEvents id.
Only users with the verb audit see security events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from tidegate.api.feed.cloud_events import CloudEvent
from tidegate.api.feed.tail import Tail, TailEntry
from tidegate.control.operations.accounts import Accounts
from tidegate.control.queries.log_reader import LogReader
from tidegate.domain.access.roles import Verb
from tidegate.errors import InvalidInput
from tidegate.kernel.model import ANY, POSITION_MAX, Clause, Event, Match, Position, Query
from tidegate.web import authentication, inputs as web_inputs, routing
from tidegate.web.as_of import AsOf, position_of

WAIT_SECONDS_MAX = 60
PAGES_MAX = 20  # read for one response when a filter matches few events of each
HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 2_000

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Tag = Annotated[str, Meta(min_length=1, max_length=256)]  # rollout_id: is the longest, with 203


class Following(web_inputs.Input, frozen=True, kw_only=True):
    """Which events to return, and from which position on."""

    # A stream without it starts at the end, a page at the beginning.
    after: web_inputs.Position | None = None
    type: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()
    tag: Annotated[tuple[Tag, ...], Meta(max_length=8)] = ()  # an event must have all of them
    limit: Annotated[int, Meta(ge=1, le=web_inputs.LIMIT_MAX)] = web_inputs.LIMIT_DEFAULT
    wait: Annotated[int, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0
    as_of: AsOf = ""
    min_position: web_inputs.Position = 0


class EventsPage(Struct, frozen=True):
    """Events in order. Send ``position`` as ``after`` to get the next ones."""

    items: tuple[CloudEvent, ...]
    position: int


T = TypeVar("T")
Fits = Callable[[Event], bool]
Asked = routing.Request[web_inputs.Nothing, Following, web_inputs.Nothing]


async def follow(
    request: Asked, log: LogReader, accounts: Accounts, tail: Tail
) -> routing.Response:
    """Events after a position: at once, by long poll (wait=), or as a stream."""
    query = request.query
    fits = _filter(request, log)
    await tail.refresh()
    headers = request.arrived.headers
    wants_stream = routing.EVENT_STREAM.encode() in headers.get(b"accept", b"")
    if wants_stream:
        start = _start(request, tail)
        stream = _stream(request, log, accounts, tail, start, fits)
        return routing.Response(
            stream=stream,
            media=routing.EVENT_STREAM,
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )
    upto = POSITION_MAX
    if query.as_of:
        upto = await _in_thread(partial(position_of, log, query.as_of))
    seen = tail.position
    entries, position = await _page(request, log, tail, query.after or 0, fits, upto)
    if not entries and query.wait and not query.as_of:
        entries, position = await _wait(request, log, tail, position, seen, fits)
    items = b",".join(entry.json for entry in entries)
    return routing.Response(
        b'{"items":[' + items + b'],"position":%d}' % position, media=routing.JSON
    )


def _start(request: Asked, tail: Tail) -> Position:
    """The position that a stream starts after. Raises: InvalidInput."""
    given = request.arrived.headers.get(b"last-event-id")
    if given is not None:
        text = given.decode("latin-1")
        if not (text.isascii() and text.isdigit() and int(text) <= POSITION_MAX):
            raise InvalidInput(
                f"Last-Event-ID is a position of the log, found {text[:80]!r}",
                field="Last-Event-ID",
            )
        return int(text)
    after = request.query.after
    return tail.position if after is None else after


def _filter(request: Asked, log: LogReader) -> Fits:
    """The filter of this client. Raises: InvalidInput: a type or tag that does not exist."""
    query = request.query
    audits = request.principal.may(Verb.AUDIT)
    types = frozenset(query.type)
    tags = frozenset(query.tag)
    if types or tags:
        log.check_query(_query(types, tags))
    if audits and not types and not tags:
        return lambda event: True
    return lambda event: (
        (audits or event.kind != authentication.SECURITY)
        and (not types or event.type in types)
        and tags.issubset(event.tags)
    )


def _query(types: frozenset[str], tags: frozenset[str]) -> Query:
    return Query((Clause(types or ANY, tags, Match.CONTAINS),))


async def _page(
    request: Asked,
    log: LogReader,
    tail: Tail,
    after: Position,
    fits: Fits,
    upto: Position = POSITION_MAX,
) -> tuple[list[TailEntry], Position]:
    """Up to a limit of matching events, and the position up to which they were searched."""
    limit = request.query.limit
    found: list[TailEntry] = []
    for _ in range(PAGES_MAX):
        entries = await _read_after(request, log, tail, after)
        for entry in entries:
            if entry.event.position > upto:
                return found, after
            after = entry.event.position
            if fits(entry.event):
                found.append(entry)
                if len(found) == limit:
                    return found, after
        if len(entries) < web_inputs.LIMIT_MAX:
            break
    return found, after


async def _read_after(
    request: Asked, log: LogReader, tail: Tail, after: Position
) -> Sequence[TailEntry]:
    """The next events after a position, from the ring, or from the store if it is older."""
    entries = tail.since(after)
    if entries is not None:
        return entries[: web_inputs.LIMIT_MAX]
    query = request.query
    if query.type or query.tag:
        asked = _query(frozenset(query.type), frozenset(query.tag))
        read = partial(log.events, asked, after=after, limit=web_inputs.LIMIT_MAX)
    else:
        read = partial(log.feed, after=after, limit=web_inputs.LIMIT_MAX)
    return [TailEntry(event) for event in await _in_thread(read)]


async def _wait(
    request: Asked, log: LogReader, tail: Tail, after: Position, seen: Position, fits: Fits
) -> tuple[list[TailEntry], Position]:
    """Wait for matching events, as long as the client asks. ``seen``: where the tail was before
    the last read, so that what it found during the read is not waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.query.wait
    while (left := deadline - loop.time()) > 0:
        if tail.position == seen and not await tail.changed(left):
            break
        seen = tail.position
        entries, after = await _page(request, log, tail, after, fits)
        if entries:
            return entries, after
    return [], after


async def _stream(
    request: Asked, log: LogReader, accounts: Accounts, tail: Tail, after: Position, fits: Fits
) -> AsyncIterator[bytes]:
    """Yield all events after a position, then new ones, until client or server ends the stream."""
    watch = authentication.CredentialWatch(accounts, request.principal)
    with tail.subscribed():
        yield b"retry: %d\n: open\n\n" % RETRY_MILLISECONDS
        while not tail.stopped:
            seen = tail.position  # the log may grow while this loop reads and sends
            entries = await _read_after(request, log, tail, after)
            if not await watch.holds(entry.event for entry in entries):
                return
            if entries:
                after = entries[-1].event.position
                parts = b"".join(entry.sse for entry in entries if fits(entry.event))
                if parts:
                    yield parts
            if len(entries) == web_inputs.LIMIT_MAX:
                continue
            after = max(after, seen)  # no other event up to there matches the filter
            if tail.position == seen and not await tail.changed(HEARTBEAT_SECONDS):
                yield b"id: %d\n: alive\n\n" % after


async def _in_thread(read: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, read)


ROUTES = (
    routing.Route(
        "GET", "/v1/events", follow, routing.requires(Verb.READ), EventsPage, streams=True
    ),
)
