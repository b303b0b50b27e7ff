"""Send one message to one target over HTTP or SMTP, and interpret the response."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import httpx2
import msgspec

from tidegate.clock import Clock
from tidegate.config import NotifySetting
from tidegate.control import checked_http, webhooks
from tidegate.control.notifications import addresses, mail
from tidegate.domain.notifications import events, messages, refusals, renderings, states
from tidegate.errors import Invalid
from tidegate.kernel import codec
from tidegate.public_addresses import parse_destination

PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
WITH_SECRET: Final = {
    states.TargetKind.PAGERDUTY: "the integration key of its service",
    states.TargetKind.GRAFANA: "a service account's token that may write annotations",
}


class Targets:
    """Sends messages, within the limits of the settings."""

    timeout_seconds = checked_http.TIMEOUT_SECONDS

    def __init__(self, clock: Clock, setting: NotifySetting) -> None:
        self._clock = clock
        self._setting = setting

    def check(self, kind: states.TargetKind, address: addresses.TargetAddress) -> None:
        """Check that messages can be sent to this address.

        Raises:
            DestinationRefused, InvalidInput, InvalidSubscription.
        """
        if kind is states.TargetKind.MAIL:
            if not self._setting.smtp_host:
                raise refusals.InvalidSubscription(
                    "The server has no mail server: set smtp_host of [notify] in its settings.",
                    field="kind",
                )
            mail.check_recipients(address.to)
            return
        if address.to:
            raise refusals.InvalidSubscription(
                f"A {kind} has a URL, and no mail addresses.", field="to"
            )
        parse_destination(self._url(kind, address), self._setting.allowed)
        if kind in states.SIGNED:
            webhooks.key_of(address.secret)
        elif kind in WITH_SECRET and not address.secret:
            raise refusals.InvalidSubscription(f"A {kind} needs a secret: {WITH_SECRET[kind]}.")
        if not (address.secret.isascii() and address.secret.isprintable()):
            raise refusals.InvalidSubscription(
                "A secret holds printable ASCII characters only.", field="secret"
            )

    def send(
        self, kind: states.TargetKind, address: addresses.TargetAddress, message: messages.Message
    ) -> mail.TargetAnswer:
        """Send one message. Errors of the target do not raise."""
        if kind is states.TargetKind.MAIL:
            return mail.send_mail(self._setting, address.to, message, self.timeout_seconds)
        try:
            client = checked_http.CheckedClient(
                self._url(kind, address),
                allowed=self._setting.allowed,
                timeout_seconds=self.timeout_seconds,
            )
            if kind is states.TargetKind.WEBHOOK:
                now = self._clock()
                secrets, body = _secrets(address, now), cloud_event(message)
                status, _ = webhooks.send_webhook(client, secrets, message.id, now, body)
            else:
                rendered = self._render(kind, address, message)
                if rendered is None:
                    return mail.TargetAnswer(True, 0, f"nothing that {kind} is for")
                status, _ = client.exchange("POST", *rendered)
        except Invalid as error:  # DestinationRefused among them
            return mail.TargetAnswer(False, 0, error.detail)
        except (httpx2.HTTPError, OSError) as error:
            return mail.TargetAnswer(False, 0, f"no answer: {type(error).__name__}")
        return mail.TargetAnswer(200 <= status < 300, status, f"status {status}")

    def _url(self, kind: states.TargetKind, address: addresses.TargetAddress) -> str:
        match kind:
            case states.TargetKind.PAGERDUTY:
                return address.url or PAGERDUTY_URL
            case states.TargetKind.GRAFANA:
                return f"{address.url.rstrip('/')}/api/annotations"
            case _:
                return address.url

    def _render(
        self, kind: states.TargetKind, address: addresses.TargetAddress, message: messages.Message
    ) -> tuple[dict[str, str], bytes] | None:
        """Make headers and body for a chat, an alert or an annotation; None: nothing to send."""
        content: dict[str, object] | None
        more: dict[str, str] = {}
        match kind:
            case states.TargetKind.SLACK:
                content = renderings.render_slack(message)
            case states.TargetKind.TEAMS:
                content = renderings.render_teams(message)
            case states.TargetKind.PAGERDUTY:
                content = renderings.render_pagerduty(message, address.secret)
            case states.TargetKind.GRAFANA:
                content = renderings.render_grafana(message)
                more = {"authorization": f"Bearer {address.secret}"}
            case states.TargetKind.WEBHOOK | states.TargetKind.MAIL:
                raise AssertionError(f"a {kind} is sent in another way")
        if content is None:
            return None
        return {"content-type": "application/json", **more}, msgspec.json.encode(content)


def _secrets(address: addresses.TargetAddress, now: datetime) -> tuple[str, ...]:
    """Return the signing secrets: for a while after a rotation also the previous one."""
    previous = address.previous_until is not None and now < address.previous_until
    return (address.secret, address.previous_secret) if previous else (address.secret,)


def cloud_event(message: messages.Message) -> bytes:
    """Make the body of a webhook: CloudEvents 1.0, structured JSON."""
    payload = message.payload
    event = {
        "specversion": "1.0",
        "id": message.id,
        "source": payload.installation.url or "/tidegate",
        "type": events.event_type(payload.event),
        "subject": payload.rollout_id or payload.channel or payload.event,
        "time": codec.time_text(payload.at),
        "datacontenttype": "application/json",
        "data": payload,
    }
    return msgspec.json.encode(event)
