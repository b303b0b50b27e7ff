"""What is current in a scope and what happened there: for those who look, not for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found
from tidegate.domain.channels.folds import channels
from tidegate.domain.channels.rows import Channel
from tidegate.domain.outbox.folds import outbox as outbox_intents
from tidegate.domain.outbox.folds import outbox_deliveries, outbox_drifts
from tidegate.domain.outbox.rows import OUTBOX
from tidegate.domain.releases.folds import release_actual, release_events, release_evidence
from tidegate.domain.releases.rows import (
    EVENTS,
    EVIDENCE,
    Actual,
    actual_key,
    command_key,
    row_id,
)
from tidegate.domain.rollouts.facts import RolloutOpened
from tidegate.errors import NotFound
from tidegate.kernel import codec
from tidegate.kernel.folds import Fold
from tidegate.kernel.model import CLAUSES_MAX, Clause, Key, Position, Query, Record, at_most
from tidegate.kernel.records.actions import Stored
from tidegate.kernel.records.write_policy import WriteMode
from tidegate.kernel.store import Store

PAGE_MAX = 500

# Where each fact that is shown has its row: the first of these folds that reads it.
_SHOWN: Final[tuple[Fold, ...]] = (
    release_events,
    release_evidence,
    outbox_intents,
    outbox_deliveries,
    outbox_drifts,
)
_FOLDS: Final[Mapping[str, Fold]] = {
    fact.__name__: fold for fold in reversed(_SHOWN) for fact in fold.reads
}


class ScopeEvent(Struct, frozen=True):
    """One thing that happened in a scope."""

    position: Position
    at: datetime
    type: str
    row: str  # the id of the row that tells of it, or to which it happened
    value: Struct  # that row where it is written once, else the fact itself


def find_actual(store: Store, scope: str) -> Stored:
    """The scope's ACTUAL row. Raises: NotFound."""
    return _found(store, actual_key(scope), f"{scope} is not registered")


def find_outcome(store: Store, scope: str, command_id: str) -> Stored:
    """What a command led to, as an ``ExecutedCommand``. Raises: NotFound."""
    return _found(store, command_key(scope, command_id), f"{command_id} was never executed")


def list_events(store: Store, scope: str, *, after: str = "", limit: int) -> tuple[Stored, ...]:
    """The scope's EVENT rows in order of time; ``after`` is the id of the last one seen."""
    return _page(store, EVENTS.name, row_id(scope, "EVENT#"), after, limit)


def list_evidence(store: Store, scope: str, *, after: str = "", limit: int) -> tuple[Stored, ...]:
    """The scope's EVIDENCE rows in order of source and batch."""
    return _page(store, EVIDENCE.name, row_id(scope, "EVIDENCE#"), after, limit)


def list_intents(store: Store, scope: str, *, after: str = "", limit: int) -> tuple[Stored, ...]:
    """The scope's OUTBOX rows in order of operation and release."""
    return _page(store, OUTBOX.name, row_id(scope, "OUTBOX#"), after, limit)


def list_scope_events(
    store: Store, scope: str, *, after: Position = 0, limit: int
) -> tuple[ScopeEvent, ...]:
    """Changes, evidence, intents and what became of them, in the order of their commits.

    ``after`` is the position of the last one seen.
    """
    at_most("rows of a page", limit, PAGE_MAX)
    query = Query((Clause(frozenset(_FOLDS), frozenset({f"scope:{scope}"})),))
    events = store.read(query, after=after, limit=limit).events
    facts = [(event, store.schema.vocabulary.value(event)) for event in events]
    keys = [_key(fact) for _, fact in facts]
    records = store.get(*keys) if keys else ()
    return tuple(
        ScopeEvent(event.position, event.at, event.type, key.id, _told(store, fact, record))
        for (event, fact), key, record in zip(facts, keys, records, strict=True)
    )


class ScopeHistory:
    """What happened in the scopes of one log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, scope: str, *, after: Position = 0, limit: int) -> tuple[ScopeEvent, ...]:
        """As ``list_scope_events``."""
        return list_scope_events(self._store, scope, after=after, limit=limit)


def _key(fact: Struct) -> Key:
    fold = _FOLDS[type(fact).__name__]
    (id,) = fold.ids(fact)
    return Key(fold.collection.name, id)


def _told(store: Store, fact: Struct, record: Record | None) -> Struct:
    """The row of a fact if it is still what the fact made it: if it is written once."""
    once = _FOLDS[type(fact).__name__].collection.policy.mode is WriteMode.WRITE_ONCE
    if record is None or not once:
        return fact
    value: Struct = _stored(store, record).value
    return value


def _page(store: Store, collection: str, prefix: str, after: str, limit: int) -> tuple[Stored, ...]:
    at_most("rows of a page", limit, PAGE_MAX)
    records = store.range(collection, prefix=prefix, after=after, limit=limit)
    return tuple(_stored(store, record) for record in records)


def _found(store: Store, key: Key, otherwise: str) -> Stored:
    (record,) = store.get(key)
    if record is None:
        raise NotFound(otherwise, collection=key.collection, id=key.id)
    return _stored(store, record)


def _stored(store: Store, record: Record) -> Stored:
    model = store.schema.collection(record.key.collection).model
    return Stored(record.key, record.version, record.born, codec.decode(record.data, model))


def pinned_at(history: RowHistory, scope: str, position: Position) -> Found[Actual] | None:
    """The pin of a scope as it was at a position of the log."""
    types = frozenset(fact.__name__ for fact in release_actual.reads)
    query = Query((Clause(types, frozenset({f"scope:{scope}"})),))
    return history.row_at(release_actual, actual_key(scope).id, query, position)


def channel_at(
    log: LogReader, history: RowHistory, channel: str, position: Position
) -> Found[Channel] | None:
    """The channel as its own facts and those of its rollouts had left it at a position.

    Raises:
        HistoryTooLong.
    """
    own = frozenset({f"channel:{channel}"})
    opened = Query((Clause(frozenset({RolloutOpened.__name__}), own),))
    events = log.events(opened, limit=CLAUSES_MAX)
    if len(events) == CLAUSES_MAX:
        raise HistoryTooLong
    rollouts = [log.value(event) for event in events if event.position <= position]
    moves = frozenset({"RolloutTransitioned", "SuccessorOpened"})
    clauses = [
        Clause(moves, frozenset({f"rollout_id:{item.rollout_id}"}))
        for item in rollouts
        if isinstance(item, RolloutOpened)
    ]
    named = frozenset(fact.__name__ for fact in channels.reads) - moves
    query = Query((Clause(named, own), *clauses))
    return history.row_at(channels, channel, query, position)
