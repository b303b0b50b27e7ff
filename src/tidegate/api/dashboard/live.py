"""The stream that a page listens to: where the log is, that the page is stale, which hosts moved.

    head    <position> <time>                 at least every few seconds: the live mark
    tide                                      something that the page is about has changed
    hosts   <position> <soak due> <base64>    of a rollout's page: what its squares become

It never says what changed: the page asks for itself again, as whoever reads it, and morphs. Many
changes in a short time become one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta

from tidegate.api.auth import CredentialWatch, demand
from tidegate.api.dashboard.hostgrid import Places, changes, packed, places_of
from tidegate.api.dashboard.pages import fails
from tidegate.api.releases import channel_scope
from tidegate.api.routing import EVENT_STREAM, Answer, Request, Route, somewhere
from tidegate.api.tail import Entry
from tidegate.control.installation import Installation
from tidegate.domain.access.roles import Verb
from tidegate.domain.rollouts.names import channel_of
from tidegate.errors import TidegateError
from tidegate.wire import Input, Nothing

HEARTBEAT_SECONDS = 8.0
PACE_SECONDS = 0.4  # between two messages of one stream
PACE_OF_ALL_SECONDS = 1.5  # of a page that everything concerns: it costs more to draw
RETRY_MILLISECONDS = 1_000
ROLLOUT = "rollout_id:"


class About(Input, frozen=True, kw_only=True):
    about: Annotated[str, Meta(max_length=256)] = ""  # a tag; empty: everything


Following = Request[Nothing, About, Nothing]


async def live(request: Following, installation: Installation) -> Answer:
    """Follow what a page is about."""
    about = request.query.about
    places: Places | None = None
    if about.startswith(ROLLOUT):
        rollout_id = about.removeprefix(ROLLOUT)
        demand(request.principal, (Verb.READ,), channel_scope(channel_of(rollout_id)))
        loop = asyncio.get_running_loop()
        read = partial(places_of, installation, rollout_id)
        places = await loop.run_in_executor(None, read)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    stream = _stream(request, installation, places)
    return Answer(stream=stream, media=EVENT_STREAM, headers=headers)


async def _stream(
    request: Following, installation: Installation, places: Places | None
) -> AsyncIterator[bytes]:
    tail = request.server.tail
    about = request.query.about
    seen = tail.position
    watch = CredentialWatch(request)
    request.server.metrics.subscribers.inc()
    try:
        yield b"retry: %d\n\n" % RETRY_MILLISECONDS + _head(seen, installation)
        while not tail.stopped:
            if tail.position <= seen and not await tail.changed(HEARTBEAT_SECONDS):
                if not await watch.holds(()):
                    return
                yield _head(tail.position, installation)
                continue
            await asyncio.sleep(PACE_SECONDS if about else PACE_OF_ALL_SECONDS)
            entries = tail.since(seen)
            if entries is None:
                return  # too far behind: the page connects again and starts afresh
            if not entries:
                continue
            if not await watch.holds(entry.event for entry in entries):
                return
            seen = entries[-1].event.position
            yield _said(installation, entries, about, places) + _head(seen, installation)
    finally:
        request.server.metrics.subscribers.dec()


def _said(
    installation: Installation, entries: Sequence[Entry], about: str, places: Places | None
) -> bytes:
    events = [item.event for item in entries if not about or about in item.event.tags]
    if not events:
        return b""
    said = b"event: tide\ndata: \n\n"
    if places is not None:
        try:
            found = changes(installation, places, events)
        except TidegateError:
            return said  # a fact that this version cannot read: the page asks anew
        if found:
            said += b"event: hosts\ndata: %b\n\n" % packed(events[-1].position, found)
    return said


def _head(position: int, installation: Installation) -> bytes:
    at = installation.clock().strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return b"event: head\ndata: %d %b\n\n" % (position, at)


ROUTES = (Route("GET", "/live", live, somewhere(Verb.READ), produces=EVENT_STREAM, fails=fails),)
