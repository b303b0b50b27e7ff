"""What the SQLite engine promises in addition to the contract: its file, its plans, its failures.

The general contract runs on it as on the other engines; these tests are for SQLite alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from errno import ENOLCK
from fcntl import LOCK_EX, LOCK_UN, flock
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from random import Random
from threading import Thread
from typing import IO, Annotated

import apsw
import pytest
from msgspec import Struct, defstruct

from tests.contract.dynamodb_faults import Time
from tests.contract.failing_files import FailingFiles
from tests.contract.world import (
    ITEMS,
    SCHEMA,
    T0,
    VOCABULARY,
    Announced,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    Rebooted,
    append,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    stored,
    values,
    whole_feed,
)
from tests.quick import fewer
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.key_ages import MARK_SECONDS, TICK_SECONDS
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore, batch, connection, own_writes
from tidegate.engines.sqlite.records import Table
from tidegate.errors import (
    BoundaryMoved,
    InvalidDefinition,
    InvalidInput,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
    WriterClosed,
)
from tidegate.kernel.collections import Collection, Index, Writers, entry
from tidegate.kernel.model import (
    ONCE_KEPT,
    Boundary,
    Clause,
    Commit,
    CommitKey,
    Event,
    Key,
    Match,
    Query,
    Receipt,
    Record,
)
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Cross, Partition, Tag
from tidegate.kernel.vocabulary import FactType, Vocabulary, facts

Open = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log.db")


@pytest.fixture
def open_store(path: str) -> Iterator[Open]:
    """Open handles on this test's file, and close them at the end."""
    with ExitStack() as handles:
        yield lambda schema=SCHEMA: handles.enter_context(closing(SqliteStore(path, schema)))


@pytest.fixture
def store(open_store: Open) -> SqliteStore:
    return open_store()


@pytest.fixture
def raw(path: str, store: SqliteStore) -> Iterator[apsw.Connection]:
    """A connection as another program would open it, without our settings."""
    with closing(apsw.Connection(path)) as found:
        yield found


def answers(store: SqliteStore, *commits: Commit) -> list[type]:
    return [type(answer) for answer in store.commit(*commits)]


# ── space in the WAL ──────────────────────────────────────────────────────────────────────────────


def wal_size(path: str) -> int:
    return os.stat(f"{path}-wal").st_size


def test_preallocates_the_wal_so_that_few_flushes_grow_it(path: str, open_store: Open) -> None:
    # Neither overwrites the other's commits with its padding.
    handles = [open_store(), open_store()]
    for handle in handles:
        append(handle, ProductAdded("p-1"))
    sizes = []
    for number in range(24):
        append(handles[number % 2], PriceChanged("p-1", number))
        sizes.append(wal_size(path))

    assert len(set(sizes)) <= 6, "it grows in steps, not with every commit"
    assert sizes[-1] >= connection.WAL_ROOM_MIN


