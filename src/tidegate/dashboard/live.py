"""The stream that a page follows: the position of the log, that the page is stale, changed hosts.

    head    <position> <time>                 at least every few seconds: the live mark
    tide                                      something that the page is about has changed
    hosts   <position> <soak due> <base64>    of a rollout's page: the new bytes of its squares

It does not say what changed: the page reloads itself with the permissions of its reader and merges
the result. Many changes in a short time are sent as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta

from tidegate.api.feed.tail import Tail, TailEntry
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.accounts import Accounts
from tidegate.control.queries.log_reader import LogReader
from tidegate.dashboard import grid_encoding, layout
from tidegate.domain.access import principals, roles, scopes
from tidegate.domain.rollouts.names import channel_of
from tidegate.errors import TidegateError
from tidegate.web import authentication, inputs, routing

HEARTBEAT_SECONDS = 8.0
PACE_SECONDS = 0.4  # between two messages of one stream
PACE_OF_ALL_SECONDS = 1.5  # for a page about all events, which is more expensive to render
RETRY_MILLISECONDS = 1_000
ROLLOUT = "rollout_id:"


class LiveQuery(inputs.Input, frozen=True, kw_only=True):
    about: Annotated[str, Meta(max_length=256)] = ""  # a tag; empty: all events


Following = routing.Request[inputs.Nothing, LiveQuery, inputs.Nothing]


async def live(
    request: Following,
    log: LogReader,
    fleet_reader: FleetReader,
    clock: Clock,
    accounts: Accounts,
    tail: Tail,
) -> routing.Response:
    """Follow the changes that concern a page."""
    about = request.query.about
    places: grid_encoding.GridPlaces | None = None
    if about.startswith(ROLLOUT):
        rollout_id = about.removeprefix(ROLLOUT)
        principals.demand_permission(
            request.principal, (roles.Verb.READ,), scopes.channel_scope(channel_of(rollout_id))
        )
        loop = asyncio.get_running_loop()
        read = partial(grid_encoding.places_of, fleet_reader, rollout_id)
        places = await loop.run_in_executor(None, read)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    stream = _stream(request, log, clock, accounts, tail, places)
    return routing.Response(stream=stream, media=routing.EVENT_STREAM, headers=headers)


async def _stream(
    request: Following,
    log: LogReader,
    clock: Clock,
    accounts: Accounts,
    tail: Tail,
    places: grid_encoding.GridPlaces | None,
) -> AsyncIterator[bytes]:
    about = request.query.about
    seen = tail.position
    watch = authentication.CredentialWatch(accounts, request.principal)
    with tail.subscribed():
        yield b"retry: %d\n\n" % RETRY_MILLISECONDS + _head(seen, clock)
        while not tail.stopped:
            if tail.position <= seen and not await tail.changed(HEARTBEAT_SECONDS):
                if not await watch.holds(()):
                    return
                yield _head(tail.position, clock)
                continue
            await asyncio.sleep(PACE_SECONDS if about else PACE_OF_ALL_SECONDS)
            entries = tail.since(seen)
            if entries is None:
                return  # too far behind: the page reconnects and starts again
            if not entries:
                continue
            if not await watch.holds(entry.event for entry in entries):
                return
            seen = entries[-1].event.position
            yield _messages(log, entries, about, places) + _head(seen, clock)


def _messages(
    log: LogReader,
    entries: Sequence[TailEntry],
    about: str,
    places: grid_encoding.GridPlaces | None,
) -> bytes:
    events = [item.event for item in entries if not about or about in item.event.tags]
    if not events:
        return b""
    messages = b"event: tide\ndata: \n\n"
    if places is not None:
        try:
            found = grid_encoding.changes(log, places, events)
        except TidegateError:
            return messages  # this version cannot decode the fact, so the page reloads
        if found:
            messages += b"event: hosts\ndata: %b\n\n" % grid_encoding.encode_changes(
                events[-1].position, found
            )
    return messages


def _head(position: int, clock: Clock) -> bytes:
    at = clock().strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return b"event: head\ndata: %d %b\n\n" % (position, at)


ROUTES = (
    routing.Route(
        "GET",
        "/live",
        live,
        routing.requires_somewhere(roles.Verb.READ),
        produces=routing.EVENT_STREAM,
        fails=layout.error_page,
    ),
)
