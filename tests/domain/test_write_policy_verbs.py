"""Write policies through the generic verbs: every verb on every policy.

Each call goes through the generic verbs on the memory engine; ``tests/contract/rows`` holds the
same matrix on every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.rows.registry import FIRST, NEXT, SCHEMA as ROWS, T0, Release
from tidegate.clock import ManualClock
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    ConditionFailed,
    ImmutableRecord,
    InvalidDefinition,
    ProtectedField,
    TidegateError,
)
from tidegate.kernel.collections import Collection
from tidegate.kernel.records.actions import CheckRow, DeleteRow, PutRow, UpdateRow
from tidegate.kernel.records.changes import Add, Append, Discard, IfAbsent, Prepend, Remove
from tidegate.kernel.records.conditions import Absent, Not
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy

PLAIN, GUARDED, ONCE = "plain", "guarded", "once"


@pytest.fixture
def records() -> Records:
    """One row under each policy."""
    records = Records(MemoryStore(ROWS), ManualClock(T0))
    for collection in (PLAIN, GUARDED, ONCE):
        records.create(collection, "row", FIRST)
    return records


# ── policies ──────────────────────────────────────────────────────────────────────────────────────


def test_declares_a_policy_by_mode_and_protected_attributes() -> None:
    assert Collection("c", Release).policy.mode is WriteMode.MUTABLE
    with pytest.raises(InvalidDefinition):
        WritePolicy("frozen")  # type: ignore[arg-type]
    for names in ("status", [""], [" "], [1]):
        with pytest.raises(InvalidDefinition):
            WritePolicy(protected_attributes=names)  # type: ignore[arg-type]
    with pytest.raises(InvalidDefinition):
        Collection("c", Release, policy=WritePolicy(protected_attributes=("unknown",)))
    spelt = ("pinned_release_id", " pinnedReleaseId ", "attempts")
    found = Collection("c", Release, policy=WritePolicy(protected_attributes=spelt))
    assert sorted(found.protected) == ["attempts", "pinnedReleaseId"]


def test_each_mode_has_its_documented_meaning(records: Records) -> None:
    records.update(PLAIN, "row", {"pinnedReleaseId": "rel_002"})
    records.save(PLAIN, "row", NEXT)
    records.delete(PLAIN, "row")
    with pytest.raises(ConditionFailed) as failure:
        records.create(ONCE, "row", NEXT)
    assert failure.value.code == "condition_failed"
    with pytest.raises(ProtectedField):
        records.delete(GUARDED, "row")
    assert ROWS.collection(ONCE).protected
    with pytest.raises(ImmutableRecord):
        records.update(ONCE, "row", {"pinnedReleaseId": "rel_002"})
    assert not [name for name in dir(records) if "force" in name or "bypass" in name]


# ── the matrix ────────────────────────────────────────────────────────────────────────────────────

OK, IMMUTABLE, PROTECTED, TAKEN = None, ImmutableRecord, ProtectedField, ConditionFailed
Call = Callable[[Records, str], Any]
Answer = type[TidegateError] | None


def updating(changes: dict[str, Any], **options: Any) -> Call:
    return lambda records, name: records.update(name, "row", changes, **options)


def transacting(make: Callable[[str], Any]) -> Call:
    return lambda records, name: records.transaction(make(name))


BUILDERS: dict[str, Any] = {
    "pinnedReleaseId": "x",
    "pinned_release_id": IfAbsent("x"),
    "pinnedCount": Add(1),
    "pinnedHistory": Append("x"),
    "pinned_history": Prepend("x"),
    "pinnedLabels": Discard("x"),
    "pinned_labels": Remove(),
}


@pytest.mark.parametrize(
    ("call", "plain", "guarded", "once"),
    [
        pytest.param(
            lambda records, name: records.create(name, "row", NEXT),
            *(TAKEN, TAKEN, TAKEN),
            id="create",
        ),
        pytest.param(
            lambda records, name: records.put(name, "row", NEXT),
            *(OK, TAKEN, TAKEN),
            id="put overwrites no guarded row",
        ),
        pytest.param(
            lambda records, name: records.save(name, "row", FIRST),
            *(OK, PROTECTED, IMMUTABLE),
            id="save of a guarded row even if the pin is unchanged",
        ),
        pytest.param(
            updating({"status": "warming"}),
            *(OK, OK, IMMUTABLE),
            id="update of an unprotected field",
        ),
        pytest.param(
            updating({"pinnedReleaseId": None}),
            *(OK, PROTECTED, IMMUTABLE),
            id="update of a protected field",
        ),
        pytest.param(
            updating({"status": "x"}, protected_attributes=["status"]),
            *(PROTECTED, PROTECTED, IMMUTABLE),
            id="update of a field protected for this call",
        ),
        *(
            pytest.param(
                updating({name: change}),
                *(OK, PROTECTED, IMMUTABLE),
                id=f"update by {type(change).__name__} of {name}",
            )
            for name, change in BUILDERS.items()
        ),
        pytest.param(
            lambda records, name: records.delete(name, "row"),
            *(OK, PROTECTED, IMMUTABLE),
            id="delete",
        ),
        pytest.param(
            lambda records, name: records.batch(PutRow(name, "new", NEXT)),
            *(OK, PROTECTED, IMMUTABLE),
            id="batch put",
        ),
        pytest.param(
            lambda records, name: records.batch(DeleteRow(name, "row")),
            *(OK, PROTECTED, IMMUTABLE),
            id="batch delete",
        ),
        pytest.param(
            transacting(lambda name: PutRow(name, "row", NEXT)),
            *(OK, TAKEN, TAKEN),
            id="transaction put",
        ),
        pytest.param(
            transacting(lambda name: UpdateRow(name, "row", {"pinnedReleaseId": "x"})),
            *(OK, PROTECTED, IMMUTABLE),
            id="transaction update of a protected field",
        ),
        pytest.param(
            transacting(lambda name: DeleteRow(name, "row")),
            *(OK, PROTECTED, IMMUTABLE),
            id="transaction delete",
        ),
        pytest.param(
            transacting(lambda name: CheckRow(name, "row", when=Not(Absent()))),
            *(OK, OK, OK),
            id="transaction check",
        ),
    ],
)
def test_follows_each_row_of_the_matrix(
    records: Records, call: Call, plain: Answer, guarded: Answer, once: Answer
) -> None:
    for name, answer in ((PLAIN, plain), (GUARDED, guarded), (ONCE, once)):
        before = records.find(name, "row")
        if answer is None:
            call(records, name)
            continue
        with pytest.raises(answer) as refusal:
            call(records, name)
        assert type(refusal.value) is answer
        assert records.find(name, "row") == before
