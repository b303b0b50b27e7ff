"""Publications: a body is swapped whole, under a lease, so that no late writer is ever seen.

acquire LOCK ─▶ render, write the body ─▶ one commit ─▶ readers follow META

recipe A, in place      META put,                            LOCK deleted
recipe B, pointer swap  VER#<id> put if absent, META set,    LOCK deleted
rollback                META set back to some VER#<id>,      LOCK deleted
invalidate              META no longer fresh,                LOCK deleted
collect                 rows past their ttl deleted
"""

from __future__ import annotations

from typing import Final

from tidegate.domain.publication.expiry import collect_rows
from tidegate.domain.publication.folds import FACTS, generations, publications, requests
from tidegate.domain.publication.rows import GENERATIONS, PUBLICATIONS, REQUESTS
from tidegate.domain.publication.slices import (
    fail_request,
    invalidate,
    publish_generation,
    roll_back,
    start_request,
)

SLICES: Final = (
    publish_generation,
    roll_back,
    invalidate,
    start_request,
    fail_request,
    collect_rows,
)
COLLECTIONS: Final = (PUBLICATIONS, GENERATIONS, REQUESTS)  # and leases.LEASES, which all share
FOLDS: Final = (publications, generations, requests)

__all__ = ["COLLECTIONS", "FACTS", "FOLDS", "SLICES"]
