"""Write policies on every engine: a refused call never reaches the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import product
from typing import Any, cast

import apsw
import psycopg
import pytest
from msgspec import Struct

from tests.contract.address import Address
from tests.contract.rows.registry import (
    CELLS,
    COLUMNS,
    FIRST,
    LETTERS,
    NEXT,
    SCHEMA,
    T0,
    Actual,
    Occurrence,
    ReleasePinned,
    Watched,
    code,
    read,
    seed,
)
from tidegate.clock import ManualClock
from tidegate.errors import (
    ConditionFailed,
    ImmutableRecord,
    InvalidInput,
    NotFound,
    ProtectedField,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.model import Commit, Key, Put, Receipt
from tidegate.kernel.records.actions import CreateRow, DeleteRow, PutRow, UpdateRow
from tidegate.kernel.records.conditions import AnyOf, Where
from tidegate.kernel.records.records import RawRecords, Records
from tidegate.kernel.store import Store

# ── the matrix ────────────────────────────────────────────────────────────────────────────────────

Call = Callable[[Records, str, str], object]


def update(changes: dict[str, Any], **options: Any) -> Call:
    return lambda records, collection, id: records.update(collection, id, changes, **options)


# Verbs that are not actions of a transaction, or that could differ from one.
VERBS: dict[str, tuple[Call, tuple[str, str, str, str]]] = {
    "create": (lambda r, c, i: r.create(c, i, NEXT), ("C", "C", "C", "I")),
    "put": (lambda r, c, i: r.put(c, i, NEXT), ("ok", "C", "C", "I")),
    "save": (lambda r, c, i: r.save(c, i, NEXT), ("ok", "P", "I", "I")),
    "save the stored row": (lambda r, c, i: r.save(c, i, FIRST), ("ok", "P", "I", "I")),
    "update": (update({"status": "warming"}), ("ok", "ok", "I", "I")),
    "update the pin": (update({"pinnedReleaseId": "rel_002"}), ("ok", "P", "I", "I")),
    "update what the call protects": (
        update({"status": "warming"}, protected_attributes=("status",)),
        ("P", "P", "I", "I"),
    ),
    "delete": (lambda r, c, i: r.delete(c, i), ("ok", "P", "I", "I")),
    "batch put": (lambda r, c, i: r.batch(PutRow(c, i, NEXT)), ("ok", "P", "I", "I")),
    "batch delete": (lambda r, c, i: r.batch(DeleteRow(c, i)), ("ok", "P", "I", "I")),
    **{
        f"transaction: {name}": (
            lambda r, c, i, make=make: r.transaction(make(c, i)),  # type: ignore[misc]
            letters,
        )
        for name, (make, letters) in CELLS.items()
    },
}


@pytest.mark.req("RS-1", "RS-2", "RS-3")
@pytest.mark.parametrize(("verb", "column"), list(product(VERBS, COLUMNS)))
def test_holds_every_cell_of_the_matrix(
    store: Store, watched: Watched, records: Records, id: str, verb: str, column: str
) -> None:
    call, letters = VERBS[verb]
    expected = LETTERS[letters[COLUMNS.index(column)]]
    before = seed(store, column, id)

    try:
        call(records, column, id)
        found = None
    except TidegateError as error:
        found = error.code

    assert found == expected
    if expected in ("immutable_record", "protected_field"):
        assert watched.asked == []
    if expected is not None:
        assert store.get(before.key) == (before,)


@pytest.mark.req("RS-1", "RS-2")
@pytest.mark.parametrize("column", COLUMNS[:3])
@pytest.mark.parametrize("verb", ["create", "put", "transaction: create", "transaction: put"])
def test_creates_a_row_where_there_is_none(
    store: Store, records: Records, id: str, verb: str, column: str
) -> None:
    VERBS[verb][0](records, column, id)

    assert read(store, column, id) == NEXT


@pytest.mark.req("RS-2", "RS-3")
@pytest.mark.parametrize("place_of_it", [0, 1, 2])
def test_sends_nothing_of_a_call_with_one_forbidden_action(
    store: Store, watched: Watched, records: Records, id: str, place_of_it: int
) -> None:
    seed(store, "guarded", id)
    fine = [CreateRow("plain", f"{id}/{number}", FIRST) for number in range(2)]
    offending = UpdateRow("guarded", id, {"pinnedReleaseId": "rel_002"})
    actions: list[Any] = [*fine[:place_of_it], offending, *fine[place_of_it:]]

    with pytest.raises(ProtectedField):
        records.transaction(*actions)

    assert watched.asked == []
    assert [read(store, "plain", f"{id}/{number}") for number in range(2)] == [None, None]


@pytest.mark.req("RS-2")
def test_sends_nothing_of_a_batch_with_one_forbidden_row(
    store: Store, watched: Watched, records: Records, id: str
) -> None:
    seed(store, "once", id)

    with pytest.raises(ImmutableRecord):
        records.batch(PutRow("plain", id, FIRST), DeleteRow("once", id))

    assert watched.asked == []
    assert read(store, "plain", id) is None


@pytest.mark.req("RS-3")
def test_a_stricter_policy_applies_to_its_call_alone(records: Records, id: str) -> None:
    records.create("plain", id, FIRST)

    with pytest.raises(ProtectedField):
        records.update("plain", id, {"status": "warming"}, protected_attributes=["status"])
    records.update("plain", id, {"status": "warming"})

    assert records.get("plain", id).value.status == "warming"


@pytest.mark.req("RS-3")
@pytest.mark.parametrize("names", [(), ["status"], ["attempts", "previousReleaseId"]])
def test_protecting_attributes_in_a_call_loosens_nothing(
    store: Store, records: Records, id: str, names: list[str]
) -> None:
    seed(store, "guarded", id)

    with pytest.raises(ProtectedField):
        records.update("guarded", id, {"pinnedReleaseId": "x"}, protected_attributes=names)


@pytest.mark.req("RS-14")
def test_every_path_accepts_declared_attributes_only(
    store: Store, watched: Watched, records: Records, id: str
) -> None:
    records.create("actual", id, Actual("active", "rel_001", scope=id))
    watched.asked.clear()
    (before,) = store.get(Key("actual", id))
    noted = cast(Struct, {"status": "active", "pinnedReleaseId": "rel_001", "notes": "probably"})
    text = {"notes": "operator thought this probably came from manifest A"}

    for attempt in (
        lambda: records.update("actual", id, text),
        lambda: records.update("actual", id, {"status": "active", **text}),
        lambda: records.transaction(UpdateRow("actual", id, text)),
        lambda: records.put("actual", id, noted),
        lambda: records.create("actual", id, noted),
        lambda: RawRecords(cast(Store, watched), ManualClock(T0)).put(
            "actual", id, noted, reason="note it", actor="user_1"
        ),
    ):
        with pytest.raises(InvalidInput):
            attempt()

    assert watched.asked == []
    assert store.get(Key("actual", id)) == (before,)


# ── the scenarios, one step after the other ───────────────────────────────────────────────────────


@pytest.mark.req("RS-1", "RS-2")
def test_keeps_history_as_it_was_written(records: Records, id: str) -> None:
    """Scenario 06, with the re-reads and the duplicate create that the scenario omits."""
    records.create("occurrences", id, Occurrence("rel_001", "promoted"))
    before = records.get("occurrences", id)

    for attempt in (
        lambda: records.update("occurrences", id, {"eventType": "mutated"}),
        lambda: records.save("occurrences", id, Occurrence("rel_001", "overwritten")),
        lambda: records.delete("occurrences", id),
    ):
        with pytest.raises(ImmutableRecord):
            attempt()
    with pytest.raises(ConditionFailed) as duplicate:
        records.create("occurrences", id, Occurrence("rel_001", "again"))

    assert code(duplicate.value) == "condition_failed"
    assert records.get("occurrences", id) == before


@pytest.mark.req("RS-1", "RS-3")
def test_protects_the_pin_and_lets_the_rest_change(records: Records, id: str) -> None:
    """Scenario 07."""
    records.create("actual", id, Actual("active", "rel_001", scope=id))
    records.update("actual", id, {"status": "warming"}, expected_version=0)

    with pytest.raises(ProtectedField):
        records.update("actual", id, {"pinnedReleaseId": "rel_002"}, expected_version=1)
    with pytest.raises(ProtectedField):
        records.update(
            "actual", id, {"status": "active"}, expected_version=1, protected_attributes=["status"]
        )
    with pytest.raises(ProtectedField):
        records.save("actual", id, Actual("active", "rel_002", scope=id))
    with pytest.raises(ProtectedField):
        records.delete("actual", id)
    found = records.get("actual", id).value

    assert (found.status, found.pinned_release_id, found.version) == ("warming", "rel_001", 1)


# ── what the kernel fills in ──────────────────────────────────────────────────────────────────────


def test_counts_the_version_from_zero_and_sets_the_times(
    records: Records, clock: ManualClock, id: str
) -> None:
    created = records.create("actual", id, Actual("active", "rel_001", scope=id))
    clock.advance(timedelta(microseconds=1))
    updated = records.update("actual", id, {"status": "warming"}, expected_version=0)
    clock.advance(timedelta(seconds=1))
    (again,) = records.transaction(UpdateRow("actual", id, {"status": "active"}))

    assert created.value == Actual("active", "rel_001", None, id, 0, T0, T0)
    moment = T0 + timedelta(microseconds=1)
    assert updated.value == Actual("warming", "rel_001", None, id, 1, T0, moment)
    assert again is not None
    assert again.value.version == 2
    assert again.born == created.version < updated.version < again.version
    assert records.get("actual", id) == again


def test_refuses_a_stale_count_and_a_stale_version(records: Records, id: str) -> None:
    created = records.create("actual", id, Actual("active", "rel_001", scope=id))
    updated = records.update("actual", id, {"status": "warming"}, expect=created.version)

    for options in (
        {"expected_version": 0},
        {"expected_version": 7},
        {"expect": created.version},
        {"expect": 0},
    ):
        with pytest.raises(VersionConflict):
            records.update("actual", id, {"status": "x"}, **cast(Any, options))

    assert records.get("actual", id) == updated
    plain = records.create("plain", id, FIRST)
    records.update("plain", id, {"status": "warming"})
    with pytest.raises(VersionConflict):
        records.delete("plain", id, expect=plain.version)


def test_does_not_update_a_missing_row(records: Records, id: str) -> None:
    with pytest.raises(NotFound):
        records.update("plain", id, {"status": "x"})
    with pytest.raises(NotFound):
        records.transaction(
            PutRow("plain", f"{id}/other", FIRST), UpdateRow("plain", id, {"status": "x"})
        )

    assert records.find("plain", f"{id}/other") is None
    records.delete("plain", id)  # a deleted row cannot be updated


# ── holes of earlier systems ──────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-2", "RS-3")
def test_hole_1_reaches_no_row_under_the_policy_of_another(
    store: Store, watched: Watched, records: Records, id: str
) -> None:
    """The kind of row is in its key: there is no model, table or policy to pass."""
    seed(store, "once", id)
    records.create("plain", id, FIRST)
    watched.asked.clear()

    for attempt in (
        lambda: records.delete("once", id),
        lambda: records.transaction(PutRow("plain", id, NEXT), DeleteRow("once", id)),
        lambda: records.update("once", id, {"status": "x"}),
    ):
        with pytest.raises(ImmutableRecord):
            attempt()

    assert watched.asked == []
    assert read(store, "once", id) == FIRST
    assert read(store, "plain", id) == FIRST


@pytest.mark.req("RS-3")
def test_hole_2_does_not_take_a_new_row_for_the_deleted_one(
    store: Store, records: Records, id: str
) -> None:
    """A plain row may be deleted and created again, but not in one step and not unnoticed by a
    reader. A row with a protected attribute could be replaced that way, so it stays until raw
    access.
    """
    first = records.create("plain", id, FIRST)
    records.create("guarded", id, FIRST)

    with pytest.raises(InvalidInput, match="twice"):
        records.transaction(DeleteRow("plain", id), CreateRow("plain", id, NEXT))
    records.delete("plain", id)
    second = records.create("plain", id, NEXT)

    assert second.born == second.version > first.version
    with pytest.raises(VersionConflict):
        records.update("plain", id, {"status": "x"}, expect=first.version)
    for delete in (
        lambda: records.delete("guarded", id),
        lambda: records.batch(DeleteRow("guarded", id)),
        lambda: records.transaction(DeleteRow("guarded", id)),
    ):
        with pytest.raises(ProtectedField):
            delete()
    assert read(store, "guarded", id) == FIRST
    seed(store, "folded", id)
    with pytest.raises(ImmutableRecord):
        records.delete("folded", id)


@pytest.mark.req("RS-3")
def test_hole_3_only_a_fold_may_move_the_pin(store: Store, records: Records, id: str) -> None:
    before = seed(store, "folded", id)
    fact = SCHEMA.vocabulary.fact(ReleasePinned("rel_002"))

    with pytest.raises(ImmutableRecord):
        records.update("folded", id, {"pinnedReleaseId": "rel_002"})
    (refused,) = store.commit(
        Commit(T0, writes=(Put(before.key, codec.encode(NEXT), before.version),))
    )
    assert code(cast(TidegateError, refused)) == "invalid_input"
    (landed,) = store.commit(
        Commit(T0, facts=(fact,), writes=(Put(before.key, codec.encode(NEXT), before.version),))
    )

    assert isinstance(landed, Receipt)
    assert read(store, "folded", id).pinned_release_id == "rel_002"


@pytest.mark.req("RS-3")
def test_hole_4_no_alternative_condition_overrides_the_version(records: Records, id: str) -> None:
    records.create("actual", id, Actual("active", "rel_001", scope=id))
    either = AnyOf(Where("status", "==", "other"), Where("status", "==", "active"))

    with pytest.raises(VersionConflict):
        records.update("actual", id, {"status": "x"}, expected_version=3, when=either)
    records.put("once", id, FIRST)
    with pytest.raises(ConditionFailed):
        records.put("once", id, NEXT, when=either)

    assert records.get("once", id).value == FIRST


@pytest.mark.req("RS-3")
def test_hole_5_refuses_a_protected_name_that_protects_nothing(
    watched: Watched, records: Records, id: str
) -> None:
    with pytest.raises(InvalidInput, match="statsu"):
        records.update("plain", id, {"attempts": 1}, protected_attributes=["statsu"])

    assert watched.asked == []


@pytest.mark.req("RS-2")
def test_hole_6_keeps_history_beyond_its_ttl(records: Records, clock: ManualClock, id: str) -> None:
    """A ttl allows a row to be deleted, but no verb deletes history."""
    past = int(T0.timestamp())
    written = records.create("occurrences", id, Occurrence("rel_001", "promoted", past))
    clock.advance(timedelta(days=400))

    for attempt in (
        lambda: records.delete("occurrences", id, when=Where("ttl", "<=", past)),
        lambda: records.batch(DeleteRow("occurrences", id)),
    ):
        with pytest.raises(ImmutableRecord):
            attempt()

    assert records.get("occurrences", id) == written


FORGERIES = (
    "UPDATE event_log SET kind = 'forged'",
    "DELETE FROM event_log",
    (
        "INSERT INTO event_log SELECT * FROM event_log WHERE true"
        " ON CONFLICT (seq) DO UPDATE SET kind = 'forged'"
    ),
)
DIALECT_FORGERIES = {
    # A connection without recursive triggers, where a REPLACE deletes without firing them.
    "sqlite": ("REPLACE INTO event_log SELECT * FROM event_log",),
    "postgres": ("TRUNCATE event_log CASCADE",),
}


def forge(place: Address, statement: str) -> None:
    """Run SQL on a connection that is not ours."""
    if place.engine == "sqlite":
        with closing(apsw.Connection(place.where)) as connection:
            connection.execute(statement)
    else:
        with psycopg.connect(place.where, options=f"-csearch_path={place.namespace}") as session:
            session.execute(statement.encode())


@pytest.mark.req("RS-2")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_hole_7_keeps_the_log_below_python_too(place: Address, store: Store, id: str) -> None:
    seed(store, "plain", id)
    before = store.feed(after=0, limit=10_000).events

    for statement in (*FORGERIES, *DIALECT_FORGERIES[place.engine]):
        with pytest.raises((apsw.Error, psycopg.Error), match="immutable"):
            forge(place, statement)

    assert before
    assert store.feed(after=0, limit=10_000).events == before
