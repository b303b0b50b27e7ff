"""A collection as a table: rows as JSON text, declared members as generated columns.

    CREATE TABLE rollouts (id, version, born, data, phase … AS (json_extract(data, '$.phase')))

Columns are generated, and indexes are partial: a row without a value in a column is not in the
index. So no program, ours or another, can make them disagree with the row.
"""

from __future__ import annotations

import apsw
import msgspec

from tidegate.errors import InvalidDefinition, StoreRefused
from tidegate.kernel import collections as kernel_collections, model

Bindings = list[str | int]


class Table:
    """The statements, the table and the ranges of one collection."""

    def __init__(self, collection: kernel_collections.Collection) -> None:
        self.collection = collection
        self.name = quoted(collection.name)
        self.get = f"SELECT version, born, data FROM {self.name} WHERE id = ?"
        self.stamps = f"SELECT id, version, born FROM {self.name} WHERE id = ?"
        # An existing row is changed by an UPDATE, because an upsert costs a third more. If ``born``
        # stays the same, it is not set, so that SQLite does not check its foreign key again.
        self.insert = f"INSERT INTO {self.name} (id, version, born, data) VALUES (?, ?, ?, ?)"
        self.change = f"UPDATE {self.name} SET version = ?, data = ? WHERE id = ?"
        self.renew = f"UPDATE {self.name} SET version = ?, born = ?, data = ? WHERE id = ?"
        self.delete = f"DELETE FROM {self.name} WHERE id = ?"
        self.clear = f"DELETE FROM {self.name}"

    def record(self, id: str, version: int, born: int, data: str) -> model.Record:
        return model.Record(model.Key(self.collection.name, id), version, born, data.encode())

    # ── creating and extending the table ──

    def lay_out(self, connection: apsw.Connection) -> None:
        """Create or extend the table. Raises: InvalidDefinition, StoreRefused."""
        name = self.collection.name
        folded = self.collection.writers is kernel_collections.Writers.FOLDED
        stamp = "INTEGER NOT NULL" + (" REFERENCES event_log (seq)" if folded else "")
        columns = self.collection.column_types
        if len({column.lower() for column in columns} - kernel_collections.RESERVED) < len(columns):
            raise InvalidDefinition(
                f"columns of {self.name} are the same to SQL but for their case"
            )
        # A new table is created with all columns: after each ALTER TABLE, SQLite parses all tables.
        declared = "".join(f", {self._declare(column)}" for column in columns)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name} (id TEXT NOT NULL PRIMARY KEY,"
            f" version {stamp}, born {stamp}, data TEXT NOT NULL{declared})"
        )
        references = connection.execute(f"PRAGMA foreign_key_list({self.name})").fetchall()
        if bool(references) != folded:
            raise StoreRefused(f"{name} was not written as a {self.collection.writers} collection")
        try:
            self._lay_out_columns(connection)
            self._lay_out_indexes(connection)
        except (apsw.ConstraintError, apsw.SQLError) as error:
            raise StoreRefused(f"{name} holds rows that contradict it: {error}") from error

    def _lay_out_columns(self, connection: apsw.Connection) -> None:
        present = {
            row[1]: row[2]
            for row in connection.execute(f"PRAGMA table_xinfo({self.name})").fetchall()
        }
        for column in self.collection.column_types:
            if column not in present:
                connection.execute(f"ALTER TABLE {self.name} ADD COLUMN {self._declare(column)}")
            elif present[column] != self._type(column):
                raise StoreRefused(f"{self.name}.{column} is {present[column]} in the file")
        for column, values in self.collection.allowed.items():
            allow_values(connection, self.collection.name, column, values, is_optional=True)

    def _declare(self, column: str) -> str:
        """The SQL that declares the column."""
        null = " NOT NULL" if column in self.collection.required else ""
        return (
            f"{quoted(column)} {self._type(column)}{null}"
            f" GENERATED ALWAYS AS ({self._extract(column)}) VIRTUAL"
        )

    def _type(self, column: str) -> str:
        return "INTEGER" if self.collection.column_types[column] is int else "TEXT"

    def _extract(self, column: str) -> str:
        """The SQL for the member's value. An index has only text (``Collection.entries``)."""
        value = f"json_extract(data, '$.{column}')"
        if any(column in index.columns for index in self.collection.indexes):
            return f"CASE json_type(data, '$.{column}') WHEN 'text' THEN {value} END"
        return value

    def _lay_out_indexes(self, connection: apsw.Connection) -> None:
        present = dict(
            connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?",
                (self.collection.name,),
            )
        )
        for index in self.collection.indexes:
            columns = ", ".join(map(quoted, (*index.columns, "id")))
            statement = (
                f"CREATE INDEX {quoted(self._index_name(index))} ON {self.name} ({columns})"
                f"{self._where_complete(index)}"
            )
            found = present.get(self._index_name(index))
            if found is not None and found != statement:
                connection.execute(f"DROP INDEX {quoted(self._index_name(index))}")
                found = None
            if found is None:
                connection.execute(statement)

    def _index_name(self, index: kernel_collections.Index) -> str:
        # Indexes of all tables share one namespace; no name of a collection holds a dot.
        return f"{self.collection.name}.{index.name}"

    def _complete(self, index: kernel_collections.Index) -> list[str]:
        """The conditions that keep rows without a value in some column out of the index.

        A NOT NULL column has no condition: SQLite drops IS NOT NULL of such a column from a query,
        and then does not use an index that has it as a condition.
        """
        optional = (column for column in index.columns if column not in self.collection.required)
        return [f"{quoted(column)} IS NOT NULL" for column in optional]

    def _where_complete(self, index: kernel_collections.Index) -> str:
        terms = self._complete(index)
        return f" WHERE {' AND '.join(terms)}" if terms else ""

    # ── ranges ──

    def range(
        self, index_name: str | None, prefix: str, after: str, limit: int, *, descending: bool
    ) -> tuple[str, Bindings] | None:
        """The statement of a range; None if no row can be in it. Raises: InvalidInput."""
        source, columns, terms = self.name, ["id"], []
        if index_name is not None:
            index = self.collection.index(index_name)
            source = f"{self.name} INDEXED BY {quoted(self._index_name(index))}"
            columns, terms = [*index.columns, "id"], self._complete(index)
        bounds = _bounds(
            columns,
            prefix.split(kernel_collections.SEPARATOR),
            after.split(kernel_collections.SEPARATOR) if after else [],
            descending=descending,
        )
        if bounds is None:
            return None
        where = " AND ".join([*terms, *(term for term, _ in bounds)]) or "TRUE"
        bindings: Bindings = [value for _, values in bounds for value in values]
        way = " DESC" if descending else ""
        order = ", ".join(quoted(column) + way for column in columns)
        return (
            f"SELECT id, version, born, data FROM {source} WHERE {where} ORDER BY {order} LIMIT ?",
            [*bindings, limit],
        )


