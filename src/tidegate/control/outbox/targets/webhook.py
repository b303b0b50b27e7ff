"""A target that POSTs signed CloudEvents to a checked address, with limits on time and size.

``control/webhooks.py`` signs and sends them; ``webhook-id`` is the idempotency key. The type of the
event says what it asks for:

    dev.tidegate.effect.requested.v1   perform this effect; the status is the answer
    dev.tidegate.state.requested.v1    return the state of a scope and an operation
    dev.tidegate.target.tested.v1      nothing
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection, Sequence

import httpx2
import msgspec

from tidegate.clock import Clock, system_clock
from tidegate.control import checked_http, webhooks
from tidegate.control.outbox.targets import (
    Effect,
    TargetDone,
    TargetFailed,
    Unobservable,
    observation_of,
)
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.kernel import codec
from tidegate.public_addresses import DestinationRefused, Resolve, system_resolve

SECRETS_MAX = 2  # the current one, and the previous one until the receiver has the new one
SOURCE = "/tidegate"
TYPE = "dev.tidegate.effect.requested.v1"
STATE_TYPE = "dev.tidegate.state.requested.v1"
TEST_TYPE = "dev.tidegate.target.tested.v1"

# Statuses that may pass: the receiver is slow, busy or unavailable.
_LATER = frozenset({408, 409, 425, 429})


class WebhookTarget:
    """Sends effects to one URL.

    ``secrets``: each of them signs. ``allowed``: exact ``host:port`` texts that may be private.
    ``observable``: the receiver can return the state.

    Raises:
        DestinationRefused: the URL is not allowed. InvalidInput: a secret is invalid.
    """

    def __init__(
        self,
        url: str,
        secrets: Sequence[str],
        *,
        allowed: Collection[str] = (),
        observable: bool = False,
        timeout_seconds: float = checked_http.TIMEOUT_SECONDS,
        name: str = "webhook",
        clock: Clock = system_clock,
        monotonic: checked_http.Monotonic = time.monotonic,
        resolve: Resolve = system_resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        for secret in secrets:
            webhooks.key_of(secret)
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._client = checked_http.CheckedClient(
            url,
            allowed=allowed,
            timeout_seconds=timeout_seconds,
            monotonic=monotonic,
            resolve=resolve,
            trust=trust,
        )
        self._secrets = tuple(secrets)
        self._observable = observable
        self._clock = clock

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        return self._send(key, cloud_event(key, effect))

    def try_out(self) -> TargetDone | TargetFailed:
        """Send a test event that asks for nothing."""
        at = codec.time_text(self._clock())
        key = f"test:{at}"
        event = {"specversion": "1.0", "id": key, "source": SOURCE, "type": TEST_TYPE, "time": at}
        return self._send(key, msgspec.json.encode(event))

    def _send(self, key: str, body: bytes) -> TargetDone | TargetFailed:
        try:
            status, _ = webhooks.send_webhook(self._client, self._secrets, key, self._clock(), body)
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
        now = self._clock()
        at = codec.time_text(now)
        key = f"state:{scope}:{operation}:{at}"
        event = {
            "specversion": "1.0",
            "id": key,
            "source": SOURCE,
            "type": STATE_TYPE,
            "subject": scope,
            "time": at,
            "datacontenttype": "application/json",
            "data": {"scope": scope, "operation": operation},
        }
        body = msgspec.json.encode(event)
        try:
            status, answer = webhooks.send_webhook(self._client, self._secrets, key, now, body)
        except (DestinationRefused, httpx2.HTTPError, OSError) as error:
            raise Unobservable(f"no answer: {type(error).__name__}") from error
        if status != 200:
            raise Unobservable(f"status {status}")
        return observation_of(answer)


def cloud_event(key: str, effect: Effect) -> bytes:
    """Make the request's body, equal for every attempt: CloudEvents 1.0, structured JSON."""
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
