"""Garbage collection: the worker deletes what has expired and what no row references.

    publications, generations, requests     past their ttl; recorded by a fact
    blobs                                   that no row references, last put a day ago or earlier
    drafts                                  files that a crash left incomplete
    sessions                                that have ended
    enrollments                             tokens and revocations that ended a month ago

One worker at a time does this, under a lease: two collectors would only disturb each other.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter

from tidegate.clock import Clock
from tidegate.control.publication.generations import PAST_MAX, collect_past, list_referenced_blobs
from tidegate.control.runtime import Control
from tidegate.control.storage.archive import files, segment_store
from tidegate.control.storage.blobs import BLOB_KEPT, Blobs
from tidegate.control.storage.blobs.collect import COLLECTED_MAX, collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.referenced_blobs import list_package_blobs
from tidegate.domain.access.erasable_rows import SESSION_IDLE, SESSION_LIFE, SESSIONS, Session
from tidegate.domain.rollouts.rows import TALLIES, RolloutTally
from tidegate.errors import LeaseHeld
from tidegate.kernel import codec, leases, model
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store, rows, values

LEASE: Final = "collection"
LEASE_SECONDS: Final = 900.0
ACTOR: Final = model.Meta(actor="worker")

log = logging.getLogger("tidegate.worker")


class CollectedGarbage(Struct, frozen=True):
    """How many of each kind a round deleted."""

    publications: int = 0
    generations: int = 0
    requests: int = 0
    blobs: int = 0
    drafts: int = 0
    sessions: int = 0
    enrollments: int = 0

    def items(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, getattr(self, name)) for name in self.__struct_fields__)

    @property
    def was_full(self) -> bool:
        """Whether the round stopped at a limit, so that there may be more."""
        rows = max(self.publications, self.requests)
        return rows >= PAST_MAX or self.blobs >= COLLECTED_MAX


class GarbageCollector:
    """Deletes what no row references, and what has expired."""

    def __init__(
        self,
        control: Control,
        store: Store,
        blobs: Blobs,
        records: Callable[[model.Meta], Records],
        prune_enrollments: Callable[[], int],
        clock: Clock,
        notify: Callable[[], None],  # called after a commit
        registry: CollectorRegistry,
        archive: segment_store.SegmentStore | None = None,
    ) -> None:
        self._control = control
        self._store = store
        self._blobs = blobs
        self._records = records
        self._prune_enrollments = prune_enrollments
        self._clock = clock
        self._notify = notify
        self._archive = archive
        self._leases = leases.Leases(store)
        self._removed = Counter(
            "tidegate_collected",
            "What the worker removed because it was past its time or nothing refers to it, by kind",
            ("what",),
            registry=registry,
        )
        for what, _ in CollectedGarbage().items():
            self._removed.labels(what)  # so that the metric exists from the start, as 0

    def round(self) -> bool:
        """Run one collection; return whether there is more to do at once."""
        token = secrets.token_hex(16)
        try:
            self._leases.acquire(LEASE, token, now=self._clock(), seconds=LEASE_SECONDS)
        except LeaseHeld:
            return False  # another worker does it
        try:
            removed = self._remove()
        finally:
            self._leases.release(LEASE, token, now=self._clock())
        self._report(removed)
        return removed.was_full

    def _remove(self) -> CollectedGarbage:
        rows = collect_past(self._control, ACTOR)
        blobs = collect(self._blobs, self._named, self._clock())
        return CollectedGarbage(
            publications=rows.publications,
            generations=rows.generations,
            requests=rows.requests,
            blobs=blobs.removed,
            drafts=self._drafts(),
            sessions=self._sessions(),
            enrollments=self._prune_enrollments(),
        )

    def _report(self, removed: CollectedGarbage) -> None:
        counted = [(what, count) for what, count in removed.items() if count]
        for what, count in counted:
            self._removed.labels(what).inc(count)
        if counted:
            log.info("collected %s", ", ".join(f"{count} {what}" for what, count in counted))
            self._notify()

    def _named(self) -> frozenset[str]:
        return list_named_blobs(self._store, self._blobs, self._clock())

    def _drafts(self) -> int:
        """Delete unfinished files. A bucket has none."""
        before = self._clock() - BLOB_KEPT
        places = (self._blobs, self._archive)
        return sum(
            place.sweep(before=before)
            for place in places
            if isinstance(place, (FileBlobs, files.FileSegmentStore))
        )

    def _sessions(self) -> int:
        now = self._clock()
        records = self._records(ACTOR)
        removed = 0
        for record in rows(self._store, SESSIONS.name):
            session = codec.decode(record.data, Session)
            if now - session.seen_at > SESSION_IDLE or now - session.created_at > SESSION_LIFE:
                records.delete(SESSIONS.name, record.key.id)
                removed += 1
        return removed


def list_named_blobs(
    store: Store, blobs: Blobs, now: datetime, *, may_lack_manifests: bool = False
) -> frozenset[str]:
    """List all blobs that a row references. Raises: as ``list_package_blobs``."""
    plans = (tally.plan_digest for tally in values(store, TALLIES.name, RolloutTally))
    packages = list_package_blobs(store, blobs, now, may_lack_manifests=may_lack_manifests)
    return packages | list_referenced_blobs(store) | frozenset(plans)