def test_preallocates_up_to_the_size_at_which_the_wal_restarts(
    path: str, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wal_size(path)
    monkeypatch.setattr(connection, "WAL_BYTES_MAX", before)

    for number in range(3):
        append(store, ProductAdded(f"p-{number}"))

    assert before < wal_size(path) < before + connection.WAL_ROOM_MIN


def test_preallocates_nothing_when_one_flush_would_use_most_of_it(
    path: str, store: SqliteStore
) -> None:
    sizes = [wal_size(path)]
    for name in ("a", "b", "c", "d"):
        land(store, big(name))
        sizes.append(wal_size(path))

    growths = [size - before for before, size in pairwise(sizes)]
    assert max(growths) < 2 * min(growths), "each commit grew it by what it wrote"


def test_loses_and_invents_nothing_in_the_preallocated_space_when_all_processes_die(
    path: str, store: SqliteStore, tmp_path: Path
) -> None:
    for number in range(5):
        append(store, ProductAdded(f"p-{number}"))
    other = tmp_path / "other"
    other.mkdir()
    for name in ("log.db", "log.db-wal"):  # as after a crash: the WAL's index is lost
        shutil.copy(tmp_path / name, other / name)

    with closing(SqliteStore(str(other / "log.db"), SCHEMA)) as survivor:
        assert whole_feed(survivor) == whole_feed(store)
        append(survivor, ProductAdded("p-5"))

        assert positions(whole_feed(survivor)) == list(range(1, 7))


def test_a_missing_wal_needs_no_preallocation(tmp_path: Path) -> None:
    room = connection.WalRoom(str(tmp_path / "absent.db"))

    room.make()

    assert list(tmp_path.iterdir()) == []


# ── how the file is opened ────────────────────────────────────────────────────────────────────────


def test_refuses_an_sqlite_that_can_lose_commits(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "VERSION_MIN", (99, 0, 0))

    with pytest.raises(StoreRefused, match=r"99\.0\.0"):
        SqliteStore(path, SCHEMA)


def test_requires_a_version_without_the_lost_wal_reset() -> None:
    assert connection.VERSION_MIN >= (3, 51, 3)


@pytest.mark.parametrize(
    ("where", "refused"),
    [("/data/log.db", True), ("/data/local/log.db", False), ("/database/log.db", False)],
)
def test_refuses_a_network_file_system(tmp_path: Path, where: str, refused: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/root rw\n"
        "30 22 0:40 / /data rw shared:1 - nfs4 server:/export rw\n"
        "31 30 8:2 / /data/local rw - xfs /dev/sdb rw\n"
    )

    if refused:
        with pytest.raises(StoreRefused, match="nfs4"):
            connection.check_platform(where, mounts)
    else:
        connection.check_platform(where, mounts)


def test_refuses_a_database_without_a_file() -> None:
    with pytest.raises(StoreRefused):
        SqliteStore("/proc/nowhere/log.db", SCHEMA)


def test_every_connection_has_the_settings_that_durability_requires(
    path: str, store: SqliteStore
) -> None:
    with (
        closing(connection.open_writer(path)) as writer,
        closing(connection.open_reader(path)) as reader,
    ):
        for found in (writer, reader):
            assert found.pragma("journal_mode") == "wal"
            assert found.pragma("synchronous") == 2
            assert found.pragma("foreign_keys") == 1
            assert found.pragma("recursive_triggers") == 1
        assert writer.pragma("wal_autocheckpoint") == connection.CHECKPOINT_PAGES
        assert reader.pragma("wal_autocheckpoint") == 0
        with pytest.raises(apsw.ReadOnlyError):
            reader.execute("UPDATE log_head SET head = 0")


def test_refuses_a_setting_that_was_not_applied(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection._DEMANDED, "synchronous", 3)

    with pytest.raises(StoreRefused, match="synchronous"):
        SqliteStore(path, SCHEMA)


def test_keeps_its_id_and_its_head_when_it_is_opened_again(open_store: Open) -> None:
    first = open_store()
    append(first, ProductAdded("p-1"))
    land(first, commit_of(writes=[put(item("a"), row())]))  # takes a number, writes no event
    first.close()

    second = open_store()

    assert second.log_id == first.log_id
    assert append(second, ProductAdded("p-2")).first == 3


def test_refuses_a_file_of_a_newer_format(path: str, raw: apsw.Connection) -> None:
    raw.execute("UPDATE log_meta SET value = '3' WHERE name = 'format'")

    with pytest.raises(StoreRefused, match="format 3"):
        SqliteStore(path, SCHEMA)


def test_refuses_a_collection_that_is_named_like_a_table_of_the_log(path: str) -> None:
    class Row(Struct, frozen=True):
        text: str

    with pytest.raises(InvalidDefinition, match="event_log"):
        SqliteStore(path, Schema(VOCABULARY, (Collection("event_log", Row),)))


def test_refuses_to_work_in_a_forked_child(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)

    (answer,) = store.commit(commit_of(ProductAdded("p-1")))
    assert isinstance(answer, StoreRefused)
    with pytest.raises(StoreRefused):
        store.get(item("a"))


def test_a_closed_store_refuses_calls(open_store: Open) -> None:
    store = open_store()
    store.close()

    assert answers(store, commit_of(ProductAdded("p-1"))) == [StoreUnavailable]
    with pytest.raises(StoreUnavailable):
        store.feed(after=0, limit=1)


# ── history and rows below Python ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event_log SET body = '{}'",
        "DELETE FROM event_log",
        "DELETE FROM event_log WHERE seq = 1",
        "REPLACE INTO event_log SELECT * FROM event_log WHERE seq = 1",
        "INSERT OR REPLACE INTO event_log SELECT * FROM event_log WHERE seq = 1",
        "INSERT INTO event_log SELECT * FROM event_log WHERE 1 ON CONFLICT DO UPDATE SET at = ''",
        # a number taken by a commit without facts
        "INSERT INTO event_log SELECT 2, at, kind, type, schema, tags, meta, body FROM event_log",
        "UPDATE event_index SET seq = 7",
        "DELETE FROM event_index",
    ],
)
@pytest.mark.parametrize("recursive_triggers", [False, True])
def test_history_cannot_be_changed_by_raw_sql(
    store: SqliteStore, raw: apsw.Connection, statement: str, recursive_triggers: bool
) -> None:
    append(store, ProductAdded("p-1"))
    land(store, commit_of(writes=[put(item("a"), row())]))
    before = store.feed(after=0, limit=9)
    raw.execute(f"PRAGMA recursive_triggers = {recursive_triggers}")

    with pytest.raises(apsw.ConstraintError, match="immutable"):
        raw.execute(statement)

    assert store.feed(after=0, limit=9) == before
    assert store.read(query_of(ProductAdded, tags="product_id:p-1")).events == before.events


def test_a_fact_of_an_undeclared_kind_cannot_be_added_by_raw_sql(
    store: SqliteStore, raw: apsw.Connection
) -> None:
    append(store, ProductAdded("p-1"))
    insert = "INSERT INTO event_log SELECT 9, at, {}, type, schema, tags, meta, body FROM event_log"

    with pytest.raises(apsw.ConstraintError, match="CHECK"):
        raw.execute(insert.format("'gossip'"))
    raw.execute(insert.format("kind"))  # a declared one

    assert [event.kind for event in store.feed(after=0, limit=9).events] == ["shop", "shop"]


class Delivered(Struct, frozen=True):
    stock: Annotated[str, Partition()]


def test_allows_the_kinds_of_two_programs(open_store: Open) -> None:
    append(open_store(), ProductAdded("p-1"))
    other = Schema(Vocabulary(facts("warehouse", Delivered)))

    append(open_store(other), other.vocabulary.fact(Delivered("s1")))
    append(open_store(), ProductAdded("p-2"))

    found = [event.kind for event in open_store().feed(after=0, limit=9).events]
    assert found == ["shop", "warehouse", "shop"]


def test_an_index_entry_cannot_be_replaced(store: SqliteStore, raw: apsw.Connection) -> None:
    append(store, ProductAdded("p-1"))
    raw.execute("PRAGMA recursive_triggers = ON")

    with pytest.raises(apsw.ConstraintError, match="immutable"):
        raw.execute("REPLACE INTO event_index SELECT * FROM event_index")


def test_the_log_is_readable_in_plain_sql(store: SqliteStore, raw: apsw.Connection) -> None:
    append(store, OrderPlaced("o-1", "c-1", ("p-1",)), Announced())

    rows = raw.execute("SELECT seq, kind, type, tags FROM event_log").fetchall()

    assert rows == [
        (1, "shop", "OrderPlaced", '["customer_id:c-1","order_id:o-1","product_id:p-1"]'),
        (2, "note", "Announced", "[]"),
    ]


