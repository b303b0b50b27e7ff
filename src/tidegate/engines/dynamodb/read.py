"""Reads of events by index, complete as of a fence that was read with them or before them.

A fence holds how many events of each type there are, and up to which position. Index items never
change, but the items of one transaction may become visible one by one. So a query can miss events,
and is repeated until the counts agree. Events above the fence are ignored until the next read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from tidegate.engines.dynamodb import (
    draft,
    items as dynamodb_items,
    pack,
    rules,
    transport as dynamodb_transport,
)
from tidegate.engines.dynamodb.hints import FenceHints
from tidegate.engines.dynamodb.log import SlotLog
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.errors import StoreUnavailable
from tidegate.kernel import model, store

READS_MAX = 60  # of one index, until its counts agree
READ_WAIT_SECONDS_FIRST = 0.001
READ_WAIT_SECONDS_MAX = 0.050

Consumed = dict[str, set[str | None]]  # index → types wanted of it; None: any type


@dataclass(slots=True)
class IndexRead:
    """The fence of each index that was read, and the events up to it."""

    fences: dict[str, dynamodb_items.Fence] = field(default_factory=dict)
    events: dict[model.Position, model.Event] = field(default_factory=dict)

    def observed(self, consumed: Mapping[str, Iterable[str | None]]) -> pack.Observed:
        return {
            index: {name: self.fences[index].position(name) for name in types}
            for index, types in consumed.items()
        }


class IndexReader:
    """Reads the events of a store by query."""

    def __init__(
        self,
        transport: dynamodb_transport.Transport,
        schema: store.Schema,
        pace: RetryPace,
        hints: FenceHints,
        log: SlotLog,
    ) -> None:
        self._transport = transport
        self._schema = schema
        self._pace = pace
        self._hints = hints
        self._log = log
        self._drafter = draft.Drafter(schema)
        self._rules: rules.Rules = {}  # of types that this version does not know

    def read(
        self,
        query: model.Query,
        guard: model.Query | None,
        after: model.Position,
        limit: int | None,
    ) -> model.EventPage:
        guarded = guard is None or store.is_fenced(self._schema, guard)
        if not store.is_fenced(self._schema, query):
            scanned = (event for event in self._log.scan(after) if self._matches(query, event))
            return model.EventPage(tuple(islice(scanned, limit)))
        consumed = self._consumed(query)
        watched = self._consumed(guard) if guard is not None and guarded else {}
        upto = model.POSITION_MAX
        if (limit is not None or after) and len(consumed) > 1:
            upto = self._raise_high(sorted(consumed))
        found = self._read_indexes(consumed, watched)
        matching = sorted(
            (
                event
                for position, event in found.events.items()
                if position > after and self._matches(query, event)
            ),
            key=lambda event: event.position,
        )
        events = tuple([event for event in matching if event.position <= upto][:limit])
        if not guarded or len(events) < len(matching):
            return model.EventPage(events)
        if events:
            return model.EventPage(events, model.Boundary(query, found.observed(consumed)))
        return model.EventPage(
            events, model.Boundary(query, found.observed(_merge(consumed, watched)), guard)
        )

    def _matches(self, query: model.Query, event: model.Event) -> bool:
        vocabulary = self._schema.vocabulary
        filed = None if event.type in vocabulary.types else self._index_names(event)
        return any(vocabulary.matches(clause, event, filed) for clause in query.clauses)

    def _index_names(self, event: model.Event) -> tuple[str, ...]:
        """The index names of an event of an unknown type, by the rule stored in the table."""
        if event.type not in self._rules:
            self._rules = rules.stored_rules(self._transport, self._pace)
        return tuple(self._rules[event.type].names(event.tags))

    def _consumed(self, query: model.Query) -> Consumed:
        consumed: Consumed = {}
        for clause in query.clauses:
            for index, type_name in self._drafter.fences(clause):
                consumed.setdefault(index, set()).add(type_name)
        return consumed

    def _raise_high(self, names: list[str]) -> model.Position:
        """Make sure that no event can be added below a position, and return that position.

        A writer that took its number long ago may still add an event to one index below the events
        that we return from another. A caller that continues after our last event would miss it. So
        the ``high`` of every index is raised to the number of the newest event in any of them, as a
        commit that consumes the index would do. Such a writer then fails and takes a new number.

        Raises:
            StoreUnavailable: other processes kept writing there.
            StoreRefused: we have no permission to write.
        """
        for waits in range(READS_MAX):
            fences = self._read_fences(names)
            newest = max(fence.position(None) for fence in fences.values()) // dynamodb_items.SPAN
            lower = [name for name, fence in fences.items() if fence.high < newest]
            if not lower:
                return (newest + 1) * dynamodb_items.SPAN - 1
            raised = [
                dynamodb_transport.UpdateItem(
                    dynamodb_items.fence_place(name), below={"high": newest}, sets={"high": newest}
                )
                for name in lower
            ]
            try:
                self._pace.retry(partial(self._transport.transact, raised, self._pace.new_id()))
            except dynamodb_transport.Cancelled:  # a commit has raised it, or is writing there now
                self._pace.wait(waits, READ_WAIT_SECONDS_FIRST, READ_WAIT_SECONDS_MAX)
            else:
                return (newest + 1) * dynamodb_items.SPAN - 1
        raise StoreUnavailable(f"indexes changed at each of {READS_MAX} reads: {', '.join(names)}")

    def _read_indexes(self, consumed: Consumed, watched: Consumed) -> IndexRead:
        """Read the indexes of ``consumed``, and only the fences of the others in ``watched``.

        Raises:
            StoreUnavailable: an index did not become complete.
        """
        names = sorted(_merge(consumed, watched))
        found = IndexRead()
        if len(names) != 1 or not consumed:
            found.fences = self._read_fences(names)
        pending = sorted(consumed)
        for waits in range(READS_MAX):
            pending = [index for index in pending if not self._read_index(index, consumed, found)]
            if not pending:
                return found
            self._pace.wait(waits, READ_WAIT_SECONDS_FIRST, READ_WAIT_SECONDS_MAX)
        raise StoreUnavailable(f"index {pending[0]} is not complete after {READS_MAX} reads")

    def _read_fences(self, names: list[str]) -> dict[str, dynamodb_items.Fence]:
        """Read all fences as of one moment, before any of their events is read."""
        model.at_most("indexes of a query", len(names), dynamodb_transport.ITEMS_MAX)
        if not names:
            return {}
        places = {dynamodb_items.fence_place(name): name for name in names}
        found = self._pace.retry(partial(self._transport.get, list(places), together=True))
        for place, item in found.items():
            self._hints.note(place, item)
        return {name: dynamodb_items.Fence(found.get(place, {})) for place, name in places.items()}

    def _read_index(self, index: str, consumed: Consumed, found: IndexRead) -> bool:
        """Read one index. If its events are complete, keep them and return True.

        If it is the only index, its fence comes with the query. If events were missing, the next
        try uses the same fence again: that one was certainly read before the new events.
        """
        items = list(self._items(index))
        fence = dynamodb_items.Fence()
        if items and items[-1][dynamodb_transport.SK] == dynamodb_items.FENCE:
            fence = dynamodb_items.Fence(items.pop())
            self._hints.note(dynamodb_items.fence_place(index), fence.item)
        fence = found.fences.setdefault(index, fence)
        events = self._events(items)
        types = consumed[index]
        if not all(self._is_complete(fence, name, events) for name in types):
            return False
        found.events.update(
            (event.position, event)
            for event in events
            if any(
                event.position <= fence.position(name)
                for name in (None, event.type)
                if name in types
            )
        )
        return True

    def _is_complete(
        self, fence: dynamodb_items.Fence, name: str | None, events: Iterable[model.Event]
    ) -> bool:
        """Whether the number of events of a type up to the fence is the one in the fence."""
        newest = fence.position(name)
        there = sum(e.position <= newest and name in (None, e.type) for e in events)
        return there == fence.count(name)

    def _items(self, index: str) -> Iterator[dynamodb_transport.Item]:
        start: str | None = None
        while True:
            page = self._pace.retry(
                partial(self._transport.query, dynamodb_items.index_partition(index), start=start)
            )
            yield from page.items
            start = page.next
            if start is None:
                return

    def _events(self, items: Iterable[dynamodb_transport.Item]) -> list[model.Event]:
        events: list[model.Event] = []
        elsewhere: list[model.Position] = []
        for item in items:
            here, there = dynamodb_items.index_events(item)
            events += here
            elsewhere += there
        return events + self._log.events_at(elsewhere) if elsewhere else events


def _merge(one: Consumed, other: Consumed) -> Consumed:
    return {index: one.get(index, set()) | other.get(index, set()) for index in (*one, *other)}
