"""Publications: bodies that are swapped whole, their generations, and the way back to one."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from tidegate.control.installation import Installation
from tidegate.control.publication.generations import collect_past
from tidegate.control.publication.publisher import Publisher
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access.roles import Verb
from tidegate.errors import LeaseHeld, LeaseLost, NotFound
from tidegate.web.inputs import Input, Nothing, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires
from tidegate.web.shapes import Written

SHOWN_MAX = 500


class CachePath(Input, frozen=True):
    cache_key: Annotated[str, Meta(min_length=1, max_length=2_048)]


class Back(Input, frozen=True, kw_only=True):
    version_id: Annotated[str, Meta(min_length=1, max_length=256)]


class GenerationShown(Struct, frozen=True):
    version_id: str
    generated_at: datetime
    etag: str
    current: bool


class Generations(Struct, frozen=True):
    items: tuple[GenerationShown, ...]  # at most the first five hundred


class CollectedShown(Struct, frozen=True):
    """How many rows of each kind are gone."""

    publications: int
    generations: int
    requests: int
    position: int  # the log's, once they were gone; 0: there were none


def body(request: Request[CachePath, ReadQuery, Nothing], installation: Installation) -> Response:
    """The last published body; 304 while it is the same."""
    entry = _publisher(installation).read(request.path.cache_key)
    if entry is None:
        raise NotFound("nothing is published under this key")
    return Response(
        entry.body,
        media="application/octet-stream",
        tag=entry.pointer.etag or None,
        headers={"content-disposition": "attachment"},
    )


def generations(
    request: Request[CachePath, ReadQuery, Nothing], installation: Installation
) -> Response:
    """The generations of a publication that keeps them."""
    publisher = _publisher(installation)
    entry = publisher.read(request.path.cache_key)
    if entry is None:
        raise NotFound("nothing is published under this key")
    current = entry.pointer.current_sk.partition("#")[2]
    found = islice(publisher.generations(request.path.cache_key), SHOWN_MAX)
    return Response(
        Generations(
            tuple(
                GenerationShown(id, item.generated_at, item.etag, id == current)
                for id, item in found
            )
        )
    )


def roll_back(request: Request[CachePath, Nothing, Back], installation: Installation) -> Response:
    """Set the pointer back to a generation, under a lease."""
    publisher = _publisher(installation)
    key = request.path.cache_key
    if publisher.read(key) is None:
        raise NotFound("nothing is published under this key")
    publisher.roll_back(key, request.body.version_id, by=request.by)
    installation.nudge()
    entry = publisher.read(key)
    position = 0 if entry is None else entry.version
    return Response(Written(position), position=position)


def collect(request: Request[Nothing, Nothing, Nothing], installation: Installation) -> Response:
    """Remove what is past its ttl now, as the worker does once an hour.

    At most 500 publications and 500 requests; a repeat takes the rest.
    """
    rows = collect_past(installation.control, request.meta)
    if not any(rows):
        return Response(CollectedShown(*rows, position=0))
    installation.nudge()
    position = installation.log.head()
    return Response(CollectedShown(*rows, position=position), position=position)


def _publisher(installation: Installation) -> Publisher:
    return Publisher(installation.control, installation.blobs, owner="api")


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
        Generations,
        errors=_BODIES,
    ),
    Route(
        "POST",
        "/v1/publications/{cache_key}/roll-back",
        roll_back,
        requires(Verb.RELEASE),
        Written,
        errors=(*_BODIES, LeaseHeld, LeaseLost),
    ),
    Route("POST", "/v1/publication-collections", collect, requires(Verb.OPERATE), CollectedShown),
)
