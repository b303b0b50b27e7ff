"""Limits, one below, at and one above: equal on every engine, and checked before anything is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec import Struct

from tests.contract.world import (
    KINDS,
    LONGEST,
    SCHEMA,
    T0,
    TOO_LONG,
    DemandRecorded,
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
from tidegate.errors import BoundaryMoved, LimitExceeded, TidegateError
from tidegate.kernel.model import (
    ANSWER_BYTES_MAX,
    BODY_BYTES_MAX,
    CLAUSE_TYPES_MAX,
    CLAUSES_MAX,
    COMMIT_BYTES_MAX,
    COMPOSITE_TAGS_MAX,
    COST_MAX,
    DIGEST_BYTES_MAX,
    FACTS_MAX,
    ID_BYTES_MAX,
    META_BYTES_MAX,
    ONCE_KEY_BYTES_MAX,
    ROW_BYTES_MAX,
    SLOT_BYTES,
    SLOT_FACT_BYTES,
    TAG_BYTES_MAX,
    TAGS_MAX,
    TYPE_BYTES_MAX,
    WRITES_MAX,
    Check,
    Clause,
    Commit,
    CommitKey,
    Fact,
    Key,
    Meta,
    Query,
)
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store
from tidegate.kernel.vocabulary import Vocabulary, facts


def note(size: int) -> bytes:
    """Build a row of exactly this many bytes, most of them not ASCII."""
    room = size - len('{"text":""}')
    return ('{"text":"' + "x" * (room % 2) + "é" * (room // 2) + '"}').encode()


def body(size: int) -> Fact:
    """Build a fact of exactly this many bytes."""
    return Fact("note", "Rebooted", 1, (), b'{"text":"' + b"x" * (size - 11) + b'"}')


def tag_of(size: int) -> str:
    """Build a product whose tag has exactly this many bytes of UTF-8."""
    room = size - len("product_id:")
    return "😀" * (room // 4) + "x" * (room % 4)


def whole(size: int) -> Commit:
    """Build a commit of exactly this many bytes: facts, a tag, rows and an answer."""
    tagged = Fact("shop", "ProductAdded", 1, (f"product_id:{tag_of(TAG_BYTES_MAX)}",), b"{}")
    parts = [BODY_BYTES_MAX] * 8 + [ROW_BYTES_MAX] * 3 + [ANSWER_BYTES_MAX, TAG_BYTES_MAX + 2, 1]
    rest = size - sum(parts)
    keys = [Key("notes", f"n{number}") for number in range(3)]
    return commit_of(
        *(body(BODY_BYTES_MAX) for _ in range(8)),
        body(rest // 2),
        body(rest - rest // 2),
        tagged,
        writes=[put(key, note(ROW_BYTES_MAX)) for key in keys],
        once=CommitKey("k", b"d", b"a" * ANSWER_BYTES_MAX),
    )


Case = tuple[str, int, Callable[[int], Commit]]

CASES: dict[str, Case] = {
    "a tag": (
        "bytes of a tag",
        TAG_BYTES_MAX,
        lambda size: commit_of(
            Fact("shop", "ProductAdded", 1, (f"product_id:{tag_of(size)}",), b"{}")
        ),
    ),
    "tags of a fact": (
        "tags of a fact",
        TAGS_MAX,
        lambda size: commit_of(
            Fact(
                "shop",
                "OrderPlaced",
                1,
                (
                    "customer_id:c1",
                    "order_id:o1",
                    *(f"product_id:{number:03}" for number in range(size - 2)),
                ),
                b"{}",
            )
        ),
    ),
    "a body": ("bytes of a fact", BODY_BYTES_MAX, lambda size: commit_of(body(size))),
    "a row": (
        "bytes of a row",
        ROW_BYTES_MAX,
        lambda size: commit_of(writes=[put(Key("notes", "n"), note(size))]),
    ),
    "an id": (
        "bytes of a row id",
        ID_BYTES_MAX,
        lambda size: commit_of(writes=[put(item("x" * (size % 2) + "é" * (size // 2)), row())]),
    ),
    "a kind": (
        "bytes of a fact's kind",
        TYPE_BYTES_MAX,
        lambda size: commit_of(KINDS[size]()),
    ),
    "meta": (
        "bytes of a member of meta",
        META_BYTES_MAX,
        lambda size: commit_of(Rebooted(), meta=Meta(cause="x" * (size % 2) + "é" * (size // 2))),
    ),
    "an idempotency key": (
        "bytes of an idempotency key",
        ONCE_KEY_BYTES_MAX,
        lambda size: commit_of(
            Rebooted(), once=CommitKey("é" * (size // 2) + "x" * (size % 2), b"d")
        ),
    ),
    "a digest": (
        "bytes of a digest",
        DIGEST_BYTES_MAX,
        lambda size: commit_of(Rebooted(), once=CommitKey("k", b"d" * size)),
    ),
    "an answer": (
        "bytes of an answer",
        ANSWER_BYTES_MAX,
        lambda size: commit_of(Rebooted(), once=CommitKey("k", b"d", b"a" * size)),
    ),
    "a commit": ("bytes of a commit", COMMIT_BYTES_MAX, whole),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [-1, 0])
def test_stores_what_is_within_the_limit_and_returns_it(store: Store, name: str, step: int) -> None:
    _, limit, build = CASES[name]
    commit = build(limit + step)

    land(store, commit)

    events = whole_feed(store)
    assert [(event.tags, event.body, event.meta) for event in events] == [
        (fact.tags, fact.body, commit.meta) for fact in commit.facts
    ]
    for write in commit.writes:
        assert stored(store, write.key).data == getattr(write, "data", None)
    if commit.once is not None:
        receipt = store.receipt(commit.once.key)
        assert receipt is not None
        assert receipt.answer == commit.once.answer


@pytest.mark.parametrize("name", CASES)
def test_names_the_limit_that_was_exceeded_and_writes_nothing(steady: Store, name: str) -> None:
    limit, allowed, build = CASES[name]
    commit = build(allowed + 1)
    before = whole_feed(steady)

    with pytest.raises(LimitExceeded) as refusal:
        land(steady, commit)

    assert refusal.value.facts == {"limit": limit, "found": allowed + 1, "allowed": allowed}
    assert whole_feed(steady) == before
    assert [steady.get(write.key) for write in commit.writes] == [(None,)] * len(commit.writes)
    if commit.once is not None:
        assert steady.receipt(commit.once.key) is None


def test_commits_beyond_a_limit_do_not_affect_the_others_of_their_group(store: Store) -> None:
    beyond = [build(allowed + 1) for _, allowed, build in CASES.values()]

    first, *refused, last = store.commit(
        commit_of(Rebooted("1")), *beyond, commit_of(Rebooted("2"))
    )

    assert {type(answer) for answer in refused} == {LimitExceeded}
    assert not isinstance(first, TidegateError)
    assert not isinstance(last, TidegateError)
    assert values(whole_feed(store)) == [Rebooted("1"), Rebooted("2")]


def test_the_name_of_a_type_has_a_maximum_length(store: Store) -> None:
    append(store, LONGEST("t1"))
    with pytest.raises(LimitExceeded, match="bytes of a fact's type: found 129, allowed 128"):
        append(store, TOO_LONG("t1"))

    (event,) = store.read(query_of(LONGEST, tags="thing_id:t1")).events
    assert len(event.type) == TYPE_BYTES_MAX


def test_a_commit_holds_128_facts_on_every_engine(store: Store) -> None:
    facts = [ProductAdded("p1", str(number)) for number in range(FACTS_MAX)]
    with pytest.raises(LimitExceeded, match="facts of a commit: found 129, allowed 128"):
        SCHEMA.check(commit_of(*facts, Rebooted()), COST_MAX)
    SCHEMA.check(commit_of(*facts), COST_MAX)

    receipt = append(store, *facts)

    assert receipt.last - receipt.first == FACTS_MAX - 1
    assert values(store.read(query_of(ProductAdded, tags="product_id:p1")).events) == facts


def test_a_store_refuses_more_facts_than_its_packs_hold(steady: Store) -> None:
    pack = FACTS_MAX if steady.pack_cost_max <= COST_MAX else steady.pack_cost_max
    fact = SCHEMA.vocabulary.fact(Rebooted())

    with pytest.raises(LimitExceeded, match="facts of a commit"):
        land(steady, Commit(T0, facts=(fact,) * (pack + 1)))


def rows(count: int) -> Commit:
    return commit_of(writes=[put(Key("notes", f"n{n}"), b'{"text":""}') for n in range(count)])


def checks(count: int) -> Commit:
    return commit_of(writes=[Check(Key("notes", f"n{n}"), expect=0) for n in range(count)])


def spilled(count: int) -> Commit:
    """Facts that fill two slots and begin a third, and rows."""
    return commit_of(*(body(BODY_BYTES_MAX) for _ in range(3)), writes=rows(count).writes)


def slotful(size: int) -> Commit:
    """Build facts that count as exactly this many bytes of a slot."""
    room = size - 2 * SLOT_FACT_BYTES
    return commit_of(body(room // 2), body(room - room // 2))


COSTS: dict[str, tuple[Callable[[int], Commit], int]] = {
    # a function of a count, and the cost at count 0
    "rows": (rows, 1),
    "checks": (checks, 1),
    "rows with large facts": (spilled, 3),
}


@pytest.mark.parametrize("name", COSTS)
def test_every_engine_accepts_a_commit_of_cost_100(store: Store, name: str) -> None:
    build, base = COSTS[name]
    largest = build(COST_MAX - base)
    assert SCHEMA.cost(largest) == COST_MAX
    SCHEMA.check(build(COST_MAX - base - 1), COST_MAX)
    SCHEMA.check(largest, COST_MAX)

    land(store, largest)

    with pytest.raises(LimitExceeded, match="storage items of a commit: found 101, allowed 100"):
        SCHEMA.check(build(COST_MAX - base + 1), COST_MAX)


@pytest.mark.parametrize("step", [-1, 0, 1])
def test_counts_each_partial_slot_of_facts(store: Store, step: int) -> None:
    commit = slotful(SLOT_BYTES + step)

    assert SCHEMA.cost(commit) == (1 if step < 0 else 2)
    land(store, commit)
    assert [event.body for event in whole_feed(store)] == [fact.body for fact in commit.facts]


def test_counts_indexes_rows_entries_checks_and_the_key(store: Store) -> None:
    labels = tuple(f"l{number}" for number in range(40))
    query = Query(
        tuple(clause(ProductAdded, tags=tag) for tag in ("product_id:p1", "product_id:p2"))
    )
    boundary = boundary_of(store, query)
    parts: Sequence[tuple[Commit, int]] = (
        (commit_of(), 1),
        (commit_of(Rebooted()), 1),
        (commit_of(ProductAdded("p1"), ProductAdded("p1")), 3),
        (commit_of(OrderPlaced("o1", "c1", ("p1", "p2"))), 5),
        (commit_of(DemandRecorded("p1", "o1")), 5),
        (commit_of(LabelsGiven("n1", labels)), 83),
        (commit_of(on=[boundary]), 3),
        (commit_of(ProductAdded("p1"), on=[boundary]), 4),
        (commit_of(ProductAdded("p1"), on=[boundary, boundary]), 4),
        (commit_of(once=CommitKey("k1", b"d")), 2),
        (commit_of(writes=[put(item("a"), row())]), 4),
        (commit_of(writes=[Check(item("b"), expect=0)]), 2),
    )
    assert [SCHEMA.cost(commit) for commit, _ in parts] == [cost for _, cost in parts]

    for commit, _ in parts:
        # the boundary moves with the first ProductAdded("p1"): read it again
        on = [boundary_of(store, query)] if commit.boundaries else []
        land(store, commit_of(*commit.facts, on=on, writes=commit.writes, once=commit.once))


def test_a_store_refuses_what_costs_more_than_its_packs(steady: Store) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        land(steady, rows(steady.pack_cost_max))

    assert refusal.value.facts["allowed"] == steady.pack_cost_max
    assert steady.range("notes", limit=1) == ()


def test_limits_the_rows_of_a_commit(steady: Store) -> None:
    with pytest.raises(LimitExceeded, match=f"writes of a commit: found {WRITES_MAX + 1}"):
        land(steady, rows(WRITES_MAX + 1))


# ── queries ───────────────────────────────────────────────────────────────────────────────────────


def test_a_query_of_64_clauses_is_read_and_guarded(store: Store) -> None:
    clauses = tuple(clause(ProductAdded, tags=f"product_id:p{n}") for n in range(CLAUSES_MAX))
    with pytest.raises(LimitExceeded, match="clauses of a query: found 65, allowed 64"):
        Query((*clauses, clause(Rebooted)))
    append(store, ProductAdded("p63"), ProductAdded("p64"))

    query = Query(clauses)

    assert values(store.read(query).events) == [ProductAdded("p63")]
    land(store, commit_of(ProductAdded("p0"), on=[boundary_of(store, query)]))


def test_a_query_of_64_clauses_on_nothing_is_guarded_too(store: Store) -> None:
    clauses = tuple(clause(ProductAdded, tags=f"product_id:p{n}") for n in range(CLAUSES_MAX))
    guard = query_of(OrderPlaced, tags="order_id:o1")

    boundary = boundary_of(store, Query(clauses), guard=guard)

    land(store, commit_of(OrderPlaced("o1", "c1"), on=[boundary]))
    with pytest.raises(BoundaryMoved, match="OrderPlaced @ order_id:o1"):
        land(store, commit_of(OrderPlaced("o1", "c2"), on=[boundary]))


class Renew(Struct, frozen=True):
    product_ids: tuple[str, ...]


def test_a_guard_has_no_more_clauses_than_its_query() -> None:
    creating = (ProductRenamed, PriceChanged)
    renew = Slice(
        name="renew",
        command=Renew,
        reads=(ProductAdded,),
        writes=creating,
        start=lambda command: 0,
        evolve=lambda state, fact: state + 1,
        decide=lambda state, command, now: (),
    )
    vocabulary = Vocabulary(facts("shop", ProductAdded, *creating), (renew,))
    query = vocabulary.query(renew, Renew(tuple(f"p{n}" for n in range(CLAUSES_MAX))))

    guard = vocabulary.guard(renew, query)

    assert guard == Query(
        tuple(clause(*creating, tags=f"product_id:p{n}") for n in range(CLAUSES_MAX))
    )


def test_a_clause_lists_at_most_64_types() -> None:
    names = [f"T{number}" for number in range(CLAUSE_TYPES_MAX + 1)]

    Clause(frozenset(names[:-1]))
    with pytest.raises(LimitExceeded, match="types of a clause: found 65, allowed 64"):
        Clause(frozenset(names))


def test_a_composite_has_at_most_six_tags() -> None:
    tags = [f"k{number}:v" for number in range(COMPOSITE_TAGS_MAX + 1)]

    Clause(None, frozenset(tags[:-1]))
    with pytest.raises(LimitExceeded, match="tags of an exact clause: found 7, allowed 6"):
        Clause(None, frozenset(tags))
    assert clause(tags=tags, contains=True).tags == frozenset(tags)
