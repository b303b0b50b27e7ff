"""Publications: bodies that are swapped whole, their generations, and the way back to one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from tidegate.control.operations.publications import PublicationOperations
from tidegate.control.publication.publisher import Publisher
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import COLLECT_PUBLICATIONS, ROLL_BACK_PUBLICATION
from tidegate.domain.channels.refusals import PublicationOfChannel
from tidegate.errors import LeaseHeld, LeaseLost, NotFound
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires, requires_step
from tidegate.web.shapes import Listed, Written


class CachePath(Input, frozen=True):
    cache_key: Annotated[str, Meta(min_length=1, max_length=2_048)]


class Back(Input, frozen=True, kw_only=True):
    version_id: Annotated[str, Meta(min_length=1, max_length=256)]


class GenerationShown(Struct, frozen=True):
    version_id: str
    generated_at: datetime
    etag: str
    current: bool


class CollectedShown(Struct, frozen=True):
    """How many rows of each kind are gone."""

    publications: int
    generations: int
    requests: int
    position: int  # the log's, once they were gone; 0: there were none


def body(request: Request[CachePath, ReadQuery, Nothing], publisher: Publisher) -> Response:
    """The last published body; 304 while it is the same."""
    entry = publisher.demand(request.path.cache_key)
    return Response(
        entry.body,
        media="application/octet-stream",
        tag=entry.pointer.etag or None,
        headers={"content-disposition": "attachment"},
    )


def generations(
    request: Request[CachePath, Paging, Nothing], publisher: Publisher, cursors: Cursors
) -> Response:
    """The generations of a publication that keeps them, the newest first."""
    key, limit = request.path.cache_key, request.query.limit
    current = publisher.demand(key).pointer.current_sk.partition("#")[2]
    found = publisher.newest_generations(key, after=cursors.after(request), limit=limit)
    shown = [GenerationShown(id, item.generated_at, item.etag, id == current) for id, item in found]
    last = found[-1][0] if len(found) == limit else None
    return Response(cursors.list_page(request, shown, last))


def roll_back(
    request: Request[CachePath, Nothing, Back], publications: PublicationOperations
) -> Response:
    """Set the pointer back to a generation, under a lease."""
    position = publications.roll_back(
        request.caller, request.path.cache_key, request.body.version_id
    )
    return Response(Written(position), position=position)


def collect(
    request: Request[Nothing, Nothing, Nothing], publications: PublicationOperations
) -> Response:
    """Remove what is past its ttl now, as the worker does once an hour.

    At most 500 publications and 500 requests; a repeat takes the rest.
    """
    done = publications.collect(request.caller)
    shown = CollectedShown(*done.rows, position=done.position)
    return Response(shown, position=done.position)


_BODIES = (NotFound, BlobDamaged)

ROUTES = (
    Route(
        "GET",
        "/v1/publications/{cache_key}",
        body,
        requires(Verb.READ),
        bytes,
        produces="application/octet-stream",
        cached=True,
        errors=_BODIES,
    ),
    Route(
        "GET",
        "/v1/publications/{cache_key}/generations",
        generations,
        requires(Verb.READ),
        Listed[GenerationShown],
        errors=_BODIES,
    ),
    Route(
        "POST",
        "/v1/publications/{cache_key}/roll-back",
        roll_back,
        requires_step(ROLL_BACK_PUBLICATION),
        Written,
        errors=(*_BODIES, PublicationOfChannel, LeaseHeld, LeaseLost),
    ),
    Route(
        "POST",
        "/v1/publication-collections",
        collect,
        requires_step(COLLECT_PUBLICATIONS),
        CollectedShown,
    ),
)
