"""release-state.md §0–§1.3, ruling by ruling: write policies and their matrix.

Each call goes through the generic verbs on the memory engine; ``tests/contract/rows`` holds the
same matrix on every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.rows.registry import FIRST, NEXT, T0, Release
from tests.contract.rows.registry import SCHEMA as ROWS
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


# ── §1.1, §1.2 policies ───────────────────────────────────────────────────────────────────────────


def test_declares_a_policy_by_mode_and_protected_attributes() -> None:
    """release-state.md §1.1 #1: "`mutable` or `write_once`", "`mutable` (also when empty/absent)",
    "anything else -> definition error"
    release-state.md §1.1 #2: "not a bare string; every element a string; stripped; non-empty; must
    exist on the model; stored deduplicated, sorted, as *stored attribute names*"
    """
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


def test_means_by_the_modes_what_is_said(records: Records) -> None:
    """release-state.md §1.2 #1: "`mutable`: ordinary create / update / upsert / delete"
    release-state.md §1.2 #2: "A duplicate create is *not* an immutability error: it surfaces as the
    ordinary condition failure"
    release-state.md §1.2 #3: "a mutable model with protected attributes may still be deleted"
    release-state.md §1.2 #4: "There is deliberately no public bypass"
    release-state.md §1.2 #5: "the immutability error wins (it is checked first)"
    """
    records.update(PLAIN, "row", {"pinnedReleaseId": "rel_002"})
    records.save(PLAIN, "row", NEXT)
    records.delete(PLAIN, "row")
    with pytest.raises(ConditionFailed) as failure:
        records.create(ONCE, "row", NEXT)
    assert failure.value.code == "condition_failed"
    records.delete(GUARDED, "row")
    assert ROWS.collection(ONCE).protected
    with pytest.raises(ImmutableRecord):
        records.update(ONCE, "row", {"pinnedReleaseId": "rel_002"})
    assert not [name for name in dir(records) if "force" in name or "bypass" in name]


# ── §1.3 the matrix ───────────────────────────────────────────────────────────────────────────────

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
    ("point", "call", "plain", "guarded", "once"),
    [
        (
            "release-state.md §1.3 #1: `create` verb",
            lambda records, name: records.create(name, "row", NEXT),
            *(TAKEN, TAKEN, TAKEN),
        ),
        (
            "release-state.md §1.3 #2: `put(item)` | ok (overwrites) | C | C",
            lambda records, name: records.put(name, "row", NEXT),
            *(OK, TAKEN, TAKEN),
        ),
        (
            (
                "release-state.md §1.3 #3: `save(item)` (upsert) | **P** always, even if the pin"
                " value is unchanged"
            ),
            lambda records, name: records.save(name, "row", FIRST),
            *(OK, PROTECTED, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #4: `update`, touching only unprotected fields",
            updating({"status": "warming"}),
            *(OK, OK, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #5: `update`, touching a protected field",
            updating({"pinnedReleaseId": None}),
            *(OK, PROTECTED, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #6: `update(..., protected_attributes=[x])` touching x",
            updating({"status": "x"}, protected_attributes=["status"]),
            *(PROTECTED, PROTECTED, IMMUTABLE),
        ),
        *(
            (
                (
                    "release-state.md §1.3 #7: every builder verb resolves its field through one"
                    " checking function"
                ),
                updating({name: change}),
                *(OK, PROTECTED, IMMUTABLE),
            )
            for name, change in BUILDERS.items()
        ),
        (
            "release-state.md §1.3 #8: `delete` | ok | **ok** | I",
            lambda records, name: records.delete(name, "row"),
            *(OK, OK, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #9: `batch_write(puts)` | ok | P | I",
            lambda records, name: records.batch(PutRow(name, "new", NEXT)),
            *(OK, PROTECTED, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #10: `batch_write(deletes)` | ok | ok | I",
            lambda records, name: records.batch(DeleteRow(name, "row")),
            *(OK, OK, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #11: `transact_write` put | ok | C | C",
            transacting(lambda name: PutRow(name, "row", NEXT)),
            *(OK, TAKEN, TAKEN),
        ),
        (
            "release-state.md §1.3 #12: `transact_write` update | ok | P if touched | I",
            transacting(lambda name: UpdateRow(name, "row", {"pinnedReleaseId": "x"})),
            *(OK, PROTECTED, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #13: `transact_write` delete | ok | ok | I",
            transacting(lambda name: DeleteRow(name, "row")),
            *(OK, OK, IMMUTABLE),
        ),
        (
            "release-state.md §1.3 #14: `transact_write` condition check | ok | ok | ok",
            transacting(lambda name: CheckRow(name, "row", when=Not(Absent()))),
            *(OK, OK, OK),
        ),
    ],
)
def test_holds_each_row_of_the_matrix(
    records: Records, point: str, call: Call, plain: Answer, guarded: Answer, once: Answer
) -> None:
    """release-state.md §0.2 #1: "`save` on a model with protected attributes" | "rejected"
    release-state.md §0.2 #2: "batch put on a model with protected attributes" | "rejected"
    release-state.md §0.2 #3: "plain `put` on a model with protected attributes" | "auto
    create-if-absent guard"
    """
    del point
    for name, answer in ((PLAIN, plain), (GUARDED, guarded), (ONCE, once)):
        before = records.find(name, "row")
        if answer is None:
            call(records, name)
            continue
        with pytest.raises(answer) as refusal:
            call(records, name)
        assert type(refusal.value) is answer
        assert records.find(name, "row") == before
