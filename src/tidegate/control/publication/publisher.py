"""Publishes bodies: acquire the lease, render, write the body, swap the pointer in one commit.

    read META ─ fresh ─▶ hit            the store does not answer ─▶ stale-metadata-error
        │ stale or none
        ▼
    acquire LOCK ─ another has it ─▶ wait for a newer pointer ─▶ wait-hit; else try again, or stale
        │
        ▼
    look again ─▶ render ─▶ write the body ─▶ publish ─▶ miss
                     └─ anything fails: the old pointer stands ─▶ stale, or the failure

Readers get the last published body all the time. A slow renderer is not waited for: its lease
expires, the next one takes over, and what the slow one made is seen by nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from tidegate.control.publication.entries import (
    DEFAULT,
    PublicationEntry,
    PublicationPolicy,
    RegenerationKey,
    Render,
    Served,
    ServedState,
)
from tidegate.control.publication.generations import execute, publish_and_confirm
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.control.storage.blobs import BlobMissing, Blobs, hex_of
from tidegate.domain.publication.rows import (
    GENERATIONS,
    VER,
    Generation,
    Pointer,
    PublicationRequest,
    RequestStatus,
    etag_of,
    is_fresh,
    lock_key,
    meta_key,
    pk_of,
    request_key,
)
from tidegate.domain.publication.slices import (
    ALL_GUARDS,
    GUARDS,
    FailRequest,
    Invalidate,
    PublishGeneration,
    PublishGuard,
    RollBackPublication,
    StartRequest,
    demand_same,
    fail_request,
    invalidate,
    roll_back,
    start_request,
)
from tidegate.errors import (
    AttemptsExhausted,
    LeaseHeld,
    NotFound,
    TidegateError,
    Unavailable,
)
from tidegate.kernel import codec
from tidegate.kernel.leases import HeldLease, Leases
from tidegate.kernel.model import ABSENT, NO_META, Meta, Position, Record
from tidegate.kernel.store import rows
from tidegate.lru import LruCache


@dataclass(frozen=True, slots=True)
class _Errand:
    """What one reader came for, and what stood there when it came."""

    cache_key: str
    render: Render
    policy: PublicationPolicy
    asked: RegenerationKey | None
    before: PublicationEntry | None


KNOWN_MAX = 128  # bodies that a process remembers
KNOWN_BYTES_MAX = 64 * 1024 * 1024


class RollBackAsked(Struct, frozen=True):
    """What a caller says of a roll back: by this a repeat is known, whatever its lease is."""

    cache_key: str
    version_id: str


class Publisher:
    """Reads and publishes through one control and one place for bodies.

    Tokens and waiting are parameters, so that a simulation owns them.
    """

    def __init__(
        self,
        control: Control,
        blobs: Blobs,
        *,
        tokens: Callable[[], str] = lambda: str(uuid4()),
        sleep: Callable[[float], None] = time.sleep,
        owner: str = "",
    ) -> None:
        self._control = control
        self._store = control.store
        self._clock = control.clock
        self._blobs = blobs
        self._leases = Leases(control.store)
        self._tokens = tokens
        self._sleep = sleep
        self._owner = owner
        # For the time in which the store does not answer. It is not asked while it does.
        self._known: LruCache[str, PublicationEntry] = LruCache(
            KNOWN_MAX, bytes_max=KNOWN_BYTES_MAX, size=lambda entry: len(entry.body)
        )

    # ── reading ──

    def read(self, cache_key: str) -> PublicationEntry | None:
        """What is published, None where there is nothing, or no body any more.

        Raises:
            BlobDamaged.
        """
        return self._entry(self._meta(cache_key))

    def demand(self, cache_key: str) -> PublicationEntry:
        """What is published. Raises: NotFound, BlobDamaged."""
        entry = self.read(cache_key)
        if entry is None:
            raise NotFound("nothing is published under this key")
        return entry

    def _meta(self, cache_key: str) -> Record | None:
        (record,) = self._store.get(meta_key(pk_of(cache_key)))
        return record

    def _entry(self, meta: Record | None) -> PublicationEntry | None:
        if meta is None:
            return None
        pointer = codec.decode(meta.data, Pointer)
        try:
            return PublicationEntry(pointer, meta.version, self._blobs.get(pointer.s3_key))
        except BlobMissing:
            return None

    def generations(self, cache_key: str) -> Iterator[tuple[str, Generation]]:
        """The generations of a publication with their ids, in the order of the ids."""
        prefix = f"{pk_of(cache_key)}/{VER}"
        for record in rows(self._store, GENERATIONS.name, prefix=prefix):
            yield record.key.id.removeprefix(prefix), codec.decode(record.data, Generation)

    def newest_generations(
        self, cache_key: str, *, after: str = "", limit: int
    ) -> list[tuple[str, Generation]]:
        """A page of generations with their ids, the greatest id first: ids begin with the time.

        ``after`` is the last id seen.
        """
        prefix = f"{pk_of(cache_key)}/{VER}"
        found = self._store.range(
            GENERATIONS.name,
            prefix=prefix,
            after=f"{prefix}{after}" if after else "",
            limit=limit,
            descending=True,
        )
        return [
            (record.key.id.removeprefix(prefix), codec.decode(record.data, Generation))
            for record in found
        ]

    # ── serving: what a reader gets, and who makes it ──

    def serve(
        self,
        cache_key: str,
        render: Render,
        policy: PublicationPolicy = DEFAULT,
        asked: RegenerationKey | None = None,
    ) -> Served:
        """The body, rebuilt by this caller if it is stale and nobody else is at it.

        Raises:
            LeaseHeld: somebody else is at it and there is nothing old to serve.
            Whatever ``render`` raises, where nothing old may stand in for it.
            IdempotencyMismatch: ``asked`` was sent before with other content.
            Unavailable: the store does not answer, and nothing is remembered or may be served.
        """
        try:
            meta = self._meta(cache_key)
        except Unavailable as failure:
            return self._remembered(cache_key, policy, failure)
        served = self._served(cache_key, self._entry(meta), render, policy, asked)
        self._known.keep(cache_key, served.entry)
        return served

    def _remembered(
        self, cache_key: str, policy: PublicationPolicy, failure: Unavailable
    ) -> Served:
        """What was served last, while nobody can say what is published."""
        entry = self._known.find(cache_key) if policy.serves_stale else None
        if entry is None:
            raise failure
        return Served(ServedState.STALE_METADATA_ERROR, entry, failure=failure)

    def _served(
        self,
        cache_key: str,
        before: PublicationEntry | None,
        render: Render,
        policy: PublicationPolicy,
        asked: RegenerationKey | None,
    ) -> Served:
        if before is not None and is_fresh(before.pointer, self._clock()):
            return Served(ServedState.HIT, before)
        if asked is not None and (answered := self._answered(cache_key, asked)) is not None:
            return answered
        errand = _Errand(cache_key, render, policy, asked, before)
        lease = self.try_acquire(cache_key, policy.lease_seconds)
        contended = lease is None
        if lease is None and policy.waits and (newer := self._wait(errand)) is not None:
            return Served(ServedState.WAIT_HIT, newer, contended)
        lease = lease or self.try_acquire(cache_key, policy.lease_seconds)
        if lease is not None:
            return self._regenerated(lease, errand, contended)
        if before is None or (policy.waits and not policy.serves_stale):
            raise LeaseHeld(f"another process regenerates {cache_key}", cache_key=cache_key)
        return Served(ServedState.STALE, before, contended)

    def _regenerated(self, lease: HeldLease, errand: _Errand, contended: bool) -> Served:
        try:
            # Whoever held it before us may just have done our work.
            if (newer := self._newer(errand)) is not None:
                return Served(ServedState.WAIT_HIT, newer, contended)
            return Served(ServedState.MISS, self._regenerate(lease, errand), contended)
        except Exception as failure:
            if errand.before is None or not errand.policy.serves_stale:
                raise
            return Served(ServedState.STALE, self._last(errand, errand.before), contended, failure)
        finally:
            self._leases.release(lease.key.id, lease.token, now=self._clock())

    def _regenerate(self, lease: HeldLease, errand: _Errand) -> PublicationEntry:
        cache_key, asked = errand.cache_key, errand.asked
        generated_at = self._clock()  # before rendering: what it shows may be as old as this
        meta = self._meta(cache_key)
        seen = ABSENT if meta is None else meta.version
        if asked is not None:
            started = StartRequest(
                **_proof(cache_key, lease), request=asked.key, request_hash=asked.content_hash
            )
            execute(self._control, start_request, started)
        try:
            body = errand.render()
            return self.publish(
                cache_key,
                lease,
                body,
                errand.policy,
                generated_at=generated_at,
                guards=ALL_GUARDS,
                expected_version=seen,
                asked=asked,
            )
        except Exception:
            if asked is not None:
                self._note_failure(cache_key, lease, asked)
            raise

    def _note_failure(self, cache_key: str, lease: HeldLease, asked: RegenerationKey) -> None:
        failed = FailRequest(**_proof(cache_key, lease), request=asked.key)
        try:
            execute(self._control, fail_request, failed)
        except TidegateError:
            return  # it stays STARTED, and belongs to the next holder of the lease

    def _wait(self, errand: _Errand) -> PublicationEntry | None:
        for _ in range(errand.policy.polls):
            self._sleep(errand.policy.poll_seconds)
            if (newer := self._newer(errand)) is not None:
                return newer
        return None

    def _newer(self, errand: _Errand) -> PublicationEntry | None:
        """What is there now, if it is fresh or newer than what was seen before."""
        now, before = self.read(errand.cache_key), errand.before
        if now is None or (before is not None and now.version == before.version):
            return None
        newer = before is None or now.pointer.generated_at > before.pointer.generated_at
        return now if newer or is_fresh(now.pointer, self._clock()) else None

    def _last(self, errand: _Errand, before: PublicationEntry) -> PublicationEntry:
        """The last published body: while we failed another may have succeeded."""
        try:
            return self.read(errand.cache_key) or before
        except TidegateError:
            return before

    def _answered(self, cache_key: str, asked: RegenerationKey) -> Served | None:
        """The recorded result of a request that was completed before."""
        (record,) = self._store.get(request_key(pk_of(cache_key), asked.key))
        if record is None:
            return None
        request = codec.decode(record.data, PublicationRequest)
        demand_same(request, asked.key, asked.content_hash)
        entry = self.read(cache_key)
        if request.status is not RequestStatus.COMPLETED or entry is None:
            return None
        if entry.pointer.s3_key != request.result_s3_key:
            body = self._blobs.get(request.result_s3_key)
            pointer = replace(entry.pointer, s3_key=request.result_s3_key, etag=etag_of(body))
            entry = PublicationEntry(pointer, entry.version, body)
        return Served(ServedState.HIT, entry)

    # ── writing ──

    def try_acquire(self, cache_key: str, seconds: float, owner: str = "") -> HeldLease | None:
        """The lease, or None while another holds it."""
        try:
            return self._leases.acquire(
                lock_key(pk_of(cache_key)).id,
                self._tokens(),
                now=self._clock(),
                seconds=seconds,
                owner=owner or self._owner,
            )
        except (LeaseHeld, AttemptsExhausted):
            return None

    def release(self, lease: HeldLease) -> None:
        """Give the lease back; nothing happens if it was spent or lost."""
        self._leases.release(lease.key.id, lease.token, now=self._clock())

    def publish(
        self,
        cache_key: str,
        lease: HeldLease,
        body: bytes,
        policy: PublicationPolicy = DEFAULT,
        *,
        generated_at: datetime,
        version_id: str = "",
        guards: frozenset[PublishGuard] = GUARDS,
        expected_version: Position | None = None,
        asked: RegenerationKey | None = None,
        by: str = "",
    ) -> PublicationEntry:
        """Write the body, then swap the pointer and spend the lease in one commit.

        Raises:
            LeaseLost, StaleGeneration, StaleVersion, GenerationExists: nothing changed.
            Unknown: it may have happened.
        """
        digest = self._blobs.put(body)
        if policy.versioned and not version_id:
            version_id = f"{codec.time_text(generated_at)}-{hex_of(digest)[:12]}"
        command = PublishGeneration(
            cache_key=cache_key,
            lease_token=lease.token,
            lease_number=lease.number,
            by=by,
            s3_key=digest,
            generated_at=generated_at,
            revalidate_seconds=policy.revalidate_seconds,
            etag=etag_of(body),
            ttl=None if policy.retention is None else generated_at + policy.retention,
            version_id=version_id,
            guards=guards,
            expected_version=expected_version,
            request="" if asked is None else asked.key,
        )
        pointer, version = publish_and_confirm(self._control, command)
        return PublicationEntry(pointer, version, body)

    def roll_back(
        self,
        cache_key: str,
        version_id: str,
        policy: PublicationPolicy = DEFAULT,
        *,
        by: str = "",
        meta: Meta = NO_META,
        key: str | None = None,
    ) -> CommandOutcome:
        """Set the pointer back to a generation. With a ``key``, a repeat changes nothing.

        Raises:
            LeaseHeld, LeaseLost, NotFound, IdempotencyMismatch.
        """
        asked = RollBackAsked(cache_key, version_id)
        earlier = self._control.earlier(roll_back, asked, meta=meta, key=key)
        if earlier is not None:
            return earlier
        with self._leased(cache_key, policy) as lease:
            command = RollBackPublication(
                **_proof(cache_key, lease),
                by=by,
                version_id=version_id,
                revalidate_seconds=policy.revalidate_seconds,
            )
            return execute(self._control, roll_back, command, meta=meta, key=key, asked=asked)

    def invalidate(
        self, cache_key: str, policy: PublicationPolicy = DEFAULT, *, by: str = ""
    ) -> None:
        """Call what is published stale. Raises: LeaseHeld, LeaseLost, NotFound."""
        with self._leased(cache_key, policy) as lease:
            execute(self._control, invalidate, Invalidate(**_proof(cache_key, lease), by=by))

    @contextmanager
    def _leased(self, cache_key: str, policy: PublicationPolicy) -> Iterator[HeldLease]:
        lease = self.try_acquire(cache_key, policy.lease_seconds)
        if lease is None:
            raise LeaseHeld(f"another process changes {cache_key}", cache_key=cache_key)
        try:
            yield lease
        finally:
            self._leases.release(lease.key.id, lease.token, now=self._clock())


class Proof(TypedDict):
    """How a command names its publication and its lease."""

    cache_key: str
    lease_token: str
    lease_number: Position


def _proof(cache_key: str, lease: HeldLease) -> Proof:
    return Proof(cache_key=cache_key, lease_token=lease.token, lease_number=lease.number)
