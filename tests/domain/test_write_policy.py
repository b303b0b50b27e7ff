"""The rules of write policies, before any engine: definition, names, the matrix, conditions."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Annotated, Any

import pytest
from msgspec import Struct

from tests.contract.rows.registry import (
    CELLS,
    COLUMNS,
    FIRST,
    LETTERS,
    SCHEMA,
    T0,
    Actual,
    Metadata,
    Occurrence,
    Release,
    Swapped,
)
from tidegate.errors import (
    ConditionFailed,
    InvalidDefinition,
    InvalidInput,
    NotFound,
    ProtectedField,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.attributes import FieldRole, root
from tidegate.kernel.collections import Collection, Writers
from tidegate.kernel.model import ABSENT, Check, Delete, Key, Put, Record
from tidegate.kernel.records.actions import (
    Action,
    CheckRow,
    PutRow,
    SaveRow,
    UpdateRow,
    plan,
    screen,
)
from tidegate.kernel.records.changes import Add, Append, Discard, IfAbsent, Prepend, Remove
from tidegate.kernel.records.conditions import (
    DEPTH_MAX,
    NOW,
    Absent,
    AllOf,
    AnyOf,
    Condition,
    Not,
    Where,
    check_condition,
    holds,
)
from tidegate.kernel.records.write_policy import (
    MATRIX,
    Guarding,
    RowVerb,
    Ruling,
    WriteMode,
    WritePolicy,
)

PURE = "decided in pure code, before any engine is asked"
LATER = T0 + timedelta(minutes=5)


def record(collection: str, value: Struct, version: int = 7) -> Record:
    return Record(Key(collection, "one"), version, 3, codec.encode(value))


def refusal(action: Action, row: Record | None = None) -> str | None:
    """Return the code with which an action is refused, or None if it is planned."""
    try:
        screen(SCHEMA, action)
        plan(SCHEMA, action, row, LATER)
    except TidegateError as error:
        return error.code
    return None


def after(row: Record, changes: dict[str, Any]) -> Any:
    """Return the row's value after an update."""
    action = UpdateRow(row.key.collection, row.key.id, changes)
    screen(SCHEMA, action)
    return plan(SCHEMA, action, row, LATER).value


# ── the matrix ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-1", "RS-2", "RS-3", engines=None, reason=PURE)
@pytest.mark.parametrize(("call", "column"), list(product(CELLS, COLUMNS)))
def test_decides_every_cell_of_the_matrix(call: str, column: str) -> None:
    make, letters = CELLS[call]
    action = make(column, "one")

    found = refusal(action, record(column, FIRST))

    assert found == LETTERS[letters[COLUMNS.index(column)]]


@pytest.mark.parametrize("column", COLUMNS[:3])
@pytest.mark.parametrize("call", ["create", "put"])
def test_every_policy_allows_creating_a_missing_row(call: str, column: str) -> None:
    action = CELLS[call][0](column, "one")

    assert refusal(action, None) is None


def test_decides_every_pair_of_verb_and_guard_once() -> None:
    assert set(MATRIX) == set(product(RowVerb, Guarding))


@pytest.mark.parametrize("verb", [verb for verb in RowVerb if verb is not RowVerb.CHECK])
def test_refuses_every_write_of_a_folded_row(verb: RowVerb) -> None:
    assert MATRIX[verb, Guarding.FOLDED] is Ruling.IMMUTABLE


def test_write_once_takes_precedence_over_protected_attributes() -> None:
    once = SCHEMA.collection("once")

    assert once.protected
    assert once.guarding is Guarding.WRITE_ONCE


@pytest.mark.req("RS-1", engines=None, reason=PURE)
def test_is_mutable_with_nothing_protected_by_default() -> None:
    collection = Collection("things", Release)

    assert collection.policy == WritePolicy(WriteMode.MUTABLE, ())
    assert collection.guarding is Guarding.PLAIN
    assert collection.protected == frozenset()


# ── definition ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["append_only", "Mutable", 3])
def test_refuses_an_unknown_mode(mode: Any) -> None:
    with pytest.raises(InvalidDefinition, match="mode"):
        WritePolicy(mode)


@pytest.mark.parametrize("mode", ["", None])
def test_an_empty_mode_means_mutable(mode: Any) -> None:
    assert WritePolicy(mode).mode is WriteMode.MUTABLE


