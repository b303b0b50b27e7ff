"""Render messages for each kind of target. Golden files show the results.

Texts by users (reasons, names of channels and releases) are never interpreted as markup: they are
escaped, or put where the target shows plain text.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, to_builtins

from tidegate.domain.notifications import events, messages, states
from tidegate.domain.rollouts.states import RolloutState

SLACK_HEADER_CHARS_MAX: Final = 150
SLACK_TEXT_CHARS_MAX: Final = 3_000
SUMMARY_CHARS_MAX: Final = 1_024  # PagerDuty's limit

Json = dict[str, Any]


def body_lines(payload: messages.MessagePayload) -> list[str]:
    """The sentences of a message, and the command to run next."""
    return [*payload.sentences, *(f"Next: {verb}" for verb in payload.verbs)]


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _context(payload: messages.MessagePayload) -> str:
    again = " · replayed" if payload.replayed else ""
    name = payload.installation.name
    return f"{name} · {_time(payload.at)} · position {payload.position}{again}"


def _page(payload: messages.MessagePayload) -> str:
    return "" if payload.links is None else payload.links.page


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────────


def escape_angles(text: str) -> str:
    """Escape mentions, links and tags, which Slack and Grafana read between angle brackets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_slack(message: messages.Message) -> Json:
    """Render blocks, and the title as the text for notifications on phones."""
    payload = message.payload
    blocks: list[Json] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": payload.title[:SLACK_HEADER_CHARS_MAX]},
        }
    ]
    if lines := body_lines(payload):
        text = escape_angles("\n".join(lines))[:SLACK_TEXT_CHARS_MAX]
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    context = {"type": "mrkdwn", "text": escape_angles(_context(payload))}
    blocks.append({"type": "context", "elements": [context]})
    if page := _page(payload):
        button = {"type": "button", "text": {"type": "plain_text", "text": "Open"}, "url": page}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": escape_angles(payload.title), "blocks": blocks}


# ── Teams ─────────────────────────────────────────────────────────────────────────────────────────

_MARKDOWN = re.compile(r"([\\`*_\[\]()#+\-!|>~])")


def escape_markdown(text: str) -> str:
    """Escape text so that an Adaptive Card shows it literally."""
    return _MARKDOWN.sub(r"\\\1", text)


def render_teams(message: messages.Message) -> Json:
    """Render a message with an Adaptive Card 1.4."""
    payload = message.payload
    lines = (escape_markdown(line) for line in body_lines(payload))
    body: list[Json] = [
        {
            "type": "TextBlock",
            "text": escape_markdown(payload.title),
            "weight": "Bolder",
            "size": "Medium",
            "wrap": True,
        },
        *({"type": "TextBlock", "text": line, "wrap": True} for line in lines),
    ]
    if facts := _facts(payload):
        body.append({"type": "FactSet", "facts": facts})
    card: Json = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if page := _page(payload):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": page}]
    content = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content, "content": card}]}


def _facts(payload: messages.MessagePayload) -> list[Json]:
    wave, counts, hosts = payload.wave, payload.counts, payload.hosts
    found = {
        "Channel": payload.channel,
        "Release": payload.release,
        "Wave": "" if wave is None else f"{wave.number} of {wave.of} ({wave.name})",
        "Hosts": "" if counts is None else f"{counts.converged} of {counts.hosts} run it",
    }
    if counts is None and hosts is not None:
        found["Hosts"] = str(hosts.count)
    return [{"title": name, "value": escape_markdown(text)} for name, text in found.items() if text]


# ── PagerDuty ─────────────────────────────────────────────────────────────────────────────────────


def render_pagerduty(message: messages.Message, routing_key: str) -> Json | None:
    """Render an event of the Events API v2; None: it does not concern PagerDuty.

    The end of a rollout resolves the alert of its halt, also if a person ended it. A rollout that
    opens resolves the alert of the one that it replaces.
    """
    payload = message.payload
    if payload.event == "rollout.opened" and not payload.replaces:
        return None
    ended = payload.event == "rollout.failed" and payload.state == RolloutState.SUPERSEDED
    key = f"tidegate/{payload.installation.log_id}/{_alert(payload)}"
    event: Json = {"routing_key": routing_key, "dedup_key": key[:255]}
    if payload.event in events.RESOLVING or ended:
        return {**event, "event_action": "resolve"}
    if payload.severity is not states.Severity.CRITICAL:
        return None
    event |= {
        "event_action": "trigger",
        "client": "Tidegate",
        "payload": {
            "summary": payload.title[:SUMMARY_CHARS_MAX],
            "source": payload.installation.name,
            "severity": "critical",
            "timestamp": payload.at.isoformat().replace("+00:00", "Z"),
            "custom_details": to_builtins(payload),
        },
    }
    if page := _page(payload):
        event |= {"client_url": page, "links": [{"href": page, "text": "Open"}]}
    return event


def _alert(payload: messages.MessagePayload) -> str:
    """The key of an alert, which the triggering and the resolving event share."""
    if payload.event.startswith("release."):
        return f"{payload.channel}/{payload.digest}"
    if payload.event.startswith("hosts."):
        return f"hosts/{payload.channel}"
    return payload.replaces or payload.rollout_id or payload.subject or payload.event


# ── Grafana ───────────────────────────────────────────────────────────────────────────────────────


def render_grafana(message: messages.Message) -> Json:
    """Render an annotation: a region for a rollout that ended, otherwise a point in time."""
    payload = message.payload
    is_ended = payload.outcome is not None and payload.opened_at is not None
    start = payload.opened_at if is_ended and payload.opened_at is not None else payload.at
    tags = ("tidegate", payload.channel, payload.release, str(payload.outcome or payload.event))
    annotation: Json = {
        "time": _milliseconds(start),
        "tags": [tag for tag in tags if tag],
        "text": escape_angles("\n".join([payload.title, *payload.sentences])),
    }
    if is_ended:
        annotation["timeEnd"] = _milliseconds(payload.at)
    return annotation


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000)


# ── mail ──────────────────────────────────────────────────────────────────────────────────────────


class Mail(Struct, frozen=True, kw_only=True):
    """A mail without its addresses."""

    subject: str
    text: str
    headers: dict[str, str]


def render_mail(message: messages.Message) -> Mail:
    """Render plain text. All mails about one rollout form one thread."""
    payload = message.payload
    domain = payload.installation.name
    headers = {
        "Message-ID": f"<{message.id}@{domain}>",
        "Auto-Submitted": "auto-generated",
        "X-Tidegate-Event": payload.event,
    }
    if payload.rollout_id and payload.event != events.DIGEST_EVENT:
        rollout = payload.rollout_id.replace("@", ".")
        thread = f"<{payload.installation.log_id}.{rollout}@{domain}>"
        headers |= {"In-Reply-To": thread, "References": thread}
    lines = [payload.title, "", *body_lines(payload), "", _page(payload), _context(payload)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    return Mail(subject=f"[tidegate] {payload.title}", text=text, headers=headers)
