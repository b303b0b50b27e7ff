"""Whether an order agrees with what its channel's signed manifest says."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from tidegate.domain.hosts.protocol import Order

PAYLOAD_TYPE: Final = b"tidegate.manifest.v1\n"  # signed together with the payload


class Signed(Struct, frozen=True):
    payload: str
    key_id: str
    signature: str


class Manifest(Struct, frozen=True):
    """What of it an order must agree with."""

    channel: str
    release_id: str
    digest: str


def doubt(order: Order, body: bytes, keys: Mapping[str, str]) -> str | None:
    """Why the order must not be run; None: nothing speaks against it.

    Of another release than the pinned one a manifest says nothing: while that is halted, new hosts
    get the last good one. Then the digest alone must do.
    """
    try:
        manifest = _verified(body, keys)
    except (InvalidSignature, BadBase64, KeyError, ValueError, msgspec.MsgspecError):
        return f"the manifest of {order.channel} is not what a known key signed"
    if manifest.channel != order.channel:
        return f"the manifest of {order.channel} tells of {manifest.channel}"
    if manifest.release_id == order.release_id and manifest.digest != order.target_closure:
        return f"{order.release_id} is {manifest.digest} by the manifest of {order.channel}"
    return None


def _verified(body: bytes, keys: Mapping[str, str]) -> Manifest:
    signed = msgspec.json.decode(body, type=Signed)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(keys[signed.key_id]))
    payload = signed.payload.encode()
    key.verify(b64decode(signed.signature, validate=True), PAYLOAD_TYPE + payload)
    return msgspec.json.decode(payload, type=Manifest)
