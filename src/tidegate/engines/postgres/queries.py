"""Turns queries and ranges into SQL, each into a single statement.

One statement sees one snapshot, so the head in its result belongs to the events in it. There are
only a few different SQL texts, so sessions can keep them prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import msgspec
from psycopg.sql import Identifier

from tidegate.engines.postgres import indexing, sessions
from tidegate.kernel import codec, collections as kernel_collections, model
from tidegate.kernel.vocabulary import Vocabulary

_COLUMNS = "l.seq, l.at, l.kind, l.type, l.schema, l.tags, l.meta, l.body"

# $1 is the position after which to read, $2 the limit or NULL, the others what to look for. The
# limit is inside each pair, too: the entries of a pair are in position order, so a page of a long
# history need not read all of it.
_PAIRS = """
    SELECT x.seq FROM json_to_recordset(${number}::json) AS p(n text, t text, c json)
    CROSS JOIN LATERAL (
        SELECT x.seq FROM event_index x {join}
        WHERE x.name = p.n AND x.type = p.t AND x.seq > $1 {contains}
        ORDER BY x.seq LIMIT $2
    ) x"""
_NAMES = """
    SELECT x.seq FROM json_to_recordset(${number}::json) AS p(n text, c json)
    CROSS JOIN LATERAL (
        SELECT x.seq FROM event_index x {join}
        WHERE x.name = p.n AND x.seq > $1 {contains}
        ORDER BY x.seq LIMIT $2
    ) x"""
_PLAIN = {"join": "", "contains": ""}
_CONTAINS = {
    "join": "JOIN event_log l ON l.seq = x.seq",
    "contains": "AND l.tags::jsonb @> p.c::jsonb",
}
_INDEXED = f"""
    SELECT h.seq, l.* FROM (SELECT seq FROM log_head ORDER BY seq DESC LIMIT 1) h
    LEFT JOIN LATERAL (
        SELECT {_COLUMNS}
        FROM (SELECT DISTINCT seq FROM ({{found}}) u ORDER BY seq LIMIT $2) s
        JOIN event_log l ON l.seq = s.seq
    ) l ON true ORDER BY l.seq"""
_SCANNED = f"""
    SELECT h.seq, l.* FROM (SELECT seq FROM log_head ORDER BY seq DESC LIMIT 1) h
    LEFT JOIN LATERAL (
        SELECT {_COLUMNS} FROM event_log l
        WHERE l.seq > $1 AND ({{where}}) ORDER BY l.seq LIMIT $2
    ) l ON true ORDER BY l.seq"""
_FEED = f"SELECT {_COLUMNS} FROM event_log l WHERE l.seq > $1 ORDER BY l.seq LIMIT $2".encode()
_RECEIPT = b"SELECT first, last, at, answer, digest FROM log_once WHERE key = $1"

HEAD = sessions.Statement(b"SELECT seq FROM log_head ORDER BY seq DESC LIMIT 1")

encode = msgspec.json.Encoder().encode


def number(value: int) -> bytes:
    """Encode an integer as a parameter."""
    return b"%d" % value


# ── events ────────────────────────────────────────────────────────────────────────────────────────


def read(
    vocabulary: Vocabulary, query: model.Query, after: model.Position, limit: int | None
) -> sessions.Statement:
    """Rows of the head and event columns. If nothing matches: one row with NULL as its event.

    Raises:
        InvalidInput: a tag key or an event type is not declared.
    """
    indexes = [vocabulary.index(clause) for clause in query.clauses]
    bounds = (number(after), None if limit is None else number(limit))
    if None in indexes:
        return _scan(query, bounds)
    pairs: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    contains = False
    for clause, index in zip(query.clauses, indexes, strict=True):
        wanted = sorted(clause.tags) if clause.match is model.Match.CONTAINS else []
        contains = contains or len(wanted) > 1
        types = vocabulary.fenced(clause)
        if types is None:
            names.append({"n": index, "c": wanted})
        else:
            pairs += [{"n": index, "t": name, "c": wanted} for name in types]
    sources = [(source, look) for source, look in ((_PAIRS, pairs), (_NAMES, names)) if look]
    if not sources:
        sources = [(_PAIRS, [])]  # no type of any clause is indexed under its index
    filters = _CONTAINS if contains else _PLAIN
    found = " UNION ALL ".join(
        source.format(number=place, **filters) for place, (source, _) in enumerate(sources, 3)
    )
    looked_for = (encode(look) for _, look in sources)
    return sessions.Statement(_INDEXED.format(found=found).encode(), (*bounds, *looked_for))


def _scan(query: model.Query, bounds: tuple[bytes | None, ...]) -> sessions.Statement:
    """Scan the log and compare each event with every clause, because a clause has no index."""
    terms: list[str] = []
    parameters: list[bytes | None] = [*bounds]
    for clause in query.clauses:
        term = "true"
        if clause.types is not None:
            parameters.append(encode(sorted(clause.types)))
            term = f"l.type IN (SELECT json_array_elements_text(${len(parameters)}::json))"
        if clause.tags:
            demand, value = _demand(clause)
            parameters.append(value)
            term = f"{term} AND {demand.format(number=len(parameters))}"
        terms.append(f"({term})")
    return sessions.Statement(_SCANNED.format(where=" OR ".join(terms)).encode(), parameters)


def _demand(clause: model.Clause) -> tuple[str, bytes]:
    """The condition of the clause's tags on an event ``l``, and its parameter."""
    tags = encode(sorted(clause.tags))
    if clause.match is model.Match.CONTAINS:
        return "l.tags::jsonb @> ${number}::jsonb", tags
    if len(clause.tags) > 1:
        return "l.tags = ${number}", tags
    found = (
        "SELECT FROM event_index x WHERE x.name = ${number} AND x.type = l.type AND x.seq = l.seq"
    )
    return f"EXISTS ({found})", next(iter(clause.tags)).encode()


