"""The tables of a log: created, extended and reindexed when a store opens, under the log's lock.

    event_log     the facts; no row ever changes       event_index   what a fact is found by
    log_head      one row per batch, the newest is     log_once      idempotency keys
                  the head                             log_meta      format, id, declarations
    one table per collection: id, version, born, data, and a generated column per declared one

Changes go forward only: what an older version declared stays until a newer one declares the same
name differently. So both can run at the same time during an upgrade.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from psycopg.sql import SQL, Composed, Identifier, Literal

from tidegate import decoders
from tidegate.engines.key_ages import KEY_AGES
from tidegate.engines.postgres.indexing import Indexing, reindex
from tidegate.engines.postgres.sessions import Connection
from tidegate.errors import InvalidDefinition, StoreRefused
from tidegate.kernel import index_rules, store
from tidegate.kernel.collections import Collection, Writers

SERVER_VERSION_MIN = 14_00_00
IDENTIFIER_BYTES_MAX = 63
KINDS = "kinds"  # in log_meta: the kinds of fact that any version declared
OWN_TABLES = frozenset({"event_log", "event_index", "log_head", "log_once", "log_meta"})

# The newest row of log_head is the head. A single row that is updated would become slower with
# every commit while an old transaction in the cluster keeps its dead versions from being vacuumed.
# So rows are added here, and old ones are deleted now and then. ``mark`` is random: from it, a
# writer that lost its connection during COMMIT learns whether its batch was committed.
_TABLES = r"""
CREATE TABLE log_meta (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE log_head (
    seq bigint PRIMARY KEY,
    mark text NOT NULL
);
CREATE TABLE event_log (
    seq bigint PRIMARY KEY,
    at text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    schema integer NOT NULL,
    tags text COLLATE "C" NOT NULL,
    meta text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL
);
CREATE TABLE event_index (
    name text COLLATE "C",
    type text COLLATE "C",
    seq bigint,
    PRIMARY KEY (name, type, seq)
);
CREATE TABLE log_once (
    key text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    at text COLLATE "C" NOT NULL,
    answer bytea NOT NULL
);
CREATE INDEX log_once_first ON log_once (first);
INSERT INTO log_head VALUES (0, '');

-- A member of a row as text. NUL, which JSON can say and text cannot hold, shows as U+FFFD.
CREATE FUNCTION row_member(row_data json, member text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(row_data::text, '\u0000') = 0 THEN row_data->>member
    ELSE regexp_replace(row_data::text, '(?<!\\)((\\\\)*)\\u0000', '\1\\ufffd', 'g')::json->>member
    END
$$;

CREATE FUNCTION history_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: history is immutable', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
"""

_TRIGGERS = """
CREATE TRIGGER {name}_is_immutable BEFORE UPDATE OR DELETE ON {name}
    FOR EACH ROW EXECUTE FUNCTION history_is_immutable();
CREATE TRIGGER {name}_is_kept BEFORE TRUNCATE ON {name}
    FOR EACH STATEMENT EXECUTE FUNCTION history_is_immutable();
"""


class Setting(NamedTuple):
    """A server setting that decides whether an acknowledged commit can be lost."""

    name: str
    value: str
    verdict: str


class TableShape(msgspec.Struct, frozen=True):
    """A collection's table as last declared, each part as its SQL, to detect changes."""

    stamped: bool  # version and born reference the log
    columns: dict[str, str] = {}
    checks: dict[str, str] = {}
    indexes: dict[str, str] = {}


class SchemaLayout(NamedTuple):
    """What an open store knows about its log."""

    log_id: str
    indexing: Indexing
    durability: tuple[Setting, ...]
    key_ages: str | None  # as they were when the log was opened


def lock_key(namespace: str) -> int:
    """The key of the advisory lock of the log in this schema of the database."""
    return int.from_bytes(sha256(f"tidegate log {namespace}".encode()).digest()[:8], signed=True)


def open_log(connection: Connection, namespace: str, schema: store.Schema) -> SchemaLayout:
    """Create or extend the tables to what the schema declares, in one transaction.

    Raises:
        StoreRefused: the server is too old, not in UTF-8, or holds a log of another format.
        InvalidDefinition: a collection has the name of one of the log's own tables.
        psycopg.Error.
    """
    _check_server(connection)
    for name in OWN_TABLES & set(schema.collections):
        raise InvalidDefinition(f"a collection cannot be named {name}: it is a table of the log")
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(namespace),))
        # PostgreSQL resolved the search path to run that statement. If another process created the
        # schema at the same moment, the path may lack it. Setting it again resolves it again.
        connection.execute(
            "SELECT set_config('search_path', current_setting('search_path'), false)"
        )
        if not _exists(connection, namespace):
            _create(connection, namespace)
        found = _meta(connection)
        store.check_format(int(found["format"]))
        _allow_kinds(connection, schema.kinds, found.get(KINDS))
        for collection in schema.collections.values():
            _extend(connection, collection, found.get(f"collection {collection.name}"))
        indexing = _index(connection, schema, found)
    durability = _durability(connection)
    return SchemaLayout(found["log_id"], indexing, durability, found.get(KEY_AGES))


