"""Publications: documents that are replaced atomically, with their stored generations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from tidegate.control.operations.publications import PublicationOperations
from tidegate.control.publication.publisher import Publisher
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access import roles, steps
from tidegate.domain.channels.refusals import PublicationOfChannel
from tidegate.errors import LeaseHeld, LeaseLost, NotFound
from tidegate.web import inputs, paging, routing, shapes


class CachePath(inputs.Input, frozen=True):
    cache_key: Annotated[str, Meta(min_length=1, max_length=2_048)]


class Back(inputs.Input, frozen=True, kw_only=True):
    version_id: Annotated[str, Meta(min_length=1, max_length=256)]


class GenerationShown(Struct, frozen=True):
    version_id: str
    generated_at: datetime
    etag: str
    current: bool


class CollectedShown(Struct, frozen=True):
    """How many rows of each kind were deleted."""

    publications: int
    generations: int
    requests: int
    position: int  # of the log after the deletion; 0: nothing was deleted


def body(
    request: routing.Request[CachePath, inputs.ReadQuery, inputs.Nothing], publisher: Publisher
) -> routing.Response:
    """Get the current body; 304 if it has not changed."""
    entry = publisher.demand(request.path.cache_key)
    return routing.Response(
        entry.body,
        media="application/octet-stream",
        tag=entry.pointer.etag or None,
        headers={"content-disposition": "attachment"},
    )


def generations(
    request: routing.Request[CachePath, inputs.Paging, inputs.Nothing],
    publisher: Publisher,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the stored generations of a publication, newest first."""
    key, limit = request.path.cache_key, request.query.limit
    current = publisher.demand(key).pointer.current_sk.partition("#")[2]
    found = publisher.newest_generations(key, after=cursors.after(request), limit=limit)
    shown = [GenerationShown(id, item.generated_at, item.etag, id == current) for id, item in found]
    last = found[-1][0] if len(found) == limit else None
    return routing.Response(cursors.list_page(request, shown, last))


def roll_back(
    request: routing.Request[CachePath, inputs.Nothing, Back], publications: PublicationOperations
) -> routing.Response:
    """Point a publication back to an earlier generation, under a lease."""
    position = publications.roll_back(
        request.caller, request.path.cache_key, request.body.version_id
    )
    return routing.Response(shapes.Written(position), position=position)


def collect(
    request: routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing],
    publications: PublicationOperations,
) -> routing.Response:
    """Delete expired generations and requests now, as the worker does every hour.

    One request covers at most 500 publications and 500 requests; repeat it for the rest.
    """
    done = publications.collect(request.caller)
    shown = CollectedShown(*done.rows, position=done.position)
    return routing.Response(shown, position=done.position)


_BODIES = (NotFound, BlobDamaged)

ROUTES = (
    routing.Route(
        "GET",
        "/v1/publications/{cache_key}",
        body,
        routing.requires(roles.Verb.READ),
        bytes,
        produces="application/octet-stream",
        cached=True,
        errors=_BODIES,
    ),
    routing.Route(
        "GET",
        "/v1/publications/{cache_key}/generations",
        generations,
        routing.requires(roles.Verb.READ),
        shapes.Listed[GenerationShown],
        errors=_BODIES,
    ),
    routing.Route(
        "POST",
        "/v1/publications/{cache_key}/roll-back",
        roll_back,
        routing.requires_step(steps.ROLL_BACK_PUBLICATION),
        shapes.Written,
        errors=(*_BODIES, PublicationOfChannel, LeaseHeld, LeaseLost),
    ),
    routing.Route(
        "POST",
        "/v1/publication-collections",
        collect,
        routing.requires_step(steps.COLLECT_PUBLICATIONS),
        CollectedShown,
    ),
)
