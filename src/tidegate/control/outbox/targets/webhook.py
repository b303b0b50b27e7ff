"""A signed POST of a CloudEvent, to an address that was checked, with an end to everything.

``control/webhooks.py`` signs and sends it; ``webhook-id`` is the idempotency key. What the event
asks for is its type:

    dev.tidegate.effect.requested.v1   have this effect; the status is the answer
    dev.tidegate.state.requested.v1    tell the state of a scope and an operation, in the answer
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
from tidegate.public_addresses import (
    DestinationRefused,
    Resolve,
    system_resolve,
)

SECRETS_MAX = 2  # the present one and, while its receiver does not know it yet, the previous one
SOURCE = "/tidegate"
TYPE = "dev.tidegate.effect.requested.v1"
STATE_TYPE = "dev.tidegate.state.requested.v1"
TEST_TYPE = "dev.tidegate.target.tested.v1"

# What the receiver may mend: it is slow, busy, or not there now.
_LATER = frozenset({408, 409, 425, 429})


class WebhookTarget:
    """Sends effects to one URL.

    ``secrets``: each signs. ``allowed`` holds exact ``host:port`` texts; ``observable``: the
    receiver tells the state when it is asked.

    Raises:
        DestinationRefused: the URL may not be a webhook's. InvalidInput: a secret is not one.
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
        """Send an event that asks for nothing; its type tells the receiver so."""
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
