"""What happens to publications, and the rows that follow from it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.publication.facts import (
    GenerationPublished,
    PointerSwapped,
    PublicationInvalidated,
    RequestFailed,
    RequestStarted,
    RowsCollected,
)
from tidegate.domain.publication.rows import (
    GENERATIONS,
    PUBLICATIONS,
    REQUESTS,
    VER,
    Generation,
    Pointer,
    PublicationRequest,
    RequestStatus,
    meta_key,
    request_key,
    version_key,
)
from tidegate.kernel.folds import Fold

# ── folds ─────────────────────────────────────────────────────────────────────────────────────────


def pointer_of(fact: GenerationPublished) -> Pointer:
    """META as this fact leaves it."""
    return Pointer(
        fact.s3_key,
        fact.generated_at,
        fact.revalidate_seconds,
        fact.etag,
        fact.ttl,
        f"{VER}{fact.version_id}" if fact.version_id else "",
        fact.version,
    )


def step_pointer(
    pointer: Pointer | None,
    fact: GenerationPublished | PointerSwapped | PublicationInvalidated | RowsCollected,
    now: datetime,
) -> Pointer | None:
    match fact:
        case RowsCollected():
            return None
        case GenerationPublished():
            return pointer_of(fact)
        case PointerSwapped():
            assert pointer is not None, "only what was published is rolled back"
            return replace(
                pointer,
                s3_key=fact.s3_key,
                generated_at=fact.generated_at,
                revalidate_seconds=fact.revalidate_seconds,
                etag=fact.etag,
                current_sk=f"{VER}{fact.version_id}",
                version=fact.version,
            )
        case PublicationInvalidated():
            assert pointer is not None, "only what was published is invalidated"
            return replace(pointer, revalidate_seconds=0)


def step_generation(
    generation: Generation | None, fact: GenerationPublished | RowsCollected, now: datetime
) -> Generation | None:
    if isinstance(fact, RowsCollected):
        return None
    assert generation is None, "an id is used once"
    return Generation(fact.s3_key, fact.generated_at, fact.etag)


def step_request(
    request: PublicationRequest | None,
    fact: RequestStarted | RequestFailed | GenerationPublished | RowsCollected,
    now: datetime,
) -> PublicationRequest | None:
    match fact:
        case RowsCollected():
            return None
        case RequestStarted():
            return PublicationRequest(fact.request_hash, RequestStatus.STARTED, ttl=fact.ttl)
        case RequestFailed():
            assert request is not None, "what fails was started"
            return replace(request, status=RequestStatus.FAILED)
        case GenerationPublished():
            assert request is not None, "what is completed was started"
            return replace(request, status=RequestStatus.COMPLETED, result_s3_key=fact.s3_key)


def _pointer_ids(
    fact: GenerationPublished | PointerSwapped | PublicationInvalidated | RowsCollected,
) -> tuple[str, ...]:
    if isinstance(fact, RowsCollected) and not fact.pointer:
        return ()
    return (meta_key(fact.publication).id,)


def _generation_ids(fact: GenerationPublished | RowsCollected) -> tuple[str, ...]:
    named = fact.version_ids if isinstance(fact, RowsCollected) else (fact.version_id,)
    return tuple(version_key(fact.publication, id).id for id in named if id)


def _request_ids(
    fact: RequestStarted | RequestFailed | GenerationPublished | RowsCollected,
) -> tuple[str, ...]:
    named = fact.requests if isinstance(fact, RowsCollected) else (fact.request,)
    return tuple(request_key(fact.publication, request).id for request in named if request)


def _no_row(id: str, fact: Struct) -> None:
    """Each of these rows begins with its first fact."""


publications: Final = Fold(
    collection=PUBLICATIONS,
    number=2,
    reads=(GenerationPublished, PointerSwapped, PublicationInvalidated, RowsCollected),
    ids=_pointer_ids,
    start=_no_row,
    step=step_pointer,
)
generations: Final = Fold(
    collection=GENERATIONS,
    number=1,
    reads=(GenerationPublished, RowsCollected),
    ids=_generation_ids,
    start=_no_row,
    step=step_generation,
)
requests: Final = Fold(
    collection=REQUESTS,
    number=2,
    reads=(RequestStarted, RequestFailed, GenerationPublished, RowsCollected),
    ids=_request_ids,
    start=_no_row,
    step=step_request,
)

FOLDS = (publications, generations, requests)
