"""Publish bodies: acquire the lease, render, write the body, swap the pointer in one commit.

    read META ─ fresh ─▶ hit            the store does not respond ─▶ stale-metadata-error
        │ stale or none
        ▼
    acquire LOCK ─ another has it ─▶ wait for a newer pointer ─▶ wait-hit; else try again, or stale
        │
        ▼
    look again ─▶ render ─▶ write the body ─▶ publish ─▶ miss
                     └─ anything fails: the old pointer remains ─▶ stale, or the failure

Readers always get the last published body. They do not wait for a slow renderer: its lease
expires, another one takes over, and the body of the slow one is never served.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict
from uuid import uuid4

from msgspec import Struct, structs

from tidegate import errors, lru
from tidegate.control.publication import entries
from tidegate.control.publication.generations import execute, publish_and_confirm
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.control.storage.blobs import BlobMissing, Blobs, hex_of
from tidegate.domain.publication import rows as publication_rows, slices
from tidegate.kernel import codec, leases, model, store


@dataclass(frozen=True, slots=True)
class _Errand:
    """What one reader asked for, and what was published then."""

    cache_key: str
    render: entries.Render
    policy: entries.PublicationPolicy
    asked: entries.RegenerationKey | None
    before: entries.PublicationEntry | None


KNOWN_MAX = 128  # bodies that a process caches
KNOWN_BYTES_MAX = 64 * 1024 * 1024


class RollBackAsked(Struct, frozen=True):
    """What identifies a repeated roll back, independent of the lease."""

    cache_key: str
    version_id: str


class Publisher:
    """Reads and publishes through one control and one blob store.

    Tokens and waiting are parameters, so that a simulation can control them.
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
        self._leases = leases.Leases(control.store)
        self._tokens = tokens
        self._sleep = sleep
        self._owner = owner
        # Used only while the store does not respond.
        self._known: lru.LruCache[str, entries.PublicationEntry] = lru.LruCache(
            KNOWN_MAX, bytes_max=KNOWN_BYTES_MAX, size=lambda entry: len(entry.body)
        )

    # ── reading ──

    def read(self, cache_key: str) -> entries.PublicationEntry | None:
        """Return what is published; None: nothing, or the body no longer exists.

        Raises:
            BlobDamaged.
        """
        return self._entry(self._meta(cache_key))

    def demand(self, cache_key: str) -> entries.PublicationEntry:
        """Return what is published. Raises: NotFound, BlobDamaged."""
        entry = self.read(cache_key)
        if entry is None:
            raise errors.NotFound("nothing is published under this key")
        return entry

    def _meta(self, cache_key: str) -> model.Record | None:
        (record,) = self._store.get(publication_rows.meta_key(publication_rows.pk_of(cache_key)))
        return record

    def _entry(self, meta: model.Record | None) -> entries.PublicationEntry | None:
        if meta is None:
            return None
        pointer = codec.decode(meta.data, publication_rows.Pointer)
        try:
            return entries.PublicationEntry(pointer, meta.version, self._blobs.get(pointer.s3_key))
        except BlobMissing:
            return None

    def generations(self, cache_key: str) -> Iterator[tuple[str, publication_rows.Generation]]:
        """Yield the generations of a publication with their ids, by id."""
        prefix = f"{publication_rows.pk_of(cache_key)}/{publication_rows.VER}"
        for record in store.rows(self._store, publication_rows.GENERATIONS.name, prefix=prefix):
            yield (
                record.key.id.removeprefix(prefix),
                codec.decode(record.data, publication_rows.Generation),
            )

    def newest_generations(
        self, cache_key: str, *, after: str = "", limit: int
    ) -> list[tuple[str, publication_rows.Generation]]:
        """Return a page of generations with their ids, newest first: ids begin with the time.

        ``after`` is the last id seen.
        """
        prefix = f"{publication_rows.pk_of(cache_key)}/{publication_rows.VER}"
        found = self._store.range(
            publication_rows.GENERATIONS.name,
            prefix=prefix,
            after=f"{prefix}{after}" if after else "",
            limit=limit,
            descending=True,
        )
        return [
            (
                record.key.id.removeprefix(prefix),
                codec.decode(record.data, publication_rows.Generation),
            )
            for record in found
        ]

    # ── serving: what a reader gets, and who makes it ──

    def serve(
        self,
        cache_key: str,
        render: entries.Render,
        policy: entries.PublicationPolicy = entries.DEFAULT,
        asked: entries.RegenerationKey | None = None,
    ) -> entries.Served:
        """Return the body. This caller renders it if it is stale and no other process does.

        Raises:
            LeaseHeld: another process renders, and there is no old body to serve.
            The errors of ``render``, if no old body may be served instead.
            IdempotencyMismatch: ``asked`` was sent before with other content.
            Unavailable: the store does not respond, and no cached body may be served.
        """
        try:
            meta = self._meta(cache_key)
        except errors.Unavailable as failure:
            return self._serve_known(cache_key, policy, failure)
        served = self._find_or_render(cache_key, self._entry(meta), render, policy, asked)
        self._known.keep(cache_key, served.entry)
        return served

    def _serve_known(
        self, cache_key: str, policy: entries.PublicationPolicy, failure: errors.Unavailable
    ) -> entries.Served:
        """Return the cached body while the store does not respond."""
        entry = self._known.find(cache_key) if policy.serves_stale else None
        if entry is None:
            raise failure
        return entries.Served(entries.ServedState.STALE_METADATA_ERROR, entry, failure=failure)

    def _find_or_render(
        self,
        cache_key: str,
        before: entries.PublicationEntry | None,
        render: entries.Render,
        policy: entries.PublicationPolicy,
        asked: entries.RegenerationKey | None,
    ) -> entries.Served:
        """Return a fresh body; else regenerate it, wait for another process, or serve a stale one.

        Raises:
            LeaseHeld: another process regenerates it, and no stale body may be served.
        """
        if before is not None and publication_rows.is_fresh(before.pointer, self._clock()):
            return entries.Served(entries.ServedState.HIT, before)
        if asked is not None and (answered := self._find_result(cache_key, asked)) is not None:
            return answered
        errand = _Errand(cache_key, render, policy, asked, before)
        lease = self.try_acquire(cache_key, policy.lease_seconds)
        contended = lease is None
        if lease is None and policy.waits and (newer := self._wait(errand)) is not None:
            return entries.Served(entries.ServedState.WAIT_HIT, newer, contended)
        lease = lease or self.try_acquire(cache_key, policy.lease_seconds)
        if lease is not None:
            return self._regenerate_or_stale(lease, errand, contended)
        if before is None or (policy.waits and not policy.serves_stale):
            raise errors.LeaseHeld(f"another process regenerates {cache_key}", cache_key=cache_key)
        return entries.Served(entries.ServedState.STALE, before, contended)

    def _regenerate_or_stale(
        self, lease: leases.HeldLease, errand: _Errand, contended: bool
    ) -> entries.Served:
        """Regenerate under this lease and release it; if that fails, serve a stale body."""
        try:
            # The previous holder of the lease may just have published.
            if (newer := self._newer(errand)) is not None:
                return entries.Served(entries.ServedState.WAIT_HIT, newer, contended)
            return entries.Served(
                entries.ServedState.MISS, self._regenerate(lease, errand), contended
            )
        except Exception as failure:
            if errand.before is None or not errand.policy.serves_stale:
                raise
            return entries.Served(
                entries.ServedState.STALE, self._last(errand, errand.before), contended, failure
            )
        finally:
            self._leases.release(lease.key.id, lease.token, now=self._clock())

    def _regenerate(self, lease: leases.HeldLease, errand: _Errand) -> entries.PublicationEntry:
        cache_key, asked = errand.cache_key, errand.asked
        generated_at = self._clock()  # before rendering: the content may be as old as this
        meta = self._meta(cache_key)
        seen = model.ABSENT if meta is None else meta.version
        if asked is not None:
            started = slices.StartRequest(
                **_proof(cache_key, lease), request=asked.key, request_hash=asked.content_hash
            )
            execute(self._control, slices.start_request, started)
        try:
            body = errand.render()
            return self.publish(
                cache_key,
                lease,
                body,
                errand.policy,
                generated_at=generated_at,
                guards=slices.ALL_GUARDS,
                expected_version=seen,
                asked=asked,
            )
        except Exception:
            if asked is not None:
                self._note_failure(cache_key, lease, asked)
            raise

    def _note_failure(
        self, cache_key: str, lease: leases.HeldLease, asked: entries.RegenerationKey
    ) -> None:
        failed = slices.FailRequest(**_proof(cache_key, lease), request=asked.key)
        try:
            execute(self._control, slices.fail_request, failed)
        except errors.TidegateError:
            return  # it stays STARTED, for the next holder of the lease

    def _wait(self, errand: _Errand) -> entries.PublicationEntry | None:
        for _ in range(errand.policy.polls):
            self._sleep(errand.policy.poll_seconds)
            if (newer := self._newer(errand)) is not None:
                return newer
        return None

    def _newer(self, errand: _Errand) -> entries.PublicationEntry | None:
        """Return what is published now, if it is fresh or newer than what was read before."""
        now, before = self.read(errand.cache_key), errand.before
        if now is None or (before is not None and now.version == before.version):
            return None
        newer = before is None or now.pointer.generated_at > before.pointer.generated_at
        return now if newer or publication_rows.is_fresh(now.pointer, self._clock()) else None

    def _last(self, errand: _Errand, before: entries.PublicationEntry) -> entries.PublicationEntry:
        """Return the last published body: another process may have succeeded meanwhile."""
        try:
            return self.read(errand.cache_key) or before
        except errors.TidegateError:
            return before

    def _find_result(self, cache_key: str, asked: entries.RegenerationKey) -> entries.Served | None:
        """Return the recorded result of a request that was already completed."""
        (record,) = self._store.get(
            publication_rows.request_key(publication_rows.pk_of(cache_key), asked.key)
        )
        if record is None:
            return None
        request = codec.decode(record.data, publication_rows.PublicationRequest)
        slices.demand_same(request, asked.key, asked.content_hash)
        entry = self.read(cache_key)
        if request.status is not publication_rows.RequestStatus.COMPLETED or entry is None:
            return None
        if entry.pointer.s3_key != request.result_s3_key:
            body = self._blobs.get(request.result_s3_key)
            pointer = structs.replace(
                entry.pointer, s3_key=request.result_s3_key, etag=publication_rows.etag_of(body)
            )
            entry = entries.PublicationEntry(pointer, entry.version, body)
        return entries.Served(entries.ServedState.HIT, entry)

    # ── writing ──

    def try_acquire(
        self, cache_key: str, seconds: float, owner: str = ""
    ) -> leases.HeldLease | None:
        """Acquire the lease; None: another process holds it."""
        try:
            return self._leases.acquire(
                publication_rows.lock_key(publication_rows.pk_of(cache_key)).id,
                self._tokens(),
                now=self._clock(),
                seconds=seconds,
                owner=owner or self._owner,
            )
        except (errors.LeaseHeld, errors.AttemptsExhausted):
            return None

    def release(self, lease: leases.HeldLease) -> None:
        """Release the lease; do nothing if it was used or lost."""
        self._leases.release(lease.key.id, lease.token, now=self._clock())

    def publish(
        self,
        cache_key: str,
        lease: leases.HeldLease,
        body: bytes,
        policy: entries.PublicationPolicy = entries.DEFAULT,
        *,
        generated_at: datetime,
        version_id: str = "",
        guards: frozenset[slices.PublishGuard] = slices.GUARDS,
        expected_version: model.Position | None = None,
        asked: entries.RegenerationKey | None = None,
        by: str = "",
    ) -> entries.PublicationEntry:
        """Write the body, then swap the pointer and use up the lease in one commit.

        Raises:
            LeaseLost, StaleGeneration, StaleVersion, GenerationExists: nothing changed.
            Unknown: it may have happened.
        """
        digest = self._blobs.put(body)
        if policy.versioned and not version_id:
            version_id = f"{codec.time_text(generated_at)}-{hex_of(digest)[:12]}"
        command = slices.PublishGeneration(
            cache_key=cache_key,
            lease_token=lease.token,
            lease_number=lease.number,
            by=by,
            s3_key=digest,
            generated_at=generated_at,
            revalidate_seconds=policy.revalidate_seconds,
            etag=publication_rows.etag_of(body),
            ttl=None if policy.retention is None else generated_at + policy.retention,
            version_id=version_id,
            guards=guards,
            expected_version=expected_version,
            request="" if asked is None else asked.key,
        )
        pointer, version = publish_and_confirm(self._control, command)
        return entries.PublicationEntry(pointer, version, body)

    def roll_back(
        self,
        cache_key: str,
        version_id: str,
        policy: entries.PublicationPolicy = entries.DEFAULT,
        *,
        by: str = "",
        meta: model.Meta = model.NO_META,
        key: str | None = None,
    ) -> CommandOutcome:
        """Set the pointer back to a generation. With a ``key``, a repeat changes nothing.

        Raises:
            LeaseHeld, LeaseLost, NotFound, IdempotencyMismatch.
        """
        asked = RollBackAsked(cache_key, version_id)
        earlier = self._control.earlier(slices.roll_back, asked, meta=meta, key=key)
        if earlier is not None:
            return earlier
        with self._hold_lease(cache_key, policy) as lease:
            command = slices.RollBackPublication(
                **_proof(cache_key, lease),
                by=by,
                version_id=version_id,
                revalidate_seconds=policy.revalidate_seconds,
            )
            return execute(
                self._control, slices.roll_back, command, meta=meta, key=key, asked=asked
            )

    def invalidate(
        self, cache_key: str, policy: entries.PublicationPolicy = entries.DEFAULT, *, by: str = ""
    ) -> None:
        """Mark what is published as stale. Raises: LeaseHeld, LeaseLost, NotFound."""
        with self._hold_lease(cache_key, policy) as lease:
            execute(
                self._control,
                slices.invalidate,
                slices.Invalidate(**_proof(cache_key, lease), by=by),
            )

    @contextmanager
    def _hold_lease(
        self, cache_key: str, policy: entries.PublicationPolicy
    ) -> Iterator[leases.HeldLease]:
        lease = self.try_acquire(cache_key, policy.lease_seconds)
        if lease is None:
            raise errors.LeaseHeld(f"another process changes {cache_key}", cache_key=cache_key)
        try:
            yield lease
        finally:
            self._leases.release(lease.key.id, lease.token, now=self._clock())


class Proof(TypedDict):
    """The members with which a command names its publication and its lease."""

    cache_key: str
    lease_token: str
    lease_number: model.Position


def _proof(cache_key: str, lease: leases.HeldLease) -> Proof:
    return Proof(cache_key=cache_key, lease_token=lease.token, lease_number=lease.number)