def load_indexing(connection: Connection) -> Indexing:
    """Read how the log's facts are indexed now."""
    return _indexing(_meta(connection))


def _check_server(connection: Connection) -> None:
    if connection.info.server_version < SERVER_VERSION_MIN:
        raise StoreRefused(
            f"PostgreSQL {SERVER_VERSION_MIN // 10_000} or newer is needed, "
            f"found {connection.info.parameter_status('server_version')}"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreRefused(f"the database must be in UTF8, it is in {encoding}")


def _exists(connection: Connection, namespace: str) -> bool:
    found = connection.execute("SELECT to_regclass(%s)", (f'"{namespace}".log_meta',)).fetchone()
    return found is not None and found[0] is not None


def _create(connection: Connection, namespace: str) -> None:
    connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(namespace)))
    connection.execute(_TABLES.encode())
    _protect(connection, "event_log")
    _protect(connection, "event_index")
    for name, value in (
        ("format", str(store.LOG_FORMAT)),
        ("log_id", uuid4().hex),
        ("generation", "0"),
    ):
        _remember(connection, name, value)


def _protect(connection: Connection, table: str) -> None:
    connection.execute(_TRIGGERS.format(name=table).encode())


def _meta(connection: Connection) -> dict[str, str]:
    found: list[tuple[str, str]] = connection.execute("SELECT name, value FROM log_meta").fetchall()
    return dict(found)


