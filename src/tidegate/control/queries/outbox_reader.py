"""Reads of the outbox: one intent, the intents of a scope, or those in a state."""

from __future__ import annotations

from tidegate.domain.outbox import documents, names, rows, states
from tidegate.errors import NotFound
from tidegate.kernel import codec, model
from tidegate.kernel.collections import entry
from tidegate.kernel.store import Store

PAGE_MAX = 500


class OutboxReader:
    """Reads intents with their attempts and outcomes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, intent_id: str) -> documents.OutboxDocument:
        """Raises: NotFound."""
        intent, delivery = self._store.get(rows.intent_key(intent_id), rows.delivery_key(intent_id))
        if intent is None or delivery is None:
            raise NotFound(f"there is no intent {intent_id}", intent_id=intent_id)
        return documents.to_document(intent, delivery)

    def list_of_scope(
        self, scope: str, *, after: str = "", limit: int
    ) -> tuple[documents.OutboxDocument, ...]:
        """Return a page of a scope's intents by operation and release, after an id."""
        model.at_most("rows of a page", limit, PAGE_MAX)
        intents = self._store.range(
            rows.OUTBOX.name, prefix=names.row_id(scope, "OUTBOX#"), after=after, limit=limit
        )
        if not intents:
            return ()
        deliveries = self._store.get(*(rows.delivery_key(intent.key.id) for intent in intents))
        return tuple(
            documents.to_document(intent, delivery)
            for intent, delivery in zip(intents, deliveries, strict=True)
            if delivery is not None
        )

    def list_in_state(
        self,
        state: states.IntentState,
        *,
        after: documents.OutboxDocument | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> tuple[documents.OutboxDocument, ...]:
        """Return a page of the intents in a state, oldest first unless ``newest_first``."""
        model.at_most("rows of a page", limit, PAGE_MAX)
        seen = "" if after is None else entry(state, codec.time_text(after.updated_at), after.id)
        deliveries = self._store.range(
            rows.DELIVERIES.name,
            index="by_state",
            prefix=entry(state, ""),
            after=seen,
            limit=limit,
            descending=newest_first,
        )
        if not deliveries:
            return ()
        intents = self._store.get(*(rows.intent_key(delivery.key.id) for delivery in deliveries))
        return tuple(
            documents.to_document(intent, delivery)
            for intent, delivery in zip(intents, deliveries, strict=True)
            if intent is not None
        )
