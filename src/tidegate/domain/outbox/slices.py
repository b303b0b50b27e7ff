"""The commands on intents: request an effect, record an attempt, redrive, cancel.

attempt 1, 2, 3 … fails ──▶ wait 1 s, 2 s, 4 s … at most 5 min, each times a random share
attempt 12 fails, or a failure is permanent ──▶ dead, until an operator redrives it
an operator cancels a pending or dead intent ──▶ never attempted again; the next one is due
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.outbox import facts, names, redaction, refusals, rows as outbox_rows, states
from tidegate.errors import IllegalTransition, InvalidInput, NotFound
from tidegate.kernel import model, slices

ATTEMPTS_MAX = 12
BACK_OFF_SECONDS = 1
BACK_OFF_SECONDS_MAX = 300
DOUBLINGS_MAX = 16  # more would exceed the longest wait anyway
JITTER_MAX: Final = 1_000_000  # a share of the wait, in millionths: facts hold no floats
REASON_BYTES_MAX = 1_024
UNWANTED: Final = frozenset({states.IntentState.SUPERSEDED, states.IntentState.CANCELLED})


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class RequestEffect(Struct, frozen=True, kw_only=True):
    """Request an effect on its own. Other changes add ``request_intent`` to their facts."""

    scope: str
    operation: str
    release_id: str
    version: int
    command_id: str
    requested_state: dict[str, Any]
    by: str


class RecordAttempt(Struct, frozen=True, kw_only=True):
    """Record the result of an attempt. The process that made it chooses ``jitter`` at random."""

    scope: str
    intent_id: str
    attempt: int
    succeeded: bool
    detail: str = ""  # the target's text; redacted before it is stored
    retryable: bool = True
    jitter: int = 0


class RedriveIntent(Struct, frozen=True, kw_only=True):
    """Retry a dead intent with the same idempotency key, beginning with the shortest wait."""

    scope: str
    intent_id: str
    by: str
    reason: str


class CancelIntent(Struct, frozen=True, kw_only=True):
    """Cancel a pending or dead intent. Effects of earlier attempts are not undone."""

    scope: str
    intent_id: str
    by: str
    reason: str


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def back_off(attempt: int, jitter: int) -> timedelta:
    """The wait after this attempt: exponential backoff with a cap and full jitter.

    Raises:
        InvalidInput: the jitter is out of range.
    """
    if not 0 <= jitter <= JITTER_MAX:
        raise InvalidInput(f"jitter is 0 … {JITTER_MAX} millionths, found {jitter}", field="jitter")
    doubled = BACK_OFF_SECONDS * 2 ** min(max(attempt - 1, 0), DOUBLINGS_MAX)
    longest = timedelta(seconds=min(doubled, BACK_OFF_SECONDS_MAX))
    return longest * jitter / JITTER_MAX


def rows_of_request(command: RequestEffect) -> tuple[model.Key, ...]:
    id = names.intent_id(command.scope, command.operation, command.release_id, command.command_id)
    return (outbox_rows.intent_key(id),)


def decide_request(
    rows: tuple[outbox_rows.Intent | None], command: RequestEffect, now: datetime
) -> Sequence[Struct]:
    """Raises: IntentExists, SecretRefused, InvalidInput, LimitExceeded."""
    model.check_text("by", command.by, names.NAME_BYTES_MAX)
    fact = facts.request_intent(
        scope=command.scope,
        operation=command.operation,
        release_id=command.release_id,
        version=command.version,
        command_id=command.command_id,
        state=command.requested_state,
        now=now,
    )
    (intent,) = rows
    if intent is None:
        return (fact,)
    same = (intent.idempotency_key, intent.requested_state)
    if same != (fact.idempotency_key, fact.requested_state):
        raise refusals.IntentExists(fact.intent_id)
    return ()


def decide_record(
    rows: tuple[outbox_rows.Delivery | None], command: RecordAttempt, now: datetime
) -> Sequence[Struct]:
    """The facts of an attempt. Raises: NotFound, InvalidInput.

    Two workers may have made the same attempt if the first one's lease expired. A success always
    counts while the intent is open; the second report of a failure is ignored.
    """
    delivery = demand_delivery(rows[0], command.scope, command.intent_id)
    known = command.attempt <= delivery.attempts
    if delivery.state is states.IntentState.DONE or (known and delivery.state in UNWANTED):
        return ()
    attempt = max(command.attempt, delivery.attempts) if known else delivery.attempts + 1
    detail_kept = redaction.redact(command.detail)
    if command.succeeded:
        return (
            facts.AttemptSucceeded(
                scope=command.scope,
                intent_id=command.intent_id,
                attempt=attempt,
                detail=detail_kept,
            ),
        )
    if known or delivery.state is states.IntentState.DEAD:
        return ()
    return _failed(delivery, command, attempt, detail_kept, now)


def _failed(
    delivery: outbox_rows.Delivery, command: RecordAttempt, attempt: int, error: str, now: datetime
) -> Sequence[Struct]:
    counted = attempt - delivery.forgiven
    wait = back_off(counted, command.jitter)
    again = (
        command.retryable
        and counted < ATTEMPTS_MAX
        and delivery.state is states.IntentState.PENDING
    )
    failed = facts.AttemptFailed(
        scope=command.scope,
        intent_id=command.intent_id,
        attempt=attempt,
        error=error,
        next_attempt_at=now + wait if again else None,
    )
    if again or delivery.state in UNWANTED:
        return (failed,)
    reason = f"failed {counted} times" if command.retryable else "no repetition could mend it"
    died = facts.IntentDied(
        scope=command.scope, intent_id=command.intent_id, attempts=attempt, reason=reason
    )
    return failed, died


def decide_redrive(
    rows: tuple[outbox_rows.Delivery | None, outbox_rows.Queue | None],
    command: RedriveIntent,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: NotFound, IllegalTransition, NewerIntent, InvalidInput, LimitExceeded."""
    model.check_text("by", command.by, names.NAME_BYTES_MAX)
    model.check_text("a reason", command.reason.strip(), REASON_BYTES_MAX)
    delivery = demand_delivery(rows[0], command.scope, command.intent_id)
    if delivery.state is states.IntentState.PENDING:
        return ()
    if not is_newest(rows[1], delivery.operation, command.intent_id):
        raise refusals.NewerIntent(
            f"{command.intent_id} is not the newest {delivery.operation} of {command.scope}",
            intent_id=command.intent_id,
        )
    if delivery.state is not states.IntentState.DEAD:
        raise IllegalTransition("intent", delivery.state, "a redrive")
    return (
        facts.IntentRedriven(
            scope=command.scope,
            intent_id=command.intent_id,
            by=command.by,
            reason=command.reason,
            next_attempt_at=now,
        ),
    )