def test_declared_members_are_columns(store: SqliteStore, raw: apsw.Connection) -> None:
    land(store, commit_of(writes=[put(item("a"), row(name="A", state="open", count=3))]))
    land(store, commit_of(writes=[put(item("b"), row(name="B"))]))

    rows = raw.execute('SELECT id, version, born, name, state, "count" FROM items').fetchall()

    assert rows == [("a", 1, 1, "A", "open", 3), ("b", 2, 2, "B", None, None)]


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ("('t', 1, 1, '{\"state\":\"lost\"}')", "allowed_state"),
        ("('t', 1, 99, '{\"state\":\"open\"}')", "FOREIGN KEY"),
        ("('t', 99, 1, '{\"state\":\"open\"}')", "FOREIGN KEY"),
        ("('t', NULL, 1, '{\"state\":\"open\"}')", "NOT NULL"),
        ("('t', 1, NULL, '{\"state\":\"open\"}')", "NOT NULL"),
    ],
)
def test_the_database_refuses_rows_that_no_fold_could_write(
    store: SqliteStore, raw: apsw.Connection, values: str, constraint: str
) -> None:
    append(store, ProductAdded("p-1"))
    raw.execute("PRAGMA foreign_keys = ON")

    with pytest.raises(apsw.ConstraintError, match=constraint):
        raw.execute(f"INSERT INTO tallies (id, version, born, data) VALUES {values}")


def test_a_commit_that_a_table_refuses_does_not_affect_its_group(
    store: SqliteStore, raw: apsw.Connection
) -> None:
    raw.execute("ALTER TABLE notes ADD CONSTRAINT short CHECK (length(data) < 20)")
    good, bad = b'{"text":"short"}', b'{"text":"far too long a text"}'

    outcome = answers(
        store,
        commit_of(ProductAdded("p-1"), writes=[put(Key("notes", "a"), good)]),
        commit_of(ProductAdded("p-2"), writes=[put(Key("notes", "b"), bad)]),
        commit_of(ProductAdded("p-3"), writes=[put(Key("notes", "c"), good)]),
    )

    assert outcome == [Receipt, InvalidInput, Receipt]
    assert [store.get(Key("notes", id))[0] is None for id in "abc"] == [False, True, False]
    assert [event.tags for event in whole_feed(store)] == [("product_id:p-1",), ("product_id:p-3",)]


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────


def plan(raw: apsw.Connection, statement: str, bindings: object) -> str:
    found = raw.execute(f"EXPLAIN QUERY PLAN {statement}", bindings).fetchall()  # type: ignore[arg-type]
    return "; ".join(str(step[3]) for step in found)


def test_a_condition_is_one_seek(raw: apsw.Connection) -> None:
    key = "SEARCH event_index USING PRIMARY KEY (name=? AND type=?"

    assert plan(raw, batch.PROBE, (1, 1, 1)) == f"{key} AND seq>?)"
    assert plan(raw, batch.NEWEST, (1, 1)) == f"{key})"
    assert "SCAN event_index" not in plan(raw, batch.NEWEST_OF_ANY, (1,))


def test_a_statement_is_planned_once_for_any_parameters(store: SqliteStore) -> None:
    append(store, ProductAdded("p1"))
    store.read(query_of(ProductAdded, tags="product_id:p1"))

    with store._reader() as cursor:
        assert cursor.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
    assert store._writer is not None
    assert store._writer.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


# ── what a handle caches of its own commits ───────────────────────────────────────────────────────

PRODUCT = query_of(ProductAdded, PriceChanged, tags="product_id:p1")
ANYTHING = Query((Clause(None, frozenset(("product_id:p1",))),))


@pytest.mark.parametrize("names_max", [0, 3, 65_536])
def test_two_handles_refuse_as_memory_does_with_any_cache_size(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, names_max: int
) -> None:
    monkeypatch.setattr(own_writes, "NAMES_MAX", names_max)
    random = Random(7)
    handles, oracle = [open_store(), open_store()], MemoryStore(SCHEMA)
    seen: list[tuple[Query, int]] = []
    for _ in range(400):
        product = f"p{random.randrange(4)}"
        fact = random.choice([ProductAdded, PriceChanged])(product)
        if seen and random.random() < 0.8:
            query, position = random.choice(seen[-12:])
            commit = commit_of(fact, on=[Boundary(query, position)])
        else:
            commit = commit_of(fact)

        (found,) = random.choice(handles).commit(commit)
        (wanted,) = oracle.commit(commit)

        assert type(found) is type(wanted)
        if isinstance(wanted, TidegateError):
            assert isinstance(found, TidegateError)
            assert found.facts == wanted.facts
        types = random.choice([None, frozenset(("ProductAdded",)), frozenset(("PriceChanged",))])
        query = Query((Clause(types, frozenset((f"product_id:p{random.randrange(4)}",))),))
        page = random.choice(handles).read(query)
        assert page.has_boundary
        seen.append((query, page.boundary.seen))