def _remember(connection: Connection, name: str, value: str) -> None:
    connection.execute(
        "INSERT INTO log_meta VALUES (%s, %s)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _allow_kinds(connection: Connection, kinds: frozenset[str], remembered: str | None) -> None:
    """Make the database itself refuse facts of undeclared kinds."""
    known = frozenset() if remembered is None else frozenset(_kinds.decode(remembered))
    if remembered is not None and kinds <= known:
        return
    allowed = sorted(kinds | known)
    listed = SQL(", ").join(map(Literal, allowed))
    connection.execute("ALTER TABLE event_log DROP CONSTRAINT IF EXISTS event_log_kind_allowed")
    connection.execute(
        SQL(
            "ALTER TABLE event_log ADD CONSTRAINT event_log_kind_allowed"
            " CHECK (kind = ANY (ARRAY[{}]::text[])) NOT VALID"
        ).format(listed)
    )
    _remember(connection, KINDS, msgspec.json.encode(allowed).decode())


_kinds = decoders.build(list[str])


# ── indexing ──────────────────────────────────────────────────────────────────────────────────────


def _index(connection: Connection, schema: store.Schema, found: dict[str, str]) -> Indexing:
    """Add the schema's fact types, and index again those whose rule changed."""
    known = _indexing(found)
    wanted = {name: schema.vocabulary.index_rule(name) for name in schema.vocabulary.types}
    if all(known.types.get(name) == how for name, how in wanted.items()):
        return known
    changed = {n: how for n, how in wanted.items() if known.types.get(n, how) != how}
    if changed:
        reindex(connection, changed)
        _protect(connection, "event_index")
    indexing = Indexing(known.generation + 1, {**known.types, **wanted})
    _remember(connection, "indexing", msgspec.json.encode(indexing.types).decode())
    _remember(connection, "generation", str(indexing.generation))
    return indexing


_types = decoders.build(dict[str, index_rules.IndexRule])


def _indexing(found: dict[str, str]) -> Indexing:
    types = _types.decode(found.get("indexing", "{}"))
    return Indexing(int(found["generation"]), types)


# ── collections ───────────────────────────────────────────────────────────────────────────────────


_table_shape = decoders.build(TableShape)


def _extend(connection: Connection, collection: Collection, remembered: str | None) -> None:
    table = Identifier(collection.name)
    wanted = _shape(collection)
    if remembered is None:
        connection.execute(
            SQL(
                'CREATE TABLE {} (id text COLLATE "C" PRIMARY KEY, version bigint NOT NULL,'
                " born bigint NOT NULL, data json NOT NULL)"
            ).format(table)
        )
        shape = TableShape(stamped=False)
    else:
        shape = _table_shape.decode(remembered)
    changes = [
        *_stamp_changes(collection.name, shape.stamped, wanted.stamped),
        *_column_changes(shape, wanted),
        *_check_changes(collection.name, shape, wanted),
    ]
    if changes:
        connection.execute(SQL("ALTER TABLE {} {}").format(table, SQL(", ").join(changes)))
    _change_indexes(connection, collection.name, shape, wanted)
    merged = TableShape(
        wanted.stamped,
        {**shape.columns, **wanted.columns},
        {**shape.checks, **wanted.checks},
        {**shape.indexes, **wanted.indexes},
    )
    if remembered is None or merged != shape:
        content = msgspec.json.encode(merged).decode()
        _remember(connection, f"collection {collection.name}", content)


def _shape(collection: Collection) -> TableShape:
    columns = {}
    for name, kind in collection.column_types.items():
        member = f"row_member(data, {Literal(name).as_string()})"
        if kind is int:
            member = (
                f"CASE {member} WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE {member}::bigint END"
            )
        type = "bigint" if kind is int else 'text COLLATE "C"'
        type += " NOT NULL" if name in collection.required else ""
        columns[name] = f"{type} GENERATED ALWAYS AS ({member}) STORED"
    for name, stamp in collection.stamps.items():
        columns[name] = f"bigint NOT NULL GENERATED ALWAYS AS ({stamp}) STORED"
    checks = {}
    for name, values in collection.allowed.items():
        allowed = ", ".join(Literal(value).as_string() for value in sorted(values))
        checks[name] = f"CHECK ({_quoted(name)} IN ({allowed}))"
    indexes = {
        index.name: ", ".join((*map(_quoted, index.columns), "id")) for index in collection.indexes
    }
    return TableShape(collection.writers is Writers.FOLDED, columns, checks, indexes)


def _stamp_changes(table: str, before: bool, after: bool) -> list[Composed]:
    """A folded row has the position of its fact; a foreign key enforces that (RO-7)."""
    if before == after:
        return []
    changes = []
    for column in ("version", "born"):
        name = Identifier(_identifier(table, column, "fact"))
        if after:
            changes.append(
                SQL("ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES event_log (seq)").format(
                    name, Identifier(column)
                )
            )
        else:
            changes.append(SQL("DROP CONSTRAINT {}").format(name))
    return changes


def _column_changes(before: TableShape, after: TableShape) -> list[Composed]:
    changes = []
    for name, definition in after.columns.items():
        if before.columns.get(name) == definition:
            continue
        if name in before.columns:
            changes.append(SQL("DROP COLUMN {} CASCADE").format(Identifier(name)))
        changes.append(SQL("ADD COLUMN {} {}").format(Identifier(name), _sql(definition)))
    return changes


def _check_changes(table: str, before: TableShape, after: TableShape) -> list[Composed]:
    """Existing rows keep their values: a narrower CHECK applies to new writes only."""
    changes = []
    for name, definition in after.checks.items():
        redefined = before.columns.get(name) != after.columns[name]
        if before.checks.get(name) == definition and not redefined:
            continue
        constraint = Identifier(_identifier(table, name, "allowed"))
        if name in before.checks:
            changes.append(SQL("DROP CONSTRAINT IF EXISTS {}").format(constraint))
        changes.append(SQL("ADD CONSTRAINT {} {} NOT VALID").format(constraint, _sql(definition)))
    return changes


def _change_indexes(
    connection: Connection, table: str, before: TableShape, after: TableShape
) -> None:
    for name, columns in after.indexes.items():
        index = Identifier(_identifier(table, name))
        if before.indexes.get(name) not in (None, columns):
            connection.execute(SQL("DROP INDEX IF EXISTS {}").format(index))
        # The index is also missing if its column was dropped and added again.
        connection.execute(
            SQL("CREATE INDEX IF NOT EXISTS {} ON {} ({})").format(
                index, Identifier(table), _sql(columns)
            )
        )


def _identifier(*parts: str) -> str:
    """An identifier made of these parts; a hash keeps it distinct where it has to be cut."""
    name = "_".join(parts)
    if len(name.encode()) <= IDENTIFIER_BYTES_MAX:
        return name
    return f"{name.encode()[:46].decode(errors='ignore')}_{sha256(name.encode()).hexdigest()[:16]}"


def _quoted(name: str) -> str:
    return Identifier(name).as_string()


def _sql(text: Any) -> SQL:
    return SQL(text)


# ── durability ────────────────────────────────────────────────────────────────────────────────────

_WEAK = {
    ("fsync", "off"): "weak: a crash of the machine can lose or damage the log",
    ("full_page_writes", "off"): "weak: a crash of the machine can damage the log",
    ("synchronous_commit", "off"): "weak: a crash can lose commits that were acknowledged",
    ("synchronous_standby_names", ""): "a failover can lose commits that were acknowledged",
    ("synchronous_commit", "local"): "a failover can lose commits that were acknowledged",
}


def _durability(connection: Connection) -> tuple[Setting, ...]:
    names = ("fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names")
    found = connection.execute(
        "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", (list(names),)
    ).fetchall()
    return tuple(Setting(name, value, _WEAK.get((name, value), "durable")) for name, value in found)
