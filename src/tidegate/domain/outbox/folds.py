"""The folds of the outbox.

    IntentRequested ──▶ queue machine ──▶ IntentSuperseded, for the intent that it replaces

A delivery accepts only these transitions:

    pending ──▶ done            done ──▶ pending       by a redrive
       ├──▶ dead                dead ──▶ pending, done, cancelled
       ├──▶ superseded          a late result is stored, but the state stays superseded
       └──▶ cancelled           or cancelled
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.outbox import facts, refusals, rows, states
from tidegate.errors import IllegalTransition
from tidegate.kernel import folds, model

OPERATIONS_MAX = 32  # different ones of a scope; its queue has at most one intent of each

PROGRESS = (
    facts.IntentSuperseded,
    facts.AttemptSucceeded,
    facts.AttemptFailed,
    facts.IntentDied,
    facts.IntentRedriven,
    facts.IntentCancelled,
)


# ── intents ───────────────────────────────────────────────────────────────────────────────────────


_STATES = {
    facts.DriftDetected: states.DriftState.OPEN,
    facts.DriftRepaired: states.DriftState.REPAIRED,
    facts.ReconciliationRefused: states.DriftState.REFUSED,
}


def step_intent(
    intent: rows.Intent | None, fact: facts.IntentRequested, now: datetime
) -> rows.Intent:
    """Raises: IntentExists."""
    if intent is not None:
        raise refusals.IntentExists(fact.intent_id)
    return rows.Intent(
        fact.scope,
        fact.operation,
        fact.release_id,
        fact.idempotency_key,
        fact.requested_state,
        fact.version,
        fact.created_at,
    )


# ── deliveries ────────────────────────────────────────────────────────────────────────────────────


def step_delivery(
    delivery: rows.Delivery | None, fact: facts.IntentRequested | facts.Progress, now: datetime
) -> rows.Delivery:
    """Raises: IllegalTransition."""
    if delivery is None:
        if not isinstance(fact, facts.IntentRequested):
            raise IllegalTransition("intent", "absent", type(fact).__name__)
        return rows.Delivery(
            fact.scope,
            fact.operation,
            states.IntentState.PENDING,
            updated_at=fact.created_at,
            next_attempt_at=fact.created_at,
        )
    delivery = replace(delivery, updated_at=now)
    match delivery.state, fact:
        case (
            (states.IntentState.PENDING | states.IntentState.DEAD),
            facts.AttemptSucceeded(attempt=attempt),
        ):
            return replace(
                delivery,
                state=states.IntentState.DONE,
                attempts=attempt,
                next_attempt_at=None,
                last_error=None,
            )
        case states.IntentState.PENDING, facts.AttemptFailed():
            return replace(
                delivery,
                attempts=fact.attempt,
                next_attempt_at=fact.next_attempt_at,
                last_error=fact.error,
            )
        # It happened after the intent was superseded or cancelled, so it changes no state.
        case (
            (states.IntentState.SUPERSEDED | states.IntentState.CANCELLED),
            (facts.AttemptSucceeded() | facts.AttemptFailed()),
        ):
            return replace(delivery, attempts=fact.attempt)
        case states.IntentState.PENDING, facts.IntentDied():
            return replace(delivery, state=states.IntentState.DEAD, next_attempt_at=None)
        case ((states.IntentState.PENDING | states.IntentState.DEAD), facts.IntentCancelled()):
            return replace(delivery, state=states.IntentState.CANCELLED, next_attempt_at=None)
        case states.IntentState.PENDING, facts.IntentSuperseded(by_intent_id=newer):
            return replace(
                delivery,
                state=states.IntentState.SUPERSEDED,
                next_attempt_at=None,
                superseded_by=newer,
            )
        case ((states.IntentState.DEAD | states.IntentState.DONE), facts.IntentRedriven()):
            return replace(
                delivery,
                state=states.IntentState.PENDING,
                forgiven=delivery.attempts,
                next_attempt_at=fact.next_attempt_at,
            )
        case _:
            raise IllegalTransition("intent", delivery.state, type(fact).__name__)


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


def step_queue(
    queue: rows.Queue, fact: facts.IntentRequested | facts.Progress, now: datetime
) -> tuple[rows.Queue, tuple[facts.IntentSuperseded, ...]]:
    """Raises: LimitExceeded, IllegalTransition."""
    match fact:
        case facts.IntentRequested():
            replaced = tuple(
                facts.IntentSuperseded(
                    scope=queue.scope, intent_id=item.intent_id, by_intent_id=fact.intent_id
                )
                for item in queue.waiting
                if item.operation == fact.operation
            )
            newest = queue.newest | {fact.operation: fact.intent_id}
            model.at_most("operations of a scope", len(newest), OPERATIONS_MAX)
            entry = rows.QueuedIntent(fact.intent_id, fact.operation, fact.created_at)
            return _ordered(replace(queue, newest=newest), (*queue.waiting, entry)), replaced
        case facts.IntentRedriven():
            operations = [name for name, id in queue.newest.items() if id == fact.intent_id]
            if not operations:
                raise IllegalTransition("queue", "moved on", type(fact).__name__)
            entry = rows.QueuedIntent(fact.intent_id, operations[0], fact.next_attempt_at)
            return _ordered(queue, (*queue.waiting, entry)), ()
        case facts.AttemptFailed(next_attempt_at=datetime() as due):
            waiting = tuple(
                replace(item, next_attempt_at=due) if item.intent_id == fact.intent_id else item
                for item in queue.waiting
            )
            return _ordered(queue, waiting), ()
        case facts.AttemptFailed():
            return queue, ()
        case (
            facts.AttemptSucceeded()
            | facts.IntentDied()
            | facts.IntentSuperseded()
            | facts.IntentCancelled()
        ):
            left = tuple(item for item in queue.waiting if item.intent_id != fact.intent_id)
            return _ordered(queue, left), ()


def _ordered(queue: rows.Queue, waiting: tuple[rows.QueuedIntent, ...]) -> rows.Queue:
    due = waiting[0].next_attempt_at if waiting else None
    return replace(queue, waiting=waiting, next_attempt_at=due)


# ── drifts ────────────────────────────────────────────────────────────────────────────────────────


def step_drift(drift: rows.Drift | None, fact: facts.Reconciliation, now: datetime) -> rows.Drift:
    return rows.Drift(
        fact.scope, fact.subject, _STATES[type(fact)], fact.finding, fact.signature, now
    )


outbox = folds.Fold(
    collection=rows.OUTBOX,
    number=1,
    reads=(facts.IntentRequested,),
    ids=lambda fact: (fact.intent_id,),
    start=lambda id, fact: None,
    step=step_intent,
)
outbox_deliveries = folds.Fold(
    collection=rows.DELIVERIES,
    number=1,
    reads=(facts.IntentRequested, *PROGRESS),
    ids=lambda fact: (fact.intent_id,),
    start=lambda id, fact: None,
    step=step_delivery,
)
outbox_queues = folds.Machine(
    collection=rows.QUEUES,
    number=1,
    reads=(facts.IntentRequested, *PROGRESS),
    ids=lambda fact: (rows.queue_key(fact.scope).id,),
    start=lambda id, fact: rows.Queue(id),
    step=step_queue,
)
outbox_drifts = folds.Fold(
    collection=rows.DRIFTS,
    number=1,
    reads=tuple(_STATES),
    ids=lambda fact: (rows.drift_key(fact.scope, fact.subject).id,),
    start=lambda id, fact: None,
    step=step_drift,
)
FOLDS = (outbox, outbox_deliveries, outbox_queues, outbox_drifts)
