"""A notice: one thing that happened, as a message tells it. It holds ids, never names of people."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.notifications.states import Severity
from tidegate.domain.rollouts import facts, states

HOSTS_NAMED_MAX: Final = 10
DETAIL_CHARS_MAX: Final = 200
ALL_CHANNELS: Final = "channel:*"  # as a scope of a notice: it concerns every channel


class NoticeWave(Struct, frozen=True):
    """The wave that a rollout is in, counted from 1."""

    number: int
    name: str
    of: int


class NoticeHosts(Struct, frozen=True):
    """How many hosts it is about, and some of them by name."""

    count: int
    some: tuple[str, ...] = ()


class NoticeCause(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What made it happen."""

    host: str = ""
    failure: str = ""  # why the host failed, in a word
    probe: str = ""
    detail: str = ""  # redacted


class Notice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened. Members that do not fit an event are left out."""

    event: str
    severity: Severity
    at: datetime
    position: int  # of the fact that says so; of what time alone brings: the newest fact seen
    ordinal: int = 0  # counts notices of one position
    scopes: tuple[str, ...] = ()  # whom it concerns; none: the installation alone
    channel: str = ""
    release: str = ""
    digest: str = ""
    rollout_id: str = ""
    revision: str = ""
    subject: str = ""  # what else it is about: a request, a freeze, an intent, a subscription
    state: str = ""
    outcome: states.Outcome | None = None
    opened_at: datetime | None = None
    gate: str = ""  # what a rollout waits for
    asks: str = ""  # what a request asks for, in words: promote web.4 on prod
    quarantined: bool = False
    count: int = 1  # of what happened; several become one message
    wave: NoticeWave | None = None
    counts: facts.HostCounts | None = None
    hosts: NoticeHosts | None = None
    cause: NoticeCause | None = None
    automatic: str = ""  # the member of the policy by which it happened; empty: a person did it
    actor: str = ""  # a user's id; of what is automatic: who switched that on
    reason: str = ""

    @property
    def key(self) -> str:
        """What tells it from every other notice of the log."""
        return f"{self.position}-{self.ordinal}" if self.ordinal else str(self.position)

    @property
    def is_about_request(self) -> bool:
        """Whether ``subject`` is a request: one that waits or ended, or a bypassed approval."""
        if self.event == "emergency.used":
            return self.gate == "approval"
        return self.event.startswith(("request.", "emergency."))

    @property
    def order(self) -> tuple[int, int]:
        """Notices are queued in this order."""
        return self.position, self.ordinal
