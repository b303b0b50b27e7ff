"""Reads events: turns clauses into SQL on event_index and event_log, and rows into events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache, lru_cache
from itertools import islice
from operator import attrgetter

import apsw
import msgspec

from tidegate import decoders
from tidegate.kernel import codec, model
from tidegate.kernel.vocabulary import Vocabulary

_COLUMNS = "e.at, e.kind, e.type, e.schema, e.tags, e.meta, CAST(e.body AS BLOB)"

# CROSS JOIN fixes the join order in SQLite: from the index to the log.
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
_HEAD_FIRST = "SELECT 0, '', '', '', head, '', '', x'' FROM log_head UNION ALL "
_BY_SCAN = f"SELECT e.seq, {_COLUMNS} FROM event_log e WHERE e.seq > ?"
FEED = f"{_BY_SCAN} ORDER BY e.seq LIMIT ?"

HEAD = "SELECT head, epoch FROM log_head"

# For a list of types SQLite builds a temporary table. Up to this many types, it is cheaper to look
# up the name once per type.
SEPARATE_TYPES_MAX = 4
# With more types than this, merging one seek per type costs more than sorting.
MERGED_TYPES_MAX = 16
METAS_KEPT_MAX = 256  # cached decoded metas; many events have the same meta

Row = tuple[int, str, str, str, int, str, str, bytes]

_EXACT = model.Match.EXACT
_position = attrgetter("position")

_tags_encoder = msgspec.json.Encoder()

# Decoders of the columns; each is one call into C.
_time = datetime.fromisoformat
_tags = decoders.build(tuple[str, ...]).decode
_meta = lru_cache(METAS_KEPT_MAX)(codec.meta_value)


def tags_text(tags: Sequence[str]) -> str:
    """Encode sorted tags as they are stored. Equal sets give equal texts."""
    return _tags_encoder.encode(tags).decode()


def events_of(rows: Iterable[Row]) -> list[model.Event]:
    """Convert rows to events. Hot: a boundary read spends half of its time here."""
    return [
        model.Event(seq, _time(at), kind, type, schema, _tags(tags), _meta(meta), body)
        for seq, at, kind, type, schema, tags, meta, body in rows
    ]


class ClausePlan(msgspec.Struct, frozen=True):
    """How one clause is read and fenced: by which index name, for which types."""

    clause: model.Clause
    name: str | None  # None: no index covers it; the log is scanned, and there is no boundary
    types: frozenset[str] | None  # None: every type
    filtered: bool  # whether the tags of the rows found must be compared as well

    @classmethod
    def of(cls, vocabulary: Vocabulary, clause: model.Clause) -> ClausePlan:
        """Raises: InvalidInput: a tag key or an event type that is not declared."""
        name, types = vocabulary.served(clause)
        filtered = clause.match is not _EXACT and len(clause.tags) > (0 if name is None else 1)
        return cls(clause, name, types, filtered)


class EventRead:
    """One read: a cursor, and the range of positions."""

    def __init__(
        self, cursor: apsw.Cursor, types: dict[str, int], after: model.Position, limit: int | None
    ) -> None:
        self._cursor = cursor
        self._types = types
        self._after = after
        # One more than the limit shows whether the limit cut the page.
        self._rows_max = None if limit is None else limit + 1

    def events(self, plans: Sequence[ClausePlan]) -> tuple[list[model.Event], model.Position]:
        """The events that match any clause, in order, each once, and the head at that moment.

        There is at most one more than the limit.
        """
        if len(plans) == 1 and plans[0].name and plans[0].types and self._rows_max is None:
            return self._read_at_once(plans[0], plans[0].name, plans[0].types)
        self._cursor.execute("BEGIN")
        try:
            head = next(self._cursor.execute(HEAD))[0]
            if len(plans) == 1:
                return self._events(plans[0]), head
            found = {event.position: event for plan in plans for event in self._events(plan)}
        finally:
            self._cursor.execute("COMMIT")
        return [found[position] for position in sorted(found)][: self._rows_max], head

    def _read_at_once(
        self, plan: ClausePlan, name: str, types: frozenset[str]
    ) -> tuple[list[model.Event], model.Position]:
        """As ``events``, for one indexed clause in one statement; most boundaries are read so."""
        bindings: list[str | int] = []
        if len(types) <= SEPARATE_TYPES_MAX:
            for type in types:
                bindings += (name, self._after, self._types[type])
        else:
            bindings += (name, self._after, *[self._types[type] for type in types])
        rows: Iterator[Row] = self._cursor.execute(_boundary_read(len(types)), bindings)
        first = next(rows)
        assert first[0] == 0, "the head comes first"
        head = first[4]
        events = events_of(_with_tags(plan.clause.tags, rows) if plan.filtered else rows)
        if len(types) > 1:  # one sorted run per type: Python merges them faster than SQLite sorts
            events.sort(key=_position)
        return events, head

    def _events(self, plan: ClausePlan) -> list[model.Event]:
        if plan.types is not None and not plan.types:
            return []  # none of the types is indexed under the name
        if plan.name is None:
            statement, bindings = _scan(plan.clause, self._after)
        elif plan.types is None:
            statement, bindings = _BY_NAME, [plan.name, self._after]
        else:
            types = [self._types[name] for name in plan.types]
            return self._by_types(plan, plan.name, types)
        return self._fetch(plan, statement, bindings)

    def _by_types(self, plan: ClausePlan, name: str, types: list[int]) -> list[model.Event]:
        if self._rows_max is not None and 1 < len(types) <= MERGED_TYPES_MAX:
            # SQLite merges these lazily, so a limit stops it early.
            statement = " UNION ALL ".join([f"{_BY_INDEX} = ?"] * len(types)) + " ORDER BY 1"
            merged = [binding for id in types for binding in (name, self._after, id)]
            return self._fetch(plan, statement, merged)
        # Without a limit there are several clauses here, and ``events`` sorts their results.
        order = "" if self._rows_max is None else " ORDER BY i.seq"
        statement = f"{_BY_INDEX} {_in_list(len(types))}{order}"
        return self._fetch(plan, statement, [name, self._after, *types])

    def _fetch(
        self, plan: ClausePlan, statement: str, bindings: list[str | int]
    ) -> list[model.Event]:
        if self._rows_max is not None and not plan.filtered:
            statement, bindings = f"{statement} LIMIT ?", [*bindings, self._rows_max]
        rows: Iterable[Row] = self._cursor.execute(statement, bindings)
        if plan.filtered:
            rows = islice(_with_tags(plan.clause.tags, rows), self._rows_max)
        return events_of(rows)


@cache
def _boundary_read(types: int) -> str:
    if types > SEPARATE_TYPES_MAX:
        return f"{_HEAD_FIRST}{_BY_INDEX} {_in_list(types)}"
    return _HEAD_FIRST + " UNION ALL ".join([f"{_BY_INDEX} = ?"] * types)


def _in_list(count: int) -> str:
    return "= ?" if count == 1 else f"IN ({', '.join('?' * count)})"


def _with_tags(tags: frozenset[str], rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if tags.issubset(_tags(row[5])))


def _scan(clause: model.Clause, after: model.Position) -> tuple[str, list[str | int]]:
    """A scan of the log for a clause that no index covers."""
    terms = [_BY_SCAN]
    bindings: list[str | int] = [after]
    if clause.types is not None:
        terms.append(f"e.type IN ({', '.join('?' * len(clause.types))})")
        bindings += sorted(clause.types)
    if clause.match is model.Match.EXACT and clause.tags:
        terms.append("e.tags = ?")
        bindings.append(tags_text(sorted(clause.tags)))
    elif clause.tags:
        # Every event with the tag contains its JSON text. ``_with_tags`` later compares whole tags.
        terms += ["instr(e.tags, ?)"] * len(clause.tags)
        bindings += (_tags_encoder.encode(tag).decode() for tag in sorted(clause.tags))
    return " AND ".join(terms) + " ORDER BY e.seq", bindings
