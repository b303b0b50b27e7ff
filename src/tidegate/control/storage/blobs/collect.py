"""The collector of blobs that nobody names: what a crash left between a body and its pointer.

A blob goes when no row names it and it was last put longer ago than ``BLOB_KEPT``, and both are
looked at twice. Between the looks and the removal nothing can slip in: whoever is about to name
the blob has just put it, and ``Blobs.discard`` refuses a blob that was put meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate.control.storage.blobs import BLOB_KEPT, Blobs

COLLECTED_MAX = 10_000  # in one run, so that one run has an end; the next takes the rest

References = Callable[[], AbstractSet[str]]


@dataclass(frozen=True, slots=True)
class CollectedBlobs:
    """What a run of the collector found."""

    looked: int
    orphans: int  # unnamed and old at the first look
    removed: int


def collect(
    blobs: Blobs, references: References, now: datetime, *, kept: timedelta = BLOB_KEPT
) -> CollectedBlobs:
    """Remove the orphans. ``references`` reads the digests that rows name, anew at each call."""
    before = now - kept
    looked = 0
    old = []
    for blob in blobs.iterate():
        looked += 1
        if blob.put_at < before:
            old.append(blob.digest)
    named = references()
    orphans = [digest for digest in old if digest not in named][:COLLECTED_MAX]
    named = references() if orphans else named
    removed = sum(blobs.discard(digest, before=before) for digest in orphans if digest not in named)
    return CollectedBlobs(looked, len(orphans), removed)