@pytest.mark.parametrize("query", [PRODUCT, ANYTHING])
def test_a_commit_that_was_undone_conflicts_with_nothing(
    store: SqliteStore, raw: apsw.Connection, query: Query
) -> None:
    append(store, ProductAdded("p1"))
    boundary = store.read(query).boundary
    assert boundary is not None
    refused = commit_of(PriceChanged("p1"), writes=[put(item("a"), row(state="open"))])
    raw.execute(
        "CREATE TRIGGER no_items BEFORE INSERT ON items BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    assert answers(store, refused) == [InvalidInput]

    land(store, commit_of(PriceChanged("p1"), on=[boundary]))

    assert answers(store, commit_of(PriceChanged("p1"), on=[boundary])) == [BoundaryMoved]


@pytest.mark.parametrize(
    ("index", "prefix", "after", "expected"),
    [
        (None, "", "", "SCAN items USING INDEX sqlite_autoindex_items_1"),
        (None, "a", "", "(id>? AND id<?)"),
        (None, "a", "ab", "(id>? AND id<?)"),
        ("by_state", "open", "", "items.by_state (state>? AND state<?)"),
        ("by_state", entry("open", ""), "", "items.by_state (state=?)"),
        ("by_state", entry("open", ""), entry("open", "a"), "items.by_state (state=? AND id>?)"),
        ("by_owner", entry("eve", "op"), "", "items.by_owner (owner=? AND state>? AND state<?)"),
        (
            "by_owner",
            entry("eve", "op"),
            entry("eve", "open", "a"),
            "items.by_owner (owner=? AND (state,id)>(?,?) AND state<?)",
        ),
        ("by_owner", "", entry("eve", "open", "a"), "items.by_owner ((owner,state,id)>(?,?,?))"),
    ],
)
def test_a_range_seeks_to_its_start_and_is_in_order_already(
    raw: apsw.Connection, index: str | None, prefix: str, after: str, expected: str
) -> None:
    statement = Table(ITEMS).range(index, prefix, after, 10, descending=False)

    assert statement is not None
    found = plan(raw, *statement)
    assert expected in found
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize(
    ("index", "prefix", "after", "expected"),
    [
        (None, "a", "", "(id>? AND id<?)"),
        (None, "a", "ab", "(id>? AND id<?)"),
        (
            "by_owner",
            entry("eve", "open"),
            entry("eve", "open", "a"),
            "items.by_owner (owner=? AND state>? AND (state,id)<(?,?))",
        ),
        (
            "by_owner",
            "",
            entry("eve", "open", "a"),
            "items.by_owner (owner>? AND (owner,state,id)<(?,?,?))",
        ),
    ],
)
def test_a_range_downwards_seeks_to_its_start_and_is_in_order_already(
    raw: apsw.Connection, index: str | None, prefix: str, after: str, expected: str
) -> None:
    statement = Table(ITEMS).range(index, prefix, after, 10, descending=True)

    assert statement is not None
    found = plan(raw, *statement)
    assert expected in found
    assert "TEMP B-TREE" not in found


# ── the same answers as memory ────────────────────────────────────────────────────────────────────

LETTERS = ("", "a", "aa", "ab", "b", "é", "\U0010ffff", "z")


@pytest.mark.long
def test_ranges_by_index_answer_as_memory_does(store: SqliteStore) -> None:
    random = Random(7)
    memory = MemoryStore(SCHEMA)
    entries = [""]
    for number in range(150):
        owner, state = random.choices((None, *LETTERS), k=2)
        id = random.choice(LETTERS) + f"#{number}"
        commit = commit_of(writes=[put(item(id), row(owner=owner, state=state))])
        assert store.commit(commit) == memory.commit(commit)
        entries += [id, entry(state or "", id), entry(owner or "", state or "", id)]

    for _ in range(1_500):
        index = random.choice((None, "by_state", "by_owner"))
        prefix = random.choice(("", entry(*random.choices(LETTERS, k=random.randint(1, 4)))))
        made_up = entry(*random.choices(LETTERS, k=random.randint(1, 4)))
        after = random.choice((made_up, random.choice(entries)))
        limit, descending = random.randint(0, 9), random.random() < 0.5
        expected, found = (
            asked.range(
                "items",
                index=index,
                prefix=prefix,
                after=after,
                limit=limit,
                descending=descending,
            )
            for asked in (memory, store)
        )
        assert found == expected, (index, prefix, after, limit, descending)


def test_reads_answer_as_memory_does(store: SqliteStore) -> None:
    random = Random(11)
    memory = MemoryStore(SCHEMA)
    products = [f"p-{number}" for number in range(3)]
    for _ in range(40):
        chosen = tuple(random.sample(products, random.randint(0, 3)))
        told_facts = random.sample(
            [
                ProductAdded(random.choice(products)),
                PriceChanged(random.choice(products), 5),
                OrderPlaced(f"o-{random.randint(0, 4)}", f"c-{random.randint(0, 1)}", chosen),
                Announced('"product_id:p-1"'),
                Rebooted(),
            ],
            random.randint(0, 3),
        )
        commit = commit_of(
            *told_facts, writes=[] if told_facts else [put(item(str(random.random())), row())]
        )
        assert store.commit(commit) == memory.commit(commit)

    tags = ["product_id:p-0", "product_id:p-1", "order_id:o-1", "customer_id:c-0"]
    types = [None, frozenset({"OrderPlaced"}), frozenset({"ProductAdded", "PriceChanged"})]
    for _ in range(600):
        clauses = tuple(
            Clause(
                random.choice(types),
                frozenset(random.sample(tags, random.randint(0, 2))),
                random.choice(list(Match)),
            )
            for _ in range(random.randint(1, 3))
        )
        after, limit = random.randint(0, 30), random.choice((None, None, 0, 1, 2, 5))
        query = Query(clauses)
        expected = memory.read(query, after=after, limit=limit)
        assert store.read(query, after=after, limit=limit) == expected, query


def test_finds_a_tag_only_where_it_is_a_whole_tag(store: SqliteStore) -> None:
    append(store, OrderPlaced("o-1", "c-1", ('x"product_id:p-1',)))

    page = store.read(query_of(OrderPlaced, tags="product_id:p-1", contains=True))

    assert page.events == ()


# ── the file follows the declaration ──────────────────────────────────────────────────────────────


class Small(Struct, frozen=True):
    phase: str = ""
    owner: str = ""


def rows_schema(
    *columns: str, allowed: frozenset[str] | None = None, indexed: bool = False
) -> Schema:
    narrowed = {} if allowed is None else {"phase": allowed}
    indexes = (Index("by_owner", ("owner",)),) if indexed else ()
    declared = Collection("small", Small, columns=columns, allowed=narrowed, indexes=indexes)
    return Schema(VOCABULARY, (declared,))


SMALL = Key("small", "a")


def test_columns_and_indexes_that_are_declared_later_are_added(open_store: Open) -> None:
    old = open_store(rows_schema())
    land(old, Commit(T0, writes=(put(SMALL, b'{"phase":"new","owner":"eve"}'),)))

    new = open_store(rows_schema("phase", "owner", indexed=True))

    (found,) = new.range("small", index="by_owner", prefix="ev", limit=5)
    assert found.key == SMALL
    land(old, Commit(T0, writes=(put(Key("small", "b"), b'{"owner":"eva"}'),)))
    assert len(new.range("small", index="by_owner", prefix="ev", limit=5)) == 2
    assert open_store(rows_schema()).get(SMALL) == (found,)  # the old declaration still opens it


def test_a_narrowed_column_widens_and_never_shrinks(path: str, open_store: Open) -> None:
    open_store(rows_schema("phase", allowed=frozenset({"a"})))
    wide = open_store(rows_schema("phase", allowed=frozenset({"b"})))
    land(wide, Commit(T0, writes=(put(SMALL, b'{"phase":"b"}'),)))

    with closing(apsw.Connection(path)) as raw:
        raw.execute('UPDATE small SET data = \'{"phase":"a"}\'')
        with pytest.raises(apsw.ConstraintError, match="allowed_phase"):
            raw.execute('UPDATE small SET data = \'{"phase":"c"}\'')


def test_rewrites_a_check_of_an_older_release(path: str, open_store: Open) -> None:
    narrow = rows_schema("phase", allowed=frozenset({"a", "it's"}))
    open_store(narrow)
    with closing(apsw.Connection(path)) as raw:
        raw.execute("ALTER TABLE small DROP CONSTRAINT allowed_phase")
        raw.execute(
            "ALTER TABLE small ADD CONSTRAINT allowed_phase"
            " CHECK (phase IS NULL OR phase IN ('a', 'it''s'))"
        )

        store = open_store(narrow)

        assert "IN (" not in raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'small'").get
        land(store, Commit(T0, writes=(put(SMALL, b'{"phase":"it\'s"}'),)))
        with pytest.raises(apsw.ConstraintError, match="allowed_phase"):
            raw.execute('UPDATE small SET data = \'{"phase":"b"}\'')


def test_refuses_rows_that_contradict_a_later_declaration(open_store: Open) -> None:
    old = open_store(rows_schema())
    land(old, Commit(T0, writes=(put(SMALL, b'{"phase":"lost"}'),)))

    with pytest.raises(StoreRefused, match="small"):
        open_store(rows_schema("phase", allowed=frozenset({"new"})))


def test_refuses_a_kept_table_as_a_folded_one(open_store: Open) -> None:
    open_store(rows_schema())

    with pytest.raises(StoreRefused, match="folded"):
        open_store(Schema(VOCABULARY, (Collection("small", Small, writers=Writers.FOLDED),)))


def moving(scope: Tag, *, global_order: bool = False) -> Schema:
    """Build a registry in which the second tag of Moved has this scope."""
    fields = [("host_id", Annotated[str, Partition()]), ("site_id", Annotated[str, scope])]
    moved = defstruct("Moved", fields, frozen=True)
    return Schema(Vocabulary((FactType(moved, "host", global_order=global_order),)))


def move(store: SqliteStore, host: str, site: str) -> Commit:
    struct = store.schema.vocabulary.types["Moved"].struct
    return Commit(T0, facts=(store.schema.vocabulary.fact(struct(host, site)),))


def test_events_are_indexed_again_when_the_rules_change(open_store: Open) -> None:
    by_site = Query((Clause(frozenset({"Moved"}), frozenset({"site_id:s"})),))
    by_host = Query((Clause(frozenset({"Moved"}), frozenset({"host_id:h-2"})),))
    everywhere = Query((Clause(frozenset({"Moved"})),))
    old = open_store(moving(Tag()))
    for number in range(5):
        land(old, move(old, f"h-{number}", "s"))
    assert old.read(by_site).events == ()

    new = open_store(moving(Cross(), global_order=True))

    assert positions(new.read(by_site).events) == [1, 2, 3, 4, 5]
    assert positions(new.read(by_host).events) == [3]
    assert new.read(everywhere).has_boundary
    assert positions(new.read(everywhere).events) == [1, 2, 3, 4, 5]
    land(new, move(new, "h-9", "s"))
    assert positions(new.read(by_site).events) == [1, 2, 3, 4, 5, 6]


def test_a_handle_with_older_index_rules_may_no_longer_write(path: str, open_store: Open) -> None:
    old = open_store(moving(Tag()))
    land(old, move(old, "h-1", "s"))
    new = open_store(moving(Cross()))

    assert answers(old, move(old, "h-2", "s")) == [StoreRefused]
    assert answers(new, move(new, "h-2", "s")) == [Receipt]
    assert answers(open_store(moving(Cross())), move(new, "h-3", "s")) == [Receipt]
    with closing(apsw.Connection(path)) as raw, pytest.raises(apsw.ConstraintError):
        raw.execute("DELETE FROM event_index")  # the triggers exist again


def test_a_tag_that_became_payload_is_no_longer_indexed(open_store: Open) -> None:
    old = open_store(moving(Cross()))
    land(old, move(old, "h-1", "s"))
    moved = defstruct("Moved", [("host_id", str)], frozen=True)

    new = open_store(Schema(Vocabulary(facts("host", moved))))

    by_host = Query((Clause(frozenset({"Moved"}), frozenset({"host_id:h-1"})),))
    assert positions(new.read(by_host).events) == [1]


# ── idempotency keys ──────────────────────────────────────────────────────────────────────────────


def test_deletes_outdated_idempotency_keys_a_few_at_a_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the time while the file is open counts, in any process."""
    monkeypatch.setattr(batch, "ONCE_COLLECTED_MAX", 2)
    kept = ONCE_KEPT.total_seconds()
    time = Time()
    store = SqliteStore(path, SCHEMA, monotonic=time)

    def left() -> int:
        return sum(store.receipt(f"old-{number}") is not None for number in range(5))

    def use(key: str) -> None:
        land(store, commit_of(ProductAdded("p"), once=CommitKey(key, b"d")))

    use("first")
    for number in range(5):
        use(f"old-{number}")
    time.now += MARK_SECONDS
    use("mark")  # everything up to here is at most this young
    use("young")
    store.close()
    time.now += 10 * kept  # no process has it open
    store = SqliteStore(path, SCHEMA, monotonic=time)
    time.now += kept
    use("new-0")
    assert left() == 5
    time.now += TICK_SECONDS
    use("new-1")
    assert left() == 3
    use("new-2")
    use("new-3")
    assert left() == 0
    assert store.receipt("young") is not None
    store.close()


# ── many writers ──────────────────────────────────────────────────────────────────────────────────

TURNS = 100
ALONE_MAX = 20_000  # commits of one process while the other waits for its turn


def write_in_turns(path: str, name: str, other: str) -> int:
    """Commit without a pause until both have committed enough. Return how many commits that
    took.
    """
    written = 0
    with closing(SqliteStore(path, SCHEMA)) as store:
        while written < TURNS or len(orders_of(store, other)) < TURNS:
            assert written < ALONE_MAX, f"{other} gets no turn"
            for _ in range(TURNS // 4):
                append(store, OrderPlaced(f"{name}-{written}", name))
                written += 1
    return written


def orders_of(store: SqliteStore, name: str) -> Sequence[Event]:
    return store.read(query_of(OrderPlaced, tags=f"customer_id:{name}")).events


def test_two_processes_write_in_turns_and_lose_nothing(
    path: str, store: SqliteStore, processes: ProcessPoolExecutor
) -> None:
    list(processes.map(os.path.exists, [path] * 4))  # both run before either starts
    pairs = [("left", "right"), ("right", "left")]
    racing = [processes.submit(write_in_turns, path, *pair) for pair in pairs]
    written = [found.result() for found in racing]

    events = whole_feed(store)
    assert positions(events) == list(range(1, sum(written) + 1))
    for name, count in zip(("left", "right"), written, strict=True):
        found = orders_of(store, name)
        assert [event.tags[1] for event in found] == [f"order_id:{name}-{n}" for n in range(count)]


def test_a_writer_waits_for_its_turn_before_it_begins(
    path: str, store: SqliteStore, raw: apsw.Connection
) -> None:
    landed: list[Receipt] = []
    writer = Thread(target=lambda: landed.append(append(store, ProductAdded("p-1"))))

    with open(f"{path}-lock", "ab") as turn:
        flock(turn, LOCK_EX)
        writer.start()
        time.sleep(0.2)
        assert not landed
        raw.execute("BEGIN IMMEDIATE; ROLLBACK")  # it holds nothing of the database while it waits

    writer.join(60)
    assert [receipt.first for receipt in landed] == [1]


def test_a_reader_in_a_long_transaction_delays_no_commit(
    store: SqliteStore, raw: apsw.Connection
) -> None:
    append(store, ProductAdded("p-1"))
    raw.execute("BEGIN")
    assert raw.execute("SELECT count(*) FROM event_log").get == 1

    for number in range(200):
        append(store, ProductAdded(f"p-{number}"))

    assert raw.execute("SELECT count(*) FROM event_log").get == 1
    raw.execute("COMMIT")
    assert raw.execute("SELECT count(*) FROM event_log").get == 201


def test_another_program_that_holds_the_database_makes_us_unavailable(
    store: SqliteStore, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store._writer is not None
    store._writer.set_busy_timeout(50)
    raw.execute("BEGIN IMMEDIATE")

    assert answers(store, commit_of(ProductAdded("p-1"))) == [StoreUnavailable]

    raw.execute("ROLLBACK")
    assert answers(store, commit_of(ProductAdded("p-1"))) == [Receipt]


def test_a_lock_that_the_system_refuses_makes_us_unavailable(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert answers(store, commit_of(ProductAdded("p-1"))) == [StoreUnavailable]
    with pytest.raises(StoreUnavailable, match="No locks available"):
        store.restore("items", [])

    monkeypatch.undo()
    assert answers(store, commit_of(ProductAdded("p-1"))) == [Receipt]


def test_a_lock_that_cannot_be_released_hides_no_receipt_and_blocks_no_writer(
    store: SqliteStore, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(file: IO[bytes], operation: int) -> None:
        if operation == LOCK_UN:
            raise OSError(ENOLCK, "No locks available")
        flock(file, operation)

    other = open_store()
    monkeypatch.setattr(fcntl, "flock", keep)
    assert answers(store, commit_of(ProductAdded("p-1"))) == [Receipt]
    monkeypatch.undo()

    assert answers(other, commit_of(ProductAdded("p-2"))) == [Receipt]
    assert answers(store, commit_of(ProductAdded("p-3"))) == [Receipt]


STOPPED_WRITER = """
import os, signal, sys
from tests.contract.world import SCHEMA, ProductAdded, commit_of
from tidegate.engines.sqlite import SqliteStore, batch

class Stopping(batch.SqliteBatch):
    def write(self):
        os.kill(os.getpid(), signal.SIGSTOP)
        super().write()

store = SqliteStore(sys.argv[1], SCHEMA)
batch.SqliteBatch = Stopping
print(store.commit(commit_of(ProductAdded("theirs"))), flush=True)
"""


def test_a_process_that_stopped_inside_its_commit_makes_others_unavailable(
    path: str, store: SqliteStore, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_SECONDS_MAX", 0.2)
    leaving = open_store()
    other = subprocess.Popen(
        [sys.executable, "-c", STOPPED_WRITER, path], stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(other.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

        with ThreadPoolExecutor(4) as pool:
            told_to = list(
                pool.map(lambda _: answers(store, commit_of(ProductAdded("p"))), range(4))
            )
        assert told_to == [[StoreUnavailable]] * 4
        with pytest.raises(StoreUnavailable, match="lock"):
            store.restore("items", [])
        with pytest.raises(StoreUnavailable, match="lock"):
            open_store()
        leaving.close()
        assert whole_feed(store) == []  # readers do not wait

        os.kill(other.pid, signal.SIGCONT)
        assert "Receipt" in other.communicate(timeout=60)[0]
    finally:
        other.kill()
        other.wait()

    assert answers(store, commit_of(ProductAdded("ours"))) == [Receipt]
    assert values(whole_feed(store)) == [ProductAdded("theirs"), ProductAdded("ours")]


@pytest.mark.parametrize("mode", ["direct", "grouped"])
def test_a_signal_handler_that_raises_leaves_no_lock_behind(path: str, mode: str) -> None:
    command = [sys.executable, "-m", "tests.contract.interrupted_writer", path, mode]
    seconds = fewer(4)
    ran = subprocess.run(
        [*command, str(seconds)], capture_output=True, text=True, timeout=180, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)

    assert found["interrupted"] > 0
    assert found["failed"] == []
    assert found["acknowledged"][-1] == "last"
    with closing(SqliteStore(path, SCHEMA)) as store:
        landed = [event.tags[1].partition(":")[2] for event in whole_feed(store)]
    assert len(landed) == len(set(landed))
    assert set(found["acknowledged"]) <= set(landed)


def test_threads_share_a_handle(store: SqliteStore) -> None:
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(30):
                append(store, OrderPlaced(f"{name}-{number}", name))
                page = store.read(query_of(OrderPlaced, tags=f"customer_id:{name}"))
                assert len(page.events) == number + 1
        except BaseException as error:
            failures.append(error)
            raise

    threads = [Thread(target=work, args=(f"t{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    assert positions(whole_feed(store)) == list(range(1, 181))


# ── what can go wrong ─────────────────────────────────────────────────────────────────────────────


def write_until_killed(path: str, acknowledged: str) -> None:
    """Commit from several threads through the writer, and note each receipt after it arrived."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = SqliteStore(path, SCHEMA)
    writer = GroupCommit(store)

    def work(name: str) -> None:
        number = 0
        while True:
            order = f"{os.getpid()}-{name}-{number}"
            made = commit_of(
                OrderPlaced(order, name),
                PriceChanged(order, number),
                writes=[put(item(order), row(name=order), fact=1)],
                once=CommitKey(order, b"d"),
            )
            receipt = writer.submit(made).result()
            os.write(notes, f"{order} {receipt.first}\n".encode())
            number += 1

    for number in range(4):
        Thread(target=work, args=(f"t{number}",), daemon=True).start()
    time.sleep(300)


@pytest.mark.long
def test_a_killed_writer_loses_no_acknowledged_commit_and_splits_none(
    path: str, tmp_path: Path, open_store: Open
) -> None:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    for wanted in (40, 80, 120):
        victim = get_context("spawn").Process(
            target=write_until_killed, args=(path, str(acknowledged))
        )
        victim.start()
        deadline = time.monotonic() + 60
        while len(acknowledged.read_text().splitlines()) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        victim.kill()
        victim.join()

    store = open_store()
    notes = [line.split(" ") for line in acknowledged.read_text().splitlines()]
    assert len(notes) >= 120
    events = whole_feed(store)
    assert positions(events) == list(range(1, len(events) + 1))
    assert [event.type for event in events[::2]] == ["OrderPlaced"] * (len(events) // 2)
    for order, first in notes:
        assert f"order_id:{order}" in events[int(first) - 1].tags
    for placed, priced in zip(events[::2], events[1::2], strict=True):
        order = priced.tags[0].removeprefix("product_id:")
        assert placed.tags[1] == f"order_id:{order}"
        assert stored(store, item(order)).version == priced.position
        assert store.receipt(order) is not None


def big(name: str) -> Commit:
    return commit_of(*(ProductAdded(f"{name}-{n}", "x" * 1_000) for n in range(100)))


def test_a_full_database_refuses_commits_until_there_is_space(
    store: SqliteStore,
) -> None:
    append(store, ProductAdded("p-1"))
    assert store._writer is not None
    pages = store._writer.pragma("page_count")
    store._writer.execute(f"PRAGMA max_page_count = {pages + 4}").fetchall()

    assert answers(store, big("a"), commit_of(Rebooted())) == [StoreUnavailable] * 2
    assert len(whole_feed(store)) == 1
    assert answers(store, commit_of(Rebooted())) == [Receipt]

    store._writer.execute("PRAGMA max_page_count = 4294967294").fetchall()
    assert answers(store, big("a")) == [Receipt]
    assert positions(whole_feed(store)) == list(range(1, 103))


def fill_the_disk(path: str) -> list[str]:
    """Commit, forbid files to grow, commit, allow it, commit. Return the result of each."""
    with closing(SqliteStore(path, SCHEMA)) as store:
        outcomes = [type(store.commit(commit_of(Rebooted()))[0]).__name__]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        room = os.stat(f"{path}-wal").st_size + 8_192
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            outcomes.append(type(store.commit(big("a"))[0]).__name__)
            outcomes.append(str(len(store.feed(after=0, limit=200).events)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        outcomes.append(type(store.commit(big("b"))[0]).__name__)
    return outcomes


def test_a_full_disk_refuses_commits_until_there_is_space(
    path: str, store: SqliteStore, processes: ProcessPoolExecutor
) -> None:
    outcomes = processes.submit(fill_the_disk, path).result()

    assert outcomes == ["Receipt", "StoreUnavailable", "1", "Receipt"]
    assert positions(whole_feed(store)) == list(range(1, 102))


@pytest.fixture
def files() -> Iterator[FailingFiles]:
    found = FailingFiles()
    yield found
    found.unregister()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with another handle"])
def test_reads_the_log_to_settle_a_flush_that_failed_once(
    files: FailingFiles, open_store: Open, beside: bool
) -> None:
    store = open_store()
    append(store, ProductAdded("p-1"))
    other = open_store() if beside else store
    files.failing_syncs = 1

    outcome = answers(store, commit_of(ProductAdded("p-2")))

    assert files.failing_syncs == 0
    assert outcome == [StoreUnavailable]
    assert len(whole_feed(other)) == 1
    assert answers(store, commit_of(ProductAdded("p-3"))) == [WriterClosed]
    assert isinstance(store.fault, WriterClosed)
    assert append(open_store(), ProductAdded("p-4")).first == 2


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with another handle"])
def test_a_flush_that_keeps_failing_has_an_unknown_outcome(
    files: FailingFiles, open_store: Open, beside: bool
) -> None:
    store = open_store()
    if beside:
        open_store()
    durable = commit_of(ProductAdded("p-1"), once=CommitKey("durable", b"d"))
    land(store, durable)
    files.failing_syncs = 1_000

    fresh = commit_of(ProductAdded("p-2"), once=CommitKey("fresh", b"d"))
    rival = commit_of(ProductAdded("p-2"), once=CommitKey("fresh", b"another digest"))
    outcome = store.commit(durable, fresh, fresh, rival)
    files.failing_syncs = 0

    # The outcome of a decision based on a commit with an unknown outcome is unknown too.
    assert [type(answer) for answer in outcome] == [Receipt, *[OutcomeUnknown] * 3]
    assert answers(store, commit_of(ProductAdded("p-3"))) == [WriterClosed]
    landed = store.receipt("fresh") is not None
    assert len(whole_feed(store)) == (2 if landed else 1)
    again = land(open_store(), fresh)
    assert (again.first, again.replayed) == (2, landed)


def many_products(prefix: str) -> Commit:
    """Facts that take more pages than a small cache holds."""
    return commit_of(*[ProductAdded(f"{prefix}-{number}", "n" * 2_000) for number in range(40)])


@pytest.mark.parametrize("how", ["commit", "restore"])
def test_a_flush_that_failed_before_the_commit_is_not_trusted(
    files: FailingFiles, open_store: Open, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that do not fit into the cache go to the WAL early. If that restarts the WAL, it is
    flushed.
    """
    monkeypatch.setattr(connection, "CACHE_KIB", 16)
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    store = open_store()
    append(store, ProductAdded("p"))
    rows = [Record(item(str(n)), 1, 1, row(name="n" * 2_000)) for n in range(40)]
    files.failing_syncs = 1

    if how == "commit":
        assert answers(store, many_products("a")) == [StoreUnavailable]
    else:
        with pytest.raises(StoreUnavailable):
            store.restore("items", rows)

    assert files.failing_syncs == 0
    assert answers(store, many_products("b")) == [WriterClosed]
    assert len(whole_feed(store)) == 1
    land(open_store(), many_products("b"))
    assert len(whole_feed(store)) == 41


def test_a_write_of_the_wal_that_failed_applied_nothing(
    files: FailingFiles, open_store: Open
) -> None:
    store = open_store()
    append(store, ProductAdded("p-1"))
    files.failing_writes = 1

    assert answers(store, commit_of(ProductAdded("p-2"))) == [StoreUnavailable]
    assert len(whole_feed(store)) == 1
    assert append(store, ProductAdded("p-3")).first == 2


# ── restore ───────────────────────────────────────────────────────────────────────────────────────


def test_a_restore_that_fails_leaves_the_rows_as_they_were(store: SqliteStore) -> None:
    tally = Key("tallies", "a")
    append(store, ProductAdded("p-1"))
    store.restore("tallies", [Record(tally, 1, 1, b'{"state":"open"}')])

    with pytest.raises(StoreUnavailable):
        store.restore("tallies", [Record(tally, 7, 7, b'{"state":"open"}')])  # no such event

    assert stored(store, tally).version == 1


def test_a_restore_whose_flush_failed_has_an_unknown_outcome(
    files: FailingFiles, open_store: Open
) -> None:
    store = open_store()
    append(store, ProductAdded("p-1"))
    tallies = [Record(Key("tallies", "a"), 1, 1, b'{"state":"open"}')]
    files.failing_syncs = 1

    with pytest.raises(OutcomeUnknown, match="flush"):  # no head moves that would show the outcome
        store.restore("tallies", tallies)

    with pytest.raises(WriterClosed):
        store.restore("tallies", tallies)
    again = open_store()
    again.restore("tallies", tallies)
    assert stored(again, tallies[0].key) == tallies[0]
    assert append(again, ProductAdded("p-2")).first == 2