@pytest.mark.parametrize("names", ["status", ("status", 3), ("status", ""), ("  ",), (None,)])
def test_refuses_protected_names_that_are_no_list_of_names(names: Any) -> None:
    with pytest.raises(InvalidDefinition):
        WritePolicy(protected_attributes=names)


def test_stores_protected_names_stripped_and_under_their_stored_names() -> None:
    policy = WritePolicy(protected_attributes=(" pinned_release_id ", "pinnedReleaseId", "status"))

    collection = Collection("things", Release, policy=policy)

    assert collection.protected == {"pinnedReleaseId", "status"}


def test_refuses_to_protect_what_the_model_does_not_have() -> None:
    with pytest.raises(InvalidDefinition, match="pinned"):
        Collection("things", Release, policy=WritePolicy(protected_attributes=("pinned",)))


@pytest.mark.parametrize(
    "name", ["scope", "version", "created_at", "createdAt", "updated_at", "ttl"]
)
def test_refuses_to_protect_what_the_kernel_guards_itself(name: str) -> None:
    with pytest.raises(InvalidDefinition, match="guards"):
        Collection("things", Actual, policy=WritePolicy(protected_attributes=(name,)))


@pytest.mark.parametrize("name", ["id", "version", "created_at", "updated_at", "ttl"])
def test_refuses_to_protect_a_field_with_the_name_of_a_role(name: str) -> None:
    class Named(Struct, frozen=True):
        id: str = ""
        version: int = 0
        created_at: str = ""
        updated_at: str = ""
        ttl: int = 0

    with pytest.raises(InvalidDefinition, match="guards"):
        Collection("things", Named, policy=WritePolicy(protected_attributes=(name,)))


def test_refuses_two_fields_stored_under_one_name() -> None:
    with pytest.raises(ValueError, match="unique"):

        class Twice(Struct, frozen=True, rename={"first": "name", "second": "name"}):
            first: str
            second: str


def test_refuses_a_role_that_a_field_cannot_play() -> None:
    class Timed(Struct, frozen=True):
        created_at: Annotated[int, FieldRole.CREATED_AT]

    class Twice(Struct, frozen=True):
        first: Annotated[int, FieldRole.VERSION] = 0
        second: Annotated[int | None, FieldRole.VERSION] = 0

    for model in (Timed, Twice):
        with pytest.raises(InvalidDefinition):
            Collection("things", model)


def test_finds_a_role_inside_an_optional_type() -> None:
    class Timed(Struct, frozen=True):
        seen: Annotated[datetime, FieldRole.UPDATED_AT] | None = None

    found = Collection("things", Timed).role(FieldRole.UPDATED_AT)

    assert found is not None
    assert found.field == "seen"


@pytest.mark.req("RS-2", engines=None, reason="no collection can be declared on the log")
def test_refuses_a_collection_that_is_the_log() -> None:
    with pytest.raises(InvalidDefinition, match="log"):
        Collection("event_log", Release)


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spelling", "found"),
    [
        ("pin", "pin"),
        ("pin.value", "pin"),
        ("pin[0]", "pin"),
        ("pin = :x", "pin"),
        ("pin=:x", "pin"),
        ("pin, other", "pin"),
        ("pin)", "pin"),
        ("", ""),
        (".pin", ""),
    ],
)
def test_reads_the_attribute_from_the_start_of_a_path(spelling: str, found: str) -> None:
    assert root(spelling) == found


@pytest.mark.req("RS-3", engines=None, reason=PURE)
@pytest.mark.parametrize(
    "spelling", ["pinnedReleaseId.value", "pinned_release_id[0]", "pinnedReleaseId = x"]
)
def test_protects_every_spelling_of_a_path_into_a_protected_attribute(spelling: str) -> None:
    row = record("guarded", FIRST)

    assert refusal(UpdateRow("guarded", "one", {spelling: "x"}), row) == "protected_field"
    assert refusal(UpdateRow("plain", "one", {spelling: "x"}), row) == "invalid_input"


@pytest.mark.req("RS-3", engines=None, reason=PURE)
def test_the_stored_name_takes_precedence_over_the_name_of_a_field() -> None:
    swapped = SCHEMA.collection("swapped")
    row = record("swapped", Swapped("mine", "free"))

    assert swapped.protected == {"authority"}
    for name in ("authority", "protected_value"):
        assert refusal(UpdateRow("swapped", "one", {name: "x"}), row) == "protected_field"
    assert after(row, {"description": "x"}) == Swapped("mine", "x")


