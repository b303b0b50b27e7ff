"""A channel's manifest: what is authoritative, signed, published under a lease, served by ETag.

    ACTUAL ──▶ Manifest ──▶ signed body ──▶ Publisher (recipe B) ──▶ readers, with If-None-Match

The signature covers the payload's bytes as they stand in the body, together with what kind of
payload it is: a reader verifies bytes, then parses them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from tidegate.control.publisher import Entry, Policy, Publisher, Served
from tidegate.control.runtime import Control
from tidegate.domain.publication.rows import not_modified
from tidegate.domain.releases import history
from tidegate.domain.releases.rows import Actual
from tidegate.errors import Forbidden, NotFound
from tidegate.kernel import codec

PAYLOAD_TYPE = b"tidegate.manifest.v1\n"
POLICY = Policy(versioned=True)


class BadSignature(Forbidden):
    """The manifest is not what a known key signed; keep to the one you have."""

    code = "bad_signature"


class Manifest(Struct, frozen=True, omit_defaults=True):
    """What a channel's hosts shall run."""

    channel: str
    release_id: str
    digest: str
    status: str
    version: int  # of the channel's registry row: a lower one than before is old
    generated_at: datetime
    previous_release_id: str | None = None


class SignedManifest(Struct, frozen=True):
    """The body that is published."""

    payload: str
    key_id: str
    signature: str  # base64, of PAYLOAD_TYPE and the payload's bytes


class Answer(Struct, frozen=True):
    """What a conditional GET is answered."""

    status: int
    etag: str
    body: bytes = b""


class Manifests:
    """Makes and serves the manifests of all channels with one signing key."""

    def __init__(self, control: Control, publisher: Publisher, key: Ed25519PrivateKey) -> None:
        self._control = control
        self._publisher = publisher
        self._key = key

    def publish(self, channel: str, *, by: str = "") -> Served:
        """Have the manifest made anew; readers keep the old one until it stands.

        Raises:
            NotFound: the channel is not registered. LeaseHeld: somebody else is at it.
        """
        if self._publisher.read(channel) is not None:
            self._publisher.invalidate(channel, by=by)
        return self._publisher.serve(channel, lambda: self._render(channel), POLICY)

    def get(self, channel: str, if_none_match: str | None = None) -> Answer:
        """The published manifest. Raises: NotFound."""
        entry: Entry | None = self._publisher.read(channel)
        if entry is None:
            raise NotFound(f"{channel} has no manifest; promote a release first", channel=channel)
        if not_modified(if_none_match, entry.pointer.etag):
            return Answer(304, entry.pointer.etag)
        return Answer(200, entry.pointer.etag, entry.body)

    def _render(self, channel: str) -> bytes:
        actual = history.current(self._control.store, channel).value
        assert isinstance(actual, Actual)
        return signed(
            Manifest(
                channel=channel,
                release_id=actual.pinned_release_id,
                digest=actual.digest,
                status=actual.status,
                version=actual.version,
                generated_at=self._control.clock(),
                previous_release_id=actual.previous_release_id,
            ),
            self._key,
        )


def key_id(key: Ed25519PublicKey) -> str:
    """By which a reader finds the key that it trusts."""
    return sha256(key.public_bytes_raw()).hexdigest()[:16]


def signed(manifest: Manifest, key: Ed25519PrivateKey) -> bytes:
    """The body of a manifest."""
    payload = codec.encode(manifest)
    signature = b64encode(key.sign(PAYLOAD_TYPE + payload)).decode()
    return codec.encode(SignedManifest(payload.decode(), key_id(key.public_key()), signature))


def verified(body: bytes, trusted: Mapping[str, Ed25519PublicKey]) -> Manifest:
    """The manifest of a body that a trusted key signed.

    Raises:
        BadSignature: an unknown key, or other bytes than were signed.
        InvalidInput: not a signed manifest at all.
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
    return codec.decode(payload, Manifest)
