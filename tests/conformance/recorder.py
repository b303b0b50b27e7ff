"""Our store as a recorder of the `eventsourcing` package, to run that package's own tests.

The public DCB specification knows no declared tags or scopes: any tag may be read. So here the
vocabulary is open: every event is indexed under each of its tags and under `ALL_INDEX`, and every
query is a boundary. Only the names of types are declared, because an engine may keep a dictionary
of them. The adapter itself does three things:

* A clause of several tags is fenced by one of them, which is wider than what it matches. So an
  append reads its condition, looks for matches itself, and commits under the boundary of that
  read; a boundary that moved means another read, not yet a failure.
* The head is the end of the feed, taken before the read, which is then cut at it.
* A subscription reads the feed and polls at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from threading import Event as Flag

from eventsourcing.dcb.api import (
    DCBAppendCondition,
    DCBEvent,
    DCBQuery,
    DCBReadResponse,
    DCBRecorder,
    DCBSequencedEvent,
    DCBSubscription,
)
from eventsourcing.persistence import IntegrityError, ProgrammingError
from msgspec import defstruct

from tidegate.errors import BoundaryMoved, TidegateError
from tidegate.kernel.model import (
    ALL,
    ANY,
    Clause,
    Commit,
    Event,
    EventPage,
    Fact,
    Match,
    Position,
    Query,
)
from tidegate.kernel.store import Schema, Store, demand_boundary
from tidegate.kernel.tags import ALL_INDEX
from tidegate.kernel.vocabulary import FactType, Vocabulary

APPENDS_MAX = 20  # reads a condition while others write under its fence
PAGE = 500
POLL_SECONDS = 0.02
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)  # the interface has no time
KEY = "tag:"  # our tags are key:value, theirs are any text


class OpenVocabulary(Vocabulary):
    """Indexes events of these types under every tag that they carry."""

    def __init__(self, types: Iterable[str]) -> None:
        super().__init__(FactType(defstruct(name, ()), "event") for name in types)

    def indexes(self, fact: Fact | Event) -> tuple[str, ...]:
        return (*fact.tags, ALL_INDEX)

    def served(self, clause: Clause) -> tuple[str | None, frozenset[str] | None]:
        return min(clause.tags, default=ALL_INDEX), clause.types


def schema(*types: str) -> Schema:
    """Build the schema of a store that is used through the recorder."""
    return Schema(OpenVocabulary(types))


class Response(DCBReadResponse):
    """Events that were read, and the head at the time of the read."""

    def __init__(self, events: Sequence[DCBSequencedEvent], head: Position | None) -> None:
        self._events = iter(events)
        self._head = head

    @property
    def head(self) -> Position | None:
        return self._head

    def __next__(self) -> DCBSequencedEvent:
        return next(self._events)


class TidegateRecorder(DCBRecorder):
    """The recorder interface over a store with an open vocabulary."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.vocabulary = store.schema.vocabulary
        self._head: Position = 0  # how far the feed was read

    def read(
        self,
        query: DCBQuery | None = None,
        *,
        after: int | None = None,
        limit: int | None = None,
    ) -> Response:
        if limit == 0:
            return Response((), None)
        head = self._walk_to_head()
        page = self._store.read(translated(query), after=after or 0, limit=limit)
        events = [sequenced(event) for event in page.events if event.position <= head]
        if limit is not None:
            return Response(events, events[-1].position if events else None)
        return Response(events, head or None)

    def append(
        self, events: Sequence[DCBEvent], condition: DCBAppendCondition | None = None
    ) -> Position:
        if not events:
            raise ProgrammingError("an append needs at least one event")
        commit = Commit(AT, facts=tuple(fact(event) for event in events))
        for _ in range(APPENDS_MAX):
            (answer,) = self._store.commit(self._conditioned(commit, condition))
            if not isinstance(answer, TidegateError):
                return answer.last
            if not isinstance(answer, BoundaryMoved):
                raise answer
        raise IntegrityError(condition)

    def _conditioned(self, commit: Commit, condition: DCBAppendCondition | None) -> Commit:
        """Build the commit under the boundary of its condition. Raises: IntegrityError: it is not
        met.
        """
        if condition is None:
            return commit
        query = translated(condition.fail_if_events_match)
        page = self._store.read(query, after=condition.after or 0)
        if page.events:
            raise IntegrityError(condition)
        boundary = demand_boundary(page, query)
        return Commit(commit.at, commit.meta, commit.facts, boundaries=(boundary,))

    def subscribe(
        self, query: DCBQuery | None = None, *, after: int | None = None
    ) -> TidegateSubscription:
        return TidegateSubscription(self, query, after)

    def page(self, after: Position) -> EventPage:
        """Read the feed after a position."""
        return self._store.feed(after=after, limit=PAGE)

    def _walk_to_head(self) -> Position:
        while events := self.page(self._head).events:
            self._head = events[-1].position
        return self._head


class TidegateSubscription(DCBSubscription[TidegateRecorder]):
    """Follows the feed, and waits at its end for more, until it is stopped."""

    def __init__(
        self, recorder: TidegateRecorder, query: DCBQuery | None, after: Position | None
    ) -> None:
        super().__init__(recorder, query, after)
        self._stopped = Flag()
        self._matching = self._follow(translated(query))

    def __next__(self) -> DCBSequencedEvent:
        return next(self._matching)

    def stop(self) -> None:
        super().stop()
        self._stopped.set()

    def _follow(self, query: Query) -> Iterator[DCBSequencedEvent]:
        vocabulary = self._recorder.vocabulary
        while not self._stopped.is_set():
            events = self._recorder.page(self._last_position).events
            for event in events:
                self._last_position = event.position
                if any(vocabulary.matches(clause, event) for clause in query.clauses):
                    yield sequenced(event)
            if not events:
                self._stopped.wait(POLL_SECONDS)


def translated(query: DCBQuery | None) -> Query:
    """Convert the query to ours; one without items matches everything."""
    if query is None or not query.items:
        return ALL
    return Query(
        tuple(
            Clause(
                frozenset(item.types) if item.types else ANY,
                frozenset(KEY + tag for tag in item.tags),
                Match.CONTAINS,
            )
            for item in query.items
        )
    )


def fact(event: DCBEvent) -> Fact:
    """Convert their event to our fact."""
    tags = tuple(sorted({KEY + tag for tag in event.tags}))
    return Fact("event", event.type, 1, tags, event.data)


def sequenced(event: Event) -> DCBSequencedEvent:
    """Convert our event to theirs."""
    tags = [tag.removeprefix(KEY) for tag in event.tags]
    return DCBSequencedEvent(DCBEvent(event.type, event.body, tags), event.position)
