"""Rows: versions that never recur, guards on them, and ranges by id and by index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.contract.address import Connect
from tests.contract.world import (
    Note,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    Tally,
    append,
    commit_of,
    ids,
    item,
    land,
    put,
    row,
    stored,
    whole_feed,
    write,
)
from tests.quick import fewer
from tidegate.errors import InvalidInput, VersionConflict
from tidegate.kernel import codec
from tidegate.kernel.model import ABSENT, Check, Delete, Key, Put, Record, Write
from tidegate.kernel.store import Store

A, B, C = item("a"), item("b"), item("c")
TALLY = Key("tallies", "t")


# How many different moments are checked.
MOMENTS = {"memory": 200, "sqlite": 200, "postgres": 200, "dynamodb": 40}


def test_a_row_is_absent_until_it_is_put(store: Store) -> None:
    assert store.get(A, B) == (None, None)

    version = write(store, put(B, row(name="here")))

    assert store.get(A, B) == (None, Record(B, version, version, row(name="here")))


def test_a_commit_without_facts_takes_one_number_and_is_not_in_the_feed(store: Store) -> None:
    before = append(store, Rebooted("1"))
    version = write(store, put(A, row()), put(B, row()))
    after = append(store, Rebooted("2"))

    assert before.last < version < after.first
    assert stored(store, A).version == stored(store, B).version == version
    assert [event.position for event in whole_feed(store)] == [before.last, after.last]


def test_a_version_is_the_position_of_the_fact_that_wrote_it(store: Store) -> None:
    receipt = land(
        store,
        commit_of(
            Rebooted(),
            ProductAdded("p1"),
            ProductAdded("p2"),
            writes=[put(A, row(), fact=1), put(B, row(), fact=2), put(C, row())],
        ),
    )

    versions = [stored(store, key).version for key in (A, B, C)]
    assert versions == [receipt.first + 1, receipt.first + 2, receipt.first]


def test_keeps_the_position_that_created_a_row(store: Store) -> None:
    born = write(store, put(A, row(name="1")))

    second = write(store, put(A, row(name="2"), expect=born))
    third = write(store, put(A, row(name="3"), expect=second))

    assert born < second < third
    assert stored(store, A) == Record(A, third, born, row(name="3"))


def test_a_row_created_and_changed_in_one_commit_is_stamped_by_the_first_fact(
    store: Store,
) -> None:
    facts = (Rebooted(), ProductAdded("p1"), ProductAdded("p2"))

    made = land(store, commit_of(*facts, writes=[Put(A, row(name="1"), ABSENT, fact=2, born=1)]))
    assert stored(store, A) == Record(A, made.first + 2, made.first + 1, row(name="1"))

    again = Put(A, row(name="2"), made.first + 2, fact=2, born=0)  # deleted and created again
    remade = land(store, commit_of(*facts, writes=[again]))
    assert stored(store, A) == Record(A, remade.first + 2, remade.first, row(name="2"))


def test_returns_rows_in_the_order_requested_and_a_row_twice_if_requested_twice(
    store: Store,
) -> None:
    write(store, put(A, row(name="a")), put(B, row(name="b")))
    a, b = stored(store, A), stored(store, B)

    assert store.get(B, C, A, B) == (b, None, a, b)
    assert store.get() == ()


def test_gets_more_rows_than_any_batch_of_a_database_holds(store: Store) -> None:
    keys = [item(f"{number:03}") for number in range(240)]
    for start in range(0, 240, 24):
        write(store, *(put(key, row(name=key.id)) for key in keys[start : start + 24]))

    found = store.get(*reversed(keys))

    assert [record.data for record in found if record] == [row(name=k.id) for k in reversed(keys)]


@pytest.mark.parametrize(
    "keys",
    [
        [item("a"), item("b")],
        [item("a"), Key("notes", "a")],
        [item("a"), *(item(f"absent-{number}") for number in range(98)), Key("notes", "a")],
    ],
    ids=["one collection", "two collections", "a hundred"],
)
def test_gets_rows_as_of_one_moment(connect: Connect, engine: str, keys: list[Key]) -> None:
    """Every commit writes all of them, so they are always at one version."""
    writer, reader = connect(), connect()
    written = [keys[0], keys[-1]]
    over = Event()

    def write_on() -> None:
        version = 0
        while not over.is_set():
            data = {"items": row(count=version), "notes": codec.encode(Note(str(version)))}
            writes = [put(key, data[key.collection], version) for key in written]
            version = land(writer, commit_of(writes=writes)).last

    torn: list[tuple[int, ...]] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_on)
        try:
            moments: set[tuple[int, ...]] = set()
            while len(moments) < fewer(MOMENTS[engine]) and not torn and not writing.done():
                found = reader.get(*keys)
                versions = tuple(0 if one is None else one.version for one in (found[0], found[-1]))
                moments.add(versions)
                torn += [versions] if len(set(versions)) > 1 else []
        finally:
            over.set()
        writing.result()
    assert torn == []


@pytest.mark.parametrize("expect", [ABSENT, "stale", "future"])
def test_refuses_to_put_over_another_version(store: Store, expect: str | int) -> None:
    old = write(store, put(A, row(name="1")))
    now = write(store, put(A, row(name="2"), expect=old))
    expected = {"stale": old, "future": now + 1}.get(str(expect), ABSENT)

    with pytest.raises(VersionConflict) as refusal:
        write(store, put(A, row(name="3"), expect=expected))

    assert refusal.value.facts["expected"] == expected
    assert refusal.value.facts["found"] == now
    assert stored(store, A).data == row(name="2")


def test_refuses_to_put_over_a_version_of_an_absent_row(store: Store) -> None:
    with pytest.raises(VersionConflict) as refusal:
        write(store, put(A, row(), expect=5))

    assert refusal.value.facts["found"] == ABSENT


def test_deletes_a_row_at_its_version_only(store: Store) -> None:
    old = write(store, put(A, row(name="1")))
    now = write(store, put(A, row(name="2"), expect=old))
    with pytest.raises(VersionConflict):
        write(store, Delete(A, expect=old))

    write(store, Delete(A, expect=now))

    assert store.get(A) == (None,)
    with pytest.raises(VersionConflict) as refusal:
        write(store, Delete(A, expect=now))
    assert refusal.value.facts["found"] == ABSENT


def test_never_reuses_a_version_so_a_late_holder_is_refused(store: Store) -> None:
    alice = write(store, put(A, row(name="alice")))
    write(store, Delete(A, expect=alice))
    bob = write(store, put(A, row(name="bob")))

    assert bob > alice
    assert stored(store, A).born == bob
    for late in (put(A, row(name="alice again"), expect=alice), Delete(A, expect=alice)):
        with pytest.raises(VersionConflict):
            write(store, late)
    assert stored(store, A).data == row(name="bob")


def test_a_check_requires_a_version_and_changes_nothing(store: Store) -> None:
    version = write(store, put(A, row(name="1")))
    before = stored(store, A)

    write(store, Check(A, expect=version), Check(B, expect=ABSENT), put(C, row()))

    assert stored(store, A) == before
    assert store.get(B) == (None,)
    for failing in (Check(A, expect=ABSENT), Check(A, expect=version + 1), Check(B, expect=1)):
        with pytest.raises(VersionConflict):
            land(store, commit_of(Rebooted(), writes=[failing, put(item("d"), row())]))
    assert whole_feed(store) == []
    assert store.get(item("d")) == (None,)


@pytest.mark.req("PB-10")
@pytest.mark.parametrize(
    "second",
    [put(A, row()), Delete(A, expect=1), Check(A, expect=0)],
    ids=["put", "delete", "check"],
)
def test_refuses_to_name_a_row_twice(store: Store, second: Write) -> None:
    with pytest.raises(InvalidInput, match="items/a twice"):
        write(store, put(A, row()), second)

    assert store.get(A) == (None,)


@pytest.mark.req("PB-10")
def test_writes_all_of_several_rows_or_none(store: Store) -> None:
    lock = write(store, put(B, row(name="lock")))

    with pytest.raises(VersionConflict):
        write(store, put(A, row(name="meta")), Delete(B, expect=lock + 1))
    assert store.get(A) == (None,)

    write(store, put(A, row(name="meta")), Delete(B, expect=lock))
    assert stored(store, A).data == row(name="meta")
    assert store.get(B) == (None,)


def test_rows_of_two_collections_with_one_id_are_two_rows(store: Store) -> None:
    note = Key("notes", "a")
    write(store, put(A, row(name="item")), put(note, b'{"text":"note"}'))

    write(store, Delete(note, expect=stored(store, note).version))

    assert stored(store, A).data == row(name="item")


def test_returns_the_bytes_that_were_put(store: Store) -> None:
    texts = ("", "ünïcode 😀", "quotes ' \" \\ `", "new\nline\ttab", "%_*?[", "\u2028\u2029", "0")
    notes = {Key("notes", f"n{n}"): codec.encode(Note(text)) for n, text in enumerate(texts)}
    write(store, *(put(key, data) for key, data in notes.items()))

    assert [record.data for record in store.get(*notes) if record] == list(notes.values())


# ── folded rows ───────────────────────────────────────────────────────────────────────────────────


def test_a_folded_row_is_written_with_its_fact_or_not_at_all(store: Store) -> None:
    data = codec.encode(Tally("open", 1))
    for write_alone in (put(TALLY, data), Delete(TALLY, expect=3)):
        with pytest.raises(InvalidInput, match="no fact, no write"):
            write(store, write_alone)

    receipt = land(store, commit_of(Rebooted(), writes=[put(TALLY, data)]))
    write(store, Check(TALLY, expect=receipt.last))
    land(store, commit_of(Rebooted(), writes=[Delete(TALLY, expect=receipt.last)]))

    assert store.get(TALLY) == (None,)


def test_refuses_a_value_outside_of_a_narrowed_column(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"tallies\.state is 'ajar'"):
        land(store, commit_of(Rebooted(), writes=[put(TALLY, codec.encode(Tally("ajar")))]))

    assert whole_feed(store) == []


def test_names_an_unknown_collection_and_an_unknown_index(store: Store) -> None:
    with pytest.raises(InvalidInput, match="'nothing'"):
        store.range("nothing", limit=1)
    with pytest.raises(InvalidInput, match="by_colour"):
        store.range("items", index="by_colour", limit=1)
    with pytest.raises(InvalidInput, match="'nothing'"):
        store.get(Key("nothing", "a"))
    with pytest.raises(InvalidInput, match="'nothing'"):
        write(store, Put(Key("nothing", "a"), b"{}", ABSENT))


# ── rebuilds ──────────────────────────────────────────────────────────────────────────────────────


def test_restore_replaces_a_collection_and_keeps_stamps(connect: Connect) -> None:
    store, other = connect(), connect()
    first = land(store, commit_of(ProductAdded("p1"), writes=[put(A, row(state="open"))]))
    second = land(store, commit_of(ProductRenamed("p1"), writes=[put(B, row(state="open"))]))
    write(store, put(Key("notes", "a"), b'{"text":"stays"}'))
    rebuilt = (
        Record(B, second.last, first.last, row(state="closed", name="again")),
        Record(C, first.last, first.last, row(state="open")),
    )

    store.restore("items", rebuilt)

    assert other.range("items", limit=10) == rebuilt
    assert ids(other.range("items", index="by_state", limit=10)) == ["b", "c"]
    assert stored(other, Key("notes", "a")).data == b'{"text":"stays"}'
    assert len(whole_feed(other)) == 2
    later = land(other, commit_of(Rebooted(), writes=[put(B, row(), expect=second.last)]))
    assert stored(store, B) == Record(B, later.last, first.last, row())


def test_restore_with_nothing_empties_the_collection(store: Store) -> None:
    data = codec.encode(Tally("open"))
    landed = land(store, commit_of(Rebooted(), writes=[put(TALLY, data)]))

    store.restore("tallies", iter([Record(TALLY, landed.last, landed.last, data)]))
    assert stored(store, TALLY).data == data
    store.restore("tallies", ())

    assert store.range("tallies", limit=10) == ()
    assert store.get(TALLY) == (None,)


def test_restores_more_rows_than_any_batch_of_a_database_holds(store: Store) -> None:
    stamp = append(store, Rebooted()).last
    keys = [item(f"{number:03}") for number in range(130)]

    store.restore("items", (Record(key, stamp, stamp, row(state="open")) for key in keys))

    assert ids(store.range("items", limit=200)) == [key.id for key in keys]
    assert len(store.range("items", index="by_state", prefix="open", limit=200)) == 130