def decide_cancel(
    rows: tuple[outbox_rows.Delivery | None], command: CancelIntent, now: datetime
) -> Sequence[Struct]:
    """Raises: NotFound, IllegalTransition, InvalidInput, LimitExceeded."""
    model.check_text("by", command.by, names.NAME_BYTES_MAX)
    model.check_text("a reason", command.reason.strip(), REASON_BYTES_MAX)
    delivery = demand_delivery(rows[0], command.scope, command.intent_id)
    if delivery.state is states.IntentState.CANCELLED:
        return ()
    if delivery.state not in (states.IntentState.PENDING, states.IntentState.DEAD):
        raise IllegalTransition("intent", delivery.state, "a cancellation")
    return (
        facts.IntentCancelled(
            scope=command.scope, intent_id=command.intent_id, by=command.by, reason=command.reason
        ),
    )


def demand_delivery(
    delivery: outbox_rows.Delivery | None, scope: str, intent_id: str
) -> outbox_rows.Delivery:
    """Raises: NotFound: the scope has no such intent."""
    if delivery is None or delivery.scope != scope:
        raise NotFound(f"{scope} has no intent {intent_id}", intent_id=intent_id)
    return delivery


def is_newest(queue: outbox_rows.Queue | None, operation: str, intent_id: str) -> bool:
    """Whether this is the newest intent of its operation."""
    return queue is not None and queue.newest.get(operation) == intent_id


request_effect = slices.Slice(
    name="request-effect",
    command=RequestEffect,
    writes=(facts.IntentRequested,),
    rows=rows_of_request,
    decide=decide_request,
)
record_attempt = slices.Slice(
    name="record-attempt",
    command=RecordAttempt,
    writes=(facts.AttemptSucceeded, facts.AttemptFailed, facts.IntentDied),
    rows=lambda command: (outbox_rows.delivery_key(command.intent_id),),
    decide=decide_record,
)
redrive_intent = slices.Slice(
    name="redrive-intent",
    command=RedriveIntent,
    writes=(facts.IntentRedriven,),
    rows=lambda command: (
        outbox_rows.delivery_key(command.intent_id),
        outbox_rows.queue_key(command.scope),
    ),
    decide=decide_redrive,
)
cancel_intent = slices.Slice(
    name="cancel-intent",
    command=CancelIntent,
    writes=(facts.IntentCancelled,),
    rows=lambda command: (outbox_rows.delivery_key(command.intent_id),),
    decide=decide_cancel,
)
SLICES = (request_effect, record_attempt, redrive_intent, cancel_intent)
