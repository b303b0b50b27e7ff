"""The tables of the fleet on every engine: their classes, their stamps, and what the log proves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace as altered
from datetime import timedelta
from typing import Any

import apsw
import boto3
import msgspec
import psycopg
import pytest

from tests.contract.address import address_of
from tests.contract.in_process_fleet import (
    AGAIN,
    CORE_NEXT,
    FIRST,
    ROWS_MAX,
    FleetStores,
    InProcessFleet,
    enroll_fleet,
    play_journey,
    rows,
)
from tidegate.control.queries.fleet_picture import FRESH_SECONDS, FleetPictures
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.rollout_lists import RolloutsWanted, newest_rollouts
from tidegate.control.storage.archive.redaction import FactRedactor
from tidegate.control.storage.archive.segments import feed
from tidegate.control.storage.lost_caches import lost_caches, rebuild_lost
from tidegate.domain.channels.rows import CHANNELS, QUARANTINE, Channel
from tidegate.domain.composition import COLLECTIONS, FACTS, FOLDS, SCHEMA, SLICES
from tidegate.domain.fleet import selectors
from tidegate.domain.fleet.rows import ENROLLED, HOSTS, RETIRED, Host
from tidegate.domain.hosts.rows import DISPATCH_QUEUE, HOST_RECORDS
from tidegate.domain.rollouts.history import histories, render
from tidegate.domain.rollouts.rows import ROLLOUTS, TALLIES, Rollout, rollout_key
from tidegate.domain.rollouts.states import OPEN, RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.engines.postgres.layout import OWN_TABLES
from tidegate.engines.sqlite.layout import ENGINE_TABLES
from tidegate.errors import ImmutableRecord, InvalidDefinition, InvalidInput
from tidegate.kernel import codec
from tidegate.kernel.collections import Collection, Nature, Writers, entry
from tidegate.kernel.folds import Fold
from tidegate.kernel.model import ABSENT, Commit, Key, Put, Record
from tidegate.kernel.records.records import REPAIRS, Records
from tidegate.kernel.replay import differences, rebuild
from tidegate.kernel.store import Schema

SQL = ("sqlite", "postgres")
REFUSED = (apsw.Error, psycopg.Error)
SEED_TABLES = {
    "host_rollout_records": Nature.CACHE,
    "dispatch_queue": Nature.QUEUE,
    "probe_failures": Nature.DERIVED,
    "rollouts": Nature.DERIVED,
    "quarantined_closures": Nature.DERIVED,
    "token_replay": Nature.LOOKUP,
    "cert_revocations": Nature.LOOKUP,
}


@pytest.fixture(scope="module")
def fleet_stores(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FleetStores]:
    with closing(
        FleetStores(address_of(request, engine, tmp_path_factory.mktemp("views")))
    ) as fleet_stores:
        yield fleet_stores


@pytest.fixture(scope="module")
def journey(fleet_stores: FleetStores) -> InProcessFleet:
    """A fleet after its journey; every test leaves its rows as they were.

    Its program shows no stamps; a program that does opens the database at the end.
    """
    older = tuple(altered(collection, stamps={}) for collection in COLLECTIONS)
    fleet = play_journey(InProcessFleet(fleet_stores.open(Schema(SCHEMA.vocabulary, older))))
    fleet_stores.open()
    return fleet


def test_lists_rollouts_newest_first_on_every_engine(journey: InProcessFleet) -> None:
    reads = Reads(journey.store)
    stored = [
        codec.decode(record.data, Rollout)
        for record in journey.store.range(ROLLOUTS.name, limit=ROWS_MAX)
    ]
    newest = [row.rollout_id for row in sorted(stored, key=lambda row: row.opened_at)][::-1]
    channel = stored[0].channel

    def listed(limit: int, **wanted: Any) -> list[str]:
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page, after = newest_rollouts(
                reads, RolloutsWanted(**wanted), lambda row: True, after=after, limit=limit
            )
            found += [item.rollout.row.rollout_id for item in page]
        return found

    assert len(newest) > 2
    assert listed(100) == listed(1) == newest
    assert listed(1, channel=channel) == [id for id in newest if id.startswith(f"{channel}@")]
    assert listed(2, since=stored[-1].opened_at) == [
        row.rollout_id
        for row in sorted(stored, key=lambda row: row.opened_at, reverse=True)
        if row.opened_at >= stored[-1].opened_at
    ]


def test_counts_the_hosts_of_each_channel_by_what_they_run(journey: InProcessFleet) -> None:
    now = journey.clock.now
    pictures = FleetPictures(Reads(journey.store), lambda: now, small_fleet=0)
    picture = pictures.look()
    fleet = [
        codec.decode(record.data, Host)
        for record in journey.store.range(HOSTS.name, limit=ROWS_MAX)
    ]
    present = [host for host in fleet if host.status != RETIRED]
    channels = {
        record.key.id: codec.decode(record.data, Channel)
        for record in journey.store.range(CHANNELS.name, limit=ROWS_MAX)
    }

    assert picture.hosts == len(present)
    assert {item.channel for item in picture.channels} == set(channels)
    for item in picture.channels:
        selector = selectors.parse(channels[item.channel].selector)
        mine = [host for host in present if selector.matches(host.labels, host.host_id)]
        assert item.hosts == len(mine)
        assert item.running.total() + item.unknown == item.hosts
        assert item.silent == sum(
            host.silent_since is not None and host.status == ENROLLED for host in mine
        )
    now += timedelta(seconds=FRESH_SECONDS - 1)
    assert pictures.look() is picture
    now += timedelta(seconds=1)
    assert pictures.look() is not picture


# ── classes ───────────────────────────────────────────────────────────────────────────────────────


def tables_of(fleet_stores: FleetStores, engine: str) -> set[str]:
    """List the tables of the database, without those that the engine keeps for itself."""
    match engine:
        case "sqlite":
            found = fleet_stores.sql("SELECT name FROM sqlite_schema WHERE type = 'table'")
            return {name for (name,) in found} - (ENGINE_TABLES - {"event_log"})
        case "postgres":
            assert fleet_stores.address is not None
            found = fleet_stores.sql(
                "SELECT tablename FROM pg_tables WHERE schemaname = ?",
                fleet_stores.address.namespace,
            )
            return {name for (name,) in found} - (OWN_TABLES - {"event_log"})
        case "dynamodb":
            return {"event_log"} | collections_of(fleet_stores)
        case _:
            return {"event_log", *SCHEMA.collections}


def undeclared(tables: Iterable[str]) -> set[str]:
    """The tables that no collection declares, so nothing could rebuild them."""
    return {*tables} - {"event_log", *SCHEMA.collections}


def collections_of(fleet_stores: FleetStores) -> set[str]:
    """List the collections that have items in the table, known to us or not."""
    assert fleet_stores.address is not None
    table, _, options = fleet_stores.address.where.removeprefix("dynamodb://").partition("?")
    client = boto3.client(
        "dynamodb",
        region_name="local",
        endpoint_url=options.partition("endpoint=")[2],
    )
    with closing(client):
        pages = client.get_paginator("scan").paginate(TableName=table, ProjectionExpression="pk")
        keys = {item["pk"]["S"] for page in pages for item in page["Items"]}
    return {key.removeprefix("record#") for key in keys if key.startswith("record#")}


@pytest.mark.req("RO-8")
def test_declares_the_class_of_every_table(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    assert {name: SCHEMA.collections[name].nature for name in SEED_TABLES} == SEED_TABLES
    for name, collection in SCHEMA.collections.items():
        folded = collection.writers is Writers.FOLDED
        assert folded or collection.nature not in (Nature.DERIVED, Nature.CACHE), name
        assert not folded or collection.nature is not Nature.KEPT, f"{name} declares no class"

    tables = tables_of(fleet_stores, engine)
    assert undeclared(tables) == set()
    assert {"event_log", *SEED_TABLES} - {"token_replay", "cert_revocations"} <= tables
    if engine in SQL:
        fleet_stores.sql("CREATE TABLE notes (id INTEGER)")
        assert undeclared(tables_of(fleet_stores, engine)) == {"notes"}
        fleet_stores.sql("DROP TABLE notes")
    stray = Commit(journey.clock(), writes=(Put(Key("notes", "1"), b"{}", ABSENT),))
    (answer,) = journey.store.commit(stray)
    assert isinstance(answer, InvalidInput)


# ── stamps ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-7")
def test_only_folds_write_and_every_row_is_stamped_with_its_fact(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    events = {event.position: event for event in journey.log()}
    records = Records(journey.store, journey.clock)
    for name in ("rollouts", "quarantined_closures", "probe_failures", "host_rollout_records"):
        fold = next(fold for fold in FOLDS.folds if fold.collection.name == name)
        read = {struct.__name__ for struct in fold.reads}
        found = journey.store.range(name, limit=ROWS_MAX)
        assert found
        for record in found:
            assert events[record.version].type in read
            assert events[record.born].type in read
            said = msgspec.json.decode(events[record.version].body)
            assert said["rollout_id"] == msgspec.json.decode(record.data)["rollout_id"]
        value = codec.decode(found[0].data, fold.collection.model)
        for write in (
            lambda: records.put(name, found[0].key.id, value),  # noqa: B023
            lambda: records.delete(name, found[0].key.id),  # noqa: B023
        ):
            with pytest.raises(ImmutableRecord):
                write()
        (alone,) = journey.store.commit(
            Commit(journey.clock(), writes=(Put(found[0].key, found[0].data, found[0].version),))
        )
        assert isinstance(alone, InvalidInput), "no fact, no row"
        if engine in SQL:
            for stamp in ("version", "born"):
                for wrong in ("NULL", "999999"):
                    _check_refused(fleet_stores, f"UPDATE {name} SET {stamp} = {wrong}")
    assert differences(journey.store, FOLDS) == []


def _check_refused(fleet_stores: FleetStores, statement: str) -> None:
    prelude = "PRAGMA foreign_keys = ON; " if _is_sqlite(fleet_stores) else ""
    with pytest.raises(REFUSED):
        fleet_stores.sql(prelude + statement)


def _is_sqlite(fleet_stores: FleetStores) -> bool:
    return fleet_stores.address is not None and fleet_stores.address.engine == "sqlite"


@pytest.mark.req("RO-15", "RO-16")
def test_shows_the_columns_of_the_seed_with_the_positions_of_their_events(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    transitions: dict[str, int] = {}
    openings: dict[str, int] = {}
    for event in journey.log():
        said = msgspec.json.decode(event.body)
        if event.type == "RolloutOpened":
            openings[said["rollout_id"]] = transitions[said["rollout_id"]] = event.position
        if event.type == "RolloutTransitioned":
            transitions[said["rollout_id"]] = event.position
    triggers = [event.position for event in journey.log() if event.type == "RollbackComplete"]

    def shown(collection: Collection) -> dict[str, dict[str, int]]:
        found = journey.store.range(collection.name, limit=ROWS_MAX)
        return {
            record.key.id: {name: getattr(record, of) for name, of in collection.stamps.items()}
            for record in found
        }

    assert shown(ROLLOUTS) == {
        id: {"opened_event_log_seq": at, "last_transition_event_log_seq": transitions[id]}
        for id, at in openings.items()
    }
    assert [*shown(QUARANTINE).values()] == [{"triggering_event_log_seq": triggers[-1]}]
    if engine in SQL:
        _check_columns(journey, fleet_stores, openings, transitions, triggers[-1])


def _check_columns(
    journey: InProcessFleet,
    fleet_stores: FleetStores,
    openings: dict[str, int],
    transitions: dict[str, int],
    trigger: int,
) -> None:
    columns = (
        *("rollout_id", "channel", "target_ref", "state", "current_wave", "opened_event_log_seq"),
        *("last_transition_event_log_seq", "opened_at", "terminal_at", "superseded_at"),
    )
    found = fleet_stores.sql(f"SELECT {', '.join(columns)} FROM rollouts ORDER BY rollout_id")
    wanted = []
    for record in journey.store.range(ROLLOUTS.name, limit=ROWS_MAX):
        said = msgspec.json.decode(record.data)
        said["opened_event_log_seq"] = openings[record.key.id]
        said["last_transition_event_log_seq"] = transitions[record.key.id]
        wanted.append(tuple(said.get(name) for name in columns))
    assert sorted(found) == sorted(wanted)
    assert fleet_stores.sql("SELECT triggering_event_log_seq FROM quarantined_closures") == [
        (trigger,)
    ]
    _check_refused(fleet_stores, "UPDATE rollouts SET opened_event_log_seq = 1")
    changed = "replace(CAST(data AS text), 'Pruned', 'Gone')"
    as_row = changed if _is_sqlite(fleet_stores) else f"CAST({changed} AS json)"
    _check_refused(fleet_stores, f"UPDATE rollouts SET data = {as_row} WHERE state = 'Pruned'")


@pytest.mark.parametrize(
    "stamps",
    [
        {"opened_seq": "data"},
        {"state": "born"},
        {"Version": "born"},
        {"id": "born"},
        {"a b": "born"},
    ],
    ids=str,
)
def test_refuses_an_empty_stamp_or_one_whose_name_is_taken(stamps: dict[str, str]) -> None:
    with pytest.raises(InvalidDefinition, match="stamp"):
        altered(ROLLOUTS, stamps=stamps)


@pytest.mark.req("RO-15", "RO-16")
def test_finds_rollouts_by_channel_and_state_and_by_being_in_flight(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    def found(index: str, *parts: str) -> list[str]:
        prefix = entry(*parts)
        records = journey.store.range(ROLLOUTS.name, index=index, prefix=prefix, limit=ROWS_MAX)
        return [record.key.id for record in records]

    assert found("channel_state", "edge", "Active") == [AGAIN]
    assert found("channel_state", "edge", "Pruned") == ["edge@web.1", "edge@web.2"]
    assert found("channel_state", "core", "Pruned") == ["core@web.1"]
    in_flight = [id for state in sorted(OPEN) for id in found("by_in_flight", state)]
    assert in_flight == [CORE_NEXT, AGAIN]
    if engine == "sqlite":
        for where, index in (
            ("channel = 'edge' AND state = 'Active'", "rollouts.channel_state"),
            ("in_flight = 'Active'", "rollouts.by_in_flight"),
            ("state IN ('Opening', 'Active', 'Converging', 'Reverted', 'Failed')", "by_state"),
        ):
            (plan,) = fleet_stores.sql(f"EXPLAIN QUERY PLAN SELECT id FROM rollouts WHERE {where}")
            assert index in plan[3]
    if engine == "postgres":
        indexed = {sql for (sql,) in fleet_stores.sql("SELECT indexdef FROM pg_indexes")}
        for columns in ("(channel, state, id)", "(in_flight, id)", "(state, id)"):
            assert any("rollouts" in sql and columns in sql for sql in indexed)
    wrong = msgspec.json.decode(journey.record_of(rollout_key(FIRST)).data) | {"state": "Gone"}
    with pytest.raises(InvalidInput, match="allowed are"):
        ROLLOUTS.check_row(FIRST, msgspec.json.encode(wrong))
    assert ROLLOUTS.allowed["state"] == {state.value for state in RolloutState}


SEED_NOT_NULL = {"rollout_id", "channel", "target_ref", "state", "current_wave", "opened_at"}


@pytest.mark.req("RO-15")
def test_columns_that_the_seed_never_leaves_null_are_never_null(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    if engine == "sqlite":
        found = fleet_stores.sql("SELECT name FROM pragma_table_xinfo('rollouts') WHERE [notnull]")
    elif engine == "postgres":
        found = fleet_stores.sql(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'rollouts'"
            " AND is_nullable = 'NO' AND table_schema = current_schema()"
        )
    else:
        found = [(name,) for name in ROLLOUTS.required]  # an engine without columns
    assert {name for (name,) in found} >= SEED_NOT_NULL


# ── the log ───────────────────────────────────────────────────────────────────────────────────────

SEED_KINDS = {"agent_event", "plan_action", "effect", "gate_decision", "rollout_event"}


@pytest.mark.req("RO-17")
def test_the_log_is_immutable_and_every_kind_has_one_writer(
    journey: InProcessFleet, fleet_stores: FleetStores, engine: str
) -> None:
    before = journey.log()
    if engine in SQL:
        for statement in (
            "UPDATE event_log SET kind = 'x'",
            "UPDATE event_log SET body = '{}' WHERE seq = 1",
            "DELETE FROM event_log",
            "DELETE FROM event_log WHERE seq = 1",
            "INSERT INTO event_log SELECT * FROM event_log WHERE seq = 1",
        ):
            _check_refused(fleet_stores, statement)
        columns = "seq + 1000000, at, 'gossip', type, schema, tags, meta, body"
        gossip = f"INSERT INTO event_log SELECT {columns} FROM event_log WHERE seq = 1"
        _check_refused(fleet_stores, gossip)
        again = "SELECT seq, at, 'x', type, schema, tags, meta, body FROM event_log WHERE seq = 1"
        _check_refused(
            fleet_stores,
            f"REPLACE INTO event_log {again}"
            if _is_sqlite(fleet_stores)
            else f"INSERT INTO event_log {again} ON CONFLICT (seq) DO UPDATE SET kind = 'x'",
        )
    assert journey.log() == before

    declared = {kind.struct.__name__: kind.kind for kind in FACTS}
    assert {event.kind for event in before} <= {*declared.values()}
    assert {event.kind: declared[event.type] for event in before} == {
        kind: kind for kind in {event.kind for event in before}
    }
    assert {*declared.values()} >= SEED_KINDS
    assert {"agent_event", "plan_action", "gate_decision", "rollout_event"} <= {
        event.kind for event in before
    }
    decided = {struct.__name__ for item in SLICES for struct in item.writes}
    written = decided | {kind.struct.__name__ for kind in REPAIRS}  # these by raw access
    kinds = {declared[name] for name in written}
    assert kinds == {*declared.values()}, "each declared kind has a writer"


# ── what the log proves ───────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-14", "RO-7")
def test_rebuilds_any_view_from_the_log_even_from_an_empty_table(journey: InProcessFleet) -> None:
    before = rows(journey.store)
    touched = [fold for fold in FOLDS.folds if rows(journey.store, fold.collection.name)]
    assert {*SEED_TABLES} & {fold.collection.name for fold in touched} == {
        *("host_rollout_records", "probe_failures", "rollouts", "quarantined_closures")
    }
    for fold in touched:
        journey.store.restore(fold.collection.name, ())
        assert rows(journey.store, fold.collection.name) == {}

    missing = differences(journey.store, FOLDS)
    assert {found.what for found in missing} == {"missing row"}
    assert len(missing) == sum(len(rows_of(before, fold)) for fold in touched)

    for fold in touched:
        rebuild(journey.store, FOLDS, fold)
        assert rows(journey.store, fold.collection.name) == rows_of(before, fold)
    assert differences(journey.store, FOLDS) == []


def rows_of(found: dict[Key, Record], fold: Fold) -> dict[Key, Record]:
    return {key: row for key, row in found.items() if key.collection == fold.collection.name}


@pytest.mark.req("RO-14")
def test_finds_a_row_that_was_changed_added_or_removed_by_hand(journey: InProcessFleet) -> None:
    honest = journey.store.range(ROLLOUTS.name, limit=ROWS_MAX)
    record = journey.record_of(rollout_key(AGAIN))
    row = codec.decode(record.data, Rollout)
    forged = codec.encode(msgspec.structs.replace(row, state=RolloutState.TERMINAL))
    others = [one for one in honest if one.key != record.key]

    def seen(*records: Record) -> list[tuple[str, str]]:
        journey.store.restore(ROLLOUTS.name, [*others, *records])
        return [(found.key, found.what) for found in differences(journey.store, FOLDS)]

    key = str(record.key)
    assert seen(Record(record.key, record.version, record.born, forged)) == [(key, "data")]
    assert seen(Record(record.key, record.version, record.born - 1, record.data)) == [
        (key, "stamp")
    ]
    assert seen() == [(key, "missing row")]
    stray = Record(rollout_key("edge@web.9"), record.version, record.born, record.data)
    assert seen(record, stray) == [(str(stray.key), "extra row")]
    assert seen(record) == []


def test_a_rollout_that_waits_for_its_first_host_shows_no_difference() -> None:
    fleet = InProcessFleet(MemoryStore(SCHEMA))
    enroll_fleet(fleet)

    fleet.promote("edge", "web.1")

    assert fleet.store.range(HOST_RECORDS.name, limit=1) == ()
    assert lost_caches(fleet.store, FOLDS) == ()
    fleet.dispatch()
    fleet.store.restore(HOST_RECORDS.name, ())
    assert HOST_RECORDS.name in [f.collection.name for f in lost_caches(fleet.store, FOLDS)]


@pytest.mark.req("RO-20")
def test_a_start_rebuilds_the_records_and_refills_the_queue(
    journey: InProcessFleet, fleet_stores: FleetStores
) -> None:
    before = rows(journey.store)
    queued = {key: row for key, row in before.items() if key.collection == DISPATCH_QUEUE.name}
    assert [key.id for key in queued] == [f"c1/{CORE_NEXT}/1"]
    assert DISPATCH_QUEUE.nature is Nature.QUEUE
    assert rebuild_lost(journey.store, FOLDS) == (), "nothing is lost"

    for name in (HOST_RECORDS.name, TALLIES.name):
        journey.store.restore(name, ())
        journey.store.restore(DISPATCH_QUEUE.name, ())
        store = fleet_stores.open()  # a start
        assert HOST_RECORDS.name in rebuild_lost(store, FOLDS)
        journey.control_plane.restart()
        assert journey.control_plane.deliveries.refill() == 1
        assert journey.control_plane.deliveries.refill() == 0

        after = rows(store)
        refilled = after.pop(Key(DISPATCH_QUEUE.name, f"c1/{CORE_NEXT}/1"))
        assert refilled.data == queued[refilled.key].data
        assert after == {key: row for key, row in before.items() if key not in queued}
    assert differences(journey.store, FOLDS) == []
    assert journey.control_plane.deliveries.poll("c1") is None, "its channel edge has closed since"


@pytest.mark.req("RO-24")
def test_reads_every_rollouts_history_from_an_export_of_the_log_alone(
    journey: InProcessFleet,
) -> None:
    shield = FactRedactor(SCHEMA.vocabulary)
    export = [shield.line(event) for event in feed(journey.store, 0)]

    found = histories(export)

    live = journey.store.range(ROLLOUTS.name, limit=ROWS_MAX)
    assert {*found} == {record.key.id for record in live}
    for record in live:
        row, told = codec.decode(record.data, Rollout), found[record.key.id]
        assert (told.channel, told.target_ref) == (row.channel, row.target_ref)
        assert (told.opened.position, told.opened.at) == (record.born, row.opened_at)
        assert (told.last.position, told.last.state) == (record.version, row.state)
        assert told.last.current_wave == row.current_wave
        entered = {change.state: change.at for change in told.changes}
        assert (row.terminal_at, row.superseded_at, row.pruned_at) == (
            entered.get(RolloutState.TERMINAL),
            entered.get(RolloutState.SUPERSEDED),
            entered.get(RolloutState.PRUNED),
        )
    lines = [line.split("  ") for line in render(found) if line.startswith(f"{FIRST}  ")]
    assert [line[3] for line in lines] == [
        "Opening",
        "Opening → Active",
        "Active → Converging",
        "Converging → Active",
        "Active → Converging",
        "Converging → Terminal",
        "Terminal → Superseded",
        "Superseded → Pruned",
    ]
    with pytest.raises(InvalidInput, match="not whole"):
        histories(line for line in export if b'"RolloutOpened"' not in line)
    with pytest.raises(InvalidInput, match="line 2"):
        histories([export[0], b"not an event\n"])
