"""Bad input raises a typed error that names it, and changes nothing; unusual but valid input is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.contract.world import (
    T0,
    VOCABULARY,
    DemandRecorded,
    DemandRevoked,
    LabelsGiven,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    boundary_of,
    clause,
    commit_of,
    item,
    land,
    put,
    query_of,
    row,
    stored,
    values,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, InvalidInput, TidegateError, UnfencedQuery
from tidegate.kernel.model import (
    ALL,
    POSITION_MAX,
    Boundary,
    Check,
    Clause,
    Commit,
    CommitKey,
    Delete,
    Fact,
    Key,
    Meta,
    Put,
    Query,
    Write,
)
from tidegate.kernel.store import Store

SURROGATE = "\ud800"
PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")


def fact(type: str = "ProductAdded", *tags: str, kind: str = "shop") -> Fact:
    return Fact(kind, type, 1, tags, b"{}")


def writing(write: Write) -> Commit:
    return commit_of(Rebooted(), writes=[write])


def raw(**changes: Any) -> Commit:
    """Build a commit whose parts a type checker would refuse."""
    parts: dict[str, Any] = {"at": T0, "facts": (VOCABULARY.fact(Rebooted()),)} | changes
    return Commit(**parts)


def bad_fact(**changes: Any) -> Commit:
    parts: dict[str, Any] = {
        "kind": "note",
        "type": "Rebooted",
        "schema": 1,
        "tags": (),
        "body": b"{}",
    } | changes
    return raw(facts=(Fact(**parts),))


def bad_put(**changes: Any) -> Commit:
    parts: dict[str, Any] = {"key": item("a"), "data": row(), "expect": 0} | changes
    return raw(writes=(Put(**parts),))


def bounded(query: Any, seen: Any) -> Commit:
    """Build a commit under a boundary that no engine returned."""
    return raw(boundaries=(Boundary(query, seen),))


# Each with the words by which its error names it.
BAD: dict[str, tuple[Callable[[], Commit], str]] = {
    "unknown type": (lambda: commit_of(fact("Nothing")), "Nothing"),
    "unknown tag key": (lambda: commit_of(fact("ProductAdded", "colour:red")), "colour"),
    "a tag of another type": (lambda: commit_of(fact("ProductAdded", "order_id:o1")), "order_id"),
    "a tag without a value": (
        lambda: commit_of(fact("ProductAdded", "product_id:")),
        "product_id:",
    ),
    "a tag without a key": (lambda: commit_of(fact("ProductAdded", ":p1")), ":p1"),
    "a tag without a colon": (lambda: commit_of(fact("ProductAdded", "product_id")), "product_id"),
    "an empty tag": (lambda: commit_of(fact("ProductAdded", "")), "a tag is empty"),
    "a control character in a tag": (
        lambda: commit_of(fact("ProductAdded", "product_id:a\x1fb")),
        "control character",
    ),
    "a NUL in a tag": (
        lambda: commit_of(fact("ProductAdded", "product_id:a\x00")),
        "control character",
    ),
    "a lone surrogate in a tag": (
        lambda: commit_of(fact("ProductAdded", f"product_id:{SURROGATE}")),
        "lone surrogate",
    ),
    "tags out of order": (
        lambda: commit_of(fact("DemandRecorded", "product_id:p1", "order_id:o1", kind="demand")),
        "sorted",
    ),
    "a tag twice": (
        lambda: commit_of(fact("ProductAdded", "product_id:p", "product_id:p")),
        "distinct",
    ),
    "an empty type": (lambda: commit_of(fact("")), "type is empty"),
    "an empty kind": (lambda: commit_of(fact(kind="")), "kind is empty"),
    "another kind than the type's": (
        lambda: commit_of(fact("ProductAdded", "product_id:p1", kind="demand")),
        "ProductAdded is declared under kind 'shop', found 'demand'",
    ),
    "a kind that nothing is declared under": (
        lambda: commit_of(Rebooted(), fact("Rebooted", kind="Note")),
        "Rebooted is declared under kind 'note', found 'Note'",
    ),
    "a naive time": (lambda: commit_of(at=datetime(2026, 1, 1)), "UTC"),  # noqa: DTZ001
    "a time elsewhere": (
        lambda: commit_of(at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        "UTC",
    ),
    "a time as text": (lambda: raw(at="2026-01-01T00:00:00Z"), "datetime"),
    "a time in year 1": (
        lambda: commit_of(Rebooted(), at=datetime.min.replace(tzinfo=UTC)),
        "1970",
    ),
    "a time before 1970": (
        lambda: commit_of(Rebooted(), at=datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        "1970",
    ),
    "a time in year 9999": (
        lambda: commit_of(Rebooted(), at=datetime.max.replace(tzinfo=UTC)),
        "9998",
    ),
    "an unknown collection": (lambda: writing(put(Key("nothing", "a"), b"{}")), "nothing"),
    "an empty id": (lambda: writing(put(item(""), row())), "row id is empty"),
    "a control character in an id": (lambda: writing(put(item("a\nb"), row())), "control"),
    "a lone surrogate in an id": (lambda: writing(put(item(SURROGATE), row())), "surrogate"),
    "an id that is no text": (lambda: writing(put(Key("items", 7), row())), "int"),  # type: ignore[arg-type]
    "a version as text": (lambda: writing(Check(item("a"), "3")), "'3'"),  # type: ignore[arg-type]
    "a version as a bool": (lambda: writing(put(item("a"), row(), True)), "True"),
    "a version as a float": (lambda: writing(Check(item("a"), 3.0)), "3.0"),  # type: ignore[arg-type]
    "no version": (lambda: writing(Delete(item("a"), None)), "None"),  # type: ignore[arg-type]
    "a negative version": (lambda: writing(Check(item("a"), -1)), "-1"),
    "a version beyond 2**53": (lambda: writing(Check(item("a"), POSITION_MAX + 1)), "2\\*\\*53"),
    "a delete of what must be absent": (lambda: writing(Delete(item("a"), 0)), "absent"),
    "a cause that is not there": (lambda: writing(put(item("a"), row(), fact=1)), "fact 1 of 1"),
    "a cause below zero": (lambda: writing(put(item("a"), row(), fact=-1)), "fact -1"),
    "a row that is no JSON": (lambda: writing(put(item("a"), b"{")), "items/a"),
    "a row that is no JSON, without columns": (
        lambda: writing(put(Key("notes", "a"), b"\xff\x00")),
        "notes/a",
    ),
    "a row that is no object": (lambda: writing(put(Key("notes", "a"), b"[1]")), "notes/a"),
    "an index entry with a control character": (
        lambda: writing(put(item("a"), row(state="a\x1fb"))),
        "control character",
    ),
    "an empty key": (
        lambda: commit_of(Rebooted(), once=CommitKey("", b"d")),
        "idempotency key is empty",
    ),
    "a lone surrogate in a key": (
        lambda: commit_of(Rebooted(), once=CommitKey(SURROGATE, b"d")),
        "lone surrogate",
    ),
    "a lone surrogate in the meta": (
        lambda: commit_of(Rebooted(), meta=Meta(actor=SURROGATE)),
        "lone surrogate",
    ),
    "no meta": (lambda: raw(meta=None), "meta must be Meta, found NoneType"),
    "meta that is no text": (
        lambda: raw(meta=Meta(actor=None)),  # type: ignore[arg-type]
        "a member of meta must be str, found NoneType",
    ),
    "facts in a list": (lambda: raw(facts=[]), "facts of a commit must be tuple, found list"),
    "a fact that is none": (lambda: raw(facts=(None,)), "a fact must be Fact, found NoneType"),
    "no tags": (lambda: bad_fact(tags=None), "tags of a fact must be tuple, found NoneType"),
    "tags in a list": (lambda: bad_fact(tags=["a:b"]), "tags of a fact must be tuple, found list"),
    "a tag that is no text": (lambda: bad_fact(tags=("a:b", 7)), "a tag must be text, found int"),
    "a type that is no text": (lambda: bad_fact(type=7), "fact's type must be text, found int"),
    "a kind that is no text": (lambda: bad_fact(kind=None), "fact's kind must be text"),
    "a schema as text": (lambda: bad_fact(schema="1"), "schema of Rebooted .* found '1'"),
    "a schema below one": (lambda: bad_fact(schema=0), "schema of Rebooted .* found 0"),
    "a schema beyond 2**31": (lambda: bad_fact(schema=2**31), "schema of Rebooted .*2147483648"),
    "a schema beyond 2**63": (lambda: bad_fact(schema=2**63), "schema of Rebooted"),
    "a body that is no UTF-8": (lambda: bad_fact(body=b'{"text":"\xff"}'), "Rebooted .*UTF-8"),
    "a body with a lone surrogate": (
        lambda: bad_fact(body='{"text":"\ud800"}'.encode("utf-8", "surrogatepass")),
        "Rebooted .*UTF-8",
    ),
    "a body with a NUL": (lambda: bad_fact(body=b'{"text":"\x00"}'), "Rebooted .*NUL"),
    "a row that is no UTF-8": (lambda: bad_put(data=b'{"name":"\xff"}'), "items/a"),
    "a row that is not UTF-8 outside its columns": (
        lambda: bad_put(data=b'{"other":"\xff"}'),
        "items/a",
    ),
    "a row with a NUL": (lambda: bad_put(data=b'{"other":"\x00"}'), "items/a"),
    "a row of which one cannot see the ground": (
        lambda: bad_put(data=b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "items/a",
    ),
    "a body as text": (lambda: bad_fact(body="{}"), "body of a fact must be bytes, found str"),
    "a write that is none": (lambda: raw(writes=(None,)), "a write must be Put, Delete or Check"),
    "no row key": (lambda: bad_put(key=None), "key of a write must be Key, found NoneType"),
    "a row key as text": (lambda: bad_put(key="items/a"), "key of a write must be Key, found str"),
    "a row as text": (lambda: bad_put(data="{}"), "data of a row must be bytes, found str"),
    "a cause as text": (lambda: bad_put(fact="0"), "items/a names fact 0"),
    "a birth as text": (lambda: bad_put(born="x"), "items/a is born by fact x"),
    "a birth as a bool": (lambda: bad_put(born=False), "items/a is born by fact False"),
    "a birth after its cause": (lambda: bad_put(born=1), "items/a is born by fact 1, after 0"),
    "a key that is none": (lambda: raw(once="k"), "once must be CommitKey, found str"),
    "an idempotency key that is no text": (
        lambda: raw(once=CommitKey(None, b"d")),  # type: ignore[arg-type]
        "idempotency key must be text, found NoneType",
    ),
    "a digest as text": (
        lambda: raw(once=CommitKey("k", "d")),  # type: ignore[arg-type]
        "digest of a commit must be bytes, found str",
    ),
    "no answer": (
        lambda: raw(once=CommitKey("k", b"d", None)),  # type: ignore[arg-type]
        "answer of a commit must be bytes, found NoneType",
    ),
    "a boundary that is none": (
        lambda: raw(boundaries=(ALL,)),
        "a boundary must be Boundary, found Query",
    ),
    "a boundary that saw a text": (lambda: bounded(PRODUCT, "7"), "made by read"),
    "a boundary that saw nothing": (lambda: bounded(PRODUCT, None), "made by read"),
    "a boundary that saw a float": (lambda: bounded(PRODUCT, 1.0), "made by read"),
    "a boundary that saw a bool": (lambda: bounded(PRODUCT, True), "made by read"),
    "a boundary that saw less than nothing": (lambda: bounded(PRODUCT, -1), "made by read"),
    "a boundary that saw beyond 2**53": (
        lambda: bounded(PRODUCT, POSITION_MAX + 1),
        "made by read",
    ),
    "a boundary that saw something else": (
        lambda: bounded(PRODUCT, {"customer_id:c1": {"OrderPlaced": 1}}),
        "made by read",
    ),
    "a boundary of an empty record": (lambda: bounded(PRODUCT, {}), "made by read"),
    "a boundary of a record of what is none": (
        lambda: bounded(PRODUCT, {"product_id:p1": {"ProductAdded": "1"}}),
        "made by read",
    ),
    "a boundary on a text": (lambda: bounded("ProductAdded", 0), "boundary .* Query, found str"),
    "a boundary on a clause": (lambda: bounded(ALL.clauses[0], 0), "boundary .* Query"),
    "a boundary guarded by a text": (
        lambda: raw(boundaries=(Boundary(PRODUCT, 0, "x"),)),  # type: ignore[arg-type]
        "boundary .* Query, found str",
    ),
    "a boundary on clauses that are none": (
        lambda: bounded(Query(("a", "b")), 0),  # type: ignore[arg-type]
        "Clause, found str",
    ),
    "a boundary on clauses in a list": (
        lambda: bounded(Query([*PRODUCT.clauses]), 0),  # type: ignore[arg-type]
        "tuple, found list",
    ),
    "a boundary on types in a list": (
        lambda: bounded(Query((Clause(["ProductAdded"], frozenset({"product_id:p1"})),)), 0),  # type: ignore[arg-type]
        "frozenset, found list",
    ),
    "a boundary on tags in a list": (
        lambda: bounded(Query((Clause(frozenset({"ProductAdded"}), ["product_id:p1"]),)), 0),  # type: ignore[arg-type]
        "frozenset, found list",
    ),
    "a boundary on an unknown type": (
        lambda: bounded(Query((Clause(frozenset({"Nothing"}), frozenset({"product_id:p"})),)), 0),
        "Nothing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_names_what_is_wrong_with_a_commit_and_writes_nothing(steady: Store, name: str) -> None:
    build, words = BAD[name]
    good = commit_of(ProductAdded("p1"), writes=[put(item("good"), row(), expect=POSITION_MAX)])
    rows = (item("a"), Key("notes", "a"))
    before = (whole_feed(steady), steady.get(*rows))

    with pytest.raises(InvalidInput, match=words):
        land(steady, build())

    assert (whole_feed(steady), steady.get(*rows)) == before
    (conflict,) = steady.commit(good)
    assert isinstance(conflict, TidegateError), "the store still answers"


def test_bad_commits_of_a_group_do_not_affect_the_others(store: Store) -> None:
    first, *bad, last = store.commit(
        commit_of(ProductAdded("p1")),
        *(build() for build, _ in BAD.values()),
        commit_of(ProductAdded("p2")),
    )

    assert {type(answer) for answer in bad} == {InvalidInput}
    assert not isinstance(first, TidegateError)
    assert not isinstance(last, TidegateError)
    assert values(whole_feed(store)) == [ProductAdded("p1"), ProductAdded("p2")]


@pytest.mark.parametrize(
    "query", [ALL, query_of(Rebooted), Query((*PRODUCT.clauses, clause()))], ids=str
)
def test_refuses_an_invented_boundary_without_an_index(store: Store, query: Query) -> None:
    """It would pass unchecked: no engine can tell whether it moved."""
    first, bad, last = store.commit(
        commit_of(ProductAdded("p1")), bounded(query, 0), commit_of(ProductAdded("p2"))
    )

    assert isinstance(bad, UnfencedQuery)
    assert not isinstance(first, TidegateError)
    assert not isinstance(last, TidegateError)


BAD_QUERIES: dict[str, tuple[Callable[[], Query], str]] = {
    "no clause": (lambda: Query(()), "at least one clause"),
    "no type": (lambda: Query((Clause(frozenset()),)), "no event type"),
    "an unknown type": (lambda: Query((Clause(frozenset({"Nothing"})),)), "Nothing"),
    "an unknown tag key": (lambda: query_of(ProductAdded, tags="colour:red"), "colour"),
    "an unknown tag key in a contains clause": (
        lambda: query_of(tags=("colour:red", "product_id:p1"), contains=True),
        "colour",
    ),
    "an unknown tag key in a later clause": (
        lambda: Query((*ALL.clauses, clause(tags="colour:red"))),
        "colour",
    ),
    "a tag without a value": (lambda: query_of(tags="product_id:"), "product_id:"),
    "a lone surrogate": (lambda: query_of(tags=f"product_id:{SURROGATE}"), "lone surrogate"),
    "a control character": (lambda: query_of(tags="product_id:\x00"), "control character"),
    "a tag that is no text": (lambda: Query((Clause(None, frozenset({7})),)), "int"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_names_what_is_wrong_with_a_query(steady: Store, name: str) -> None:
    build, words = BAD_QUERIES[name]

    with pytest.raises(InvalidInput, match=words):
        steady.read(build())


def test_names_what_is_wrong_with_a_guard(steady: Store) -> None:
    with pytest.raises(InvalidInput, match="colour"):
        steady.read(query_of(tags="product_id:p1"), guard=query_of(tags="colour:red"))


# ── the content of a fact, refused where it is built ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (PriceChanged("p1", 2**53), r"cents is beyond 2\*\*53"),
        (PriceChanged("p1", -(2**53)), "cents"),
        (PriceChanged("p1", 1.5), "cents"),  # type: ignore[arg-type]
        (PriceChanged("p1", float("nan")), "cents"),  # type: ignore[arg-type]
        (ProductRenamed("p1", SURROGATE), "ProductRenamed holds a lone surrogate"),
        (ProductAdded("", "no id"), "product_id is empty"),
        (ProductAdded(SURROGATE), "surrogate"),
        (OrderPlaced("o1", "c1", ("p1", "")), "product_ids is empty"),
    ],
    ids=lambda value: str(value).encode("ascii", "backslashreplace").decode(),
)
def test_refuses_to_build_a_fact_without_a_portable_form(
    steady: Store, value: ProductAdded, words: str
) -> None:
    before = whole_feed(steady)

    with pytest.raises(InvalidInput, match=words):
        append(steady, value)

    assert whole_feed(steady) == before


# ── unusual, but valid ────────────────────────────────────────────────────────────────────────────

ODD = (
    "a:b",
    ":",
    "a#b",
    "a/b",
    "a%2Fb",
    "%",
    "'",
    '"',
    "\\",
    "a b",
    " ",
    "emoji 😀 👩‍👩‍👧",
    "Ünïcödé",
    "e\u0301",
    "é",
    "中文",
    "*",
    "$1",
    "?",
    "FENCE",
    "NULL",
    "x" * (256 - len("product_id:")),
    "é" * ((256 - len("product_id:")) // 2) + "x",
)


def test_tag_values_may_hold_anything_printable_and_stay_distinct(store: Store) -> None:
    for number, value in enumerate(ODD):
        append(store, ProductAdded(value, str(number)))

    for number, value in enumerate(ODD):
        query = query_of(ProductAdded, tags=f"product_id:{value}")
        assert values(store.read(query).events) == [ProductAdded(value, str(number))]


def test_a_boundary_on_an_unusual_tag_guards_only_that_tag(store: Store) -> None:
    boundaries = {
        value: boundary_of(store, query_of(ProductAdded, tags=f"product_id:{value}"))
        for value in ODD
    }
    for moved in ("a:b", "a/b", "é", "*"):
        append(store, ProductAdded(moved))

    for value, boundary in boundaries.items():
        (outcome,) = store.commit(commit_of(on=[boundary]))
        assert isinstance(outcome, BoundaryMoved) == (value in ("a:b", "a/b", "é", "*")), value


def test_pairs_of_unusual_tags_stay_distinct(store: Store) -> None:
    pairs = [(left, right) for left in ODD[:9] for right in ("x", left + "x", "a:b")]
    for product, order in pairs:
        append(store, DemandRecorded(product, order))

    for product, order in pairs:
        query = query_of(
            DemandRecorded, DemandRevoked, tags=(f"product_id:{product}", f"order_id:{order}")
        )
        assert values(store.read(query).events) == [DemandRecorded(product, order)]


def test_an_empty_list_gives_no_tag(store: Store) -> None:
    append(store, LabelsGiven("n1", ()), OrderPlaced("o1", "c1", ()))

    labels, order = whole_feed(store)
    assert labels.tags == ("note_id:n1",)
    assert order.tags == ("customer_id:c1", "order_id:o1")


def test_row_ids_may_hold_anything_printable_and_stay_distinct(store: Store) -> None:
    for start in range(0, len(ODD), 8):
        writes = [put(item(name), row(name=name, state=name)) for name in ODD[start : start + 8]]
        land(store, commit_of(writes=writes))

    found = store.get(*(item(name) for name in ODD))
    assert [record.data for record in found if record] == [row(name=n, state=n) for n in ODD]
    by_state = store.range("items", index="by_state", limit=100)
    assert [record.key.id for record in by_state] == sorted(ODD)


def test_a_row_may_hold_a_null_character_in_its_text(store: Store) -> None:
    data = row(name="a\x00b")

    land(store, commit_of(writes=[put(item("a"), data)]))

    assert stored(store, item("a")).data == data


def test_meta_and_a_body_may_hold_any_text(store: Store) -> None:
    meta = Meta(actor="a\x00\n'\"\\ 😀", request=" ", cause="é")

    land(store, commit_of(Rebooted("\x00 \x1f"), meta=meta))

    (event,) = whole_feed(store)
    assert event.meta == meta
    assert values([event]) == [Rebooted("\x00 \x1f")]
