"""An intent and what became of it as one document: for those who look, not for decisions."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.outbox.names import beside
from tidegate.domain.outbox.redaction import RequestedState
from tidegate.domain.outbox.rows import (
    DELIVERIES,
    OUTBOX,
    Delivery,
    Intent,
    State,
    delivery_key,
    intent_key,
)
from tidegate.errors import NotFound
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import Position, Record, at_most
from tidegate.kernel.store import Store

PAGE_MAX = 500


class OutboxDocument(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The seed's outbox record: the intent as it was written, the rest from its attempts."""

    id: str
    scope: str
    operation: str
    idempotency_key: str
    requested_state: RequestedState
    created_at: datetime
    state: State
    attempts: int
    updated_at: datetime
    version: Position  # of the delivery: where the last thing happened to it
    next_attempt_at: datetime | None = None
    last_error: str | None = None
    superseded_by: str | None = None


def document(store: Store, intent_id: str) -> OutboxDocument:
    """Raises: NotFound."""
    intent, delivery = store.get(intent_key(intent_id), delivery_key(intent_id))
    if intent is None or delivery is None:
        raise NotFound(f"there is no intent {intent_id}", intent_id=intent_id)
    return _together(intent, delivery)


def of_scope(
    store: Store, scope: str, *, after: str = "", limit: int
) -> tuple[OutboxDocument, ...]:
    """A page of a scope's intents, by operation and release; ``after`` is the last id seen."""
    at_most("rows of a page", limit, PAGE_MAX)
    intents = store.range(OUTBOX.name, prefix=beside(scope, "OUTBOX#"), after=after, limit=limit)
    if not intents:
        return ()
    deliveries = store.get(*(delivery_key(intent.key.id) for intent in intents))
    return tuple(
        _together(intent, delivery)
        for intent, delivery in zip(intents, deliveries, strict=True)
        if delivery is not None
    )


def in_state(
    store: Store, state: State, *, after: OutboxDocument | None = None, limit: int
) -> tuple[OutboxDocument, ...]:
    """A page of the intents in a state, longest there first: dead letters above all."""
    at_most("rows of a page", limit, PAGE_MAX)
    seen = "" if after is None else entry(state, codec.time_text(after.updated_at), after.id)
    deliveries = store.range(
        DELIVERIES.name, index="by_state", prefix=entry(state, ""), after=seen, limit=limit
    )
    if not deliveries:
        return ()
    intents = store.get(*(intent_key(delivery.key.id) for delivery in deliveries))
    return tuple(
        _together(intent, delivery)
        for intent, delivery in zip(intents, deliveries, strict=True)
        if intent is not None
    )


def _together(intent: Record, delivery: Record) -> OutboxDocument:
    asked = codec.decode(intent.data, Intent)
    became = codec.decode(delivery.data, Delivery)
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
