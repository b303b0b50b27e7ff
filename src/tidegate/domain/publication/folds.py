"""The folds of publications."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tidegate.domain.publication import facts, rows
from tidegate.kernel.folds import Fold

# ── folds ─────────────────────────────────────────────────────────────────────────────────────────


def pointer_of(fact: facts.GenerationPublished) -> rows.Pointer:
    """META after this fact."""
    return rows.Pointer(
        fact.s3_key,
        fact.generated_at,
        fact.revalidate_seconds,
        fact.etag,
        fact.ttl,
        f"{rows.VER}{fact.version_id}" if fact.version_id else "",
        fact.version,
    )


def step_pointer(
    pointer: rows.Pointer | None,
    fact: facts.GenerationPublished
    | facts.PointerSwapped
    | facts.PublicationInvalidated
    | facts.RowsCollected,
    now: datetime,
) -> rows.Pointer | None:
    match fact:
        case facts.RowsCollected():
            return None
        case facts.GenerationPublished():
            return pointer_of(fact)
        case facts.PointerSwapped():
            assert pointer is not None, "only what was published is rolled back"
            return structs.replace(
                pointer,
                s3_key=fact.s3_key,
                generated_at=fact.generated_at,
                revalidate_seconds=fact.revalidate_seconds,
                etag=fact.etag,
                current_sk=f"{rows.VER}{fact.version_id}",
                version=fact.version,
            )
        case facts.PublicationInvalidated():
            assert pointer is not None, "only what was published is invalidated"
            return structs.replace(pointer, revalidate_seconds=0)


def step_generation(
    generation: rows.Generation | None,
    fact: facts.GenerationPublished | facts.RowsCollected,
    now: datetime,
) -> rows.Generation | None:
    if isinstance(fact, facts.RowsCollected):
        return None
    assert generation is None, "an id is used once"
    return rows.Generation(fact.s3_key, fact.generated_at, fact.etag)


def step_request(
    request: rows.PublicationRequest | None,
    fact: facts.RequestStarted
    | facts.RequestFailed
    | facts.GenerationPublished
    | facts.RowsCollected,
    now: datetime,
) -> rows.PublicationRequest | None:
    match fact:
        case facts.RowsCollected():
            return None
        case facts.RequestStarted():
            return rows.PublicationRequest(
                fact.request_hash, rows.RequestStatus.STARTED, ttl=fact.ttl
            )
        case facts.RequestFailed():
            assert request is not None, "what fails was started"
            return structs.replace(request, status=rows.RequestStatus.FAILED)
        case facts.GenerationPublished():
            assert request is not None, "what is completed was started"
            return structs.replace(
                request, status=rows.RequestStatus.COMPLETED, result_s3_key=fact.s3_key
            )


def _pointer_ids(
    fact: facts.GenerationPublished
    | facts.PointerSwapped
    | facts.PublicationInvalidated
    | facts.RowsCollected,
) -> tuple[str, ...]:
    if isinstance(fact, facts.RowsCollected) and not fact.pointer:
        return ()
    return (rows.meta_key(fact.publication).id,)


def _generation_ids(fact: facts.GenerationPublished | facts.RowsCollected) -> tuple[str, ...]:
    named = fact.version_ids if isinstance(fact, facts.RowsCollected) else (fact.version_id,)
    return tuple(rows.version_key(fact.publication, id).id for id in named if id)


def _request_ids(
    fact: facts.RequestStarted
    | facts.RequestFailed
    | facts.GenerationPublished
    | facts.RowsCollected,
) -> tuple[str, ...]:
    named = fact.requests if isinstance(fact, facts.RowsCollected) else (fact.request,)
    return tuple(rows.request_key(fact.publication, request).id for request in named if request)


def _no_row(id: str, fact: Struct) -> None:
    """The row before its first fact."""


publications: Final = Fold(
    collection=rows.PUBLICATIONS,
    number=2,
    reads=(
        facts.GenerationPublished,
        facts.PointerSwapped,
        facts.PublicationInvalidated,
        facts.RowsCollected,
    ),
    ids=_pointer_ids,
    start=_no_row,
    step=step_pointer,
)
generations: Final = Fold(
    collection=rows.GENERATIONS,
    number=1,
    reads=(facts.GenerationPublished, facts.RowsCollected),
    ids=_generation_ids,
    start=_no_row,
    step=step_generation,
)
requests: Final = Fold(
    collection=rows.REQUESTS,
    number=2,
    reads=(
        facts.RequestStarted,
        facts.RequestFailed,
        facts.GenerationPublished,
        facts.RowsCollected,
    ),
    ids=_request_ids,
    start=_no_row,
    step=step_request,
)

FOLDS = (publications, generations, requests)
