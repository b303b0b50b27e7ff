"""How clauses are answered from event_index and event_log, and how rows become events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice

import apsw
import msgspec
from msgspec import Struct

from tidegate.kernel.codec import meta_value, time_value
from tidegate.kernel.model import Clause, Event, Match, Meta, Position
from tidegate.kernel.vocabulary import Vocabulary

_COLUMNS = "e.at, e.kind, e.type, e.schema, e.tags, e.meta, e.body"

# CROSS JOIN pins the order: from the index to the log, never the other way round.
_BY_INDEX = (
    f"SELECT i.seq, {_COLUMNS} FROM event_index i CROSS JOIN event_log e ON e.seq = i.seq"
    " WHERE i.name = (SELECT id FROM event_names WHERE name = ?) AND i.seq > ? AND i.type "
)
_BY_NAME = (
    f"SELECT i.seq, {_COLUMNS} FROM ("
    "SELECT x.seq FROM event_types t CROSS JOIN event_index x ON x.type = t.id"
    " WHERE x.name = (SELECT id FROM event_names WHERE name = ?) AND x.seq > ? ORDER BY x.seq"
    ") i CROSS JOIN event_log e ON e.seq = i.seq ORDER BY i.seq"
)
_BY_SCAN = f"SELECT e.seq, {_COLUMNS} FROM event_log e WHERE e.seq > ?"
FEED = f"{_BY_SCAN} ORDER BY e.seq LIMIT ?"

# Beyond this many types a merge of one seek per type is dearer than a sort.
MERGED_TYPES_MAX = 16

Row = tuple[int, str, str, str, int, str, str, str]

_NO_TIME = datetime.min.replace(tzinfo=UTC)
_NO_META = Meta()

_tags_encoder = msgspec.json.Encoder()
_tags_decoder = msgspec.json.Decoder(tuple[str, ...])


def tags_text(tags: Sequence[str]) -> str:
    """Sorted tags as they are stored; equal sets are equal text."""
    return _tags_encoder.encode(tags).decode()


def events_of(rows: Iterable[Row]) -> list[Event]:
    """The events that these rows are. Hot: a boundary read spends half of its time here."""
    events = []
    tags_value = _tags_decoder.decode
    at_before = meta_before = ""
    time, meta = _NO_TIME, _NO_META
    for seq, at, kind, type, schema, tags, meta_text, body in rows:
        # Events of one commit stand side by side and share these two.
        if at != at_before:
            at_before, time = at, time_value(at)
        if meta_text != meta_before:
            meta_before, meta = meta_text, meta_value(meta_text)
        events.append(Event(seq, time, kind, type, schema, tags_value(tags), meta, body.encode()))
    return events


class Plan(Struct, frozen=True):
    """How one clause is read and fenced: by which index name, for which types."""

    clause: Clause
    name: str | None  # None: no index covers it, the log is scanned and nothing is fenced
    types: frozenset[str] | None  # None: every type
    filtered: bool  # whether what the statement finds must be looked at again

    @classmethod
    def of(cls, vocabulary: Vocabulary, clause: Clause) -> Plan:
        """Raises: InvalidInput: a tag key or an event type that is not declared."""
        name = vocabulary.index(clause)
        contains = clause.match is Match.CONTAINS and bool(clause.tags)
        filtered = contains and (name is None or len(clause.tags) > 1)
        return cls(clause, name, vocabulary.fenced(clause), filtered)


class Reading:
    """One read: a cursor inside a transaction, and from where to where."""

    def __init__(
        self, cursor: apsw.Cursor, types: dict[str, int], after: Position, limit: int | None
    ) -> None:
        self._cursor = cursor
        self._types = types
        self._after = after
        # One more than asked for tells whether the limit cut the page.
        self._most = None if limit is None else limit + 1

    def events(self, plans: Sequence[Plan]) -> list[Event]:
        """What any of the clauses finds, in order, once each; at most one more than the limit."""
        if len(plans) == 1:
            return self._events(plans[0])
        found = {event.position: event for plan in plans for event in self._events(plan)}
        return [found[position] for position in sorted(found)][: self._most]

    def _events(self, plan: Plan) -> list[Event]:
        if plan.types is not None and not plan.types:
            return []  # none of them can stand under the name
        if plan.name is None:
            statement, bindings = _scan(plan.clause, self._after)
        elif plan.types is None:
            statement, bindings = _BY_NAME, [plan.name, self._after]
        else:
            types = [self._types[name] for name in plan.types]
            return self._by_types(plan, plan.name, types)
        return self._fetch(plan, statement, bindings)

    def _by_types(self, plan: Plan, name: str, types: list[int]) -> list[Event]:
        if self._most is not None and 1 < len(types) <= MERGED_TYPES_MAX:
            # SQLite merges these as it goes, so that a limit stops it early.
            statement = " UNION ALL ".join([f"{_BY_INDEX} = ?"] * len(types)) + " ORDER BY 1"
            merged = [binding for id in types for binding in (name, self._after, id)]
            return self._fetch(plan, statement, merged)
        if len(types) == 1:
            return self._fetch(plan, f"{_BY_INDEX} = ? ORDER BY i.seq", [name, self._after, *types])
        marks = ", ".join("?" * len(types))
        statement = f"{_BY_INDEX} IN ({marks})" + (" ORDER BY i.seq" if self._most else "")
        events = self._fetch(plan, statement, [name, self._after, *types])
        events.sort(key=_position)  # one run per type, which Python merges faster than SQLite sorts
        return events

    def _fetch(self, plan: Plan, statement: str, bindings: list[str | int]) -> list[Event]:
        if self._most is not None and not plan.filtered:
            statement, bindings = f"{statement} LIMIT ?", [*bindings, self._most]
        rows: Iterable[Row] = self._cursor.execute(statement, bindings)
        if plan.filtered:
            rows = islice(_carrying(plan.clause.tags, rows), self._most)
        return events_of(rows)


def _carrying(tags: frozenset[str], rows: Iterable[Row]) -> Iterable[Row]:
    tags_value = _tags_decoder.decode
    return (row for row in rows if tags.issubset(tags_value(row[5])))


def _scan(clause: Clause, after: Position) -> tuple[str, list[str | int]]:
    """A pass over the log for a clause that no index covers."""
    terms = [_BY_SCAN]
    bindings: list[str | int] = [after]
    if clause.types is not None:
        terms.append(f"e.type IN ({', '.join('?' * len(clause.types))})")
        bindings += sorted(clause.types)
    if clause.match is Match.EXACT and clause.tags:
        terms.append("e.tags = ?")
        bindings.append(tags_text(sorted(clause.tags)))
    elif clause.tags:
        # Every carrier holds the tag's JSON text; whether it is a whole tag there is asked later.
        terms += ["instr(e.tags, ?)"] * len(clause.tags)
        bindings += (_tags_encoder.encode(tag).decode() for tag in sorted(clause.tags))
    return " AND ".join(terms) + " ORDER BY e.seq", bindings


def _position(event: Event) -> Position:
    return event.position
