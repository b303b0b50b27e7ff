"""One message to one target: an exchange over HTTP or SMTP, and what the answer means."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import httpx2
import msgspec

from tidegate.clock import Clock
from tidegate.config import NotifySetting
from tidegate.control.checked_http import TIMEOUT_SECONDS, CheckedClient
from tidegate.control.notifications.addresses import TargetAddress
from tidegate.control.notifications.mail import TargetAnswer, check_recipients, send_mail
from tidegate.control.webhooks import key_of, send_webhook
from tidegate.domain.notifications import renderings
from tidegate.domain.notifications.events import event_type
from tidegate.domain.notifications.messages import Message
from tidegate.domain.notifications.refusals import InvalidSubscription
from tidegate.domain.notifications.states import SIGNED, TargetKind
from tidegate.errors import Invalid
from tidegate.kernel import codec
from tidegate.public_addresses import parse_destination

PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
WITH_SECRET: Final = {
    TargetKind.PAGERDUTY: "the integration key of its service",
    TargetKind.GRAFANA: "a service account's token that may write annotations",
}


class Targets:
    """Sends messages, with what the settings allow and name."""

    timeout_seconds = TIMEOUT_SECONDS

    def __init__(self, clock: Clock, setting: NotifySetting) -> None:
        self._clock = clock
        self._setting = setting

    def check(self, kind: TargetKind, address: TargetAddress) -> None:
        """That messages could be sent there.

        Raises:
            DestinationRefused, InvalidInput, InvalidSubscription.
        """
        if kind is TargetKind.MAIL:
            if not self._setting.smtp_host:
                raise InvalidSubscription(
                    "The server has no mail server: set smtp_host of [notify] in its settings.",
                    field="kind",
                )
            check_recipients(address.to)
            return
        if address.to:
            raise InvalidSubscription(f"A {kind} has a URL, and no mail addresses.", field="to")
        parse_destination(self._url(kind, address), self._setting.allowed)
        if kind in SIGNED:
            key_of(address.secret)
        elif kind in WITH_SECRET and not address.secret:
            raise InvalidSubscription(f"A {kind} needs a secret: {WITH_SECRET[kind]}.")
        if not (address.secret.isascii() and address.secret.isprintable()):
            raise InvalidSubscription(
                "A secret holds printable ASCII characters only.", field="secret"
            )

    def send(self, kind: TargetKind, address: TargetAddress, message: Message) -> TargetAnswer:
        """Send one message. Nothing that the target does raises."""
        if kind is TargetKind.MAIL:
            return send_mail(self._setting, address.to, message, self.timeout_seconds)
        try:
            client = CheckedClient(
                self._url(kind, address),
                allowed=self._setting.allowed,
                timeout_seconds=self.timeout_seconds,
            )
            if kind is TargetKind.WEBHOOK:
                now = self._clock()
                secrets, body = _secrets(address, now), cloud_event(message)
                status, _ = send_webhook(client, secrets, message.id, now, body)
            else:
                rendered = self._render(kind, address, message)
                if rendered is None:
                    return TargetAnswer(True, 0, f"nothing that {kind} is for")
                status, _ = client.exchange("POST", *rendered)
        except Invalid as error:  # DestinationRefused among them
            return TargetAnswer(False, 0, error.detail)
        except (httpx2.HTTPError, OSError) as error:
            return TargetAnswer(False, 0, f"no answer: {type(error).__name__}")
        return TargetAnswer(200 <= status < 300, status, f"status {status}")

    def _url(self, kind: TargetKind, address: TargetAddress) -> str:
        match kind:
            case TargetKind.PAGERDUTY:
                return address.url or PAGERDUTY_URL
            case TargetKind.GRAFANA:
                return f"{address.url.rstrip('/')}/api/annotations"
            case _:
                return address.url

    def _render(
        self, kind: TargetKind, address: TargetAddress, message: Message
    ) -> tuple[dict[str, str], bytes] | None:
        """Headers and body for a chat, an alert or an annotation; None: nothing is to be sent."""
        content: dict[str, object] | None
        more: dict[str, str] = {}
        match kind:
            case TargetKind.SLACK:
                content = renderings.render_slack(message)
            case TargetKind.TEAMS:
                content = renderings.render_teams(message)
            case TargetKind.PAGERDUTY:
                content = renderings.render_pagerduty(message, address.secret)
            case TargetKind.GRAFANA:
                content = renderings.render_grafana(message)
                more = {"authorization": f"Bearer {address.secret}"}
            case TargetKind.WEBHOOK | TargetKind.MAIL:
                raise AssertionError(f"a {kind} is sent in another way")
        if content is None:
            return None
        return {"content-type": "application/json", **more}, msgspec.json.encode(content)


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