def _bounds(
    columns: list[str], prefix: list[str], after: list[str], *, descending: bool
) -> list[tuple[str, list[str]]] | None:
    """A range of rows as comparisons: some equal leading columns, a lower and an upper bound.

    With these, SQLite seeks to the start of the range and stops at its end. All parts of the prefix
    are whole values except the last, which is the beginning of a value. Rows come after ``after``
    (before it, in descending order), compared part by part. If one list of parts is the beginning
    of another, the longer one comes later.
    """
    whole, begin = prefix[:-1], prefix[-1]
    if len(prefix) > len(columns):
        return None
    equal = [
        (f"{quoted(column)} = ?", [value]) for column, value in zip(columns, whole, strict=False)
    ]
    rest = columns[len(whole) :]
    low = (f"{quoted(rest[0])} >= ?", [begin]) if begin else None
    end = kernel_collections.least_above(begin)
    high = None if end is None else (f"{quoted(rest[0])} < ?", [end])
    if after:
        head, tail = after[: len(whole)], after[len(whole) :]
        seen = tail[: len(rest)]
        if descending:
            if head < whole or (not tail and head == whole):
                return None  # the whole range comes after ``after``
            if head == whole and (end is None or tail[0] < end):
                high = _compared(rest, "<=" if len(tail) > len(rest) else "<", seen)
        else:
            if head > whole:
                return None
            if head == whole and tail and tail[0] >= begin:
                low = _compared(rest, ">" if len(tail) >= len(rest) else ">=", seen)
    return [*equal, *(bound for bound in (low, high) if bound is not None)]


def _compared(columns: list[str], sign: str, values: list[str]) -> tuple[str, list[str]]:
    row = ", ".join(map(quoted, columns[: len(values)]))
    return f"({row}) {sign} ({', '.join('?' * len(values))})", values


def allow_values(
    connection: apsw.Connection,
    table: str,
    column: str,
    values: frozenset[str],
    *,
    is_optional: bool,
) -> None:
    """Limit a column to some values by a CHECK. Values allowed by other versions stay allowed."""
    note = f"allowed {table}.{column}"
    noted = connection.execute("SELECT value FROM log_meta WHERE name = ?", (note,)).get
    before = frozenset(msgspec.json.decode(noted)) if noted else frozenset()
    allowed = sorted(values | before)
    # No IN: for a list SQLite builds a temporary table whenever a row is written.
    terms = [f"{quoted(column)} = {_literal(value)}" for value in allowed]
    check = " OR ".join(
        [f"{quoted(column)} IS NULL", *terms] if is_optional else terms or ["FALSE"]
    )
    if values <= before and check in _declaration(connection, table):
        return
    constraint = quoted(f"allowed_{column}")
    if noted:
        connection.execute(f"ALTER TABLE {quoted(table)} DROP CONSTRAINT {constraint}")
    connection.execute(f"ALTER TABLE {quoted(table)} ADD CONSTRAINT {constraint} CHECK ({check})")
    connection.execute(
        "INSERT INTO log_meta VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (note, msgspec.json.encode(allowed).decode()),
    )


def _declaration(connection: apsw.Connection, table: str) -> str:
    """The SQL of the table, as SQLite stores it."""
    found = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
    ).get
    return str(found)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'
