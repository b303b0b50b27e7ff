"""The end of rows whose ttl has passed: of a publication that nobody renewed, of old requests.

    META past its ttl     its generations go first, a batch per commit, then META with the last
    REQ  past its ttl     goes by itself

A ttl never decides freshness or ownership: until its row is collected everything works as before,
and a publish that comes in between renews the ttl, so that nothing is collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.publication.facts import RowsCollected
from tidegate.domain.publication.rows import (
    VER,
    Generation,
    Pointer,
    PublicationRequest,
    is_past,
    meta_key,
    request_key,
    version_key,
)
from tidegate.kernel.model import Key, at_most
from tidegate.kernel.slices import Slice

COLLECTED_MAX = 16  # generations and requests in one commit


class CollectRows(Struct, frozen=True, kw_only=True):
    """Remove what may go of these rows of a publication; what may not is left as it is.

    ``last``: the generations named are all that there are, so META may go with them.
    """

    publication: str  # its pk
    version_ids: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    last: bool = False

    def __post_init__(self) -> None:
        named = len(self.version_ids) + len(self.requests)
        at_most("rows that are collected at once", named, COLLECTED_MAX)


def _rows(command: CollectRows) -> tuple[Key, ...]:
    pk = command.publication
    return (
        meta_key(pk),
        *(version_key(pk, id) for id in command.version_ids),
        *(request_key(pk, request) for request in command.requests),
    )


def decide_collection(
    rows: tuple[Any, ...], command: CollectRows, now: datetime
) -> Sequence[Struct]:
    """META is part of what was read: who publishes meanwhile moves it, and nothing goes."""
    pk = command.publication
    seen = dict(zip(_rows(command), rows, strict=True))
    pointer: Pointer | None = seen[meta_key(pk)]
    ended = pointer is not None and is_past(pointer.ttl, now)
    whole = ended and command.last
    generations: list[str] = []
    for id in command.version_ids:
        generation: Generation | None = seen[version_key(pk, id)]
        is_current = pointer is not None and pointer.current_sk == f"{VER}{id}"
        if generation is not None and ended and (whole or not is_current):
            generations.append(id)
    requests: list[str] = []
    for request in command.requests:
        row: PublicationRequest | None = seen[request_key(pk, request)]
        if row is not None and is_past(row.ttl, now):
            requests.append(request)
    if not (whole or generations or requests):
        return ()
    return (RowsCollected(pk, whole, tuple(generations), tuple(requests)),)


collect_rows: Final = Slice(
    name="collect-publication-rows",
    command=CollectRows,
    writes=(RowsCollected,),
    rows=_rows,
    decide=decide_collection,
)

SLICES = (collect_rows,)
