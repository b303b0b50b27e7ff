"""Ranges of rows: by id and by index, in the same order on every engine, page by page."""

from __future__ import annotations

import pytest

from tests.contract.world import ids, item, put, row, stored, write
from tidegate.errors import VersionConflict
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import Check, Delete, Record
from tidegate.kernel.store import Store

A, B = item("a"), item("b")

IDS = ("A", "B", "a", "a%", "a_b", "aXb", "ab", "a/b", "b", "z", "é", "中", "\ufffd", "😀")


@pytest.fixture(scope="module")
def shelf(steady: Store) -> Store:
    """A log with rows at every edge of the two indexes. Range tests only read it."""
    for start in range(0, len(IDS), 7):
        write(steady, *(put(item(name), row(name=name)) for name in IDS[start : start + 7]))
    rows = {
        "i1": row(state="open", owner="web"),
        "i2": row(state="open", owner="web2"),
        "i3": row(state="opening", owner="web"),
        "i4": row(state="closed", owner="web"),
        "i5": row(state="open"),
        "i6": row(owner="web"),
        "i7": row(state="", owner="web"),
        "i8": row(state="Open", owner="w_b"),
    }
    write(steady, *(put(item(name), data) for name, data in rows.items()))
    return steady


def test_ranges_by_id_in_order_of_code_points(shelf: Store) -> None:
    found = ids(shelf.range("items", limit=100))

    assert found == sorted([*IDS, *(f"i{number}" for number in range(1, 9))])


@pytest.mark.parametrize("prefix", ["a", "A", "a%", "a_", "a/", "é", "😀", "nothing", "z"])
def test_ranges_over_ids_with_a_prefix_taken_literally(shelf: Store, prefix: str) -> None:
    found = ids(shelf.range("items", prefix=prefix, limit=100))

    assert found == sorted(name for name in IDS if name.startswith(prefix))


def test_pages_through_ids(shelf: Store) -> None:
    pages: list[str] = []
    while page := shelf.range("items", after=pages[-1] if pages else "", limit=4):
        assert len(page) <= 4
        pages += ids(page)

    assert pages == ids(shelf.range("items", limit=100))
    assert ids(shelf.range("items", prefix="a", after="a_b", limit=2)) == ["ab"]
    assert ids(shelf.range("items", after="a", prefix="b", limit=2)) == ["b"]
    assert ids(shelf.range("items", after="aa", limit=1)) == ["ab"]


def test_ranges_by_an_index_then_by_id(shelf: Store) -> None:
    by_state = ids(shelf.range("items", index="by_state", limit=100))
    by_owner = ids(shelf.range("items", index="by_owner", limit=100))

    assert by_state == ["i7", "i8", "i4", "i1", "i2", "i5", "i3"]
    assert by_owner == ["i8", "i7", "i4", "i1", "i3", "i2"]


@pytest.mark.parametrize(
    ("index", "prefix", "found"),
    [
        ("by_state", "open", ["i1", "i2", "i5", "i3"]),
        ("by_state", entry("open", ""), ["i1", "i2", "i5"]),
        ("by_state", "O", ["i8"]),
        ("by_state", "op", ["i1", "i2", "i5", "i3"]),
        ("by_state", "opens", []),
        ("by_owner", "web", ["i7", "i4", "i1", "i3", "i2"]),
        ("by_owner", entry("web", ""), ["i7", "i4", "i1", "i3"]),
        ("by_owner", entry("web", "open"), ["i1", "i3"]),
        ("by_owner", entry("web", "open", ""), ["i1"]),
        ("by_owner", "w_", ["i8"]),
        ("by_owner", "w%", []),
    ],
)
def test_ranges_over_the_beginning_of_an_entry(
    shelf: Store, index: str, prefix: str, found: list[str]
) -> None:
    assert ids(shelf.range("items", index=index, prefix=prefix, limit=100)) == found


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_through_an_index_even_inside_one_entry(shelf: Store, limit: int) -> None:
    pages: list[Record] = []
    after = ""
    while page := shelf.range("items", index="by_state", prefix="open", after=after, limit=limit):
        pages += page
        last = codec.decode(page[-1].data, dict)
        after = entry(last["state"], page[-1].key.id)

    assert [record.key.id for record in pages] == ["i1", "i2", "i5", "i3"]