def test_the_stored_name_takes_precedence_in_the_names_of_one_call() -> None:
    class Names(Struct, frozen=True, rename={"protected_value": "authority", "authority": "other"}):
        protected_value: str = ""
        authority: str = ""

    collection = Collection("things", Names)

    collection.check_untouched(["other"], ["authority"])
    with pytest.raises(ProtectedField):
        collection.check_untouched(["protected_value"], ["authority"])


@pytest.mark.req("RS-3", engines=None, reason=PURE)
@pytest.mark.parametrize("names", ["status", ["statuss"], [""], [" "], [3], [None]])
def test_refuses_names_of_one_call_that_would_protect_nothing(names: Any) -> None:
    action = UpdateRow("plain", "one", {"attempts": 1}, protected_attributes=names)

    assert refusal(action, record("plain", FIRST)) == "invalid_input"


@pytest.mark.parametrize(
    ("changes", "options", "code"),
    [
        ({"pinnedReleaseId": "x", "nothing": 1}, {}, "protected_field"),
        ({"nothing": 1}, {}, "invalid_input"),
        ({"scope": "elsewhere"}, {}, "invalid_input"),
        ({"version": 5}, {"expected_version": 0}, "invalid_input"),
        ({"version": 5}, {}, "invalid_input"),
        ({"version": Add(1)}, {}, "invalid_input"),
        ({"createdAt": T0}, {}, "invalid_input"),
        ({"updated_at": T0}, {}, "invalid_input"),
        ({"status": "x", 5: 1}, {}, "invalid_input"),
        ({"previousReleaseId": "a", "previous_release_id": "b"}, {}, "invalid_input"),
        ({"status": "x"}, {"expected_version": -1}, "invalid_input"),
        ({"status": "x"}, {"expected_version": True}, "invalid_input"),
        ({"status": "x"}, {"expect": "7"}, "invalid_input"),
        ({"status": 5}, {}, "invalid_input"),
        ({"status": None}, {}, "invalid_input"),
        ({"status": object()}, {}, "invalid_input"),
        ({"status": Remove()}, {}, "invalid_input"),
        ({"ttl": 5}, {}, None),
        ({}, {}, None),
    ],
)
def test_reports_a_protected_name_before_any_malformed_value(
    changes: dict[str, Any], options: dict[str, Any], code: str | None
) -> None:
    row = record("actual", Actual("active", "rel_001", scope="one"))

    assert refusal(UpdateRow("actual", "one", changes, **options), row) == code


def test_reports_an_immutable_row_before_a_protected_name() -> None:
    action = UpdateRow("once", "one", {"nothing": 1}, protected_attributes="status")

    assert refusal(action) == "immutable_record"


def test_reports_a_malformed_key_before_the_policy() -> None:
    assert refusal(UpdateRow("once", "", {"status": "x"})) == "invalid_input"


def test_refuses_an_update_that_would_write_nothing() -> None:
    assert refusal(UpdateRow("plain", "one", {}), record("plain", FIRST)) == "invalid_input"


def test_refuses_a_counted_version_where_the_model_has_none() -> None:
    action = UpdateRow("plain", "one", {"status": "x"}, expected_version=0)

    assert refusal(action, record("plain", FIRST)) == "invalid_input"


# ── values ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-14", engines=None, reason=PURE)
@pytest.mark.parametrize(
    "value",
    [
        Occurrence("rel_001", "promoted"),
        {"status": "active", "pinnedReleaseId": "rel_001", "notes": "probably manifest A"},
        None,
    ],
)
def test_stores_values_of_its_own_model_only(value: Any) -> None:
    assert refusal(PutRow("actual", "one", value)) == "invalid_input"


@pytest.mark.req("RS-14", engines=None, reason=PURE)
def test_refuses_a_subclass_of_its_model_with_more_fields() -> None:
    class Noted(Actual, frozen=True):
        notes: str = "operator thought this probably came from manifest A"

    assert refusal(PutRow("actual", "one", Noted("active", "rel_001", scope="one"))) is not None


def test_refuses_a_row_with_another_id_than_its_key() -> None:
    assert refusal(PutRow("actual", "one", Actual("active", "x", scope="two"))) == "invalid_input"
    assert refusal(PutRow("actual", "one", Actual("active", "x", scope="one"))) is None


