"""What only PostgreSQL can break: its tables, plans, sessions, and a schema that grows."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Annotated, Any
from uuid import uuid4

import psycopg
import pytest
from msgspec import Struct
from psycopg import errors as sql_errors

from tests.contract.dynamodb_faults import Time
from tests.contract.world import (
    ITEMS,
    NOTES,
    SCHEMA,
    T0,
    TALLIES,
    VOCABULARY,
    OrderPlaced,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    Tally,
    append,
    boundary_of,
    clause,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    stored,
    whole_feed,
)
from tidegate.engines.key_ages import MARK_SECONDS, TICK_SECONDS
from tidegate.engines.postgres import PostgresStore, queries, writer
from tidegate.engines.postgres.layout import lock_key
from tidegate.engines.postgres.sessions import READERS_MAX, Address, Statement
from tidegate.errors import (
    BoundaryMoved,
    InvalidDefinition,
    InvalidInput,
    StoreRefused,
    StoreUnavailable,
)
from tidegate.kernel import codec, collections
from tidegate.kernel.collections import Collection, Index, entry
from tidegate.kernel.model import ALL, ONCE_KEPT, CommitKey, Key, Query, Receipt
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import Vocabulary, facts

Open = Callable[..., PostgresStore]


@pytest.fixture
def namespace() -> str:
    return f"postgres_{uuid4().hex[:16]}"


@pytest.fixture
def connect(postgres_url: str, namespace: str) -> Iterator[Open]:
    """Open handles on one fresh log."""
    with ExitStack() as handles:

        def open_handle(schema: Schema = SCHEMA) -> PostgresStore:
            store = PostgresStore(postgres_url, schema, namespace)
            return handles.enter_context(closing(store))

        yield open_handle


@pytest.fixture
def store(connect: Open) -> PostgresStore:
    return connect()


@pytest.fixture
def raw(postgres_url: str, namespace: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of another program: without our settings, and without our code."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {namespace}")
        yield connection


# ── tables ────────────────────────────────────────────────────────────────────────────────────────

CHANGES_OF_HISTORY = (
    "UPDATE event_log SET body = '{}'",
    "DELETE FROM event_log",
    "TRUNCATE event_log CASCADE",
    "INSERT INTO event_log SELECT * FROM event_log ON CONFLICT (seq) DO UPDATE SET kind = 'x'",
    "UPDATE event_index SET seq = seq + 100",
    "DELETE FROM event_index WHERE seq = 1",
    "TRUNCATE event_index",
)


@pytest.mark.req("RO-17")
@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("sql", CHANGES_OF_HISTORY)
def test_history_cannot_be_changed_below_our_code(
    engine: str, store: PostgresStore, raw: psycopg.Connection[Any], sql: str
) -> None:
    append(store, ProductAdded("p1"), OrderPlaced("o1", "c1"))
    before = whole_feed(store)

    with pytest.raises(sql_errors.RestrictViolation, match="history is immutable"):
        raw.execute(sql.encode())

    assert whole_feed(store) == before
    assert positions(store.read(query_of(tags="order_id:o1")).events) == [2]


def test_a_fact_of_an_undeclared_kind_cannot_be_added_below_our_code(
    store: PostgresStore, raw: psycopg.Connection[Any]
) -> None:
    append(store, ProductAdded("p1"))
    insert = "INSERT INTO event_log SELECT 9, at, {}, type, schema, tags, meta, body FROM event_log"

    with pytest.raises(sql_errors.CheckViolation, match="event_log_kind_allowed"):
        raw.execute(insert.format("'gossip'").encode())
    raw.execute(insert.format("kind").encode())  # a declared one

    assert [event.kind for event in whole_feed(store)] == ["shop", "shop"]


class Delivered(Struct, frozen=True):
    stock: Annotated[str, Partition()]


def test_allows_the_kinds_of_two_programs(connect: Open) -> None:
    append(connect(), ProductAdded("p1"))
    other = Schema(Vocabulary(facts("warehouse", Delivered)))

    append(connect(other), other.vocabulary.fact(Delivered("s1")))
    append(connect(), ProductAdded("p2"))

    assert [event.kind for event in whole_feed(connect())] == ["shop", "warehouse", "shop"]


def test_a_declared_member_is_a_column_that_follows_its_row(
    store: PostgresStore, raw: psycopg.Connection[Any]
) -> None:
    data = b'{ "name" : "N\\u00fc", "count":7,"state":null, "owner":"a\\u0000b" }'
    land(store, commit_of(writes=[put(item("a"), data)]))

    found = raw.execute('SELECT name, state, owner, "count", data::text FROM items').fetchall()

    assert found == [("Nü", None, "a\ufffdb", 7, data.decode())]
    with pytest.raises(sql_errors.GeneratedAlways):
        raw.execute("UPDATE items SET name = 'other'")


@pytest.mark.req("RO-7")
@pytest.mark.parametrize("engine", ["postgres"])
def test_a_folded_row_must_carry_the_position_of_a_fact(
    engine: str, store: PostgresStore, raw: psycopg.Connection[Any]
) -> None:
    tally = put(Key("tallies", "t"), codec.encode(Tally("open")))
    land(store, commit_of(Rebooted(), writes=[tally]))

    insert = "INSERT INTO tallies (id, version, born, data) VALUES ('x', %s, %s, %s)"
    for version, born, data, error in (
        (None, 1, '{"state":"open"}', sql_errors.NotNullViolation),
        (1, None, '{"state":"open"}', sql_errors.NotNullViolation),
        (9, 1, '{"state":"open"}', sql_errors.ForeignKeyViolation),
        (1, 9, '{"state":"open"}', sql_errors.ForeignKeyViolation),
        (1, 1, '{"state":"torn"}', sql_errors.CheckViolation),
    ):
        with pytest.raises(error):
            raw.execute(insert, (version, born, data))
    raw.execute(insert, (1, 1, '{"state":"open"}'))


def test_a_commit_that_the_database_refuses_does_not_affect_its_neighbours(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than an index of PostgreSQL can hold, and incompressible; our own limit is lower
    monkeypatch.setattr(collections, "ENTRY_BYTES_MAX", 1_000_000)
    chars = random.Random(2)
    noise = "".join(chr(chars.randrange(0x100, 0xD000)) for _ in range(9_000))

    one, bad, other = store.commit(
        commit_of(writes=[put(item("one"), row(state="open"))]),
        commit_of(Rebooted(), writes=[put(item("bad"), row(state=noise))]),
        commit_of(writes=[put(item("other"), row(state="open"))]),
    )

    assert isinstance(bad, InvalidInput)
    assert (one, other) == (Receipt(1, 1, T0), Receipt(2, 2, T0))
    assert whole_feed(store) == []


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


def test_the_url_may_name_the_schema(postgres_url: str, namespace: str) -> None:
    joint = "&" if "?" in postgres_url else "?"
    with closing(PostgresStore(f"{postgres_url}{joint}schema={namespace}", SCHEMA)) as store:
        assert store.namespace == namespace
        append(store, Rebooted())
    with closing(PostgresStore(postgres_url, SCHEMA, namespace)) as again:
        assert again.log_id == store.log_id
        assert len(whole_feed(again)) == 1


@pytest.mark.parametrize("bad", ["", "pg_catalog", "a b", 'a"b', "A", "a" * 64])
def test_refuses_a_schema_that_needs_quoting(postgres_url: str, bad: str) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        PostgresStore(postgres_url, SCHEMA, bad)


def test_refuses_what_it_cannot_serve(
    store: PostgresStore, connect: Open, raw: psycopg.Connection[Any]
) -> None:
    with pytest.raises(InvalidInput, match="URL"):
        PostgresStore("postgresql://host/name?no_such_word=1", SCHEMA)
    with pytest.raises(StoreUnavailable):
        PostgresStore("postgresql://nobody@127.0.0.1:1/none", SCHEMA)
    with pytest.raises(InvalidDefinition, match="log_head"):
        connect(Schema(VOCABULARY, (Collection("log_head", Tally),)))

    raw.execute("UPDATE log_meta SET value = '3' WHERE name = 'format'")

    with pytest.raises(StoreRefused, match="upgrade"):
        connect()


def test_reports_the_durability_of_an_acknowledged_commit(store: PostgresStore) -> None:
    found = {setting.name: setting for setting in store.durability}

    assert set(found) >= {"fsync", "synchronous_commit", "full_page_writes"}
    for setting in found.values():
        assert ("weak" in setting.verdict) == (setting.value == "off")


def test_a_table_follows_its_declaration(connect: Open, raw: psycopg.Connection[Any]) -> None:
    bare = Collection("items", ITEMS.model)
    first = connect(Schema(VOCABULARY, (bare, TALLIES)))
    land(first, commit_of(writes=[put(item("a"), row(name="n", state="open", owner="me"))]))
    assert first.range("items", limit=5)

    grown = connect(SCHEMA)
    assert [r.key.id for r in grown.range("items", index="by_owner", prefix="me", limit=5)] == ["a"]

    narrowed = replace(
        ITEMS,
        columns=("name", "state", "owner", "count"),
        allowed={"state": frozenset({"shut"})},
        indexes=(Index("by_owner", ("owner", "name")), Index("by_state", ("state",))),
    )
    third = connect(Schema(VOCABULARY, (narrowed, NOTES, TALLIES)))
    prefix = entry("me", "n")
    assert third.range("items", index="by_owner", prefix=prefix, limit=5)[0].key.id == "a"
    with pytest.raises(sql_errors.CheckViolation):
        raw.execute("UPDATE items SET version = version")  # the existing row is not checked
    assert [record.key.id for record in first.range("items", limit=5)] == ["a"]
    with pytest.raises(InvalidInput):
        land(third, commit_of(writes=[put(item("b"), row(state="open"))]))
    land(
        first, commit_of(writes=[put(item("b"), row(state="shut"))])
    )  # the older program still works


# ── indexing of a vocabulary that changes ─────────────────────────────────────────────────────────


def vocabulary(*, cross: bool, more: bool = False) -> Vocabulary:
    """Build one of two releases of one fact: tagged by its visitor for cross-partition reads, or
    not.
    """
    tag = Cross() if cross else None
    fields: dict[str, Any] = {
        "room_id": Annotated[str, Partition()],
        "visitor_id": Annotated[str, tag] if tag else str,
    }
    entered = type("Entered", (Struct,), {"__annotations__": fields}, frozen=True)
    left = type("Left", (Struct,), {"__annotations__": dict(fields)}, frozen=True)
    return Vocabulary(facts("visit", entered, *([left] if more else [])))


def enter(known: Vocabulary, room: str, visitor: str) -> Any:
    return known.fact(known.types["Entered"].struct(room, visitor))


def test_a_type_whose_index_rule_changed_is_indexed_again(connect: Open) -> None:
    plain, cross = vocabulary(cross=False), vocabulary(cross=True)
    older = connect(Schema(plain))
    land(older, commit_of(enter(plain, "r1", "v1"), enter(plain, "r2", "v1")))
    query = Query((clause(tags="visitor_id:v1"),))
    assert older.read(query).events == ()

    newer = connect(Schema(cross))

    assert positions(newer.read(query).events) == [1, 2]
    boundary = boundary_of(newer, query)
    with pytest.raises(StoreRefused, match="Entered"):
        land(older, commit_of(enter(plain, "r3", "v1")))  # it would be missing under its visitor
    land(newer, commit_of(enter(cross, "r3", "v1"), on=[boundary]))
    with pytest.raises(BoundaryMoved):
        land(newer, commit_of(enter(cross, "r4", "v1"), on=[boundary]))


def test_a_type_of_a_newer_program_does_not_disturb_an_older_one(connect: Open) -> None:
    few, many = vocabulary(cross=True), vocabulary(cross=True, more=True)
    older = connect(Schema(few))
    newer = connect(Schema(many))
    everything = Query((clause(tags="visitor_id:v1"),))
    boundary = boundary_of(older, everything)

    land(newer, commit_of(many.fact(many.types["Left"].struct("r1", "v1"))))

    with pytest.raises(BoundaryMoved):  # of any type, so also of one that it does not know
        land(older, commit_of(enter(few, "r1", "v1"), on=[boundary]))
    land(older, commit_of(enter(few, "r1", "v1")))


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────


def plan(connection: psycopg.Connection[Any], statement: Statement) -> str:
    """Return the plan that a session of ours uses for the statement."""
    connection.execute(b"PREPARE asked AS " + statement.sql, prepare=False)
    values = ", ".join(
        "NULL" if value is None else psycopg.sql.Literal(value.decode()).as_string()
        for value in statement.parameters
    )
    given = f"({values})" if statement.parameters else ""
    explain = f"EXPLAIN EXECUTE asked{given}".encode()
    found = connection.execute(explain, prepare=False).fetchall()
    connection.execute(b"DEALLOCATE asked", prepare=False)
    return "\n".join(line for (line,) in found)


@pytest.mark.usefixtures("store")
def test_plans_made_on_an_empty_log_use_its_indexes(postgres_url: str, namespace: str) -> None:
    by_type = query_of(OrderPlaced, tags="customer_id:c1")
    contains = query_of(OrderPlaced, tags=("customer_id:c1", "order_id:o1"), contains=True)
    asked = {
        "a read": queries.read(VOCABULARY, by_type, 0, None),
        "a page": queries.read(VOCABULARY, by_type, 7, 10),
        "a read of every type": queries.read(VOCABULARY, query_of(tags="order_id:o1"), 0, None),
        "a read with a filter": queries.read(VOCABULARY, contains, 0, None),
        "all": queries.read(VOCABULARY, ALL, 0, 10),
        "the feed": queries.feed(0, 10),
        "rows": queries.rows("items", ["a"]),
        "a receipt": queries.receipt("key"),
        "the head": Statement(writer._HEAD, (b"0", b"9")),
        "newest facts": Statement(writer._NEWEST, (b"[]",)),
        "keys": Statement(writer._ONCE, (b"[]",)),
    }
    with closing(Address(postgres_url, namespace).connect()) as connection:
        for what, statement in asked.items():
            found = plan(connection, statement)
            assert "Seq Scan" not in found, f"{what}:\n{found}"


RANGES = {
    "all": ((None, "", ""), "items_pkey", ""),
    "after an id": ((None, "", "m"), "items_pkey", "(id > "),
    "a prefix of the id": ((None, "ab", "abc"), "items_pkey", "(id >= "),
    "one owner": (("by_owner", entry("me", ""), ""), "items_by_owner", "(owner = "),
    "the rest of an owner": (
        ("by_owner", entry("me", ""), entry("me", "open", "a")),
        "items_by_owner",
        "ROW(owner, state, id) > ",
    ),
}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("what", RANGES)
def test_a_range_scans_one_index(postgres_url: str, namespace: str, what: str) -> None:
    (index, prefix, after), used, condition = RANGES[what]
    for descending in (False, True):
        statement = queries.range_of(ITEMS, index, prefix, after, 10, descending=descending)
        assert statement is not None

        with closing(Address(postgres_url, namespace).connect()) as connection:
            found = plan(connection, statement)

        assert f"using {used}" in found
        assert "Sort" not in found
        _, _, bounds = found.partition("Index Cond: ")
        if descending:
            condition = re.sub(r"(\bid\)?) > ", r"\1 < ", condition)
        assert condition in bounds.partition("\n")[0]


def test_an_old_snapshot_elsewhere_does_not_slow_the_head(
    store: PostgresStore, raw: psycopg.Connection[Any], postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")  # from here on no dead row may be removed
        for _ in range(300):
            append(store, Rebooted())

        found = raw.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
            " SELECT seq FROM log_head ORDER BY seq DESC LIMIT 1"
        ).fetchone()

    assert found is not None
    touched = json.loads(json.dumps(found[0]))[0]["Plan"]["Shared Hit Blocks"]
    assert touched <= 5


# ── the writer ────────────────────────────────────────────────────────────────────────────────────


def test_one_of_eight_writers_that_wait_for_the_lock_gets_it(
    connect: Open, raw: psycopg.Connection[Any], namespace: str
) -> None:
    handles = [connect() for _ in range(8)]
    query = query_of(ProductAdded, tags="product_id:p1")
    commits = [
        commit_of(ProductAdded("p1", str(n)), on=[boundary_of(h, query)])
        for n, h in enumerate(handles)
    ]
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND (classid::bigint << 32 | objid::bigint) = %s"
    )

    with ThreadPoolExecutor(8) as pool:
        with raw.transaction():
            raw.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(namespace),))
            answers = [pool.submit(h.commit, c) for h, c in zip(handles, commits, strict=True)]
            while raw.execute(waiting, (lock_key(namespace),)).fetchone() != (8,):
                pass  # all of them have begun their read, and none has its answer
        outcomes = [answer.result()[0] for answer in answers]

    assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, BoundaryMoved) for outcome in outcomes) == 7
    assert len(whole_feed(handles[0])) == 1


@pytest.mark.parametrize("foreign", [1, writer.FOREIGN_MAX - 1, writer.FOREIGN_MAX, 700])
def test_a_writer_notices_any_amount_of_commits_by_others(connect: Open, foreign: int) -> None:
    ours, theirs = connect(), connect()
    query = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
    append(ours, ProductAdded("p1"))
    boundary = boundary_of(ours, query)
    others = query_of(ProductAdded, tags="product_id:p2")
    unmoved = boundary_of(ours, others)

    append(theirs, ProductRenamed("p1"), *[Rebooted() for _ in range(foreign - 1)])

    with pytest.raises(BoundaryMoved) as moved:
        land(ours, commit_of(ProductRenamed("p1"), on=[boundary]))
    assert moved.value.facts["position"] == 2
    land(ours, commit_of(ProductAdded("p2"), on=[unmoved]))
    with pytest.raises(BoundaryMoved):
        land(theirs, commit_of(ProductAdded("p2"), on=[unmoved]))


def test_a_boundary_older_than_the_writers_cache_is_looked_up(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.engines.postgres.log_tail.PAIRS_MAX", 3)
    store = connect()
    query = query_of(ProductAdded, ProductRenamed, tags="product_id:p0")
    old = boundary_of(store, query)
    append(store, ProductAdded("p0"))
    current = boundary_of(store, query)

    for number in range(1, 40):
        append(store, ProductAdded(f"p{number}"))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(ProductRenamed("p0"), on=[old]))
    land(store, commit_of(ProductRenamed("p0"), on=[current]))
    with pytest.raises(BoundaryMoved):
        land(store, commit_of(ProductRenamed("p0"), on=[current]))


RECENT = "tidegate.engines.postgres.log_tail.PAIRS_MAX"


def products(prefix: str, count: int) -> list[ProductAdded]:
    """Facts with this many pairs that no other fact has."""
    return [ProductAdded(f"{prefix}{number}") for number in range(count)]


@pytest.mark.parametrize("foreign", [1, 4, 9, writer.FOREIGN_MAX - 1, writer.FOREIGN_MAX])
def test_one_creation_wins_although_the_cache_rotates_while_it_catches_up(
    connect: Open, monkeypatch: pytest.MonkeyPatch, foreign: int
) -> None:
    monkeypatch.setattr(RECENT, 3)
    ours, theirs = connect(), connect()
    append(ours, Rebooted())
    unseen = boundary_of(ours, query_of(ProductAdded, tags="product_id:p"))
    append(ours, ProductAdded("p"), *products("ours", 3))  # it is now in the older half

    append(theirs, *products("theirs", foreign))  # learning these drops the older half

    with pytest.raises(BoundaryMoved) as moved:
        land(ours, commit_of(ProductAdded("p"), on=[unseen]))
    assert moved.value.facts["position"] == 2
    assert len(ours.read(query_of(ProductAdded, tags="product_id:p")).events) == 1


def test_one_creation_wins_wherever_the_cache_was_rotated(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All boundaries of a log in one group, each older, as old, or younger than either floor."""
    monkeypatch.setattr(RECENT, 3)
    ours, theirs = connect(), connect()
    names = [f"p{number}" for number in range(12)]
    unseen = []
    for name in names:
        unseen.append(boundary_of(ours, query_of(ProductAdded, tags=f"product_id:{name}")))
        append(ours, ProductAdded(name))
    fresh = [boundary_of(ours, query_of(ProductAdded, tags=f"product_id:{name}")) for name in names]
    append(theirs, *products("theirs", 4))

    again = [ProductAdded(name) for name in names]
    refused = ours.commit(*[commit_of(a, on=[b]) for a, b in zip(again, unseen, strict=True)])
    renamed = [ProductRenamed(name) for name in names]
    landed = ours.commit(*[commit_of(a, on=[b]) for a, b in zip(renamed, fresh, strict=True)])

    assert [type(answer) for answer in refused] == [BoundaryMoved] * len(names)
    found = [answer.facts["position"] for answer in refused if isinstance(answer, BoundaryMoved)]
    assert found == list(range(1, len(names) + 1))
    assert [type(answer) for answer in landed] == [Receipt] * len(names)


