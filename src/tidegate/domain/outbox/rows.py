"""The rows of an outbox: what was asked for, what became of it, and what is due in a scope.

    outbox               one per intent, written once, never read as authority
    outbox_deliveries    beside it, same id: state, attempts, last error
    outbox_queues        one per scope: its pending intents in order; the first is due when the
                         row says so, the others wait behind it
    outbox_drifts        one per scope and operation that was found to be otherwise outside

Folds alone write them. A scope has at most one pending intent per operation, because a newer one
supersedes it: so a queue stays small.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from tidegate.domain.outbox.names import row_id
from tidegate.domain.outbox.states import (
    DriftState,
    IntentState,
    ReconciliationFinding,
    RequestedState,
)
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.model import Key
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy

ACTUAL = "ACTUAL"  # as the subject of a reconciliation: the registry's own row


class Intent(Struct, frozen=True, rename="camel"):
    """Work to attempt. Written once."""

    scope: str
    operation: str
    release_id: str
    idempotency_key: str
    requested_state: RequestedState
    version: int
    created_at: datetime


class Delivery(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What became of an intent so far."""

    scope: str
    operation: str
    state: IntentState
    updated_at: datetime
    attempts: int = 0
    forgiven: int = 0  # attempts before the last redrive, which do not count towards the limit
    next_attempt_at: datetime | None = None
    last_error: str | None = None  # redacted
    superseded_by: str | None = None


class QueuedIntent(Struct, frozen=True, rename="camel"):
    """A pending intent in its queue."""

    intent_id: str
    operation: str
    next_attempt_at: datetime


class Queue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The pending intents of a scope in the order in which they were asked for."""

    scope: str
    waiting: tuple[QueuedIntent, ...] = ()
    newest: dict[str, str] = field(default_factory=dict)  # operation → its last intent
    next_attempt_at: datetime | None = None  # of the first; None: nothing is pending


class Drift(Struct, frozen=True, rename="camel"):
    """The last thing that the reconciler had to say."""

    scope: str
    subject: str
    state: DriftState
    finding: ReconciliationFinding
    signature: str
    updated_at: datetime

    def says(self, signature: str) -> bool:
        """Whether exactly this was found before, and still stands open."""
        return self.state is not DriftState.REPAIRED and self.signature == signature


OUTBOX = Collection(
    "outbox",
    Intent,
    writers=Writers.FOLDED,
    nature=Nature.QUEUE,
    policy=WritePolicy(WriteMode.WRITE_ONCE),
    columns=("scope", "operation", "idempotencyKey"),
)
DELIVERIES = Collection(
    "outbox_deliveries",
    Delivery,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("scope", "operation", "state", "nextAttemptAt", "updatedAt"),
    allowed={"state": frozenset(IntentState)},
    indexes=(Index("by_state", ("state", "updatedAt")),),
)
QUEUES = Collection(
    "outbox_queues",
    Queue,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("scope", "nextAttemptAt"),
    indexes=(Index("due", ("nextAttemptAt",)),),
)
DRIFTS = Collection(
    "outbox_drifts",
    Drift,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("scope", "subject", "state", "finding"),
    allowed={"state": frozenset(DriftState), "finding": frozenset(ReconciliationFinding)},
)


def intent_key(intent_id: str) -> Key:
    return Key(OUTBOX.name, intent_id)


def delivery_key(intent_id: str) -> Key:
    return Key(DELIVERIES.name, intent_id)


def queue_key(scope: str) -> Key:
    return Key(QUEUES.name, scope)


def drift_key(scope: str, subject: str) -> Key:
    return Key(DRIFTS.name, row_id(scope, f"DRIFT#{subject}"))


COLLECTIONS = (OUTBOX, DELIVERIES, QUEUES, DRIFTS)
