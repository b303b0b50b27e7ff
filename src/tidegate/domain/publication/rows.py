"""The rows of a publication, their ids and how to read them.

The rows of one publication share a pk: their ids are ``<pk>/META``, ``<pk>/LOCK``,
``<pk>/VER#<id>`` and ``<pk>/REQ#<key>``. All but LOCK are folds of facts. A ttl says when rows may
be deleted; it decides neither freshness nor ownership.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Final

from msgspec import Struct

from tidegate.kernel import attributes, collections as kernel_collections, leases, model

CACHE_KEY_BYTES_MAX = 2_048

META: Final = "META"
LOCK: Final = "LOCK"
VER: Final = "VER#"
REQ: Final = "REQ#"

# ── names of rows ─────────────────────────────────────────────────────────────────────────────────


_ETAG = re.compile(r'(?:W/)?("[^"]*")')


def pk_of(cache_key: str) -> str:
    """The partition of a publication: a hash of its cache key, always of the same length.

    Raises:
        InvalidInput, LimitExceeded.
    """
    model.check_text("a cache key", cache_key, CACHE_KEY_BYTES_MAX)
    return f"CACHE#{sha256(cache_key.encode()).hexdigest()}"


def meta_key(pk: str) -> model.Key:
    return model.Key(PUBLICATIONS.name, f"{pk}/{META}")


def lock_key(pk: str) -> model.Key:
    return model.Key(leases.LEASES.name, f"{pk}/{LOCK}")


def version_key(pk: str, version_id: str) -> model.Key:
    return model.Key(GENERATIONS.name, f"{pk}/{VER}{version_id}")


def request_key(pk: str, request: str) -> model.Key:
    return model.Key(REQUESTS.name, f"{pk}/{REQ}{request}")


# ── rows: docs/design/publication.md ──────────────────────────────────────────────────────────────


class Pointer(Struct, frozen=True, omit_defaults=True):
    """META: what readers get now. The last two fields belong to recipe B."""

    s3_key: str
    generated_at: datetime
    revalidate_seconds: int
    etag: str = ""
    ttl: Annotated[datetime | None, attributes.FieldRole.TTL] = None
    current_sk: str = ""
    version: int = 0  # how often the pointer was set


class Generation(Struct, frozen=True, omit_defaults=True):
    """VER#<id>: one generation. It never changes."""

    s3_key: str
    generated_at: datetime
    etag: str = ""


class RequestStatus(StrEnum):
    STARTED = "STARTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class PublicationRequest(Struct, frozen=True, omit_defaults=True):
    """REQ#<key>: one request to regenerate, and its result."""

    request_hash: str
    status: RequestStatus
    result_s3_key: str = ""
    ttl: Annotated[datetime | None, attributes.FieldRole.TTL] = None


PUBLICATIONS: Final = kernel_collections.Collection(
    "publications",
    Pointer,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("ttl",),
    indexes=(kernel_collections.Index("by_ttl", ("ttl",)),),  # rows without a ttl are not in it
)
GENERATIONS: Final = kernel_collections.Collection(
    "generations",
    Generation,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)
REQUESTS: Final = kernel_collections.Collection(
    "publication_requests",
    PublicationRequest,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("ttl",),
    indexes=(kernel_collections.Index("by_ttl", ("ttl",)),),
)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def is_fresh(pointer: Pointer, now: datetime) -> bool:
    """Whether readers may get it without a regeneration."""
    return now < pointer.generated_at + timedelta(seconds=pointer.revalidate_seconds)


def is_past(ttl: datetime | None, now: datetime) -> bool:
    """Whether a row with this ttl may be deleted. Until it is deleted, it may be used."""
    return ttl is not None and ttl <= now


def etag_of(body: bytes) -> str:
    """The strong ETag of a body."""
    return f'"{sha256(body).hexdigest()}"'


def is_not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether a GET with this If-None-Match is answered 304 (RFC 9110, 13.1.2: weak comparison)."""
    if if_none_match is None or not etag:
        return False
    if if_none_match.strip() == "*":
        return True
    return etag.removeprefix("W/") in _ETAG.findall(if_none_match)


COLLECTIONS = (PUBLICATIONS, GENERATIONS, REQUESTS)  # and the shared leases.LEASES