def test_joins_the_parts_of_an_id() -> None:
    class Paired(Struct, frozen=True):
        pk: Annotated[str, FieldRole.ID]
        sk: Annotated[str, FieldRole.ID]

    collection = Collection("things", Paired)

    collection.check_id("RELEASE#a/ACTUAL", Paired("RELEASE#a", "ACTUAL"))
    with pytest.raises(InvalidInput):
        collection.check_id("RELEASE#a/ACTUAL", Paired("RELEASE#b", "ACTUAL"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attempts": Add(2)}, {"attempts": 5}),
        ({"attempts": Add(-5)}, {"attempts": -2}),
        ({"attempts": Remove()}, {"attempts": 0}),
        ({"previousReleaseId": IfAbsent("a")}, {"previous_release_id": "a"}),
        ({"pinnedReleaseId": IfAbsent("a")}, {}),
        ({"pinnedReleaseId": None}, {"pinned_release_id": None}),
        ({"history": Append("b", "c")}, {"history": ("a", "b", "c")}),
        ({"history": Prepend("b", "c")}, {"history": ("b", "c", "a")}),
        ({"history": Discard("a", "z")}, {"history": ()}),
        ({"history": ["z"]}, {"history": ("z",)}),
        ({"labels": Append("y", "x")}, {"labels": frozenset({"x", "y"})}),
        ({"labels": Discard("x")}, {"labels": frozenset()}),
    ],
)
def test_computes_a_change_from_the_stored_value(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = Release(pinned_release_id="p", attempts=3, history=("a",), labels=frozenset({"x"}))

    value = after(record("plain", before), changes)

    fields = {name: getattr(before, name) for name in Release.__struct_fields__}
    assert value == Release(**fields | expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Add(1)},
        {"attempts": Add("1")},  # type: ignore[arg-type]
        {"attempts": Add(2**53)},
        {"attempts": Append(1)},
        {"status": Append("x")},
        {"labels": Prepend("x")},
        {"labels": Append(1)},
        {"status": Discard("x")},
        {"pinnedReleaseId": Add(1)},
    ],
)
def test_refuses_a_change_that_does_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        after(record("plain", Release()), changes)


def test_fills_in_version_and_times() -> None:
    created = plan(
        SCHEMA, PutRow("actual", "one", Actual("active", "rel_001", scope="one")), None, T0
    ).value
    assert created == Actual("active", "rel_001", None, "one", 0, T0, T0)

    updated = after(record("actual", created), {"status": "warming"})

    assert updated == Actual("warming", "rel_001", None, "one", 1, T0, LATER)


def test_keeps_the_version_of_a_creation_and_never_decreases_it() -> None:
    class Counted(Struct, frozen=True):
        version: Annotated[int, FieldRole.VERSION] = 0

    schema = type(SCHEMA)(SCHEMA.vocabulary, (Collection("counted", Counted),))
    row = Record(Key("counted", "one"), 7, 3, codec.encode(Counted(5)))

    assert plan(schema, PutRow("counted", "one", Counted(4)), None, T0).value == Counted(4)
    assert plan(schema, SaveRow("counted", "one", Counted(0)), row, T0).value == Counted(6)


# ── demands on the row ────────────────────────────────────────────────────────────────────────────


def test_each_write_requires_the_version_that_was_read() -> None:
    row = record("plain", FIRST)

    for call, kind, none in (("put", Put, Put), ("delete", Delete, Check), ("check", Check, None)):
        action = CELLS[call][0]("plain", "one")
        write = plan(SCHEMA, action, row, T0).write
        assert isinstance(write, kind)
        assert write.expect == 7
        if none is not None:
            absent = plan(SCHEMA, action, None, T0).write
            assert isinstance(absent, none)
            assert absent.expect == ABSENT


def test_an_update_never_creates_a_row() -> None:
    with pytest.raises(NotFound):
        plan(SCHEMA, UpdateRow("plain", "one", {"status": "x"}), None, T0)


def test_distinguishes_a_stale_count_a_stale_version_and_a_used_key() -> None:
    row = record("actual", Actual("active", "rel_001", scope="one", version=2))

    stale: list[dict[str, Any]] = [{"expected_version": 1}, {"expect": 6}, {"expect": ABSENT}]
    for options in stale:
        with pytest.raises(VersionConflict):
            plan(SCHEMA, UpdateRow("actual", "one", {"status": "x"}, **options), row, T0)
    with pytest.raises(ConditionFailed) as used:
        plan(SCHEMA, CELLS["create"][0]("plain", "one"), record("plain", FIRST), T0)
    assert not isinstance(used.value, VersionConflict)


