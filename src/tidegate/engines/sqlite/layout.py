"""The tables of a log, and how they are extended to what this version declares.

    event_log ◀── event_index(name, type, seq) ──▶ event_names, event_types
    log_head · log_meta · idempotency_keys · one table for each collection (``records``)

All of it runs when the file is opened, under the writer's lock, in one transaction. It only adds
what is missing; what another version declared stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import cast

import apsw
import msgspec

from tidegate.engines.key_ages import KEY_AGES
from tidegate.engines.sqlite.records import Table, allow_values, quoted
from tidegate.errors import InvalidDefinition, StoreRefused
from tidegate.kernel import index_rules, store
from tidegate.kernel.vocabulary import Vocabulary

REINDEX_BATCH = 1_000

_TABLES = {
    "event_log": """
        CREATE TABLE event_log (
            seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL,
            schema INTEGER NOT NULL, tags TEXT NOT NULL, meta TEXT NOT NULL, body TEXT NOT NULL
        ) STRICT""",
    "event_types": """
        CREATE TABLE event_types (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, indexing TEXT NOT NULL
        ) STRICT""",
    "event_names": """
        CREATE TABLE event_names (
            name TEXT NOT NULL PRIMARY KEY, id INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    "event_index": """
        CREATE TABLE event_index (
            name INTEGER NOT NULL, type INTEGER NOT NULL, seq INTEGER NOT NULL,
            PRIMARY KEY (name, type, seq)
        ) STRICT, WITHOUT ROWID""",
    # head: the last position, which has no event if that commit had no facts. names: the last id in
    # event_names. epoch: how often types were indexed again.
    "log_head": """
        CREATE TABLE log_head (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            head INTEGER NOT NULL, names INTEGER NOT NULL, epoch INTEGER NOT NULL
        ) STRICT""",
    "log_meta": """
        CREATE TABLE log_meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT""",
    # The key is the position, so that the oldest keys are found without another index.
    "idempotency_keys": """
        CREATE TABLE idempotency_keys (
            first INTEGER PRIMARY KEY, last INTEGER NOT NULL, at TEXT NOT NULL,
            key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL, answer BLOB NOT NULL
        ) STRICT""",
}
ENGINE_TABLES = frozenset(_TABLES)

# No event is ever inserted at or below the head. The first trigger also stops a REPLACE on a
# connection without recursive triggers, where the delete trigger would not run.
_LOG_TRIGGERS = """
    CREATE TRIGGER event_log_insert BEFORE INSERT ON event_log
        WHEN NEW.seq <= (SELECT head FROM log_head)
        BEGIN SELECT RAISE(ABORT, 'event_log is immutable'); END;
    CREATE TRIGGER event_log_update BEFORE UPDATE ON event_log
        BEGIN SELECT RAISE(ABORT, 'event_log is immutable'); END;
    CREATE TRIGGER event_log_delete BEFORE DELETE ON event_log
        BEGIN SELECT RAISE(ABORT, 'event_log is immutable'); END;
"""
_INDEX_TRIGGERS = """
    CREATE TRIGGER event_index_update BEFORE UPDATE ON event_index
        BEGIN SELECT RAISE(ABORT, 'event_index is immutable'); END;
    CREATE TRIGGER event_index_delete BEFORE DELETE ON event_index
        BEGIN SELECT RAISE(ABORT, 'event_index is immutable'); END;
"""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What a handle knows about its file after it was brought up to date."""

    log_id: str
    epoch: int
    types: dict[str, int]  # every declared type → its id in event_index
    tables: dict[str, Table]  # by name of the collection
    key_ages: str | None  # as they were when the file was opened


def lay_out(connection: apsw.Connection, schema: store.Schema) -> FileLayout:
    """Extend the file to what the schema declares. Call it inside a transaction.

    Raises:
        InvalidDefinition: a collection has the name of a table of the engine.
        StoreRefused: the file has another format, or rows contradict the declaration.
    """
    taken = sorted(ENGINE_TABLES & schema.collections.keys())
    if taken:
        raise InvalidDefinition(f"the names {taken} are tables of the log, not of collections")
    meta = _create(connection)
    _allow_kinds(connection, schema.kinds)
    types = _register_types(connection, schema.vocabulary)
    tables = {name: Table(found) for name, found in schema.collections.items()}
    for table in tables.values():
        table.lay_out(connection)
        _show_stamps(connection, table)
    epoch = connection.execute("SELECT epoch FROM log_head").get
    return FileLayout(meta["log_id"], epoch, types, tables, meta.get(KEY_AGES))


def _create(connection: apsw.Connection) -> dict[str, str]:
    """Create the log's own tables in a new file; return the content of log_meta."""
    if not connection.table_exists(None, "log_meta"):
        for statement in _TABLES.values():
            connection.execute(statement)
        connection.execute(_LOG_TRIGGERS)
        connection.execute(_INDEX_TRIGGERS)
        connection.execute("INSERT INTO log_head VALUES (1, 0, 0, 0)")
        connection.execute(
            "INSERT INTO log_meta VALUES ('format', ?), ('log_id', ?)",
            (str(store.LOG_FORMAT), token_hex(16)),
        )
    meta: dict[str, str] = dict(connection.execute("SELECT name, value FROM log_meta"))
    store.check_format(int(meta["format"]))
    return meta


