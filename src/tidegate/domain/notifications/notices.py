"""Notices: the content of messages, each about one event. They contain ids, no names of people."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.notifications.states import Severity
from tidegate.domain.rollouts import facts, states

HOSTS_NAMED_MAX: Final = 10
DETAIL_CHARS_MAX: Final = 200
ALL_CHANNELS: Final = "channel:*"  # as the scope of a notice that concerns every channel


class NoticeWave(Struct, frozen=True):
    """The wave that a rollout is in, counted from 1."""

    number: int
    name: str
    of: int


class NoticeHosts(Struct, frozen=True):
    """The number of hosts that an event is about, and some of their names."""

    count: int
    some: tuple[str, ...] = ()


class NoticeCause(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The cause of an event."""

    host: str = ""
    failure: str = ""  # why the host failed, in a word
    probe: str = ""
    detail: str = ""  # redacted


class Notice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event. Fields that do not apply are omitted."""

    event: str
    severity: Severity
    at: datetime
    position: int  # of its fact; if it is due to time: of the newest fact
    ordinal: int = 0  # counts notices of one position
    scopes: tuple[str, ...] = ()  # the scopes that it concerns; empty: only the installation
    channel: str = ""
    release: str = ""
    digest: str = ""
    rollout_id: str = ""
    revision: str = ""
    subject: str = ""  # the request, freeze, intent or subscription that it is about
    state: str = ""
    outcome: states.Outcome | None = None
    opened_at: datetime | None = None
    replaces: str = ""  # the rollout that this one replaces
    gate: str = ""  # the gate that a rollout waits for
    asks: str = ""  # what a request is for, in words: promote web.4 on prod
    quarantined: bool = False
    count: int = 1  # of the events in this notice
    wave: NoticeWave | None = None
    counts: facts.HostCounts | None = None
    hosts: NoticeHosts | None = None
    cause: NoticeCause | None = None
    automatic: str = ""  # the policy field that caused it; empty: a person did
    actor: str = ""  # a user's id; if it is automatic: who enabled that
    reason: str = ""

    @property
    def key(self) -> str:
        """The unique key of the notice in the log."""
        return f"{self.position}-{self.ordinal}" if self.ordinal else str(self.position)

    @property
    def is_about_request(self) -> bool:
        """Whether ``subject`` is a request: an open or ended one, or a bypassed approval."""
        if self.event == "emergency.used":
            return self.gate == "approval"
        return self.event.startswith(("request.", "emergency."))

    @property
    def order(self) -> tuple[int, int]:
        """The sort key by which notices are queued."""
        return self.position, self.ordinal