def test_one_creation_wins_although_the_session_was_lost_meanwhile(
    connect: Open, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RECENT, 3)
    ours, theirs = connect(), connect()
    append(ours, Rebooted())
    unseen = boundary_of(ours, query_of(ProductAdded, tags="product_id:p"))
    append(ours, ProductAdded("p"), *products("ours", 3))
    append(theirs, *products("theirs", 4))

    session = ours._writer._session
    assert session is not None
    raw.execute("SELECT pg_terminate_backend(%s, 10000)", (session._pgconn.backend_pid,))

    with pytest.raises(BoundaryMoved):
        land(ours, commit_of(ProductAdded("p"), on=[unseen]))


def test_notifies_the_listeners_of_a_schema_of_the_new_head(
    store: PostgresStore, raw: psycopg.Connection[Any], namespace: str
) -> None:
    raw.execute(f"LISTEN {namespace}")

    last = append(store, Rebooted(), Rebooted()).last

    heard = next(iter(raw.notifies(timeout=60, stop_after=1)))
    assert (heard.channel, heard.payload) == (namespace, str(last))


def test_deletes_old_keys_and_keeps_young_ones(
    postgres_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the time while the log is open counts, in any process."""
    monkeypatch.setattr(writer, "COLLECT_EVERY", 1)
    monkeypatch.setattr(writer, "COLLECT_MAX", 2)
    kept = ONCE_KEPT.total_seconds()
    time, other_time = Time(), Time()
    with (
        closing(PostgresStore(postgres_url, SCHEMA, namespace, monotonic=time)) as store,
        closing(PostgresStore(postgres_url, SCHEMA, namespace, monotonic=other_time)) as other,
    ):
        for number in range(5):
            land(store, commit_of(Rebooted(), once=CommitKey(f"old-{number}", b"d")))
        time.now += MARK_SECONDS
        land(store, commit_of(Rebooted()))  # everything up to here is at most this young
        land(store, commit_of(Rebooted(), once=CommitKey("young", b"d")))
        other_time.now += kept  # as long for it, and no longer for the log
        land(other, commit_of(Rebooted()))
        assert store.receipt("old-1") is not None
        time.now += kept + TICK_SECONDS
        for _ in range(3):
            land(store, commit_of(Rebooted()))

        assert [store.receipt(f"old-{number}") for number in range(5)] == [None] * 5
        assert store.receipt("young") is not None


def test_more_threads_than_sessions_share_a_handle(store: PostgresStore) -> None:
    append(store, ProductAdded("p1"))

    def use(number: int) -> int:
        land(store, commit_of(writes=[put(item(str(number)), row(count=number))]))
        assert len(store.read(query_of(ProductAdded)).events) == 1
        return json.loads(stored(store, item(str(number))).data).get("count", 0)

    with ThreadPoolExecutor(4 * READERS_MAX) as pool:
        assert list(pool.map(use, range(200))) == list(range(200))


def test_a_closed_store_refuses_calls(connect: Open) -> None:
    store = connect()
    store.close()

    for call in (lambda: store.read(ALL), lambda: land(store, commit_of(Rebooted()))):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()
