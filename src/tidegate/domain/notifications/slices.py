"""The commands on subscriptions and their queues.

    an operator   create, edit, delete, skip, replay
    the notifier  queue notices, record deliveries; only as the leader

attempt 1, 2, 3 … fails ──▶ wait 1 s, 2 s, 4 s … at most 5 min, each times a random share
400, 413 or 422, three times ──▶ dead: the receiver refuses this message; the next one is sent
410 ──▶ the subscription is disabled until an operator edits it
72 h after it was queued ──▶ dead
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.access import reasons, roles
from tidegate.domain.notifications import facts, notices, refusals, rows, states
from tidegate.domain.notifications.events import EVENTS
from tidegate.domain.outbox import redaction, slices as outbox_slices
from tidegate.errors import LeaseLost
from tidegate.kernel import leases, model, slices as kernel_slices

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SCOPES_MAX = 20
KEPT_TRYING: Final = timedelta(hours=72)
REFUSALS_MAX = 3
REFUSED: Final = frozenset({400, 413, 422})  # status codes that are about the message
GONE: Final = 410
ENDED_MAX = 60  # notices that one commit ends
LEADER: Final = "notifier"  # the job whose leader queues and sends
QUEUED_MAX = 16  # notices that one commit queues: a row each, perhaps in different queues


# ── commands of operators ─────────────────────────────────────────────────────────────────────────


class CreateSubscription(Struct, frozen=True, kw_only=True):
    """Send these events to a target from now on."""

    name: str
    operator: str
    kind: states.TargetKind
    events: tuple[str, ...]
    min_severity: states.Severity
    scopes: tuple[str, ...]
    address_id: str


class EditSubscription(CreateSubscription, frozen=True, kw_only=True):
    """Change the events, scopes or target; enable the subscription if it was disabled."""

    expected_version: int | None = None


class DeleteSubscription(Struct, frozen=True, kw_only=True):
    """Delete a subscription. One commit drops at most ``ENDED_MAX`` waiting notices."""

    name: str
    operator: str


class SkipNotice(Struct, frozen=True, kw_only=True):
    """Skip the first notice of the queue."""

    name: str
    operator: str
    reason: str


class ReplayNotices(Struct, frozen=True, kw_only=True):
    """Queue the events after a position again."""

    name: str
    operator: str
    after: int
    head: int  # the newest position now


# ── commands of the notifier ──────────────────────────────────────────────────────────────────────


class AddressedNotice(Struct, frozen=True):
    """A notice for one subscription."""

    subscription: str
    notice: notices.Notice


class QueueNotices(Struct, frozen=True, kw_only=True):
    """Put notices into the queues of their subscriptions."""

    term: str  # the token of the leader
    items: tuple[AddressedNotice, ...]
    replayed: bool = False


class FinishReplay(Struct, frozen=True, kw_only=True):
    """Record that all events of a replay are queued."""

    term: str
    name: str


class RecordDelivery(Struct, frozen=True, kw_only=True):
    """Record a target's response to the first notice, or to a digest that begins with it.

    ``status`` 0: there was no response. The process that made the attempt chooses ``jitter`` at
    random.
    """

    term: str
    name: str
    number: int
    through: int
    is_delivered: bool
    status: int = 0
    detail: str = ""
    warning: str = ""  # delivered, but not to all recipients
    jitter: int = 0


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────


def check_terms(command: CreateSubscription) -> None:
    """Raises: InvalidSubscription, InvalidScope, LimitExceeded, InvalidInput."""
    reasons.check_operator(command.operator, "an operator's word")
    if not NAME.fullmatch(command.name):
        raise refusals.InvalidSubscription(
            "A subscription's name has 1 to 63 small letters, digits and dashes; "
            f"found {command.name[:80]!r}.",
            field="name",
        )
    unknown = [event for event in command.events if event not in EVENTS]
    if unknown:
        raise refusals.InvalidSubscription(
            f"There is no event {unknown[0][:80]!r}. Events are: {', '.join(EVENTS)}.",
            field="events",
        )
    if not command.scopes:
        raise refusals.InvalidSubscription(
            "A subscription names a scope; for all, say *.", field="scopes"
        )
    model.at_most("scopes of a subscription", len(command.scopes), SCOPES_MAX)
    for scope in command.scopes:
        roles.check_scope(scope)


def _rows_of_terms(command: CreateSubscription) -> tuple[model.Key, ...]:
    check_terms(command)
    return (rows.subscription_key(command.name),)


def _said(command: CreateSubscription, now: datetime) -> dict[str, Any]:
    return {
        "subscription": command.name,
        "at": now,
        "operator": command.operator,
        "kind": command.kind,
        "events": command.events,
        "min_severity": command.min_severity,
        "scopes": command.scopes,
        "address_id": command.address_id,
    }


def _same(row: rows.Subscription, command: CreateSubscription) -> bool:
    names = ("kind", "events", "min_severity", "scopes", "address_id")
    return all(getattr(row, name) == getattr(command, name) for name in names)


def decide_creation(
    found: tuple[rows.Subscription | None], command: CreateSubscription, now: datetime
) -> Sequence[Struct]:
    """Raises: SubscriptionExists."""
    (row,) = found
    if row is None:
        return (facts.SubscriptionCreated(**_said(command, now)),)
    if _same(row, command):
        return ()
    raise refusals.SubscriptionExists(command.name)


def decide_edit(
    found: tuple[rows.Subscription | None], command: EditSubscription, now: datetime
) -> Sequence[Struct]:
    """Raises: SubscriptionNotFound."""
    row = demand_subscription(found[0], command.name)
    if _same(row, command) and row.disabled_at is None:
        return ()
    return (facts.SubscriptionEdited(**_said(command, now)),)


def _edit_seen(command: EditSubscription) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {rows.subscription_key(command.name): command.expected_version}


def demand_subscription(row: rows.Subscription | None, name: str) -> rows.Subscription:
    """Raises: SubscriptionNotFound."""
    if row is None:
        raise refusals.SubscriptionNotFound(name)
    return row


def decide_deletion(
    found: tuple[rows.Subscription | None, rows.NoticeQueue | None],
    command: DeleteSubscription,
    now: datetime,
) -> Sequence[Struct]:
    """The deletion; or, if more notices wait than one commit can drop, a part of the drops.

    Raises:
        SubscriptionNotFound.
    """
    demand_subscription(found[0], command.name)
    queue = found[1]
    assert queue is not None, "it came with its subscription"
    new_facts: list[Struct] = []
    if queue.waiting:
        dropped = facts.NoticesDropped(
            subscription=command.name,
            at=now,
            number=queue.first,
            through=queue.first + min(queue.waiting, ENDED_MAX) - 1,
            operator=command.operator,
        )
        new_facts.append(dropped)
    if queue.waiting <= ENDED_MAX:
        new_facts.append(
            facts.SubscriptionDeleted(subscription=command.name, at=now, operator=command.operator)
        )
    return new_facts


def decide_skip(
    found: tuple[rows.Subscription | None, rows.NoticeQueue | None],
    command: SkipNotice,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: SubscriptionNotFound, NothingWaits, InvalidInput, LimitExceeded."""
    reasons.check_operator(command.operator, command.reason)
    demand_subscription(found[0], command.name)
    queue = found[1]
    if queue is None or not queue.waiting:
        raise refusals.NothingWaits(command.name)
    skipped = facts.NoticeSkipped(
        subscription=command.name,
        at=now,
        number=queue.first,
        operator=command.operator,
        reason=command.reason,
    )
    return (skipped,)


