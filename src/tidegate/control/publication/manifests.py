"""Channel manifests: what a channel's hosts may run, signed, published under a lease.

    ACTUAL, channel ──▶ Manifest ──▶ signed body ──▶ Publisher (recipe B) ──▶ readers, If-None-Match

The signature covers the bytes of the payload as they are in the body, and the payload's type. A
reader verifies the bytes, then parses them.

    publish    after a promotion
    refresh    the worker, every two seconds: what changed or expires soon
    serve      readers: the last published body; rendered only if there is none
"""

from __future__ import annotations

import logging
import time
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from tidegate import decoders, errors
from tidegate.control.publication import entries
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.epochs import FIRST, Epoch, epoch_key
from tidegate.domain.publication import rows, slices
from tidegate.domain.releases.rows import Actual, KnownRelease, actual_key, known_key
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.kernel import codec, leases
from tidegate.kernel.model import ABSENT, Key

PAYLOAD_TYPE = b"tidegate.manifest.v2\n"
VALID: Final = timedelta(hours=24)
RENEWED_BEFORE: Final = timedelta(hours=12)  # before its end; a worker may be down for so long
LEASE_WAIT_SECONDS: Final = 2.0
LEASE_POLL_SECONDS: Final = 0.025
# version = epoch · 2²² + n, so that versions grow after a restore, too. An epoch has 31 bits, so
# versions fit into the 53 bits that every JSON reader keeps exactly.
EPOCH_BITS: Final = 22
POLICY = entries.PublicationPolicy(versioned=True, revalidate_seconds=int(VALID.total_seconds()))

log = logging.getLogger("tidegate.manifests")
Row = TypeVar("Row", bound=Struct)


class BadSignature(errors.Forbidden):
    """No known key signed this channel manifest; keep the one that you have."""

    code = "bad_signature"


class ManifestUnpublished(errors.Unavailable):
    """There is no channel manifest yet, and another process is publishing the first one."""

    code = "manifest_unpublished"


class NamedRelease(Struct, frozen=True):
    """A release, and the digest of its content."""

    release_id: str
    digest: str


class ManifestNames(Struct, frozen=True, omit_defaults=True):
    """The releases that a channel's hosts may be ordered to run."""

    status: str
    wanted: NamedRelease  # the pin
    rolling: NamedRelease | None = None  # the channel's rollout, while the pin is another release
    last_good: NamedRelease | None = None  # the newest that was rolled out completely
    previous: NamedRelease | None = None  # the pin before


class ChannelManifest(ManifestNames, frozen=True, omit_defaults=True, kw_only=True):
    """What a channel's hosts may run. An agent rejects a lower version than it has seen."""

    channel: str
    version: int
    generated_at: datetime
    expires_at: datetime

    @property
    def names(self) -> ManifestNames:
        return ManifestNames(self.status, self.wanted, self.rolling, self.last_good, self.previous)


class SignedManifest(Struct, frozen=True):
    """The body that is published."""

    payload: str
    key_id: str
    signature: str  # base64, of PAYLOAD_TYPE and the payload's bytes


class ManifestResponse(Struct, frozen=True):
    """The response to a conditional GET."""

    status: int
    etag: str
    body: bytes = b""


