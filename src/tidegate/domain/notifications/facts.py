"""The facts about subscriptions and their notices, in the partition of each subscription.

No fact contains an address or a secret: ``address_id`` names an encrypted row without history.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct

from tidegate.domain.notifications import notices, states
from tidegate.kernel import tags, vocabulary


class SubscriptionFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The common fields: the subscription and the time."""

    subscription: Annotated[str, tags.Partition()]
    at: datetime


class SubscriptionTerms(SubscriptionFact, frozen=True, kw_only=True):
    """The events, scopes and target of a subscription."""

    operator: str
    kind: states.TargetKind
    events: tuple[str, ...]  # none: all of the severity
    min_severity: states.Severity
    scopes: tuple[str, ...]
    address_id: Annotated[str, tags.Untagged()]


class SubscriptionCreated(SubscriptionTerms, frozen=True, kw_only=True):
    """A subscription was created. It gets events from now on."""


class SubscriptionEdited(SubscriptionTerms, frozen=True, kw_only=True):
    """The events, scopes or target changed. A disabled subscription is enabled again."""


class SubscriptionDeleted(SubscriptionFact, frozen=True, kw_only=True):
    """The subscription was deleted."""

    operator: str


class SubscriptionDisabled(SubscriptionFact, frozen=True, kw_only=True):
    """The receiver answered that it is permanently gone."""

    reason: str


class NoticeQueued(SubscriptionFact, frozen=True, kw_only=True):
    """A notice waits to be sent after those with a lower number."""

    number: int
    notice: notices.Notice
    replayed: bool = False  # it may have been sent before


class NoticeFact(SubscriptionFact, frozen=True, kw_only=True):
    """The common fields of facts about the first notice of the queue."""

    number: int


class NoticeDelivered(NoticeFact, frozen=True, kw_only=True):
    """The receiver accepted this notice and all up to ``through``, sent in one digest."""

    through: int
    attempt: int = 1
    warning: str = ""  # not all recipients got it


class NoticeFailed(NoticeFact, frozen=True, kw_only=True):
    """An attempt failed. The whole queue waits for the next attempt."""

    attempt: int
    error: str  # redacted
    next_attempt_at: datetime
    refused: bool = False  # the receiver refused this message; it may accept others


class NoticeDied(NoticeFact, frozen=True, kw_only=True):
    """The notice was given up. The next one is sent."""

    attempt: int
    event: str
    reason: str


class NoticeSkipped(NoticeFact, frozen=True, kw_only=True):
    """An operator skipped the first notice. The next one is sent."""

    operator: str
    reason: str


class NoticesDropped(NoticeFact, frozen=True, kw_only=True):
    """All notices up to ``through`` were dropped, because the subscription is being deleted."""

    through: int
    operator: str


class ReplayRequested(SubscriptionFact, frozen=True, kw_only=True):
    """The events after a position are to be queued again."""

    operator: str
    after: int
    through: int  # the newest position when the replay was requested


class ReplayFinished(SubscriptionFact, frozen=True, kw_only=True):
    """All events of the replay are queued."""


Ended = NoticeDelivered | NoticeDied | NoticeSkipped | NoticesDropped

FACTS = vocabulary.facts(
    "notification",
    SubscriptionCreated,
    SubscriptionEdited,
    SubscriptionDeleted,
    SubscriptionDisabled,
    NoticeQueued,
    NoticeDelivered,
    NoticeFailed,
    NoticeDied,
    NoticeSkipped,
    NoticesDropped,
    ReplayRequested,
    ReplayFinished,
)
