"""A log outlives the programs that wrote it: old facts under new types, new folds over old
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from msgspec import Struct, defstruct

from tests.differential.logs import Logs
from tidegate.engines.memory import MemoryStore
from tidegate.errors import BoundaryMoved, InvalidInput, StoreRefused
from tidegate.kernel import codec
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.model import Clause, Commit, Event, Key, Match, Query, Receipt, Record
from tidegate.kernel.replay import (
    begin,
    changed_folds,
    differences,
    rebuild,
    rebuild_all,
    rebuild_changed,
)
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.tags import Partition
from tidegate.kernel.vocabulary import FactType, Vocabulary, facts

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)

# ── one type in three schemas, and one that is removed later ──────────────────────────────────────

HostSeen1 = defstruct("HostSeen", [("host_id", str), ("address", str)], frozen=True)
HostSeen2 = defstruct("HostSeen", [("host_id", str), ("addresses", tuple[str, ...])], frozen=True)
HostSeen3 = defstruct(
    "HostSeen",
    [("host_id", str), ("addresses", tuple[str, ...]), ("zone", str)],
    frozen=True,
)
HostRetired = defstruct("HostRetired", [("host_id", str)], frozen=True)


def several_addresses(old: dict[str, Any]) -> dict[str, Any]:
    return {"host_id": old["host_id"], "addresses": [old["address"]]}


def with_zone(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "zone": "unknown"}


UPCASTS = {1: several_addresses, 2: with_zone}
RETIRED = FactType(HostRetired, "host")
FIRST = Vocabulary((FactType(HostSeen1, "host"), RETIRED))
SECOND = Vocabulary((FactType(HostSeen2, "host", schema=2, upcasts=UPCASTS), RETIRED))
THIRD = Vocabulary((FactType(HostSeen3, "host", schema=3, upcasts=UPCASTS), RETIRED))
WITHOUT_RETIRED = Vocabulary((FactType(HostSeen1, "host"),))
EVERYTHING_ABOUT_WEB = Query((Clause(None, frozenset({"host_id:web"})),))
ABOUT_WEB = Query((Clause(frozenset({"HostSeen"}), frozenset({"host_id:web"})),))

Open = Callable[[Schema], Store]


@pytest.fixture
def reopen(engine: str, tmp_path: Path) -> Iterator[Open]:
    """Opens one log repeatedly, as programs of different versions do, one after the other."""
    with ExitStack() as last, closing(Logs(engine, tmp_path)) as logs:
        memory: list[MemoryStore] = []
        address = None if engine == "memory" else logs.address()

        def open_with(schema: Schema) -> Store:
            last.close()
            if address is not None:
                return last.enter_context(closing(address.open(schema)))
            memory.append(memory[0] if memory else MemoryStore(schema))
            memory[0].schema = schema
            return memory[0]

        yield open_with


def land(store: Store, *values: Struct) -> Receipt:
    facts = tuple(store.schema.vocabulary.fact(value) for value in values)
    (answer,) = store.commit(Commit(T0, facts=facts))
    assert isinstance(answer, Receipt)
    return answer


def feed(store: Store) -> tuple[Event, ...]:
    return store.feed(after=0, limit=100).events


def test_reads_facts_of_an_older_program_as_current_facts(reopen: Open) -> None:
    old = reopen(Schema(FIRST))
    land(old, HostSeen1("web", "10.0.0.1"), HostSeen1("db", "10.0.0.2"))
    stored = feed(old)
    land(reopen(Schema(SECOND)), HostSeen2("web", ("10.0.0.3", "fe80::1")))

    new = reopen(Schema(THIRD))
    land(new, HostSeen3("web", (), "north"))
    events = new.read(ABOUT_WEB).events

    assert [event.schema for event in events] == [1, 2, 3]
    assert [THIRD.value(event) for event in events] == [
        HostSeen3("web", ("10.0.0.1",), "unknown"),
        HostSeen3("web", ("10.0.0.3", "fe80::1"), "unknown"),
        HostSeen3("web", (), "north"),
    ]
    assert [codec.leaf(event) for event in feed(new)[:2]] == [codec.leaf(event) for event in stored]


def test_guards_a_decision_of_a_new_program_against_old_and_new_facts(reopen: Open) -> None:
    land(reopen(Schema(FIRST)), HostSeen1("web", "10.0.0.1"))
    new = reopen(Schema(SECOND))
    page = new.read(ABOUT_WEB)
    assert page.has_boundary
    fact = SECOND.fact(HostSeen2("web", ("10.0.0.3",)))
    decided = Commit(T0, facts=(fact,), boundaries=(page.boundary,))

    first, second = (new.commit(decided)[0] for _ in range(2))

    assert isinstance(first, Receipt)
    assert isinstance(second, BoundaryMoved)


def test_an_older_program_stops_at_a_newer_schema(reopen: Open) -> None:
    land(reopen(Schema(SECOND)), HostSeen2("web", ("10.0.0.1",)))

    (event,) = feed(reopen(Schema(FIRST)))

    with pytest.raises(InvalidInput, match="HostSeen of schema 2 is unknown"):
        FIRST.value(event)


def test_an_unknown_type_stops_reads_and_folds_but_not_the_feed(reopen: Open) -> None:
    land(reopen(Schema(FIRST)), HostSeen1("web", "10.0.0.1"), HostRetired("db"))
    schema = Schema(WITHOUT_RETIRED, (HOSTS,))
    store = reopen(schema)
    land(store, HostSeen1("web", "10.0.0.2"))

    events = feed(store)

    assert [event.type for event in events] == ["HostSeen", "HostRetired", "HostSeen"]
    assert [event.position for event in store.read(ABOUT_WEB).events] == [
        events[0].position,
        events[2].position,
    ]
    with pytest.raises(InvalidInput, match="HostRetired of schema 1 is unknown"):
        WITHOUT_RETIRED.value(events[1])
    with pytest.raises(InvalidInput, match="HostRetired"):
        rebuild_changed(store, Folds(schema, (counted(number=1, step=1),)), T0)


def test_a_read_of_every_type_returns_facts_of_a_newer_program(reopen: Open) -> None:
    old = Schema(WITHOUT_RETIRED)
    land(reopen(old), HostSeen1("web", "10.0.0.1"))
    before = reopen(old).read(EVERYTHING_ABOUT_WEB).boundary
    newer = reopen(Schema(FIRST))
    land(newer, HostRetired("web"), HostRetired("db"), HostSeen1("web", "10.0.0.3"))

    store = reopen(old)

    about_web = [event.position for event in feed(store) if "host_id:web" in event.tags]
    assert len(about_web) == 3
    found = store.read(EVERYTHING_ABOUT_WEB)
    assert [event.position for event in found.events] == about_web
    contains = Query((Clause(None, frozenset({"host_id:web"}), Match.CONTAINS),))
    assert store.read(contains).events == found.events
    scanned = Query((*EVERYTHING_ABOUT_WEB.clauses, Clause(frozenset({"HostSeen"}))))
    assert store.read(scanned).events == found.events
    assert before is not None
    assert found.has_boundary
    moved, landed = store.commit(
        Commit(T0, boundaries=(before,)), Commit(T0, boundaries=(found.boundary,))
    )
    assert isinstance(moved, BoundaryMoved)
    assert isinstance(landed, Receipt)


# ── a slice that reads more types by its composite than before ────────────────────────────────────


class Reserved(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class Released(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


class Reserve(Struct, frozen=True):
    product_id: Annotated[str, Partition()]
    order_id: str


def reserving(*reads: type[Struct]) -> Schema:
    """Build a release whose one slice reads these types by product and order."""
    item = Slice(
        name="reserve",
        command=Reserve,
        reads=reads,
        writes=(Reserved,),
        start=lambda command: 0,
        evolve=lambda state, fact: state + 1,
        decide=lambda state, command, now: (),
    )
    return Schema(Vocabulary(facts("stock", Reserved, Released), (item,)))


def test_a_slice_that_reads_one_more_type_finds_its_old_facts(engine: str, reopen: Open) -> None:
    land(reopen(reserving(Reserved)), Released("p1", "o1"), Reserved("p1", "o1"))
    pair = frozenset({"product_id:p1", "order_id:o1"})
    query = Query((Clause(frozenset({"Reserved", "Released"}), pair),))

    if engine == "dynamodb":  # its index items are written with the events, and only then
        with pytest.raises(StoreRefused, match="Released") as refusal:
            reopen(reserving(Reserved, Released))
        assert refusal.value.facts["type"] == "Released"
        return
    new = reopen(reserving(Reserved, Released))

    page = new.read(query)
    assert [event.type for event in page.events] == ["Released", "Reserved"]
    assert page.has_boundary
    land(new, Released("p1", "o1"))
    (late,) = new.commit(Commit(T0, boundaries=(page.boundary,)))
    assert isinstance(late, BoundaryMoved)


# ── a fold that counts differently than before ────────────────────────────────────────────────────


class Host(Struct, frozen=True):
    seen: int = 0


HOSTS = Collection("hosts", Host, writers=Writers.FOLDED, nature=Nature.DERIVED)


def counted(number: int, step: int) -> Fold:
    return Fold(
        collection=HOSTS,
        number=number,
        reads=(HostSeen1,),
        ids=lambda fact: (fact.host_id,),
        start=lambda id, fact: Host(),
        step=lambda host, fact, at: Host(host.seen + step),
    )


def test_a_fold_with_a_new_number_is_rebuilt_at_the_start(reopen: Open) -> None:
    schema = Schema(FIRST, (HOSTS,))
    store = reopen(schema)
    receipt = land(store, HostSeen1("web", "1"), HostSeen1("db", "2"), HostSeen1("web", "3"))
    old = Folds(schema, (counted(number=1, step=1),))
    assert rebuild_changed(store, old, T0) == ("hosts",)
    assert differences(store, old) == []

    store = reopen(schema)
    new = Folds(schema, (counted(number=2, step=10),))
    assert differences(store, new) != []
    rebuilt = rebuild_changed(store, new, T0)

    (web,) = store.get(Key("hosts", "web"))
    assert rebuilt == ("hosts",)
    assert web is not None
    assert codec.decode(web.data, Host) == Host(20)
    assert (web.born, web.version) == (receipt.first, receipt.last)
    assert differences(store, new) == []
    assert rebuild_changed(reopen(schema), new, T0) == ()


def test_a_new_log_needs_no_rebuild_and_keeps_its_first_fold_numbers(
    reopen: Open,
) -> None:
    schema = Schema(FIRST, (HOSTS,))
    store = reopen(schema)
    old, new = (Folds(schema, (counted(number=number, step=1),)) for number in (1, 2))

    begin(store, old, T0)
    begin(store, new, T0)

    assert changed_folds(store, old) == ()
    assert changed_folds(store, new) == new.folds


def test_a_log_with_facts_and_no_fold_numbers_is_not_new(reopen: Open) -> None:
    schema = Schema(FIRST, (HOSTS,))
    store = reopen(schema)
    land(store, HostSeen1("web", "1"))
    folds = Folds(schema, (counted(number=1, step=1),))

    begin(store, folds, T0)

    assert changed_folds(store, folds) == folds.folds


SIGHTS = Collection("sights", Host, writers=Writers.FOLDED, nature=Nature.DERIVED)


class PowerFailed(Exception):
    """The process ended in the middle of its work."""


class Mortal:
    """A store whose process dies at the rows of one collection, or after this many commits."""

    def __init__(self, store: Store, last: str = "", commits: int = 10) -> None:
        self._store = store
        self._last = last
        self._commits = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def restore(self, collection: str, records: Iterable[Record]) -> None:
        if collection == self._last:
            raise PowerFailed
        self._store.restore(collection, records)

    def commit(self, *commits: Commit) -> Any:
        self._commits -= 1
        if self._commits < 0:
            raise PowerFailed
        return self._store.commit(*commits)


def test_an_interrupted_rebuild_is_repeated_as_a_whole(reopen: Open) -> None:
    schema = Schema(FIRST, (HOSTS, SIGHTS))
    hosts = counted(number=1, step=1)
    folds = Folds(schema, (hosts, replace(hosts, collection=SIGHTS)))
    store = reopen(schema)
    land(store, HostSeen1("web", "1"), HostSeen1("db", "2"))
    rebuild_changed(store, folds, T0)
    for name in ("hosts", "sights"):
        store.restore(name, ())

    with pytest.raises(PowerFailed):
        rebuild(cast(Store, Mortal(store, "sights")), folds, *folds.folds)

    store = reopen(schema)
    assert {found.key for found in differences(store, folds)} == {"sights/web", "sights/db"}
    assert changed_folds(store, folds) == folds.folds
    rebuild(store, folds, hosts)
    assert changed_folds(store, folds) == folds.folds, "one of two was rebuilt"
    assert rebuild_changed(store, folds, T0) == ("hosts", "sights")
    assert changed_folds(store, folds) == ()
    assert differences(store, folds) == []


def of_two_numbers(reopen: Open) -> tuple[Schema, Store, Folds, Folds]:
    """Build a log whose rows were written by the older of two programs."""
    schema = Schema(FIRST, (HOSTS,))
    store = reopen(schema)
    land(store, HostSeen1("web", "1"))
    old, new = (Folds(schema, (counted(number, step=number),)) for number in (1, 2))
    rebuild_changed(store, old, T0)
    return schema, store, old, new


def test_rows_that_were_all_rebuilt_do_not_count_as_an_older_programs(
    reopen: Open,
) -> None:
    schema, store, old, new = of_two_numbers(reopen)

    assert rebuild_all(store, new, T0) == 1

    assert changed_folds(store, new) == ()
    with pytest.raises(StoreRefused, match="a newer version wrote rows of this log"):
        changed_folds(reopen(schema), old)


def test_a_rebuild_interrupted_before_it_stored_its_numbers_is_repeated(
    reopen: Open,
) -> None:
    schema, store, old, new = of_two_numbers(reopen)

    with pytest.raises(PowerFailed):
        rebuild_changed(cast(Store, Mortal(store, commits=1)), new, T0)

    store = reopen(schema)
    assert differences(store, new) == []
    assert changed_folds(store, old) == old.folds
    assert rebuild_changed(store, old, T0) == ("hosts",)
    assert differences(store, old) == []
