"""Leases and metadata of publications, for callers that store bodies elsewhere; and the collector.

``GenerationStore`` is for renderers: try to acquire the lease, then commit a generation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import uuid4

from msgspec import Struct

from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.publication import expiry, facts, folds, rows as publication_rows, slices
from tidegate.errors import InvalidInput, LeaseHeld, LeaseLost, StaleVersion, Unknown
from tidegate.kernel import codec, leases, model as kernel_model, slices as kernel_slices
from tidegate.kernel.store import Store, values

PAST_MAX: Final = 500  # publications, and requests, per run of ``collect_past``
BATCHES_MAX: Final = 1_000  # batches of one publication's generations, per run
MILLISECONDS: Final = 1_000
MILLISECONDS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def execute(
    control: Control,
    item: kernel_slices.Slice,
    command: slices.LeasedCommand,
    *,
    meta: kernel_model.Meta = kernel_model.NO_META,
    key: str | None = None,
    asked: Struct | None = None,
) -> CommandOutcome:
    """Execute a command, and raise LeaseLost for every way in which the lease was lost."""
    try:
        return control.execute(item, command, meta=meta, key=key, asked=asked)
    except StaleVersion as stale:
        if command.lease_number is None or not command.guards_of_lease:
            raise
        # Without the lease, other reasons do not matter: perhaps the pointer had changed, too.
        (record,) = control.store.get(publication_rows.lock_key(command.pk))
        if record is not None and record.version == command.lease_number:
            raise
        raise LeaseLost(f"the lease of {command.cache_key} is not yours") from stale


def publish_and_confirm(
    control: Control, command: slices.PublishGeneration
) -> tuple[publication_rows.Pointer, kernel_model.Position]:
    """Publish, and return META as this publish left it, and its version.

    If the response of the commit was lost, a retry finds the lease gone and the pointer changed.
    This recognizes that its own commit did both.
    """
    try:
        outcome = execute(control, slices.publish_generation, command)
    except (LeaseLost, StaleVersion, Unknown):
        (record,) = control.store.get(publication_rows.meta_key(command.pk))
        pointer = None if record is None else codec.decode(record.data, publication_rows.Pointer)
        if record is None or pointer is None or not _is_mine(pointer, command):
            raise
        return pointer, record.version
    (published,) = outcome.facts
    assert isinstance(published, facts.GenerationPublished)
    return folds.pointer_of(published), outcome.position


def _is_mine(pointer: publication_rows.Pointer, command: slices.PublishGeneration) -> bool:
    sk = f"{publication_rows.VER}{command.version_id}" if command.version_id else ""
    offered = (command.s3_key, command.generated_at, command.etag, sk)
    return (pointer.s3_key, pointer.generated_at, pointer.etag, pointer.current_sk) == offered


class AcquiredLease(NamedTuple):
    """What the holder of a lease needs to publish."""

    lease_token: str
    lease_expires_at: datetime


class GenerationStore:
    """Leases and metadata, for a caller that stores its bodies elsewhere: recipe A."""

    def __init__(
        self, control: Control, *, tokens: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        self._control = control
        self._leases = leases.Leases(control.store)
        self._tokens = tokens

    def get(self, cache_key: str) -> publication_rows.Pointer | None:
        """Return the current META."""
        (record,) = self._control.store.get(
            publication_rows.meta_key(publication_rows.pk_of(cache_key))
        )
        return None if record is None else codec.decode(record.data, publication_rows.Pointer)

    def try_acquire_lease(
        self, cache_key: str, lease_duration_ms: int, lease_owner: str | None = None
    ) -> AcquiredLease | None:
        """Acquire the lease; None: another process holds it. ``lease_owner`` is for logs."""
        try:
            held = self._leases.acquire(
                publication_rows.lock_key(publication_rows.pk_of(cache_key)).id,
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
        """Put META and delete LOCK in one commit. Raises: LeaseLost: nothing was changed."""
        command = slices.PublishGeneration(
            cache_key=cache_key,
            lease_token=lease_token,
            by=lease_owner or "",
            s3_key=html_pointer,
            generated_at=_time_of(generated_at_ms),
            revalidate_seconds=revalidate_seconds,
            etag=etag,
            guards=slices.LEASE_GUARDS,
        )
        publish_and_confirm(self._control, command)


def _time_of(milliseconds: int) -> datetime:
    if type(milliseconds) is not int or not 0 < milliseconds <= MILLISECONDS_MAX:
        raise InvalidInput(f"a generation is stamped in milliseconds, found {milliseconds!r}")
    return EPOCH + timedelta(milliseconds=milliseconds)


# ── what may go ───────────────────────────────────────────────────────────────────────────────────


class CollectedRows(NamedTuple):
    """How many rows a run of ``collect_past`` deleted."""

    publications: int = 0
    generations: int = 0
    requests: int = 0


def collect_past(control: Control, meta: kernel_model.Meta = kernel_model.NO_META) -> CollectedRows:
    """Delete the rows of publications whose ttl has passed. The worker calls this.

    A run is bounded; the next one deletes the rest.
    """
    publications = generations = requests = 0
    for id in _past(control, publication_rows.PUBLICATIONS.name, publication_rows.Pointer):
        pk = id.removesuffix(f"/{publication_rows.META}")
        ended, gone = _collect_publication(control, pk, meta)
        publications += ended
        generations += gone
    for id in _past(control, publication_rows.REQUESTS.name, publication_rows.PublicationRequest):
        pk, _, request = id.partition(f"/{publication_rows.REQ}")
        command = expiry.CollectRows(publication=pk, requests=(request,))
        requests += len(_collected(control, command, meta)[2])
    return CollectedRows(publications, generations, requests)


def _past(
    control: Control,
    collection: str,
    model: type[publication_rows.Pointer] | type[publication_rows.PublicationRequest],
) -> tuple[str, ...]:
    """Yield the ids of rows whose ttl has passed, oldest first."""
    now = control.clock()
    page = control.store.range(collection, index="by_ttl", limit=PAST_MAX)
    rows = ((record.key.id, codec.decode(record.data, model)) for record in page)
    return tuple(id for id, row in rows if publication_rows.is_past(row.ttl, now))


def _collect_publication(control: Control, pk: str, meta: kernel_model.Meta) -> tuple[bool, int]:
    """Delete the generations of a publication in batches. The current one and META come with the
    last batch, because a run that died in between is continued by way of META.
    """
    prefix = f"{pk}/{publication_rows.VER}"
    gone = 0
    for _ in range(BATCHES_MAX):
        page = control.store.range(
            publication_rows.GENERATIONS.name, prefix=prefix, limit=expiry.COLLECTED_MAX + 1
        )
        ids = [record.key.id.removeprefix(prefix) for record in page]
        last = len(ids) <= expiry.COLLECTED_MAX
        batch = expiry.CollectRows(
            publication=pk, version_ids=tuple(ids[: expiry.COLLECTED_MAX]), last=last
        )
        pointer, found, _ = _collected(control, batch, meta)
        gone += len(found)
        if pointer or not found:
            return pointer, gone
    return False, gone


def _collected(
    control: Control, command: expiry.CollectRows, meta: kernel_model.Meta
) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    outcome = control.execute(expiry.collect_rows, command, meta=meta)
    if not outcome.facts:
        return False, (), ()
    (fact,) = outcome.facts
    assert isinstance(fact, facts.RowsCollected)
    return fact.pointer, fact.version_ids, fact.requests


# ── what bodies are named ─────────────────────────────────────────────────────────────────────────


def list_referenced_blobs(store: Store) -> frozenset[str]:
    """Return the blobs that publications, generations and requests name, which must be kept."""
    pointers = values(store, publication_rows.PUBLICATIONS.name, publication_rows.Pointer)
    kept = values(store, publication_rows.GENERATIONS.name, publication_rows.Generation)
    requests = values(store, publication_rows.REQUESTS.name, publication_rows.PublicationRequest)
    return frozenset(
        (
            *(row.s3_key for row in pointers),
            *(row.s3_key for row in kept),
            *(row.result_s3_key for row in requests),
        )
    )
