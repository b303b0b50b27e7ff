"""Delete rows whose ttl has passed: publications that were not renewed, and old requests.

    META past its ttl     its generations are deleted first, in batches, then META with the last
    REQ  past its ttl     is deleted by itself

A ttl never decides freshness or ownership. Until a row is deleted, everything works as before. A
publish in the meantime renews the ttl, so nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.publication import facts, rows as publication_rows
from tidegate.kernel import model, slices

COLLECTED_MAX = 16  # generations and requests in one commit


class CollectRows(Struct, frozen=True, kw_only=True):
    """Delete those rows of a publication whose ttl has passed.

    ``last``: these are all generations that exist, so META may be deleted with them.
    """

    publication: str  # its pk
    version_ids: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    last: bool = False

    def __post_init__(self) -> None:
        named = len(self.version_ids) + len(self.requests)
        model.at_most("rows that are collected at once", named, COLLECTED_MAX)


def _rows(command: CollectRows) -> tuple[model.Key, ...]:
    pk = command.publication
    return (
        publication_rows.meta_key(pk),
        *(publication_rows.version_key(pk, id) for id in command.version_ids),
        *(publication_rows.request_key(pk, request) for request in command.requests),
    )


def decide_collection(
    rows: tuple[Any, ...], command: CollectRows, now: datetime
) -> Sequence[Struct]:
    """The facts of the deletion. META is read, so a publish at the same time prevents it."""
    pk = command.publication
    seen = dict(zip(_rows(command), rows, strict=True))
    pointer: publication_rows.Pointer | None = seen[publication_rows.meta_key(pk)]
    ended = pointer is not None and publication_rows.is_past(pointer.ttl, now)
    whole = ended and command.last
    generations: list[str] = []
    for id in command.version_ids:
        generation: publication_rows.Generation | None = seen[publication_rows.version_key(pk, id)]
        is_current = pointer is not None and pointer.current_sk == f"{publication_rows.VER}{id}"
        if generation is not None and ended and (whole or not is_current):
            generations.append(id)
    requests: list[str] = []
    for request in command.requests:
        row: publication_rows.PublicationRequest | None = seen[
            publication_rows.request_key(pk, request)
        ]
        if row is not None and publication_rows.is_past(row.ttl, now):
            requests.append(request)
    if not (whole or generations or requests):
        return ()
    return (facts.RowsCollected(pk, whole, tuple(generations), tuple(requests)),)


collect_rows: Final = slices.Slice(
    name="collect-publication-rows",
    command=CollectRows,
    writes=(facts.RowsCollected,),
    rows=_rows,
    decide=decide_collection,
)

SLICES = (collect_rows,)