class Manifests:
    """Makes and serves the manifests of all channels, with one signing key."""

    def __init__(
        self,
        control: Control,
        publisher: Publisher,
        key: Ed25519PrivateKey,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._control = control
        self._store = control.store
        self._publisher = publisher
        self._key = key
        self._key_id = key_id(key.public_key())
        self._sleep = sleep

    # ── writing ──

    def publish(self, channel: str, *, by: str = "") -> entries.Served:
        """Publish a manifest of the current rows, unless it is already published.

        Raises:
            NotFound: the channel is not registered. LeaseHeld: another process publishes.
            LeaseLost, StaleVersion: another process was faster. Unavailable, Unknown.
        """
        lease = self._lease(channel)
        if lease is None:
            raise errors.LeaseHeld(f"another process publishes {channel}", cache_key=channel)
        try:
            entry = self._read(channel)
            if entry is not None and not self._is_due(channel, entry):
                return entries.Served(entries.ServedState.HIT, entry)
            return entries.Served(entries.ServedState.MISS, self._render(channel, lease, by))
        finally:
            self._publisher.release(lease)

    def publish_promoted(self, channel: str, *, by: str = "") -> None:
        """Publish after a promotion. If this fails, the worker publishes later."""
        try:
            self.publish(channel, by=by)
        except (errors.Conflict, errors.Unavailable, errors.Unknown) as error:
            log.warning("the manifest of %s waits for the worker: %s", channel, error.detail)

    def refresh(self, channel: str, *, by: str = "") -> tuple[ChannelManifest, bool]:
        """Publish if needed; return the published manifest, and whether this call published it.

        Raises:
            The errors of ``publish``.
        """
        entry = self._read(channel)
        if entry is not None and not self._is_due(channel, entry):
            return _payload(entry.body), False
        served = self.publish(channel, by=by)
        return _payload(served.entry.body), served.state is entries.ServedState.MISS

    # ── reading ──

    def serve(self, channel: str) -> entries.PublicationEntry:
        """Return the last published manifest. The first reader of a channel may have to render it.

        Raises:
            NotFound: nothing is pinned. ManifestUnpublished: not in time.
        """
        entry = self._read(channel)
        if entry is not None:
            return entry
        try:
            return self.publish(channel).entry
        except errors.NotFound:
            raise errors.NotFound(
                f"{channel} has no manifest; promote a release first", channel=channel
            ) from None
        except errors.Conflict as error:
            entry = self._publisher.read(channel)
            if entry is None:
                raise ManifestUnpublished(
                    f"the first manifest of {channel} is being published", channel=channel
                ) from error
            return entry

    def get(self, channel: str, if_none_match: str | None = None) -> ManifestResponse:
        """Return the published manifest. Raises: NotFound."""
        entry: entries.PublicationEntry | None = self._publisher.read(channel)
        if entry is None:
            raise errors.NotFound(
                f"{channel} has no manifest; promote a release first", channel=channel
            )
        if rows.is_not_modified(if_none_match, entry.pointer.etag):
            return ManifestResponse(304, entry.pointer.etag)
        return ManifestResponse(200, entry.pointer.etag, entry.body)

    def _read(self, channel: str) -> entries.PublicationEntry | None:
        """Read the last published manifest; None: none, or its body was lost."""
        try:
            return self._publisher.read(channel)
        except (BlobDamaged, BlobMissing) as error:
            log.error("the manifest of %s is published again: %s", channel, error.detail)
            return None

    # ── rows ──

    def _lease(self, channel: str) -> leases.HeldLease | None:
        """Acquire the lease of a channel's publication; None: not within ``LEASE_WAIT_SECONDS``."""
        for _ in range(round(LEASE_WAIT_SECONDS / LEASE_POLL_SECONDS)):
            lease = self._publisher.try_acquire(channel, POLICY.lease_seconds)
            if lease is not None:
                return lease
            self._sleep(LEASE_POLL_SECONDS)
        return None

    def _is_due(self, channel: str, entry: entries.PublicationEntry) -> bool:
        """Whether the published manifest is outdated, has another key or epoch, or expires soon."""
        try:
            envelope = codec.decode(entry.body, SignedManifest)
            manifest = codec.decode(envelope.payload.encode(), ChannelManifest)
        except errors.TidegateError:
            return True  # not a manifest of this version
        return (
            manifest.names != self._names(channel)
            or manifest.expires_at - RENEWED_BEFORE <= self._control.clock()
            or manifest.version >> EPOCH_BITS != self._epoch()
            or envelope.key_id != self._key_id
        )

    def _render(self, channel: str, lease: leases.HeldLease, by: str) -> entries.PublicationEntry:
        meta = rows.meta_key(rows.pk_of(channel))
        (record,) = self._store.get(meta)
        before = None if record is None else codec.decode(record.data, rows.Pointer)
        now = self._control.clock()  # before the rows are read, which may be as old as this
        if before is not None:
            now = max(now, before.generated_at + timedelta(microseconds=1))
        names = self._names(channel)
        number = 1 if before is None else before.version + 1
        manifest = ChannelManifest(
            status=names.status,
            wanted=names.wanted,
            rolling=names.rolling,
            last_good=names.last_good,
            previous=names.previous,
            channel=channel,
            version=(self._epoch() << EPOCH_BITS) + number,
            generated_at=now,
            expires_at=now + VALID,
        )
        return self._publisher.publish(
            channel,
            lease,
            sign_manifest(manifest, self._key),
            POLICY,
            generated_at=now,
            guards=slices.ALL_GUARDS,
            expected_version=ABSENT if record is None else record.version,
            by=by,
        )

    def _names(self, channel: str) -> ManifestNames:
        """Raises: NotFound: nothing is pinned."""
        actual = self._row(actual_key(channel), Actual)
        if actual is None:
            raise errors.NotFound(f"{channel} is not registered", channel=channel)
        found = self._row(channel_key(channel), Channel)
        active = None if found is None else found.active_rollout_id
        tally = None if active is None else self._row(tally_key(active), RolloutTally)
        rolling = None if tally is None else NamedRelease(tally.target_ref, tally.target_closure)
        wanted = NamedRelease(actual.pinned_release_id, actual.digest)
        return ManifestNames(
            status=actual.status,
            wanted=wanted,
            rolling=None if rolling == wanted else rolling,
            last_good=self._known(None if found is None else found.terminal_ref),
            previous=self._known(actual.previous_release_id),
        )

    def _known(self, release_id: str | None) -> NamedRelease | None:
        known = None if release_id is None else self._row(known_key(release_id), KnownRelease)
        if release_id is None or known is None:
            return None
        return NamedRelease(release_id, known.digest)

    def _epoch(self) -> int:
        found = self._row(epoch_key(), Epoch)
        return FIRST if found is None else found.epoch

    def _row(self, key: Key, model: type[Row]) -> Row | None:
        (record,) = self._store.get(key)
        return None if record is None else codec.decode(record.data, model)


def _payload(body: bytes) -> ChannelManifest:
    payload = codec.decode(body, SignedManifest).payload
    return codec.decode(payload.encode(), ChannelManifest)


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id by which readers find the key that they trust."""
    return sha256(key.public_bytes_raw()).hexdigest()[:16]


def sign_manifest(manifest: ChannelManifest, key: Ed25519PrivateKey) -> bytes:
    """Sign a manifest and return its body."""
    payload = codec.encode(manifest)
    signature = b64encode(key.sign(PAYLOAD_TYPE + payload)).decode()
    return codec.encode(SignedManifest(payload.decode(), key_id(key.public_key()), signature))


decoders.build(SignedManifest)
decoders.build(ChannelManifest)


def verify_manifest(body: bytes, trusted: Mapping[str, Ed25519PublicKey]) -> ChannelManifest:
    """Verify a body with the trusted keys and return its manifest.

    Raises:
        BadSignature: the key is unknown, or the signed bytes were changed.
        InvalidInput: not a signed manifest.
    """
    envelope = codec.decode(body, SignedManifest)
    key = trusted.get(envelope.key_id)
    if key is None:
        raise BadSignature(f"key {envelope.key_id} is not trusted", key_id=envelope.key_id)
    payload = envelope.payload.encode()
    try:
        key.verify(b64decode(envelope.signature, validate=True), PAYLOAD_TYPE + payload)
    except (InvalidSignature, BadBase64):
        raise BadSignature(
            "the signature does not fit the manifest", key_id=envelope.key_id
        ) from None
    return codec.decode(payload, ChannelManifest)
