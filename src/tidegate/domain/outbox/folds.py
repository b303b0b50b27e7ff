"""How the facts of an outbox become its rows.

    IntentRequested ──▶ queue machine ──▶ IntentSuperseded, for the one that it replaces

A delivery accepts exactly the edges drawn here, so a fact that makes no sense never gets in:

    pending ──▶ done            done ──▶ pending       by a redrive
       ├──▶ dead                dead ──▶ pending, done, cancelled
       ├──▶ superseded          an outcome that comes late is kept and leaves it superseded
       └──▶ cancelled           or cancelled
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.outbox.facts import (
    AttemptFailed,
    AttemptSucceeded,
    DriftDetected,
    DriftRepaired,
    IntentCancelled,
    IntentDied,
    IntentRedriven,
    IntentRequested,
    IntentSuperseded,
    Progress,
    Reconciliation,
    ReconciliationRefused,
)
from tidegate.domain.outbox.refusals import IntentExists
from tidegate.domain.outbox.rows import (
    DELIVERIES,
    DRIFTS,
    OUTBOX,
    QUEUES,
    Delivery,
    Drift,
    Intent,
    Queue,
    QueuedIntent,
    drift_key,
    queue_key,
)
from tidegate.domain.outbox.states import DriftState, IntentState
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold, Machine
from tidegate.kernel.model import at_most

OPERATIONS_MAX = 32  # that one scope ever asks for; its queue holds at most one intent of each

PROGRESS = (
    IntentSuperseded,
    AttemptSucceeded,
    AttemptFailed,
    IntentDied,
    IntentRedriven,
    IntentCancelled,
)


# ── intents ───────────────────────────────────────────────────────────────────────────────────────


_STATES = {
    DriftDetected: DriftState.OPEN,
    DriftRepaired: DriftState.REPAIRED,
    ReconciliationRefused: DriftState.REFUSED,
}


def step_intent(intent: Intent | None, fact: IntentRequested, now: datetime) -> Intent:
    """Raises: IntentExists."""
    if intent is not None:
        raise IntentExists(fact.intent_id)
    return Intent(
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
    delivery: Delivery | None, fact: IntentRequested | Progress, now: datetime
) -> Delivery:
    """Raises: IllegalTransition."""
    if delivery is None:
        if not isinstance(fact, IntentRequested):
            raise IllegalTransition("intent", "absent", type(fact).__name__)
        return Delivery(
            fact.scope,
            fact.operation,
            IntentState.PENDING,
            updated_at=fact.created_at,
            next_attempt_at=fact.created_at,
        )
    delivery = replace(delivery, updated_at=now)
    match delivery.state, fact:
        case ((IntentState.PENDING | IntentState.DEAD), AttemptSucceeded(attempt=attempt)):
            return replace(
                delivery,
                state=IntentState.DONE,
                attempts=attempt,
                next_attempt_at=None,
                last_error=None,
            )
        case IntentState.PENDING, AttemptFailed():
            return replace(
                delivery,
                attempts=fact.attempt,
                next_attempt_at=fact.next_attempt_at,
                last_error=fact.error,
            )
        # It happened while nobody wanted it any more: true, but it changes no state.
        case (
            (IntentState.SUPERSEDED | IntentState.CANCELLED),
            (AttemptSucceeded() | AttemptFailed()),
        ):
            return replace(delivery, attempts=fact.attempt)
        case IntentState.PENDING, IntentDied():
            return replace(delivery, state=IntentState.DEAD, next_attempt_at=None)
        case ((IntentState.PENDING | IntentState.DEAD), IntentCancelled()):
            return replace(delivery, state=IntentState.CANCELLED, next_attempt_at=None)
        case IntentState.PENDING, IntentSuperseded(by_intent_id=newer):
            return replace(
                delivery, state=IntentState.SUPERSEDED, next_attempt_at=None, superseded_by=newer
            )
        case ((IntentState.DEAD | IntentState.DONE), IntentRedriven()):
            return replace(
                delivery,
                state=IntentState.PENDING,
                forgiven=delivery.attempts,
                next_attempt_at=fact.next_attempt_at,
            )
        case _:
            raise IllegalTransition("intent", delivery.state, type(fact).__name__)


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


def step_queue(
    queue: Queue, fact: IntentRequested | Progress, now: datetime
) -> tuple[Queue, tuple[IntentSuperseded, ...]]:
    """Raises: LimitExceeded, IllegalTransition."""
    match fact:
        case IntentRequested():
            replaced = tuple(
                IntentSuperseded(
                    scope=queue.scope, intent_id=item.intent_id, by_intent_id=fact.intent_id
                )
                for item in queue.waiting
                if item.operation == fact.operation
            )
            newest = queue.newest | {fact.operation: fact.intent_id}
            at_most("operations of a scope", len(newest), OPERATIONS_MAX)
            entry = QueuedIntent(fact.intent_id, fact.operation, fact.created_at)
            return _ordered(replace(queue, newest=newest), (*queue.waiting, entry)), replaced
        case IntentRedriven():
            operations = [name for name, id in queue.newest.items() if id == fact.intent_id]
            if not operations:
                raise IllegalTransition("queue", "moved on", type(fact).__name__)
            entry = QueuedIntent(fact.intent_id, operations[0], fact.next_attempt_at)
            return _ordered(queue, (*queue.waiting, entry)), ()
        case AttemptFailed(next_attempt_at=datetime() as due):
            waiting = tuple(
                replace(item, next_attempt_at=due) if item.intent_id == fact.intent_id else item
                for item in queue.waiting
            )
            return _ordered(queue, waiting), ()
        case AttemptFailed():
            return queue, ()
        case AttemptSucceeded() | IntentDied() | IntentSuperseded() | IntentCancelled():
            left = tuple(item for item in queue.waiting if item.intent_id != fact.intent_id)
            return _ordered(queue, left), ()


def _ordered(queue: Queue, waiting: tuple[QueuedIntent, ...]) -> Queue:
    due = waiting[0].next_attempt_at if waiting else None
    return replace(queue, waiting=waiting, next_attempt_at=due)


# ── drifts ────────────────────────────────────────────────────────────────────────────────────────


def step_drift(drift: Drift | None, fact: Reconciliation, now: datetime) -> Drift:
    return Drift(fact.scope, fact.subject, _STATES[type(fact)], fact.finding, fact.signature, now)


outbox = Fold(
    collection=OUTBOX,
    number=1,
    reads=(IntentRequested,),
    ids=lambda fact: (fact.intent_id,),
    start=lambda id, fact: None,
    step=step_intent,
)
outbox_deliveries = Fold(
    collection=DELIVERIES,
    number=1,
    reads=(IntentRequested, *PROGRESS),
    ids=lambda fact: (fact.intent_id,),
    start=lambda id, fact: None,
    step=step_delivery,
)
outbox_queues = Machine(
    collection=QUEUES,
    number=1,
    reads=(IntentRequested, *PROGRESS),
    ids=lambda fact: (queue_key(fact.scope).id,),
    start=lambda id, fact: Queue(id),
    step=step_queue,
)
outbox_drifts = Fold(
    collection=DRIFTS,
    number=1,
    reads=tuple(_STATES),
    ids=lambda fact: (drift_key(fact.scope, fact.subject).id,),
    start=lambda id, fact: None,
    step=step_drift,
)
FOLDS = (outbox, outbox_deliveries, outbox_queues, outbox_drifts)
