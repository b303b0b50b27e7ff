"""The commands on publications, and the guards that stop late writers.

Every command deletes or checks the LOCK row that its decision read. A writer that loses the lease
between its decision and its commit cannot commit, and decides again without a lease.

    guard      stops a writer                              does not stop
    token      whose lease was taken                       one whose lease expired and is free
    expiry     whose lease has expired                     -
    version    that decided on another pointer             -
    monotone   whose body is older than the published one  (equal times count as older)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from tidegate import errors
from tidegate.domain.publication import facts, refusals, rows as publication_rows
from tidegate.kernel import codec, leases, model, slices

POINTER_BYTES_MAX = 1_024
ETAG_BYTES_MAX = 256
VERSION_ID_BYTES_MAX = 128
REQUEST_BYTES_MAX = 128
REVALIDATE_SECONDS_MAX = 366 * 24 * 3_600
REQUEST_KEPT: Final = timedelta(days=30)


class PublishGuard(StrEnum):
    """The guards that a publish checks."""

    TOKEN = "token"  # the lease is the one that was acquired
    EXPIRY = "expiry"  # it has not expired
    VERSION = "version"  # the pointer is the one that the caller saw
    MONOTONE = "monotone"  # the pointer is older than what is published, or there is none


LEASE_GUARDS: Final = frozenset({PublishGuard.TOKEN, PublishGuard.EXPIRY})
GUARDS: Final = LEASE_GUARDS | {PublishGuard.MONOTONE}
ALL_GUARDS: Final = frozenset(PublishGuard)


# ── the lease of a command ────────────────────────────────────────────────────────────────────────


class LeasedCommand(Struct, frozen=True, kw_only=True):
    """The common fields: the publication and the lease.

    ``lease_number`` distinguishes two acquisitions with the same token.
    """

    cache_key: str
    lease_token: str = ""
    lease_number: model.Position | None = None
    by: str = ""

    @property
    def pk(self) -> str:
        return publication_rows.pk_of(self.cache_key)

    @property
    def guards_of_lease(self) -> frozenset[PublishGuard]:
        return LEASE_GUARDS

    def __post_init__(self) -> None:
        publication_rows.pk_of(self.cache_key)
        if PublishGuard.TOKEN in self.guards_of_lease:
            model.check_text("the token of a lease", self.lease_token, leases.TOKEN_BYTES_MAX)


def _lock(command: LeasedCommand) -> tuple[model.Key, ...]:
    return (publication_rows.lock_key(command.pk),) if command.guards_of_lease else ()


def _numbered(command: LeasedCommand) -> dict[model.Key, model.Position]:
    """The version of the lease that the command expects, if it names an acquisition."""
    return (
        {} if command.lease_number is None else dict.fromkeys(_lock(command), command.lease_number)
    )


def _demand_lease(lease: leases.Lease | None, command: LeasedCommand, now: datetime) -> None:
    """Check that the command holds the lease. Without an expiry, a lease counts as expired.

    Raises:
        LeaseLost.
    """
    guards = command.guards_of_lease
    lost = lease is None
    if lease is not None and PublishGuard.TOKEN in guards:
        lost = lease.lease_token != command.lease_token
    if lease is not None and PublishGuard.EXPIRY in guards:
        lost = lost or lease.lease_expires_at is None or lease.lease_expires_at <= now
    if lost:
        key = publication_rows.lock_key(command.pk)
        raise errors.LeaseLost(
            f"the lease {key} is not yours", collection=key.collection, id=key.id
        )


# ── publish ───────────────────────────────────────────────────────────────────────────────────────


class PublishGeneration(LeasedCommand, frozen=True, kw_only=True):
    """Publish a body: in place, or with a ``version_id`` as a new generation."""

    s3_key: str
    generated_at: datetime
    revalidate_seconds: int
    etag: str = ""
    ttl: datetime | None = None
    version_id: str = ""
    guards: frozenset[PublishGuard] = GUARDS
    expected_version: model.Position | None = None  # of the row META; ABSENT: there is none
    request: str = ""

    @property
    def guards_of_lease(self) -> frozenset[PublishGuard]:
        return self.guards & LEASE_GUARDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.guards:
            raise errors.InvalidInput(
                "a publish without any guard would let every late writer through"
            )
        if PublishGuard.VERSION in self.guards and self.expected_version is None:
            raise errors.VersionRequired("say which version of the pointer you saw")
        model.check_text("a pointer", self.s3_key, POINTER_BYTES_MAX)
        model.check_time("the time of a generation", self.generated_at)
        _check_seconds(self.revalidate_seconds)
        if self.etag:
            model.check_text("an etag", self.etag, ETAG_BYTES_MAX)
        if self.version_id:
            model.check_text("the id of a generation", self.version_id, VERSION_ID_BYTES_MAX)
        if self.request:
            model.check_text("the key of a request", self.request, REQUEST_BYTES_MAX)


def _publish_rows(command: PublishGeneration) -> tuple[model.Key, ...]:
    keys = [publication_rows.meta_key(command.pk), *_lock(command)]
    if command.version_id:
        keys.append(publication_rows.version_key(command.pk, command.version_id))
    if command.request:
        keys.append(publication_rows.request_key(command.pk, command.request))
    return tuple(keys)


def _publish_expects(command: PublishGeneration) -> dict[model.Key, model.Position]:
    expected = _numbered(command)
    if PublishGuard.VERSION in command.guards and command.expected_version is not None:
        expected[publication_rows.meta_key(command.pk)] = command.expected_version
    return expected


def decide_publish(
    rows: tuple[Any, ...], command: PublishGeneration, now: datetime
) -> Sequence[Struct]:
    """The lease is checked first, so a caller without one learns nothing else."""
    seen = dict(zip(_publish_rows(command), rows, strict=True))
    for key in _lock(command):
        _demand_lease(seen[key], command, now)
    pointer: publication_rows.Pointer | None = seen[publication_rows.meta_key(command.pk)]
    _demand_pointer(pointer, command)
    if (
        command.version_id
        and seen[publication_rows.version_key(command.pk, command.version_id)] is not None
    ):
        raise refusals.GenerationExists(
            f"there is a generation {command.version_id}", version_id=command.version_id
        )
    if command.request:
        _demand_started(seen[publication_rows.request_key(command.pk, command.request)], "complete")
    published = facts.GenerationPublished(
        command.pk,
        command.cache_key,
        command.s3_key,
        command.generated_at,
        command.revalidate_seconds,
        command.etag,
        command.ttl,
        command.version_id,
        _next_version(pointer) if command.version_id else 0,
        command.request,
        command.by,
    )
    return (published,)


def _next_version(pointer: publication_rows.Pointer | None) -> int:
    return 1 if pointer is None else pointer.version + 1


def _demand_pointer(pointer: publication_rows.Pointer | None, command: PublishGeneration) -> None:
    if pointer is None:
        if PublishGuard.VERSION in command.guards and command.expected_version:
            raise errors.StaleVersion(command.expected_version, model.ABSENT)
        return
    if bool(pointer.current_sk) != bool(command.version_id):
        raise refusals.RecipeMixed(f"{command.cache_key} is published by the other recipe")
    if PublishGuard.MONOTONE in command.guards and pointer.generated_at >= command.generated_at:
        raise refusals.StaleGeneration(
            "the published generation is as new or newer",
            stored=codec.time_text(pointer.generated_at),
            offered=codec.time_text(command.generated_at),
        )


publish_generation: Final = slices.Slice(
    name="publish-generation",
    command=PublishGeneration,
    writes=(facts.GenerationPublished,),
    rows=_publish_rows,
    expects=_publish_expects,
    spends=_lock,
    decide=decide_publish,
)


# ── roll back, invalidate ─────────────────────────────────────────────────────────────────────────


class RollBackPublication(LeasedCommand, frozen=True, kw_only=True):
    """Set the pointer back to an existing generation."""

    version_id: str
    revalidate_seconds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        model.check_text("the id of a generation", self.version_id, VERSION_ID_BYTES_MAX)
        _check_seconds(self.revalidate_seconds)


class Invalidate(LeasedCommand, frozen=True, kw_only=True):
    """Mark the published body as stale, whatever its age."""


def decide_roll_back(
    rows: tuple[
        publication_rows.Pointer | None, leases.Lease | None, publication_rows.Generation | None
    ],
    command: RollBackPublication,
    now: datetime,
) -> Sequence[Struct]:
    pointer, lease, generation = rows
    _demand_lease(lease, command, now)
    if pointer is None or generation is None:
        raise errors.NotFound(
            f"{command.cache_key} has no generation {command.version_id}",
            version_id=command.version_id,
        )
    if pointer.current_sk == f"{publication_rows.VER}{command.version_id}":
        return ()
    swapped = facts.PointerSwapped(
        command.pk,
        command.version_id,
        generation.s3_key,
        max(now, pointer.generated_at),  # otherwise an older body could undo the rollback
        command.revalidate_seconds,
        _next_version(pointer),
        generation.etag,
        command.by,
    )
    return (swapped,)


def decide_invalidate(
    rows: tuple[publication_rows.Pointer | None, leases.Lease | None],
    command: Invalidate,
    now: datetime,
) -> Sequence[Struct]:
    pointer, lease = rows
    _demand_lease(lease, command, now)
    if pointer is None:
        raise errors.NotFound(f"nothing is published as {command.cache_key}")
    return (
        (facts.PublicationInvalidated(command.pk, command.by),)
        if pointer.revalidate_seconds
        else ()
    )


roll_back: Final = slices.Slice(
    name="roll-back",
    command=RollBackPublication,
    writes=(facts.PointerSwapped,),
    rows=lambda command: (
        publication_rows.meta_key(command.pk),
        publication_rows.lock_key(command.pk),
        publication_rows.version_key(command.pk, command.version_id),
    ),
    expects=_numbered,
    spends=_lock,
    decide=decide_roll_back,
)
invalidate: Final = slices.Slice(
    name="invalidate-publication",
    command=Invalidate,
    writes=(facts.PublicationInvalidated,),
    rows=lambda command: (
        publication_rows.meta_key(command.pk),
        publication_rows.lock_key(command.pk),
    ),
    expects=_numbered,
    spends=_lock,
    decide=decide_invalidate,
)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


class StartRequest(LeasedCommand, frozen=True, kw_only=True):
    """Record that the holder of the lease works on a request. The lease is kept."""

    request: str
    request_hash: str

    def __post_init__(self) -> None:
        super().__post_init__()
        model.check_text("the key of a request", self.request, REQUEST_BYTES_MAX)
        model.check_text("the hash of a request", self.request_hash, REQUEST_BYTES_MAX)


class FailRequest(LeasedCommand, frozen=True, kw_only=True):
    """Record that the request failed. The lease is kept."""

    request: str


def _request_rows(command: StartRequest | FailRequest) -> tuple[model.Key, model.Key]:
    return publication_rows.request_key(command.pk, command.request), publication_rows.lock_key(
        command.pk
    )


def decide_start(
    rows: tuple[publication_rows.PublicationRequest | None, leases.Lease | None],
    command: StartRequest,
    now: datetime,
) -> Sequence[Struct]:
    """The facts of the start. An unfinished request belongs to the next holder of the lease."""
    request, lease = rows
    _demand_lease(lease, command, now)
    if request is not None:
        demand_same(request, command.request, command.request_hash)
        if request.status is not publication_rows.RequestStatus.FAILED:
            return ()
    ttl = now + REQUEST_KEPT
    return (facts.RequestStarted(command.pk, command.request, command.request_hash, ttl),)


def decide_fail(
    rows: tuple[publication_rows.PublicationRequest | None, leases.Lease | None],
    command: FailRequest,
    now: datetime,
) -> Sequence[Struct]:
    request, lease = rows
    _demand_lease(lease, command, now)
    _demand_started(request, "fail")
    return (facts.RequestFailed(command.pk, command.request),)


def demand_same(request: publication_rows.PublicationRequest, key: str, request_hash: str) -> None:
    """Raises: IdempotencyMismatch: the key was used for another request."""
    if request.request_hash != request_hash:
        raise errors.IdempotencyMismatch(key)


def _demand_started(request: publication_rows.PublicationRequest | None, verb: str) -> None:
    status = "absent" if request is None else request.status
    if status != publication_rows.RequestStatus.STARTED:
        raise errors.IllegalTransition("request", status, verb)


start_request: Final = slices.Slice(
    name="start-request",
    command=StartRequest,
    writes=(facts.RequestStarted,),
    rows=_request_rows,
    expects=_numbered,
    decide=decide_start,
)
fail_request: Final = slices.Slice(
    name="fail-request",
    command=FailRequest,
    writes=(facts.RequestFailed,),
    rows=_request_rows,
    expects=_numbered,
    decide=decide_fail,
)


def _check_seconds(seconds: object) -> None:
    if type(seconds) is not int or not 1 <= seconds <= REVALIDATE_SECONDS_MAX:
        raise errors.InvalidInput(
            f"a publication is fresh for 1 … {REVALIDATE_SECONDS_MAX} seconds, found {seconds!r}"
        )


SLICES = (publish_generation, roll_back, invalidate, start_request, fail_request)
