"""The headers of Standard Webhooks: who sent a message, and when.

webhook-id: 1f2e….812.ops
webhook-timestamp: 1777057200
webhook-signature: v1,<base64 HMAC-SHA256 of "id.timestamp.body"> v1,<by the previous secret>
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from datetime import datetime

from tidegate.control.notifications.addresses import SECRET_PREFIX
from tidegate.errors import InvalidInput

KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as the standard asks


def key_of(secret: str) -> bytes:
    """The key that a secret stands for. Raises: InvalidInput."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("A webhook's secret is whsec_ and base64.", field="secret") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise InvalidInput(
            f"A webhook's secret has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, found {len(key)}.",
            field="secret",
        )
    return key


def sign_webhook(secrets: Iterable[str], id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers that prove a message. A receiver accepts any one of the signatures."""
    stamp = str(int(at.timestamp()))
    signed = f"{id}.{stamp}.".encode() + body
    signatures = (
        f"v1,{base64.b64encode(hmac.digest(key_of(secret), signed, 'sha256')).decode()}"
        for secret in secrets
    )
    return {
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(signatures),
    }
