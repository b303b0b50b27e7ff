"""The rows of notifications.

subscriptions          the events, scopes and target of each
notice_queues          one per subscription: its first notice, the attempts, dead letters
notices                one per waiting notice; deleted when it was sent, skipped or given up
subscription_addresses the encrypted address of a subscription; kept, so that it can be erased
notifier_positions     how far the notifier has read the log, and its state; kept
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.notifications import notices, states
from tidegate.domain.notifications.bursts import BurstState
from tidegate.kernel import collections as kernel_collections, model

NUMBER_CHARS: Final = 12  # zero-padded, so that rows sort by number
DEAD_LETTERS_MAX: Final = 20  # in a queue's row; the log has all


class Subscription(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which events of which scopes go to one target."""

    name: str
    kind: states.TargetKind
    events: tuple[str, ...]
    min_severity: states.Severity
    scopes: tuple[str, ...]
    address_id: str
    created_by: str
    created_at: datetime
    edited_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str = ""


class DeadLetter(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A notice that was given up."""

    number: int
    event: str
    reason: str
    at: datetime


class NoticeQueue(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The queue of one subscription: notices from ``first`` up to, not including, ``next``."""

    name: str
    first: int = 1
    next: int = 1
    queued_position: int = 0  # of the newest queued notice, replays excluded
    queued_ordinal: int = 0
    failures: int = 0  # failed attempts in a row
    refusals: int = 0  # how often the receiver refused the first notice
    next_attempt_at: datetime | None = None  # None: at once
    last_error: str = ""
    delivered: int = 0
    delivered_at: datetime | None = None
    dead: int = 0
    dead_letters: tuple[DeadLetter, ...] = ()  # the newest ones
    replay_after: int | None = None  # None: no replay is in progress
    replay_through: int = 0

    @property
    def waiting(self) -> int:
        return self.next - self.first


class QueuedNotice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A notice that waits to be sent."""

    name: str
    number: int
    notice: notices.Notice
    queued_at: datetime
    replayed: bool = False


class SealedAddress(Struct, frozen=True):
    """The encrypted ``TargetAddress`` of a subscription."""

    subscription: str
    sealed: str


class NotifierPosition(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How far the notifier has read the log, and its state."""

    position: int
    bursts: BurstState = BurstState()


SUBSCRIPTIONS = kernel_collections.Collection(
    "subscriptions",
    Subscription,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("name",),
)
QUEUES = kernel_collections.Collection(
    "notice_queues",
    NoticeQueue,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("name",),
)
NOTICES = kernel_collections.Collection(
    "notices",
    QueuedNotice,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.QUEUE,
    columns=("name",),
)
ADDRESSES = kernel_collections.Collection("subscription_addresses", SealedAddress)
POSITIONS = kernel_collections.Collection("notifier_positions", NotifierPosition)


def subscription_key(name: str) -> model.Key:
    return model.Key(SUBSCRIPTIONS.name, name)


def queue_key(name: str) -> model.Key:
    return model.Key(QUEUES.name, name)


def notice_key(name: str, number: int) -> model.Key:
    return model.Key(NOTICES.name, f"{name}/{number:0{NUMBER_CHARS}d}")


def position_key() -> model.Key:
    return model.Key(POSITIONS.name, "notifier")


COLLECTIONS = (SUBSCRIPTIONS, QUEUES, NOTICES, ADDRESSES, POSITIONS)
