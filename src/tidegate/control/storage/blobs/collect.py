"""Collect blobs that no row references, such as those that a crash left before their commit.

A blob is deleted if no row references it and its last put is older than ``BLOB_KEPT``; both are
checked twice. There is no race with a new reference: its writer has just put the blob, and
``Blobs.discard`` refuses a blob that was put meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate.control.storage.blobs import BLOB_KEPT, Blobs

COLLECTED_MAX = 10_000  # per run, so that a run is bounded; the next one takes the rest

References = Callable[[], AbstractSet[str]]


@dataclass(frozen=True, slots=True)
class CollectedBlobs:
    """The result of a run of the collector."""

    looked: int
    orphans: int  # unreferenced and old at the first check
    removed: int


def collect(
    blobs: Blobs, references: References, now: datetime, *, kept: timedelta = BLOB_KEPT
) -> CollectedBlobs:
    """Delete the orphans. ``references`` reads the referenced digests again at each call."""
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