def test_refuses_a_check_without_a_condition() -> None:
    assert refusal(CheckRow("plain", "one"), record("plain", FIRST)) == "invalid_input"


# ── conditions ────────────────────────────────────────────────────────────────────────────────────

PAGES = SCHEMA.collection("pages")
PAGE = Metadata("key", T0, etag="e")
TRUE = Where("s3_key", "==", "key")
FALSE = Where("s3_key", "==", "other")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (TRUE, True),
        (FALSE, False),
        (Where("s3_key", "!=", "other"), True),
        (Where("revalidate_seconds", ">", 59), True),
        (Where("revalidate_seconds", ">", 60), False),
        (Where("revalidate_seconds", ">=", 60), True),
        (Where("revalidate_seconds", "<", 60), False),
        (Where("revalidate_seconds", "<=", 60), True),
        (Where("generated_at", "<", NOW), True),
        (Where("generated_at", ">", NOW), False),
        (Where("generated_at", "==", T0), True),
        (Absent("etag"), False),
        (Absent(), False),
        (Not(Absent()), True),
        (AllOf(TRUE, FALSE), False),
        (AnyOf(TRUE, FALSE), True),
        (AllOf(FALSE, AnyOf(TRUE, TRUE)), False),
        (AnyOf(AllOf(FALSE, TRUE), TRUE), True),
        (Not(AnyOf(FALSE, TRUE)), False),
    ],
)
def test_evaluates_nested_conditions(condition: Condition, expected: bool) -> None:
    check_condition(condition, PAGES)

    assert holds(condition, PAGES, PAGE, LATER) is expected


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_a_comparison_with_an_absent_attribute_is_false(operator: str) -> None:
    releases = SCHEMA.collection("plain")

    assert not holds(Where("s3_key", operator, "key"), PAGES, None, T0)
    if operator in ("==", "!="):
        condition = Where("pinnedReleaseId", operator, "x")
        assert not holds(condition, releases, Release(), T0)
    assert holds(Absent("pinnedReleaseId"), releases, Release(), T0)


def test_compares_at_the_boundary_as_written() -> None:
    condition = Where("generated_at", ">", NOW)

    assert not holds(condition, PAGES, PAGE, T0)
    assert holds(condition, PAGES, PAGE, T0 - timedelta(microseconds=1))


def test_compares_a_list_with_a_stored_tuple() -> None:
    releases = SCHEMA.collection("plain")
    condition = Where("history", "==", ["a"])

    check_condition(condition, releases)

    assert holds(condition, releases, FIRST, T0)


def _nested(depth: int) -> Condition:
    condition: Condition = TRUE
    for _ in range(depth):
        condition = Not(condition)
    return condition


@pytest.mark.parametrize(
    "condition",
    [
        Where("nothing", "==", 1),
        Where("s3_key", "==", 5),
        Where("revalidate_seconds", "==", "60"),
        Where("revalidate_seconds", ">", True),
        Where("generated_at", ">", "2026-04-24T19:00:00"),
        Where("generated_at", ">", T0.replace(tzinfo=None)),
        Where("generated_at", ">", 1000),
        Where("revalidate_seconds", "<", NOW),
        Where("s3_key", "==", None),
        Absent("nothing"),
        AllOf(),
        AnyOf(),
        AllOf(TRUE, Where("nothing", "==", 1)),
        Not(Where("nothing", "==", 1)),
        "s3_key = key",
        _nested(DEPTH_MAX + 1),
    ],
)
def test_refuses_a_condition_that_could_never_hold(condition: Any) -> None:
    with pytest.raises(InvalidInput):
        check_condition(condition, PAGES)


def test_refuses_an_order_comparison_of_unordered_values() -> None:
    with pytest.raises(InvalidInput):
        check_condition(Where("history", "<", ("a",)), SCHEMA.collection("plain"))
    with pytest.raises(InvalidInput):
        Where("s3_key", "=", "key")


def test_distinguishes_folded_from_kept_collections() -> None:
    assert SCHEMA.collection("folded").writers is Writers.FOLDED
    assert SCHEMA.collection("folded").guarding is Guarding.FOLDED
