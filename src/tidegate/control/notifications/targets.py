"""One message to one target: an exchange over HTTP, and what the answer means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import httpx2
import msgspec
from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.checked_http import TIMEOUT_SECONDS, CheckedClient
from tidegate.control.notifications.addresses import TargetAddress
from tidegate.control.notifications.signatures import sign_webhook
from tidegate.domain.notifications.events import event_type
from tidegate.domain.notifications.messages import Message
from tidegate.domain.notifications.states import TargetKind
from tidegate.errors import Invalid
from tidegate.kernel import codec
from tidegate.public_addresses import DestinationRefused


class TargetAnswer(Struct, frozen=True):
    """What a target said. ``status`` 0: it said nothing."""

    is_delivered: bool
    status: int = 0
    detail: str = ""


class HttpRequest(Struct, frozen=True):
    """What is sent to a target."""

    url: str
    headers: dict[str, str]
    body: bytes


Send = Callable[[TargetKind, TargetAddress, Message], TargetAnswer]


class Targets:
    """Sends messages. ``allowed`` holds exact ``host:port`` texts that may be private."""

    timeout_seconds = TIMEOUT_SECONDS

    def __init__(self, clock: Clock, allowed: tuple[str, ...] = ()) -> None:
        self._clock = clock
        self._allowed = allowed

    def send(self, kind: TargetKind, address: TargetAddress, message: Message) -> TargetAnswer:
        """Send one message. Nothing that the target does raises."""
        try:
            request = render_request(kind, address, message, self._clock())
            client = CheckedClient(
                request.url, allowed=self._allowed, timeout_seconds=self.timeout_seconds
            )
            status, _ = client.exchange("POST", request.headers, request.body)
        except DestinationRefused as error:
            return TargetAnswer(False, 0, error.detail)
        except Invalid as error:
            return TargetAnswer(False, 0, error.detail)
        except (httpx2.HTTPError, OSError) as error:
            return TargetAnswer(False, 0, f"no answer: {type(error).__name__}")
        return TargetAnswer(200 <= status < 300, status, f"status {status}")


def render_request(
    kind: TargetKind, address: TargetAddress, message: Message, now: datetime
) -> HttpRequest:
    """What this kind of target is sent for a message. Raises: InvalidInput."""
    match kind:
        case TargetKind.WEBHOOK:
            body = cloud_event(message)
            headers = sign_webhook(_secrets(address, now), message.id, now, body)
            return HttpRequest(
                address.url, {"content-type": "application/cloudevents+json", **headers}, body
            )


def _secrets(address: TargetAddress, now: datetime) -> tuple[str, ...]:
    """The secrets that sign: after a rotation the previous one signs as well, for a while."""
    previous = address.previous_until is not None and now < address.previous_until
    return (address.secret, address.previous_secret) if previous else (address.secret,)


def cloud_event(message: Message) -> bytes:
    """The body of a webhook: CloudEvents 1.0, structured JSON."""
    payload = message.payload
    event = {
        "specversion": "1.0",
        "id": message.id,
        "source": payload.installation.url or "/tidegate",
        "type": event_type(payload.event),
        "subject": payload.rollout_id or payload.channel or payload.event,
        "time": codec.time_text(payload.at),
        "datacontenttype": "application/json",
        "data": payload,
    }
    return msgspec.json.encode(event)