def feed(after: model.Position, limit: int) -> sessions.Statement:
    """Rows of the event columns, in position order."""
    return sessions.Statement(_FEED, (number(after), number(limit)))


def event(row: Sequence[Any]) -> model.Event:
    """Convert a row of ``event_log`` to an event."""
    seq, at, kind, type, schema, tags, meta, body = row
    return model.Event(
        int(seq),
        _time(at),
        _word(kind),
        _word(type),
        int(schema),
        indexing.stored_tags(tags),
        _meta(meta),
        body,
    )


# Cached: facts of one commit share time and meta, and a log has few types.
_word = lru_cache(1_024)(bytes.decode)
_meta = lru_cache(256)(codec.meta_value)


@lru_cache(256)
def _time(text: bytes) -> datetime:
    return codec.time_value(text.decode())


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────


def receipt(key: str) -> sessions.Statement:
    """One row with the columns of the receipt, or none."""
    return sessions.Statement(_RECEIPT, (key.encode(),))


def receipt_of(row: Sequence[Any]) -> model.Receipt:
    """Convert a row of first, last, at, answer, digest to a receipt."""
    first, last, at, answer, digest = row
    return model.Receipt(
        int(first),
        int(last),
        codec.time_value(at.decode()),
        _bytes(answer),
        replayed=True,
        digest=_bytes(digest),
    )


def _bytes(text: bytes) -> bytes:
    """Decode a bytea from its hexadecimal form."""
    return bytes.fromhex(text[2:].decode())


@cache
def quoted(name: str) -> str:
    """Quote the name of a table or column."""
    return Identifier(name).as_string()


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


def rows(
    collection: str, ids: Sequence[str], columns: str = "id, version, born, data"
) -> sessions.Statement:
    """The rows with these ids, in any order."""
    wanted = ", ".join(f"r.{column}" for column in columns.split(", "))
    sql = (
        f"SELECT {wanted} FROM json_array_elements_text($1::json) k"
        f" JOIN {quoted(collection)} r ON r.id = k"
    )
    return sessions.Statement(sql.encode(), (encode(ids),))


def rows_of_several(wanted: Mapping[str, Sequence[str]]) -> sessions.Statement:
    """Rows of several collections as of one moment.

    The first column is the number of the collection in ``wanted``.
    """
    found = " UNION ALL ".join(
        f"SELECT {place}, r.id, r.version, r.born, r.data"
        f" FROM json_array_elements_text(${place + 1}::json) k JOIN {quoted(name)} r ON r.id = k"
        for place, name in enumerate(wanted)
    )
    return sessions.Statement(found.encode(), tuple(encode(ids) for ids in wanted.values()))


def record(collection: kernel_collections.Collection, row: Sequence[Any]) -> model.Record:
    """Convert a row of id, version, born, data to a record."""
    id, version, born, data = row
    return model.Record(model.Key(collection.name, id.decode()), int(version), int(born), data)


def range_of(
    collection: kernel_collections.Collection,
    index: str | None,
    prefix: str,
    after: str,
    limit: int,
    *,
    descending: bool,
) -> sessions.Statement | None:
    """Rows in order; None if no row can have the prefix.

    Each part of an entry is a column, and entries compare part by part. So both ``prefix`` and
    ``after`` become comparisons of columns that use the index.
    """
    columns = ["id"] if index is None else [*collection.index(index).columns, "id"]
    wanted = prefix.split(kernel_collections.SEPARATOR)
    if len(wanted) > len(columns) or "\x00" in prefix:
        return None
    names = [quoted(column) for column in columns]
    terms = [f"{name} IS NOT NULL" for name in names]
    parameters = [number(limit)]

    def given(text: str) -> str:
        parameters.append(text.encode())
        return f"${len(parameters)}"

    for name, part in zip(names, wanted[:-1], strict=False):
        terms.append(f"{name} = {given(part)}")
    if wanted[-1]:
        name = names[len(wanted) - 1]
        terms.append(f"{name} >= {given(wanted[-1])}")
        if (above := kernel_collections.least_above(wanted[-1])) is not None:
            terms.append(f"{name} < {given(above)}")
    if after:
        # No stored text holds a NUL, so what comes after one makes no difference.
        stored, cut, _ = after.partition("\x00")
        parts = stored.split(kernel_collections.SEPARATOR)
        seen = parts[: len(names)]
        # With all parts, ``after`` is the row that was seen last. A shorter list sorts before all
        # rows that start with it.
        if descending:
            sign = "<=" if cut or len(parts) > len(names) else "<"
        else:
            sign = ">" if len(seen) == len(names) else ">="
        bound = ", ".join(given(part) for part in seen)
        terms.append(f"({', '.join(names[: len(seen)])}) {sign} ({bound})")
    way = " DESC" if descending else ""
    order = ", ".join(name + way for name in names)
    sql = (
        f"SELECT id, version, born, data FROM {quoted(collection.name)}"
        f" WHERE {' AND '.join(terms)} ORDER BY {order} LIMIT $1"
    )
    return sessions.Statement(sql.encode(), parameters)
