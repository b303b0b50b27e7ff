"""What is current in a scope and what happened there: for display, not for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.control.queries import as_of, log_reader, reads
from tidegate.domain.channels import folds as channel_folds, rows as channel_rows
from tidegate.domain.outbox import folds as outbox_folds, rows as outbox_rows
from tidegate.domain.releases import folds as release_folds, rows as release_rows
from tidegate.domain.rollouts.facts import RolloutOpened
from tidegate.errors import NotFound
from tidegate.kernel import codec, folds as kernel_folds, model as kernel_model
from tidegate.kernel.records import actions, write_policy
from tidegate.kernel.store import Store

PAGE_MAX = 500

# For each fact that is shown: the first of these folds that reads it has its row.
_SHOWN: Final[tuple[kernel_folds.Fold, ...]] = (
    release_folds.release_events,
    release_folds.release_evidence,
    outbox_folds.outbox,
    outbox_folds.outbox_deliveries,
    outbox_folds.outbox_drifts,
)
_FOLDS: Final[Mapping[str, kernel_folds.Fold]] = {
    fact.__name__: fold for fold in reversed(_SHOWN) for fact in fold.reads
}


class ScopeEvent(Struct, frozen=True):
    """One thing that happened in a scope."""

    position: kernel_model.Position
    at: datetime
    type: str
    row: str  # the id of the row that describes the event or was changed by it
    value: Struct  # that row if it is written only once, else the fact itself


def find_actual(store: Store, scope: str) -> actions.Stored:
    """Find the scope's ACTUAL row. Raises: NotFound."""
    return _found(store, release_rows.actual_key(scope), f"{scope} is not registered")


def find_outcome(store: Store, scope: str, command_id: str) -> actions.Stored:
    """Find the outcome of a command, an ``ExecutedCommand``. Raises: NotFound."""
    return _found(
        store, release_rows.command_key(scope, command_id), f"{command_id} was never executed"
    )


def list_events(
    store: Store, scope: str, *, after: str = "", limit: int
) -> tuple[actions.Stored, ...]:
    """List the scope's EVENT rows by time; ``after`` is the id of the last one seen."""
    return _page(
        store, release_rows.EVENTS.name, release_rows.row_id(scope, "EVENT#"), after, limit
    )


def list_evidence(
    store: Store, scope: str, *, after: str = "", limit: int
) -> tuple[actions.Stored, ...]:
    """List the scope's EVIDENCE rows by source and batch."""
    return _page(
        store, release_rows.EVIDENCE.name, release_rows.row_id(scope, "EVIDENCE#"), after, limit
    )


def list_intents(
    store: Store, scope: str, *, after: str = "", limit: int
) -> tuple[actions.Stored, ...]:
    """List the scope's OUTBOX rows by operation and release."""
    return _page(
        store, outbox_rows.OUTBOX.name, release_rows.row_id(scope, "OUTBOX#"), after, limit
    )


def list_scope_events(
    store: Store, scope: str, *, after: kernel_model.Position = 0, limit: int
) -> tuple[ScopeEvent, ...]:
    """List changes, evidence, intents and their outcomes in the order of their commits.

    ``after`` is the position of the last one seen.
    """
    kernel_model.at_most("rows of a page", limit, PAGE_MAX)
    query = kernel_model.Query(
        (kernel_model.Clause(frozenset(_FOLDS), frozenset({f"scope:{scope}"})),)
    )
    events = store.read(query, after=after, limit=limit).events
    facts = [(event, store.schema.vocabulary.value(event)) for event in events]
    keys = [_key(fact) for _, fact in facts]
    records = store.get(*keys) if keys else ()
    return tuple(
        ScopeEvent(event.position, event.at, event.type, key.id, _row_or_fact(store, fact, record))
        for (event, fact), key, record in zip(facts, keys, records, strict=True)
    )


class ScopeHistory:
    """Lists what happened in the scopes of one log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(
        self, scope: str, *, after: kernel_model.Position = 0, limit: int
    ) -> tuple[ScopeEvent, ...]:
        """Call ``list_scope_events``."""
        return list_scope_events(self._store, scope, after=after, limit=limit)


def _key(fact: Struct) -> kernel_model.Key:
    fold = _FOLDS[type(fact).__name__]
    (id,) = fold.ids(fact)
    return kernel_model.Key(fold.collection.name, id)


def _row_or_fact(store: Store, fact: Struct, record: kernel_model.Record | None) -> Struct:
    """Return the row of a fact if no later fact changes it, else the fact."""
    once = _FOLDS[type(fact).__name__].collection.policy.mode is write_policy.WriteMode.WRITE_ONCE
    if record is None or not once:
        return fact
    value: Struct = _stored(store, record).value
    return value


def _page(
    store: Store, collection: str, prefix: str, after: str, limit: int
) -> tuple[actions.Stored, ...]:
    kernel_model.at_most("rows of a page", limit, PAGE_MAX)
    records = store.range(collection, prefix=prefix, after=after, limit=limit)
    return tuple(_stored(store, record) for record in records)


def _found(store: Store, key: kernel_model.Key, otherwise: str) -> actions.Stored:
    (record,) = store.get(key)
    if record is None:
        raise NotFound(otherwise, collection=key.collection, id=key.id)
    return _stored(store, record)


def _stored(store: Store, record: kernel_model.Record) -> actions.Stored:
    model = store.schema.collection(record.key.collection).model
    return actions.Stored(record.key, record.version, record.born, codec.decode(record.data, model))


def pinned_at(
    history: as_of.RowHistory, scope: str, position: kernel_model.Position
) -> reads.Found[release_rows.Actual] | None:
    """Return the pin of a scope as it was at a log position."""
    types = frozenset(fact.__name__ for fact in release_folds.release_actual.reads)
    query = kernel_model.Query((kernel_model.Clause(types, frozenset({f"scope:{scope}"})),))
    return history.row_at(
        release_folds.release_actual, release_rows.actual_key(scope).id, query, position
    )


def channel_at(
    log: log_reader.LogReader,
    history: as_of.RowHistory,
    channel: str,
    position: kernel_model.Position,
) -> reads.Found[channel_rows.Channel] | None:
    """Return the channel as it was at a log position, by its facts and those of its rollouts.

    Raises:
        HistoryTooLong.
    """
    own = frozenset({f"channel:{channel}"})
    opened = kernel_model.Query((kernel_model.Clause(frozenset({RolloutOpened.__name__}), own),))
    events = log.events(opened, limit=kernel_model.CLAUSES_MAX)
    if len(events) == kernel_model.CLAUSES_MAX:
        raise as_of.HistoryTooLong
    rollouts = [log.value(event) for event in events if event.position <= position]
    moves = frozenset({"RolloutTransitioned", "SuccessorOpened"})
    clauses = [
        kernel_model.Clause(moves, frozenset({f"rollout_id:{item.rollout_id}"}))
        for item in rollouts
        if isinstance(item, RolloutOpened)
    ]
    named = frozenset(fact.__name__ for fact in channel_folds.channels.reads) - moves
    query = kernel_model.Query((kernel_model.Clause(named, own), *clauses))
    return history.row_at(channel_folds.channels, channel, query, position)
