"""Read the log: events, their facts, and positions by time."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.kernel.model import Event, Position, Query
from tidegate.kernel.store import Store
from tidegate.kernel.vocabulary import Vocabulary


class LogReader:
    """Reads the events of one log."""

    def __init__(self, store: Store, vocabulary: Vocabulary) -> None:
        self._store = store
        self.vocabulary = vocabulary

    def events(self, query: Query, *, after: Position = 0, limit: int) -> tuple[Event, ...]:
        return self._store.read(query, after=after, limit=limit).events

    def feed(self, *, after: Position, limit: int) -> tuple[Event, ...]:
        """Return the next events, in order, without gaps."""
        return self._store.feed(after=after, limit=limit).events

    def check_query(self, query: Query) -> None:
        """Raises: InvalidInput: the query names an unknown type or tag key."""
        for clause in query.clauses:
            self.vocabulary.index(clause)

    def value(self, event: Event) -> Struct:
        """Decode the fact of an event. Raises: InvalidInput: its type is unknown here."""
        return self.vocabulary.value(event)

    def package_of(self, type_name: str) -> str:
        """Return the domain package that declares an event type; empty: none."""
        found = self.vocabulary.types.get(type_name)
        _, _, rest = (
            ("", "", "") if found is None else found.struct.__module__.partition(".domain.")
        )
        return rest.partition(".")[0]

    def position_at(self, at: datetime) -> Position:
        """Find the last position that was committed up to this time, by binary search."""
        low, high = 0, self.head()
        while low < high:
            middle = (low + high + 1) // 2
            found = self.feed(after=middle - 1, limit=1)
            if found and found[0].at <= at:
                low = min(found[0].position, high)
            else:
                high = middle - 1
        return low

    def head(self) -> Position:
        """Find the position of the newest event, by exponential and binary search."""
        low, step = 0, 1
        while found := self.feed(after=low + step - 1, limit=1):
            low, step = found[0].position, step * 2
        high = low + step - 1
        while low < high:
            middle = (low + high + 1) // 2
            found = self.feed(after=middle - 1, limit=1)
            if found:
                low = found[0].position
            else:
                high = middle - 1
        return low
