"""Check an order against its channel's signed manifest; remember the newest manifest version.

    manifest ─▶ signed? this channel's? not older than the last? not expired?  no ─▶ wait, ask again
                                        │ yes: its version is on disk from now on
    order ────▶ names its release with its digest? ── yes ─▶ take it
                                        └─ no: is the order older than the manifest? ─ yes ─▶ reject
                                                                                       no ──▶ wait

While it waits, the agent changes nothing on the host and keeps polling.

<state>/manifests.json   the highest verified version per channel
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidegate import decoders
from tidegate.agent import durable_files, errors
from tidegate.domain.hosts.protocol import SKEW_SECONDS_MAX, Order

PAYLOAD_TYPE: Final = b"tidegate.manifest.v2\n"  # signed together with the payload
FILE: Final = "manifests.json"
FORMAT: Final = 1  # of that file
# The clocks of server and worker may differ by this much.
SKEW: Final = timedelta(seconds=SKEW_SECONDS_MAX)

AwareTime = Annotated[datetime, msgspec.Meta(tz=True)]


class SignedPayload(msgspec.Struct, frozen=True):
    payload: str
    key_id: str
    signature: str


class AllowedRelease(msgspec.Struct, frozen=True):
    release_id: str
    digest: str


class ReceivedManifest(msgspec.Struct, frozen=True):
    """The members that orders are checked against."""

    channel: str
    version: int
    generated_at: AwareTime
    expires_at: AwareTime
    wanted: AllowedRelease
    rolling: AllowedRelease | None = None
    last_good: AllowedRelease | None = None
    previous: AllowedRelease | None = None

    @property
    def named(self) -> tuple[AllowedRelease, ...]:
        """The releases that the channel's hosts may run."""
        found = (self.wanted, self.rolling, self.last_good, self.previous)
        return tuple(item for item in found if item is not None)


class UntrustedManifest(Exception):
    """The manifest cannot be used now: keep what runs and fetch it again."""


class SeenVersions(msgspec.Struct, frozen=True):
    """The file: the log that the versions belong to, and the highest one of each channel."""

    format: int
    log_id: str
    versions: dict[str, int]


_signed = decoders.build(SignedPayload)
_manifest = decoders.build(ReceivedManifest)
_seen = decoders.build(SeenVersions)


class ManifestVersions:
    """The highest manifest version of each channel; survives restarts.

    Versions are counted per log, so an agent that enrolls at another installation starts at 0.
    """

    def __init__(self, state: Path, log_id: str) -> None:
        """Raises: ManifestMemoryDamaged."""
        self._path = state / FILE
        found = self._read()
        self._seen = found if found.log_id == log_id else SeenVersions(FORMAT, log_id, {})

    def highest(self, channel: str) -> int:
        """The highest verified version of the channel; 0: none yet."""
        return self._seen.versions.get(channel, 0)

    def remember(self, channel: str, version: int) -> None:
        """Save a version if it is the highest; durable on return. Raises: OSError."""
        if version <= self.highest(channel):
            return
        versions = self._seen.versions | {channel: version}
        seen = SeenVersions(FORMAT, self._seen.log_id, versions)
        durable_files.replace_file(self._path, msgspec.json.encode(seen))
        self._seen = seen

    def _read(self) -> SeenVersions:
        try:
            found = _seen.decode(self._path.read_bytes())
        except FileNotFoundError:
            return SeenVersions(FORMAT, "", {})
        except msgspec.MsgspecError as error:
            raise _damaged(self._path, f"cannot be read: {error}") from None
        if found.format != FORMAT:
            raise _damaged(self._path, f"has format {found.format}, this agent reads {FORMAT}")
        return found


def _damaged(path: Path, detail: str) -> errors.ManifestMemoryDamaged:
    return errors.ManifestMemoryDamaged(
        f"{path} {detail}. If you remove it, the host accepts any manifest that has not expired, "
        "until it sees the next one"
    )


def verify(
    body: bytes, channel: str, keys: Mapping[str, str], memory: ManifestVersions, now: datetime
) -> ReceivedManifest:
    """Decode a manifest and check its signature, channel, version and expiry; save its version.

    Raises:
        UntrustedManifest: wait, and fetch it again. OSError: the version cannot be saved.
    """
    try:
        manifest = _verify_signature(body, keys)
    except (InvalidSignature, BadBase64, KeyError, ValueError, msgspec.MsgspecError):
        raise UntrustedManifest(
            f"the manifest of {channel} is not what a known key signed"
        ) from None
    if manifest.channel != channel:
        raise UntrustedManifest(
            f"the server sent the manifest of {manifest.channel} instead of {channel}"
        )
    highest = memory.highest(channel)
    if manifest.version < highest:
        raise UntrustedManifest(
            f"the manifest of {channel} has version {manifest.version}, "
            f"version {highest} was seen before"
        )
    if manifest.expires_at <= now:
        raise UntrustedManifest(
            f"the manifest of {channel} expired at {manifest.expires_at.isoformat()}"
        )
    memory.remember(channel, manifest.version)
    return manifest


def judge(order: Order, manifest: ReceivedManifest) -> str | None:
    """Why the manifest forbids the order; None: it names the release with this digest.

    Raises:
        UntrustedManifest: it may be older than the order, so it decides nothing.
    """
    digests = {item.digest for item in manifest.named if item.release_id == order.release_id}
    if order.target_closure in digests:
        return None
    for digest in sorted(digests):
        return f"{order.release_id} is {digest} by the manifest of {order.channel}"
    named = ", ".join(sorted({item.release_id for item in manifest.named}))
    detail = f"the manifest of {order.channel} names {named}, not {order.release_id}"
    if order.enqueued_at.tzinfo is None or manifest.generated_at - SKEW < order.enqueued_at:
        raise UntrustedManifest(f"{detail}; it may be older than the order")
    return detail


def _verify_signature(body: bytes, keys: Mapping[str, str]) -> ReceivedManifest:
    signed = _signed.decode(body)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(keys[signed.key_id]))
    payload = signed.payload.encode()
    key.verify(b64decode(signed.signature, validate=True), PAYLOAD_TYPE + payload)
    return _manifest.decode(payload)
