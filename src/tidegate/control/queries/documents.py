"""Reads of the outbox: one intent, those of a scope, those in a state."""

from __future__ import annotations

from tidegate.domain.outbox.documents import OutboxDocument, to_document
from tidegate.domain.outbox.names import row_id
from tidegate.domain.outbox.rows import (
    DELIVERIES,
    OUTBOX,
    delivery_key,
    intent_key,
)
from tidegate.domain.outbox.states import IntentState
from tidegate.errors import NotFound
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import at_most
from tidegate.kernel.store import Store

PAGE_MAX = 500


class OutboxReader:
    """Reads intents and what became of them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, intent_id: str) -> OutboxDocument:
        """Raises: NotFound."""
        intent, delivery = self._store.get(intent_key(intent_id), delivery_key(intent_id))
        if intent is None or delivery is None:
            raise NotFound(f"there is no intent {intent_id}", intent_id=intent_id)
        return to_document(intent, delivery)

    def list_of_scope(
        self, scope: str, *, after: str = "", limit: int
    ) -> tuple[OutboxDocument, ...]:
        """A page of a scope's intents, by operation and release; ``after`` is the last id seen."""
        at_most("rows of a page", limit, PAGE_MAX)
        intents = self._store.range(
            OUTBOX.name, prefix=row_id(scope, "OUTBOX#"), after=after, limit=limit
        )
        if not intents:
            return ()
        deliveries = self._store.get(*(delivery_key(intent.key.id) for intent in intents))
        return tuple(
            to_document(intent, delivery)
            for intent, delivery in zip(intents, deliveries, strict=True)
            if delivery is not None
        )

    def list_in_state(
        self,
        state: IntentState,
        *,
        after: OutboxDocument | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> tuple[OutboxDocument, ...]:
        """A page of the intents in a state, longest there first; or ``newest_first``."""
        at_most("rows of a page", limit, PAGE_MAX)
        seen = "" if after is None else entry(state, codec.time_text(after.updated_at), after.id)
        deliveries = self._store.range(
            DELIVERIES.name,
            index="by_state",
            prefix=entry(state, ""),
            after=seen,
            limit=limit,
            descending=newest_first,
        )
        if not deliveries:
            return ()
        intents = self._store.get(*(intent_key(delivery.key.id) for delivery in deliveries))
        return tuple(
            to_document(intent, delivery)
            for intent, delivery in zip(intents, deliveries, strict=True)
            if intent is not None
        )
