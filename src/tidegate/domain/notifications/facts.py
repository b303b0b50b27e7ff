"""What happens to subscriptions and to what they send, each in its subscription's partition.

No fact holds an address or a secret: ``address_id`` names a kept row, sealed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct

from tidegate.domain.notifications import notices, states
from tidegate.kernel import tags, vocabulary


class SubscriptionFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them say: of which subscription, when."""

    subscription: Annotated[str, tags.Partition()]
    at: datetime


class SubscriptionTerms(SubscriptionFact, frozen=True, kw_only=True):
    """Which events of which scopes go where."""

    operator: str
    kind: states.TargetKind
    events: tuple[str, ...]  # none: all of the severity
    min_severity: states.Severity
    scopes: tuple[str, ...]
    address_id: Annotated[str, tags.Untagged()]


class SubscriptionCreated(SubscriptionTerms, frozen=True, kw_only=True):
    """Somebody wants to be told from now on."""


class SubscriptionEdited(SubscriptionTerms, frozen=True, kw_only=True):
    """It tells of other things, or goes elsewhere. One that was disabled is enabled again."""


class SubscriptionDeleted(SubscriptionFact, frozen=True, kw_only=True):
    """Nobody is told any more."""

    operator: str


class SubscriptionDisabled(SubscriptionFact, frozen=True, kw_only=True):
    """The receiver said that it is gone for good."""

    reason: str


class NoticeQueued(SubscriptionFact, frozen=True, kw_only=True):
    """A notice waits to be sent, behind those with a lower number."""

    number: int
    notice: notices.Notice
    replayed: bool = False  # it may have been sent before


class NoticeFact(SubscriptionFact, frozen=True, kw_only=True):
    """Something became of the notice that is first in the queue."""

    number: int


class NoticeDelivered(NoticeFact, frozen=True, kw_only=True):
    """The receiver has it, and all up to ``through``: several go in one digest."""

    through: int
    attempt: int = 1


class NoticeFailed(NoticeFact, frozen=True, kw_only=True):
    """An attempt failed. The queue waits; what comes after this notice waits, too."""

    attempt: int
    error: str  # redacted
    next_attempt_at: datetime
    refused: bool = False  # the receiver wants no such message; others may get through


class NoticeDied(NoticeFact, frozen=True, kw_only=True):
    """It is not sent any more; the next one is."""

    attempt: int
    event: str
    reason: str


class NoticeSkipped(NoticeFact, frozen=True, kw_only=True):
    """An operator gives up the first notice, so that the next one is sent."""

    operator: str
    reason: str


class NoticesDropped(NoticeFact, frozen=True, kw_only=True):
    """All up to ``through`` are not sent any more, because the subscription is deleted."""

    through: int
    operator: str


class ReplayRequested(SubscriptionFact, frozen=True, kw_only=True):
    """What happened after a position is to be queued again."""

    operator: str
    after: int
    through: int  # the newest position when it was asked for


class ReplayFinished(SubscriptionFact, frozen=True, kw_only=True):
    """All of it is queued."""


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
