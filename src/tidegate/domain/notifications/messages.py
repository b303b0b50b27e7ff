"""Messages: notices with what is known only when they are sent, such as the names of people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tidegate.domain.notifications import events, notices as notification_notices, states, texts
from tidegate.domain.rollouts import facts, states as rollout_states

FORMER_USER: Final = "a former user"
DIGEST_NAMED_MAX: Final = 20

NameOf = Callable[[str], str | None]  # the name of a user id; None: erased


class InstallationRef(Struct, frozen=True):
    """The installation that sends the message."""

    name: str
    url: str
    log_id: str


class MessageActor(Struct, frozen=True):
    """The user who caused the event."""

    id: str
    name: str


class MessageLinks(Struct, frozen=True, omit_defaults=True):
    """Links to the dashboard and the API."""

    page: str = ""
    explain: str = ""  # the API


class MessagePayload(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The ``data`` of a CloudEvent, for programs."""

    event: str
    severity: states.Severity
    at: datetime
    position: int
    installation: InstallationRef
    title: str
    sentences: tuple[str, ...]
    channel: str = ""
    release: str = ""
    digest: str = ""
    rollout_id: str = ""
    revision: str = ""
    subject: str = ""
    state: str = ""
    outcome: rollout_states.Outcome | None = None
    opened_at: datetime | None = None
    replaces: str = ""
    gate: str = ""
    asks: str = ""
    quarantined: bool = False
    count: int = 1
    wave: notification_notices.NoticeWave | None = None
    counts: facts.HostCounts | None = None
    hosts: notification_notices.NoticeHosts | None = None
    cause: notification_notices.NoticeCause | None = None
    automatic: str = ""
    actor: MessageActor | None = None
    reason: str = ""
    links: MessageLinks | None = None
    verbs: tuple[str, ...] = ()
    replayed: bool = False


class Message(Struct, frozen=True, kw_only=True):
    """One message to one target. Its id is the same in every attempt."""

    id: str
    payload: MessagePayload


def message_id(log_id: str, notice: notification_notices.Notice, subscription: str) -> str:
    """The id by which a receiver recognises a repeated message."""
    return f"{log_id}.{notice.key}.{subscription}"


def to_message(
    notice: notification_notices.Notice,
    subscription: str,
    installation: InstallationRef,
    name_of: NameOf,
    *,
    replayed: bool = False,
) -> Message:
    """Build the message about a notice, with the current names of people."""
    shared: Mapping[str, object] = {
        name: getattr(notice, name) for name in _SHARED if getattr(notice, name) is not None
    }
    actor = _actor(notice.actor, name_of)
    by = "" if actor is None else actor.name
    links = _links(notice, installation.url)
    payload = MessagePayload(
        **shared,  # type: ignore[arg-type]
        installation=installation,
        title=texts.title_of(notice, by),
        sentences=texts.sentences_of(notice, by),
        actor=actor,
        links=links,
        verbs=texts.verbs_of(notice),
        replayed=replayed,
    )
    return Message(id=message_id(installation.log_id, notice, subscription), payload=payload)


def to_digest(
    notices: Sequence[notification_notices.Notice], subscription: str, installation: InstallationRef
) -> Message:
    """Build one message about several notices. It lists the most severe ones in log order."""
    gravest = sorted(notices, key=lambda notice: -states.RANKS[notice.severity])[:DIGEST_NAMED_MAX]
    named = [notice for notice in notices if notice in gravest]
    more = len(notices) - len(named)
    lines = [texts.title_of(notice) for notice in named]
    first, last = notices[0], notices[-1]
    payload = MessagePayload(
        event=events.DIGEST_EVENT,
        severity=gravest[0].severity,
        at=last.at,
        position=last.position,
        installation=installation,
        title=f"{len(notices):,} events while this receiver was unreachable",
        sentences=(*lines, *([f"And {more:,} more."] if more else ())),
        links=MessageLinks(f"{installation.url}/events") if installation.url else None,
        count=len(notices),
    )
    id = f"{installation.log_id}.{first.key}-{last.key}.{subscription}"
    return Message(id=id, payload=payload)


_SHARED: Final = tuple(
    {item.name for item in structs.fields(notification_notices.Notice)}
    & {item.name for item in structs.fields(MessagePayload)} - {"actor"}
)


def _actor(user_id: str, name_of: NameOf) -> MessageActor | None:
    return MessageActor(user_id, name_of(user_id) or FORMER_USER) if user_id else None


def _links(notice: notification_notices.Notice, url: str) -> MessageLinks | None:
    page = _page(notice)
    if not url or not page:
        return None
    explain = f"{url}/v1/rollouts/{notice.rollout_id}/explain" if notice.rollout_id else ""
    return MessageLinks(f"{url}{page}", explain)


_PAGES: Final = {
    "outbox.dead": "/outbox",
    "notify.dead": "/notifications",
    "notify.changed": "/notifications",
    "target.disabled": "/notifications",
    "freeze.started": "/maintenance",
    "freeze.ended": "/maintenance",
}


def _page(notice: notification_notices.Notice) -> str:
    if notice.rollout_id:
        return f"/rollouts/{notice.rollout_id}"
    if notice.revision:
        return f"/revisions/{notice.revision}"
    if notice.is_about_request:
        return f"/approvals/{notice.subject}"
    if notice.event in _PAGES:
        return _PAGES[notice.event]
    return f"/channels/{notice.channel}" if notice.channel else ""
