"""The facts about publications."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from msgspec import Struct

from tidegate.kernel import tags, vocabulary


class GenerationPublished(Struct, frozen=True, omit_defaults=True):
    """The pointer has a new body. Without a version_id it replaced the previous one."""

    publication: Annotated[str, tags.Partition()]
    cache_key: str
    s3_key: str
    generated_at: datetime
    revalidate_seconds: int
    etag: str = ""
    ttl: datetime | None = None
    version_id: Annotated[str, tags.Untagged()] = ""
    version: int = 0  # of the pointer, if there is a version_id
    request: str = ""
    by: str = ""


class PointerSwapped(Struct, frozen=True, omit_defaults=True):
    """The pointer was set back to an earlier generation."""

    publication: Annotated[str, tags.Partition()]
    version_id: Annotated[str, tags.Untagged()]
    s3_key: str
    generated_at: datetime  # of the swap: bodies rendered before it count as older
    revalidate_seconds: int
    version: int
    etag: str = ""
    by: str = ""


class PublicationInvalidated(Struct, frozen=True, omit_defaults=True):
    """The published body is stale from now on. Readers still get it."""

    publication: Annotated[str, tags.Partition()]
    by: str = ""


class RequestStarted(Struct, frozen=True, omit_defaults=True):
    """The holder of the lease started to work on this request."""

    publication: Annotated[str, tags.Partition()]
    request: str
    request_hash: str
    ttl: datetime | None = None


class RequestFailed(Struct, frozen=True, omit_defaults=True):
    """The request failed and may be retried."""

    publication: Annotated[str, tags.Partition()]
    request: str


class RowsCollected(Struct, frozen=True, omit_defaults=True):
    """Rows whose ttl had passed were deleted. Their history stays in the log."""

    publication: Annotated[str, tags.Partition()]
    pointer: bool = False  # META itself, after the last of its generations
    version_ids: Annotated[tuple[str, ...], tags.Untagged()] = ()
    requests: tuple[str, ...] = ()


FACTS: Final = vocabulary.facts(
    "publication",
    GenerationPublished,
    PointerSwapped,
    PublicationInvalidated,
    RequestStarted,
    RequestFailed,
    RowsCollected,
)