def decide_replay(
    found: tuple[rows.Subscription | None, rows.NoticeQueue | None],
    command: ReplayNotices,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: SubscriptionNotFound, InvalidSubscription."""
    demand_subscription(found[0], command.name)
    queue = found[1]
    if not 0 <= command.after < command.head:
        raise refusals.InvalidSubscription(
            f"A replay begins after a position from 0 to {command.head - 1}; "
            f"found {command.after}.",
            field="after",
        )
    if queue is not None and queue.replay_after is not None:
        return ()  # one is in progress
    requested = facts.ReplayRequested(
        subscription=command.name,
        at=now,
        operator=command.operator,
        after=command.after,
        through=command.head,
    )
    return (requested,)


# ── the notifier ──────────────────────────────────────────────────────────────────────────────────


def _demand_term(lease: object, term: str) -> None:
    """Raises: LeaseLost."""
    if not isinstance(lease, leases.Lease) or lease.lease_token != term:
        raise LeaseLost("another process is the notifier now", id=LEADER)


def _rows_of_queueing(command: QueueNotices) -> tuple[model.Key, ...]:
    model.at_most("notices of a commit", len(command.items), QUEUED_MAX)
    names = dict.fromkeys(item.subscription for item in command.items)
    return leases.leader_key(LEADER), *map(rows.queue_key, names)


def decide_queueing(
    found: tuple[leases.Lease | rows.NoticeQueue | None, ...], command: QueueNotices, now: datetime
) -> Sequence[Struct]:
    """Queue each notice once per subscription, in the order of the log. Raises: LeaseLost."""
    lease, *queues = found
    _demand_term(lease, command.term)
    by_name = {queue.name: queue for queue in queues if isinstance(queue, rows.NoticeQueue)}
    newest = {name: (row.queued_position, row.queued_ordinal) for name, row in by_name.items()}
    following = {name: row.next for name, row in by_name.items()}
    new_facts = []
    for item in command.items:
        name = item.subscription
        if name not in by_name:
            continue  # the subscription was deleted
        if not command.replayed:
            if item.notice.order <= newest[name]:
                continue  # queued before, by a notifier that could not store its position
            newest[name] = item.notice.order
        queued = facts.NoticeQueued(
            subscription=name,
            at=now,
            number=following[name],
            notice=item.notice,
            replayed=command.replayed,
        )
        following[name] += 1
        new_facts.append(queued)
    return new_facts


def decide_finished_replay(
    found: tuple[leases.Lease | None, rows.NoticeQueue | None], command: FinishReplay, now: datetime
) -> Sequence[Struct]:
    """Raises: LeaseLost."""
    _demand_term(found[0], command.term)
    if found[1] is None or found[1].replay_after is None:
        return ()
    return (facts.ReplayFinished(subscription=command.name, at=now),)


def _rows_of_delivery(command: RecordDelivery) -> tuple[model.Key, ...]:
    model.at_most("notices of a delivery", command.through - command.number + 1, ENDED_MAX)
    return (
        leases.leader_key(LEADER),
        rows.subscription_key(command.name),
        rows.queue_key(command.name),
        rows.notice_key(command.name, command.number),
    )


Delivering = tuple[
    leases.Lease | None, rows.Subscription | None, rows.NoticeQueue | None, rows.QueuedNotice | None
]


def decide_delivery(found: Delivering, command: RecordDelivery, now: datetime) -> Sequence[Struct]:
    """The facts that follow from a response. Raises: LeaseLost, InvalidInput."""
    lease, subscription, queue, row = found
    _demand_term(lease, command.term)
    if queue is None or subscription is None or row is None or queue.first != command.number:
        return ()  # skipped, or the subscription deleted, during the attempt
    if command.is_delivered:
        delivered = facts.NoticeDelivered(
            subscription=command.name,
            at=now,
            number=command.number,
            through=min(command.through, queue.next - 1),
            attempt=queue.failures + 1,
            warning=redaction.redact(command.warning),
        )
        return (delivered,)
    return _decide_failure(row, queue, command, now)


def _decide_failure(
    row: rows.QueuedNotice, queue: rows.NoticeQueue, command: RecordDelivery, now: datetime
) -> Sequence[Struct]:
    attempt = queue.failures + 1
    is_refused = command.status in REFUSED
    error = redaction.redact(command.detail)
    failed = facts.NoticeFailed(
        subscription=command.name,
        at=now,
        number=command.number,
        attempt=attempt,
        error=error,
        next_attempt_at=now + outbox_slices.back_off(attempt, command.jitter),
        refused=is_refused,
    )
    if command.status == GONE:
        reason = "the receiver answered 410: it is gone"
        return failed, facts.SubscriptionDisabled(subscription=command.name, at=now, reason=reason)
    is_old = now - row.queued_at >= KEPT_TRYING
    if not is_old and not (is_refused and queue.refusals + 1 >= REFUSALS_MAX):
        return (failed,)
    reason = f"tried for 72 hours: {error}" if is_old else f"refused {REFUSALS_MAX} times: {error}"
    died = facts.NoticeDied(
        subscription=command.name,
        at=now,
        number=command.number,
        attempt=attempt,
        event=row.notice.event,
        reason=reason,
    )
    return failed, died


def _both(command: DeleteSubscription | SkipNotice | ReplayNotices) -> tuple[model.Key, ...]:
    return rows.subscription_key(command.name), rows.queue_key(command.name)


create_subscription = kernel_slices.Slice(
    name="create-subscription",
    command=CreateSubscription,
    writes=(facts.SubscriptionCreated,),
    rows=_rows_of_terms,
    decide=decide_creation,
)
edit_subscription = kernel_slices.Slice(
    name="edit-subscription",
    command=EditSubscription,
    writes=(facts.SubscriptionEdited,),
    rows=_rows_of_terms,
    expects=_edit_seen,
    decide=decide_edit,
)
delete_subscription = kernel_slices.Slice(
    name="delete-subscription",
    command=DeleteSubscription,
    writes=(facts.NoticesDropped, facts.SubscriptionDeleted),
    rows=_both,
    decide=decide_deletion,
)
skip_notice = kernel_slices.Slice(
    name="skip-notice",
    command=SkipNotice,
    writes=(facts.NoticeSkipped,),
    rows=_both,
    decide=decide_skip,
)
replay_notices = kernel_slices.Slice(
    name="replay-notices",
    command=ReplayNotices,
    writes=(facts.ReplayRequested,),
    rows=_both,
    decide=decide_replay,
)
queue_notices = kernel_slices.Slice(
    name="queue-notices",
    command=QueueNotices,
    writes=(facts.NoticeQueued,),
    rows=_rows_of_queueing,
    decide=decide_queueing,
)
finish_replay = kernel_slices.Slice(
    name="finish-replay",
    command=FinishReplay,
    writes=(facts.ReplayFinished,),
    rows=lambda command: (leases.leader_key(LEADER), rows.queue_key(command.name)),
    decide=decide_finished_replay,
)
record_delivery = kernel_slices.Slice(
    name="record-delivery",
    command=RecordDelivery,
    writes=(
        facts.NoticeDelivered,
        facts.NoticeFailed,
        facts.NoticeDied,
        facts.SubscriptionDisabled,
    ),
    rows=_rows_of_delivery,
    decide=decide_delivery,
)
SLICES = (
    create_subscription,
    edit_subscription,
    delete_subscription,
    skip_notice,
    replay_notices,
    queue_notices,
    finish_replay,
    record_delivery,
)
