"""Leases and metadata of publications, for those who keep bodies elsewhere, and for the collector.

``GenerationStore`` is the store object of seed 003: try to acquire, then commit a generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from tidegate.control.runtime import Control, Outcome
from tidegate.domain.publication.folds import GenerationPublished, pointer_of
from tidegate.domain.publication.rows import (
    GENERATIONS,
    PUBLICATIONS,
    REQUESTS,
    VER,
    Generation,
    Pointer,
    Request,
    lock_key,
    meta_key,
    pk_of,
)
from tidegate.domain.publication.slices import (
    LEASE_GUARDS,
    LeasedCommand,
    PublishGeneration,
    publish_generation,
)
from tidegate.errors import InvalidInput, LeaseHeld, LeaseLost, StaleVersion, Unknown
from tidegate.kernel import codec
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

PAGE: Final = 500
MILLISECONDS: Final = 1_000
MILLISECONDS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Row = TypeVar("Row")


def execute(control: Control, item: Slice, command: LeasedCommand) -> Outcome:
    """Let the control execute it, with one name for all ways to have lost the lease."""
    try:
        return control.execute(item, command)
    except StaleVersion as stale:
        # A number is a position, so it is the version of one row only.
        if command.lease_number is None or stale.facts["expected"] != command.lease_number:
            raise
        raise LeaseLost(f"the lease of {command.cache_key} is not yours") from stale


def landed(control: Control, command: PublishGeneration) -> tuple[Pointer, Position]:
    """Publish, and see through a lost answer: META as this publish left it, and its version.

    Who asks again after a commit whose answer was lost finds the lease gone, although it was this
    very commit that spent it.
    """
    try:
        outcome = execute(control, publish_generation, command)
    except (LeaseLost, Unknown):
        (record,) = control.store.get(meta_key(command.pk))
        pointer = None if record is None else codec.decode(record.data, Pointer)
        if record is None or pointer is None or not _is_mine(pointer, command):
            raise
        return pointer, record.version
    (published,) = outcome.facts
    assert isinstance(published, GenerationPublished)
    return pointer_of(published), outcome.position


def _is_mine(pointer: Pointer, command: PublishGeneration) -> bool:
    sk = f"{VER}{command.version_id}" if command.version_id else ""
    offered = (command.s3_key, command.generated_at, command.etag, sk)
    return (pointer.s3_key, pointer.generated_at, pointer.etag, pointer.current_sk) == offered


class AcquiredLease(NamedTuple):
    """What a holder needs to publish."""

    lease_token: str
    lease_expires_at: datetime


class GenerationStore:
    """Leases and metadata alone, for a caller that keeps its bodies elsewhere: recipe A."""

    def __init__(
        self, control: Control, *, tokens: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        self._control = control
        self._leases = Leases(control.store)
        self._tokens = tokens

    def get(self, cache_key: str) -> Pointer | None:
        """META as it stands."""
        (record,) = self._control.store.get(meta_key(pk_of(cache_key)))
        return None if record is None else codec.decode(record.data, Pointer)

    def try_acquire_lease(
        self, cache_key: str, lease_duration_ms: int, lease_owner: str | None = None
    ) -> AcquiredLease | None:
        """The lease, None while another holds it. ``lease_owner`` is for logs."""
        try:
            held = self._leases.acquire(
                lock_key(pk_of(cache_key)).id,
                self._tokens(),
                now=self._control.clock(),
                seconds=lease_duration_ms / MILLISECONDS,
                owner=lease_owner or "",
            )
        except LeaseHeld:
            return None
        return AcquiredLease(held.token, held.expires_at)

    def commit_generation(
        self,
        cache_key: str,
        lease_token: str,
        html_pointer: str,
        generated_at_ms: int,
        revalidate_seconds: int,
        etag: str = "",
        lease_owner: str | None = None,
    ) -> None:
        """Put META and delete LOCK in one commit. Raises: LeaseLost: neither was touched."""
        command = PublishGeneration(
            cache_key=cache_key,
            lease_token=lease_token,
            by=lease_owner or "",
            s3_key=html_pointer,
            generated_at=_time_of(generated_at_ms),
            revalidate_seconds=revalidate_seconds,
            etag=etag,
            guards=LEASE_GUARDS,
        )
        landed(self._control, command)


def _time_of(milliseconds: int) -> datetime:
    if type(milliseconds) is not int or not 0 < milliseconds <= MILLISECONDS_MAX:
        raise InvalidInput(f"a generation is stamped in milliseconds, found {milliseconds!r}")
    return EPOCH + timedelta(milliseconds=milliseconds)


# ── what bodies are named ─────────────────────────────────────────────────────────────────────────


def referenced(store: Store) -> frozenset[str]:
    """The pointers of all publications, generations and requests: what a collector must keep."""
    found: set[str] = set()
    found.update(row.s3_key for row in _rows(store, PUBLICATIONS.name, Pointer))
    found.update(row.s3_key for row in _rows(store, GENERATIONS.name, Generation))
    found.update(row.result_s3_key for row in _rows(store, REQUESTS.name, Request))
    return frozenset(found)


def _rows(store: Store, collection: str, model: type[Row]) -> Iterator[Row]:
    after = ""
    while page := store.range(collection, after=after, limit=PAGE):
        for record in page:
            yield codec.decode(record.data, model)
        after = page[-1].key.id