def _allow_kinds(connection: apsw.Connection, kinds: frozenset[str]) -> None:
    """Make the database itself refuse facts of undeclared kinds.

    Raises:
        StoreRefused: the log holds facts of an undeclared kind.
    """
    try:
        allow_values(connection, "event_log", "kind", kinds, is_optional=False)
    except apsw.ConstraintError as error:
        raise StoreRefused(f"the log holds facts of a kind that is not declared: {error}") from None


def _show_stamps(connection: apsw.Connection, table: Table) -> None:
    """Add the columns for the collection's ``stamps``."""
    found = connection.execute(f"PRAGMA table_xinfo({table.name})").fetchall()
    present = {row[1] for row in found}
    for name, stamp in table.collection.stamps.items():
        if name not in present:
            connection.execute(
                f"ALTER TABLE {table.name} ADD COLUMN {quoted(name)} INTEGER NOT NULL"
                f" GENERATED ALWAYS AS ({stamp}) VIRTUAL"
            )


# ── fact types and their indexes ──────────────────────────────────────────────────────────────────


def _register_types(connection: apsw.Connection, vocabulary: Vocabulary) -> dict[str, int]:
    """Give every declared type an id, and index again the types whose index rule changed."""
    known = {
        name: (id, indexing)
        for id, name, indexing in connection.execute("SELECT id, name, indexing FROM event_types")
    }
    for name in vocabulary.types:
        indexing = msgspec.json.encode(vocabulary.index_rule(name)).decode()
        if name not in known:
            connection.execute(
                "INSERT INTO event_types (name, indexing) VALUES (?, ?)", (name, indexing)
            )
        elif known[name][1] != indexing:
            connection.execute(
                "UPDATE event_types SET indexing = ? WHERE name = ?", (indexing, name)
            )
            _reindex(connection, vocabulary.index_rule(name), name, known[name][0])
    ids = dict(connection.execute("SELECT name, id FROM event_types"))
    return {name: ids[name] for name in vocabulary.types}


def _reindex(
    connection: apsw.Connection, index_rule: index_rules.IndexRule, name: str, id: int
) -> None:
    """Index the events of one type again.

    The new epoch stops other handles from writing, because they still use the old rule.
    """
    connection.execute("DROP TRIGGER event_index_update; DROP TRIGGER event_index_delete")
    connection.execute("DELETE FROM event_index WHERE type = ?", (id,))
    connection.execute(_INDEX_TRIGGERS)
    connection.execute("UPDATE log_head SET epoch = epoch + 1")
    after = 0
    while True:
        found = connection.execute(
            "SELECT seq, tags FROM event_log WHERE type = ? AND seq > ? ORDER BY seq LIMIT ?",
            (name, after, REINDEX_BATCH),
        ).fetchall()
        rows = cast("list[tuple[int, str]]", found)
        if not rows:
            return
        after = rows[-1][0]
        entries = [
            (index_name, seq)
            for seq, tags in rows
            for index_name in index_rule.names(msgspec.json.decode(tags))
        ]
        names = {index_name for index_name, _ in entries}
        ids = known_ids(connection.cursor(), names)
        ids |= new_ids(connection.cursor(), sorted(names - ids.keys()))
        connection.executemany(
            "INSERT INTO event_index (name, type, seq) VALUES (?, ?, ?)",
            ((ids[index_name], id, seq) for index_name, seq in entries),
        )


def known_ids(cursor: apsw.Cursor, names: Iterable[str]) -> dict[str, int]:
    """The ids of those index names that have one."""
    return dict(
        cursor.executemany(
            "SELECT name, id FROM event_names WHERE name = ?", [(name,) for name in names]
        )
    )


def new_ids(cursor: apsw.Cursor, names: Sequence[str]) -> dict[str, int]:
    """Create ids for index names. Other handles may use them only after the commit."""
    last: int = next(
        cursor.execute("UPDATE log_head SET names = names + ? RETURNING names", (len(names),))
    )[0]
    ids = dict(zip(names, range(last - len(names) + 1, last + 1), strict=True))
    cursor.executemany("INSERT INTO event_names (name, id) VALUES (?, ?)", list(ids.items()))
    return ids
