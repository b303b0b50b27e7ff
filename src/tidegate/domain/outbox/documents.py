"""An intent and its delivery as one document, for display only."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.outbox import rows, states
from tidegate.kernel import codec, model


class OutboxDocument(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """An outbox record: the intent as it was written, and the result of its attempts."""

    id: str
    scope: str
    operation: str
    idempotency_key: str
    requested_state: states.RequestedState
    created_at: datetime
    state: states.IntentState
    attempts: int
    updated_at: datetime
    version: model.Position  # of the delivery's row
    next_attempt_at: datetime | None = None
    last_error: str | None = None
    superseded_by: str | None = None


def to_document(intent: model.Record, delivery: model.Record) -> OutboxDocument:
    asked = codec.decode(intent.data, rows.Intent)
    became = codec.decode(delivery.data, rows.Delivery)
    return OutboxDocument(
        id=intent.key.id,
        scope=asked.scope,
        operation=asked.operation,
        idempotency_key=asked.idempotency_key,
        requested_state=asked.requested_state,
        created_at=asked.created_at,
        state=became.state,
        attempts=became.attempts,
        updated_at=became.updated_at,
        version=delivery.version,
        next_attempt_at=became.next_attempt_at,
        last_error=became.last_error,
        superseded_by=became.superseded_by,
    )
