"""The rows of the outbox: intents, their deliveries, the queue of each scope, and drift.

    outbox               one per intent, written once, never read as authority
    outbox_deliveries    one per intent, with the same id: state, attempts, last error
    outbox_queues        one per scope: its pending intents in order, and when the first is due;
                         the others wait for it
    outbox_drifts        one per scope and operation whose external state differed

Only folds write them. A scope has at most one pending intent per operation, because a newer one
supersedes it. So a queue stays small.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from tidegate.domain.outbox import names, states
from tidegate.kernel import collections as kernel_collections, model
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy

ACTUAL = "ACTUAL"  # as the subject of a reconciliation: the registry's own row


class Intent(Struct, frozen=True, rename="camel"):
    """Work to attempt. Written once."""

    scope: str
    operation: str
    release_id: str
    idempotency_key: str
    requested_state: states.RequestedState
    version: int
    created_at: datetime


class Delivery(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The state of an intent and the results of its attempts."""

    scope: str
    operation: str
    state: states.IntentState
    updated_at: datetime
    attempts: int = 0
    forgiven: int = 0  # attempts before the last redrive; they do not count towards the limit
    next_attempt_at: datetime | None = None
    last_error: str | None = None  # redacted
    superseded_by: str | None = None


class QueuedIntent(Struct, frozen=True, rename="camel"):
    """A pending intent in its queue."""

    intent_id: str
    operation: str
    next_attempt_at: datetime


class Queue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The pending intents of a scope in the order of their requests."""

    scope: str
    waiting: tuple[QueuedIntent, ...] = ()
    newest: dict[str, str] = field(default_factory=dict)  # operation → its last intent
    next_attempt_at: datetime | None = None  # of the first; None: nothing is pending


class Drift(Struct, frozen=True, rename="camel"):
    """The last finding of the reconciler."""

    scope: str
    subject: str
    state: states.DriftState
    finding: states.ReconciliationFinding
    signature: str
    updated_at: datetime

    def is_open_with(self, signature: str) -> bool:
        """Whether exactly this was found before and is still open."""
        return self.state is not states.DriftState.REPAIRED and self.signature == signature


OUTBOX = kernel_collections.Collection(
    "outbox",
    Intent,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.QUEUE,
    policy=WritePolicy(WriteMode.WRITE_ONCE),
    columns=("scope", "operation", "idempotencyKey"),
)
DELIVERIES = kernel_collections.Collection(
    "outbox_deliveries",
    Delivery,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("scope", "operation", "state", "nextAttemptAt", "updatedAt"),
    allowed={"state": frozenset(states.IntentState)},
    indexes=(kernel_collections.Index("by_state", ("state", "updatedAt")),),
)
QUEUES = kernel_collections.Collection(
    "outbox_queues",
    Queue,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("scope", "nextAttemptAt"),
    indexes=(kernel_collections.Index("due", ("nextAttemptAt",)),),
)
DRIFTS = kernel_collections.Collection(
    "outbox_drifts",
    Drift,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("scope", "subject", "state", "finding"),
    allowed={
        "state": frozenset(states.DriftState),
        "finding": frozenset(states.ReconciliationFinding),
    },
)


def intent_key(intent_id: str) -> model.Key:
    return model.Key(OUTBOX.name, intent_id)


def delivery_key(intent_id: str) -> model.Key:
    return model.Key(DELIVERIES.name, intent_id)


def queue_key(scope: str) -> model.Key:
    return model.Key(QUEUES.name, scope)


def drift_key(scope: str, subject: str) -> model.Key:
    return model.Key(DRIFTS.name, names.row_id(scope, f"DRIFT#{subject}"))


COLLECTIONS = (OUTBOX, DELIVERIES, QUEUES, DRIFTS)
