"""The folds of notifications.

    NoticeQueued ──▶ appended to its queue
    NoticeDelivered, NoticeDied, NoticeSkipped ──▶ the first is removed, the next one is first
    NoticeFailed ──▶ the queue waits until ``next_attempt_at``

Only the first notice of a queue can be delivered, die or be skipped. So a queue never has a gap.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from msgspec.structs import replace

from tidegate.domain.notifications import facts, rows
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

Terms = facts.SubscriptionCreated | facts.SubscriptionEdited

# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────


def step_subscription(
    row: rows.Subscription | None,
    fact: Terms | facts.SubscriptionDeleted | facts.SubscriptionDisabled,
    now: datetime,
) -> rows.Subscription | None:
    """Raises: IllegalTransition."""
    if (row is None) != isinstance(fact, facts.SubscriptionCreated):
        state = "absent" if row is None else "present"
        raise IllegalTransition("subscription", state, type(fact).__name__)
    match fact:
        case facts.SubscriptionCreated():
            return rows.Subscription(**_terms(fact), created_by=fact.operator, created_at=fact.at)
        case facts.SubscriptionEdited():
            assert row is not None, "checked above"
            return replace(
                row, **_terms(fact), edited_at=fact.at, disabled_at=None, disabled_reason=""
            )
        case facts.SubscriptionDisabled():
            assert row is not None, "checked above"
            return replace(row, disabled_at=fact.at, disabled_reason=fact.reason)
        case facts.SubscriptionDeleted():
            return None


def _terms(fact: Terms) -> dict[str, Any]:
    return {
        "name": fact.subscription,
        "kind": fact.kind,
        "events": fact.events,
        "min_severity": fact.min_severity,
        "scopes": fact.scopes,
        "address_id": fact.address_id,
    }


# ── queues ────────────────────────────────────────────────────────────────────────────────────────

Queueing = (
    facts.SubscriptionCreated
    | facts.SubscriptionEdited
    | facts.SubscriptionDeleted
    | facts.NoticeQueued
    | facts.NoticeFailed
    | facts.Ended
    | facts.ReplayRequested
    | facts.ReplayFinished
)


def step_queue(
    row: rows.NoticeQueue | None, fact: Queueing, now: datetime
) -> rows.NoticeQueue | None:
    """Raises: IllegalTransition: the fact is not about the first notice, or there is no queue."""
    if row is None:
        if not isinstance(fact, facts.SubscriptionCreated):
            raise IllegalTransition("notice queue", "absent", type(fact).__name__)
        return rows.NoticeQueue(name=fact.subscription)
    match fact:
        case facts.SubscriptionDeleted():
            return None
        case facts.SubscriptionEdited():
            return replace(row, failures=0, refusals=0, next_attempt_at=None, last_error="")
        case facts.NoticeQueued():
            return _queued(row, fact)
        case facts.ReplayRequested():
            return replace(row, replay_after=fact.after, replay_through=fact.through)
        case facts.ReplayFinished():
            return replace(row, replay_after=None, replay_through=0)
        case facts.NoticeFailed():
            _demand_first(row, fact)
            return replace(
                row,
                failures=row.failures + 1,
                refusals=row.refusals + fact.refused,
                next_attempt_at=fact.next_attempt_at,
                last_error=fact.error,
            )
        case facts.SubscriptionCreated():
            raise IllegalTransition("notice queue", "present", type(fact).__name__)
        case _:
            _demand_first(row, fact)
            return _ended(row, fact)


def _queued(row: rows.NoticeQueue, fact: facts.NoticeQueued) -> rows.NoticeQueue:
    if fact.number != row.next:
        raise IllegalTransition("notice queue", f"at {row.next}", f"notice {fact.number}")
    row = replace(row, next=row.next + 1)
    notice = fact.notice
    if fact.replayed:
        return replace(row, replay_after=max(row.replay_after or 0, notice.position))
    return replace(row, queued_position=notice.position, queued_ordinal=notice.ordinal)


def _demand_first(row: rows.NoticeQueue, fact: facts.NoticeFact) -> None:
    if fact.number != row.first or row.waiting == 0:
        what = f"{type(fact).__name__} of notice {fact.number}"
        raise IllegalTransition("notice queue", f"at notice {row.first}", what)


def _ended(row: rows.NoticeQueue, fact: facts.Ended) -> rows.NoticeQueue:
    through = _last_of(fact)
    if not row.first <= through < row.next:
        raise IllegalTransition("notice queue", f"up to {row.next - 1}", f"through {through}")
    row = replace(row, first=through + 1, refusals=0)
    match fact:
        case facts.NoticeDelivered():
            return replace(
                row,
                failures=0,
                next_attempt_at=None,
                last_error=fact.warning,
                delivered=row.delivered + through - fact.number + 1,
                delivered_at=fact.at,
            )
        case facts.NoticeDied() | facts.NoticeSkipped():
            event = fact.event if isinstance(fact, facts.NoticeDied) else "skipped"
            letter = rows.DeadLetter(
                number=fact.number, event=event, reason=fact.reason, at=fact.at
            )
            letters = (*row.dead_letters, letter)[-rows.DEAD_LETTERS_MAX :]
            return replace(row, dead=row.dead + 1, dead_letters=letters, next_attempt_at=None)
        case facts.NoticesDropped():
            return row


def _last_of(fact: facts.Ended) -> int:
    if isinstance(fact, facts.NoticeDelivered | facts.NoticesDropped):
        return fact.through
    return fact.number


# ── notices ───────────────────────────────────────────────────────────────────────────────────────


def _notice_ids(fact: facts.NoticeQueued | facts.Ended) -> tuple[str, ...]:
    last = fact.number if isinstance(fact, facts.NoticeQueued) else _last_of(fact)
    numbers = range(fact.number, last + 1)
    return tuple(rows.notice_key(fact.subscription, number).id for number in numbers)


def step_notice(
    row: rows.QueuedNotice | None, fact: facts.NoticeQueued | facts.Ended, now: datetime
) -> rows.QueuedNotice | None:
    if isinstance(fact, facts.NoticeQueued):
        return rows.QueuedNotice(
            name=fact.subscription,
            number=fact.number,
            notice=fact.notice,
            queued_at=fact.at,
            replayed=fact.replayed,
        )
    return None


subscriptions = Fold(
    collection=rows.SUBSCRIPTIONS,
    number=1,
    reads=(
        facts.SubscriptionCreated,
        facts.SubscriptionEdited,
        facts.SubscriptionDeleted,
        facts.SubscriptionDisabled,
    ),
    ids=lambda fact: (fact.subscription,),
    start=lambda id, fact: None,
    step=step_subscription,
)
notice_queues = Fold(
    collection=rows.QUEUES,
    number=1,
    reads=get_args(Queueing),
    ids=lambda fact: (fact.subscription,),
    start=lambda id, fact: None,
    step=step_queue,
)
notices = Fold(
    collection=rows.NOTICES,
    number=1,
    reads=(facts.NoticeQueued, *get_args(facts.Ended)),
    ids=_notice_ids,
    start=lambda id, fact: None,
    step=step_notice,
)
FOLDS = (subscriptions, notice_queues, notices)