@pytest.mark.parametrize("prefix", ["", "a", "a%", "é", "😀", "nothing"])
def test_ranges_over_ids_in_reverse(shelf: Store, prefix: str) -> None:
    upwards = ids(shelf.range("items", prefix=prefix, limit=100))

    assert ids(shelf.range("items", prefix=prefix, limit=100, descending=True)) == upwards[::-1]


@pytest.mark.parametrize(
    ("index", "prefix"),
    [
        ("by_state", ""),
        ("by_state", "op"),
        ("by_state", entry("open", "")),
        ("by_owner", ""),
        ("by_owner", entry("web", "open")),
        ("by_owner", "w%"),
    ],
)
def test_ranges_over_an_index_in_reverse(shelf: Store, index: str, prefix: str) -> None:
    upwards = ids(shelf.range("items", index=index, prefix=prefix, limit=100))
    downwards = shelf.range("items", index=index, prefix=prefix, limit=100, descending=True)

    assert ids(downwards) == upwards[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_in_reverse(shelf: Store, limit: int) -> None:
    pages: list[Record] = []
    after = ""
    while page := shelf.range(
        "items", index="by_state", prefix="open", after=after, limit=limit, descending=True
    ):
        pages += page
        last = codec.decode(page[-1].data, dict)
        after = entry(last["state"], page[-1].key.id)

    assert [record.key.id for record in pages] == ["i3", "i5", "i2", "i1"]


@pytest.mark.parametrize(
    ("prefix", "after", "found"),
    [
        ("", "B", ["A"]),
        ("", "aa", ["a_b", "aXb"]),
        ("a", "z", ["ab", "a_b"]),
        ("a", "a_b", ["aXb", "a/b"]),
        ("b", "a", []),
        ("a", "a", []),
    ],
)
def test_a_reverse_range_begins_below_the_last_row_seen(
    shelf: Store, prefix: str, after: str, found: list[str]
) -> None:
    page = shelf.range("items", prefix=prefix, after=after, limit=2, descending=True)

    assert ids(page) == found


def test_ranges_over_one_collection_only(shelf: Store) -> None:
    assert shelf.range("notes", limit=10) == ()


def test_a_row_moves_between_entries_and_leaves_them_when_deleted(store: Store) -> None:
    def entries() -> dict[str, list[str]]:
        states = ("closed", "open")
        return {
            state: ids(store.range("items", index="by_state", prefix=state, limit=10))
            for state in states
        }

    first = write(store, put(A, row(state="open")))
    write(store, put(B, row(state="open", owner="web")))
    assert entries() == {"open": ["a", "b"], "closed": []}

    second = write(store, put(A, row(state="closed"), expect=first))
    assert entries() == {"open": ["b"], "closed": ["a"]}

    third = write(store, put(A, row(), expect=second))
    assert entries() == {"open": ["b"], "closed": []}

    fourth = write(store, put(A, row(state="open", owner="web"), expect=third))
    assert entries() == {"open": ["a", "b"], "closed": []}
    assert ids(store.range("items", index="by_owner", limit=10)) == ["a", "b"]

    unmoved = write(store, put(A, row(state="open", owner="web", count=2), expect=fourth))
    assert stored(store, A).data == row(state="open", owner="web", count=2)
    assert store.range("items", index="by_state", limit=1)[0].version == unmoved

    write(store, Delete(A, expect=unmoved))
    assert entries() == {"open": ["b"], "closed": []}
    assert ids(store.range("items", index="by_owner", limit=10)) == ["b"]


def test_a_refused_commit_changes_no_entry(store: Store) -> None:
    version = write(store, put(A, row(state="open")))

    with pytest.raises(VersionConflict):
        write(store, put(A, row(state="closed"), expect=version), Check(B, expect=3))

    assert ids(store.range("items", index="by_state", prefix="open", limit=10)) == ["a"]
    assert store.range("items", index="by_state", prefix="closed", limit=10) == ()
