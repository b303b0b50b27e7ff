"""Webhooks: how the outbox and the notifications sign an event and send it.

Headers and signature are those of Standard Webhooks, so its libraries verify them. The body is a
CloudEvent in JSON.

    content-type: application/cloudevents+json
    webhook-id: 1f2e….812.ops                     the event's id, the same for every attempt
    webhook-timestamp: 1777057200                 when this attempt was sent
    webhook-signature: v1,<base64 HMAC-SHA256 of "id.timestamp.body"> v1,<by the previous secret>
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from tidegate.control.checked_http import CheckedClient
from tidegate.errors import InvalidInput

SECRET_PREFIX: Final = "whsec_"
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as the standard asks


def send_webhook(
    client: CheckedClient, secrets: Iterable[str], id: str, at: datetime, body: bytes
) -> tuple[int, bytes]:
    """POST a signed event; return the status and the beginning of the response.

    Raises:
        DestinationRefused, InvalidInput, OSError, httpx2.HTTPError.
    """
    headers = sign_webhook(secrets, id, at, body)
    kind = {"content-type": "application/cloudevents+json"}
    return client.exchange("POST", kind | headers, body)


def sign_webhook(secrets: Iterable[str], id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message. A receiver accepts any one of the signatures."""
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


def to_secret(key: bytes) -> str:
    """Encode a key as text for people and receivers."""
    return SECRET_PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """Decode the key of a secret. Raises: InvalidInput."""
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
