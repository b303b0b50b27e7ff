"""A signed POST of a CloudEvent, to an address that was checked, with an end to everything.

    POST /hooks
    content-type: application/cloudevents+json
    idempotency-key: web-stable:web.2:lambda_alias_update:7
    tidegate-timestamp: 1777057200
    tidegate-signature: v1=<hex HMAC-SHA256 of "timestamp.body">

Of the answer only the status is used. ``control/checked_http.py`` sends it.
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256

import httpx2
import msgspec

from tidegate.clock import Clock, system_clock
from tidegate.control.checked_http import TIMEOUT_SECONDS, CheckedClient, Monotonic
from tidegate.control.outbox.targets import (
    Effect,
    TargetDone,
    TargetFailed,
    Unobservable,
    observation_of,
)
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.errors import InvalidInput
from tidegate.kernel import codec
from tidegate.public_addresses import (
    DestinationRefused,
    Resolve,
    system_resolve,
)

SECRET_BYTES_MIN = 16
SKEW_SECONDS_MAX = 300
SOURCE = "/tidegate"
TYPE = "dev.tidegate.effect.requested.v1"
TEST_TYPE = "dev.tidegate.target.tested.v1"  # asks for nothing

KEY_HEADER = "idempotency-key"
TIME_HEADER = "tidegate-timestamp"
SIGNATURE_HEADER = "tidegate-signature"

# What the receiver may mend: it is slow, busy, or not there now.
_LATER = frozenset({408, 409, 425, 429})


class WebhookTarget:
    """Sends effects to one URL.

    ``allowed`` holds exact ``host:port`` texts; ``observable``: a GET of the URL tells the state.

    Raises:
        DestinationRefused: the URL may not be a webhook's. InvalidInput: the secret is short.
    """

    def __init__(
        self,
        url: str,
        secret: bytes,
        *,
        allowed: Collection[str] = (),
        observable: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        name: str = "webhook",
        clock: Clock = system_clock,
        monotonic: Monotonic = time.monotonic,
        resolve: Resolve = system_resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise InvalidInput(f"a webhook's secret has {SECRET_BYTES_MIN} bytes at least")
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._client = CheckedClient(
            url,
            allowed=allowed,
            timeout_seconds=timeout_seconds,
            monotonic=monotonic,
            resolve=resolve,
            trust=trust,
        )
        self._secret = secret
        self._observable = observable
        self._clock = clock

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        return self._send(key, cloud_event(key, effect))

    def try_out(self) -> TargetDone | TargetFailed:
        """Send an event that asks for nothing; its type tells the receiver so."""
        at = codec.time_text(self._clock())
        key = f"test:{at}"
        event = {"specversion": "1.0", "id": key, "source": SOURCE, "type": TEST_TYPE, "time": at}
        return self._send(key, msgspec.json.encode(event))

    def _send(self, key: str, body: bytes) -> TargetDone | TargetFailed:
        headers = {
            "content-type": "application/cloudevents+json",
            KEY_HEADER: key,
            **sign_request(self._secret, self._clock(), body),
        }
        try:
            status, _ = self._client.exchange("POST", headers, body)
        except DestinationRefused as error:
            return TargetFailed(error.detail, retryable=False)
        except (httpx2.HTTPError, OSError) as error:
            return TargetFailed(f"no answer: {type(error).__name__}")
        if 200 <= status < 300:
            return TargetDone(f"status {status}")
        return TargetFailed(f"status {status}", status >= 500 or status in _LATER)

    def observe(self, scope: str, operation: str) -> Observation | None:
        if not self._observable:
            return None
        asked = {"tidegate-scope": scope, "tidegate-operation": operation}
        headers = asked | sign_request(self._secret, self._clock(), f"{scope}:{operation}".encode())
        try:
            status, answer = self._client.exchange("GET", headers, b"")
        except (DestinationRefused, httpx2.HTTPError, OSError) as error:
            raise Unobservable(f"no answer: {type(error).__name__}") from error
        if status != 200:
            raise Unobservable(f"status {status}")
        return observation_of(answer)


def cloud_event(key: str, effect: Effect) -> bytes:
    """The body of the request, the same at every attempt: CloudEvents 1.0, structured JSON."""
    event = {
        "specversion": "1.0",
        "id": key,
        "source": SOURCE,
        "type": TYPE,
        "subject": effect.scope,
        "time": codec.time_text(effect.requested_at),
        "datacontenttype": "application/json",
        "sequence": str(effect.sequence),
        "data": effect,
    }
    return msgspec.json.encode(event)


def sign_request(secret: bytes, at: datetime, body: bytes) -> dict[str, str]:
    """The headers that say when it was sent, and prove by whom."""
    stamp = str(int(at.timestamp()))
    return {TIME_HEADER: stamp, SIGNATURE_HEADER: f"v1={_mac(secret, stamp, body)}"}


def is_authentic(secret: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """For receivers: whether the request is ours and was sent just now."""
    stamp = headers.get(TIME_HEADER, "")
    if not (stamp.isascii() and stamp.isdigit()):
        return False
    fresh = abs(now.timestamp() - int(stamp)) <= SKEW_SECONDS_MAX
    wanted = f"v1={_mac(secret, stamp, body)}"
    found = headers.get(SIGNATURE_HEADER, "")
    return hmac.compare_digest(wanted.encode(), found.encode()) and fresh


def _mac(secret: bytes, stamp: str, body: bytes) -> str:
    return hmac.new(secret, stamp.encode() + b"." + body, sha256).hexdigest()
