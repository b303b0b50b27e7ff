"""Generic verbs under an idempotency key: a repeated call happens once and gets the same answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.contract.rows.registry import (
    FIRST,
    NEXT,
    RACERS,
    T0,
    Actual,
    Release,
    Watched,
    code,
    race,
    read,
)
from tidegate.clock import ManualClock
from tidegate.errors import (
    ConditionFailed,
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.model import ANSWER_BYTES_MAX, ONCE_KEY_BYTES_MAX, Meta
from tidegate.kernel.records.actions import (
    Action,
    CheckRow,
    CreateRow,
    DeleteRow,
    PutRow,
    SaveRow,
    Stored,
    UpdateRow,
)
from tidegate.kernel.records.changes import Add, Append, Discard, IfAbsent, Prepend, Remove
from tidegate.kernel.records.conditions import NOW, Absent, AllOf, AnyOf, Not, Where
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store

LATER = timedelta(hours=1)


def others(store: Store) -> Records:
    """Return another handle, of another caller, at a later time."""
    return Records(store, lambda: T0 + 2 * LATER)


# ── a repeat ──────────────────────────────────────────────────────────────────────────────────────


def test_an_increment_sent_twice_counts_once(
    handles: list[Store], watched: Watched, records: Records, id: str
) -> None:
    records.create("plain", id, FIRST)
    watched.commits.clear()

    first = records.update("plain", id, {"attempts": Add(1)}, key=id)
    others(handles[1]).update("plain", id, {"status": "moved on"})
    here = records.update("plain", id, {"attempts": Add(1)}, key=id)
    there = others(handles[2]).update("plain", id, {"attempts": Add(1)}, key=id)

    assert first.value == replace(FIRST, attempts=1)
    assert here == there == first
    assert len(watched.commits) == 1
    assert read(handles[3], "plain", id) == replace(FIRST, attempts=1, status="moved on")


CALLS: dict[str, Callable[[Records, str, str], object]] = {
    "create": lambda records, id, key: records.create("actual", f"{id}/new", ours(id), key=key),
    "put a new row": lambda records, id, key: records.put("actual", f"{id}/new", ours(id), key=key),
    "put over": lambda records, id, key: records.put("free", f"{id}/old", old(id), key=key),
    "save a new row": lambda records, id, key: records.save("free", f"{id}/new", ours(id), key=key),
    "save over": lambda records, id, key: records.save("free", f"{id}/old", old(id), key=key),
    "update": lambda records, id, key: records.update(
        "free", f"{id}/old", {"status": "warming"}, expected_version=1, key=key
    ),
    "delete": lambda records, id, key: records.delete("free", f"{id}/old", key=key),
    "delete of nothing": lambda records, id, key: records.delete("free", f"{id}/new", key=key),
    "transaction": lambda records, id, key: records.transaction(
        UpdateRow("free", f"{id}/old", {"previousReleaseId": "rel_000"}),
        CreateRow("free", f"{id}/new", ours(id)),
        CheckRow("plain", id, when=Where("status", "==", "active")),
        CheckRow("plain", f"{id}/none", when=Absent()),
        DeleteRow("plain", f"{id}/gone"),
        key=key,
    ),
    "checks alone": lambda records, id, key: records.transaction(
        CheckRow("plain", id, when=Not(Absent())), key=key
    ),
}


def ours(id: str) -> Actual:
    return Actual("active", "rel_002", scope=f"{id}/new", version=7)


def old(id: str) -> Actual:
    return Actual("active", "rel_003", scope=f"{id}/old")


@pytest.mark.parametrize("name", CALLS)
def test_every_verb_answers_a_repeat_with_the_rows_of_the_first_call(
    handles: list[Store],
    watched: Watched,
    records: Records,
    clock: ManualClock,
    id: str,
    name: str,
) -> None:
    keys = [("actual", f"{id}/new"), ("free", f"{id}/new"), ("free", f"{id}/old"), ("plain", id)]
    records.create("free", f"{id}/old", replace(old(id), pinned_release_id="rel_001"))
    records.update("free", f"{id}/old", {"status": "warm"})
    records.create("plain", id, FIRST)
    records.create("plain", f"{id}/gone", FIRST)
    clock.advance(LATER)
    call = CALLS[name]

    first = call(records, id, id)

    world = others(handles[1])
    for collection, row in keys:  # every row changes, or is deleted and created again
        if collection == "actual":
            if world.find(collection, row) is not None:  # its pin is protected and does not change
                world.update(collection, row, {"status": "moved"})
        else:
            world.delete(collection, row)
    world.create("plain", id, NEXT)
    world.create("free", f"{id}/old", replace(old(id), status="made again"))
    moved_on = [world.find(*key) for key in keys]
    clock.advance(LATER)
    watched.asked.clear()

    assert call(records, id, id) == first
    assert watched.asked == ["receipt"]
    assert call(others(handles[2]), id, id) == first
    assert [world.find(*key) for key in keys] == moved_on


def test_a_repeat_may_be_spelled_differently(watched: Watched, records: Records, id: str) -> None:
    records.create("guarded", id, FIRST)
    changes = {"previous_release_id": "rel_000", "history": ["a", "b"], "attempts": Add(1)}
    same = {"attempts": Add(1), "history": ("a", "b"), "previousReleaseId": "rel_000"}
    when = Where("previous_release_id", "==", "x")
    same_when = Where("previousReleaseId", "==", "x")

    first = records.update("guarded", id, changes, when=Not(when), key=id)
    (again,) = records.transaction(
        UpdateRow("guarded", id, same, when=Not(same_when), protected_attributes=["labels"]), key=id
    )

    assert again == first
    assert records.get("guarded", id) == first


def test_without_a_key_an_increment_counts_each_time(records: Records, id: str) -> None:
    records.create("plain", id, FIRST)

    for _ in range(2):
        records.update("plain", id, {"attempts": Add(1)})

    assert records.get("plain", id).value.attempts == 2


# ── another call under the key ────────────────────────────────────────────────────────────────────


def asked(id: str) -> UpdateRow:
    """The call that the key belongs to in the tests below."""
    when = AllOf(Not(Absent()), Where("attempts", ">=", 0))
    return UpdateRow("plain", id, {"attempts": Add(1)}, when=when)


OTHERS: dict[str, Callable[[str], Action]] = {
    "another number": lambda id: update(id, {"attempts": Add(2)}),
    "a plain value": lambda id: update(id, {"attempts": 1}),
    "a value that looks like the change": lambda id: update(id, {"attempts": ["Add", 1]}),
    "no more than if absent": lambda id: update(id, {"attempts": IfAbsent(1)}),
    "a removal": lambda id: update(id, {"attempts": Remove()}),
    "another attribute": lambda id: update(id, {"pinned_count": Add(1)}),
    "one attribute more": lambda id: update(id, {"attempts": Add(1), "status": "x"}),
    "an append": lambda id: update(id, {"history": Append("b")}),
    "a prepend": lambda id: update(id, {"history": Prepend("b")}),
    "a discard": lambda id: update(id, {"labels": Discard("b")}),
    "another row": lambda id: update(f"{id}/other", {"attempts": Add(1)}),
    "another collection": lambda id: UpdateRow(
        "guarded", id, {"attempts": Add(1)}, when=asked(id).when
    ),
    "no condition": lambda id: UpdateRow("plain", id, {"attempts": Add(1)}),
    "a condition on another attribute": lambda id: update(
        id, when=AllOf(Not(Absent()), Where("pinned_count", ">=", 0))
    ),
    "a condition on another value": lambda id: update(
        id, when=AllOf(Not(Absent()), Where("attempts", ">=", 1))
    ),
    "a condition by another operator": lambda id: update(
        id, when=AllOf(Not(Absent()), Where("attempts", ">", 0))
    ),
    "conditions of which one is enough": lambda id: update(
        id, when=AnyOf(Not(Absent()), Where("attempts", ">=", 0))
    ),
    "an expected version": lambda id: UpdateRow(
        "plain", id, {"attempts": Add(1)}, when=asked(id).when, expect=1
    ),
    "a create": lambda id: CreateRow("plain", id, FIRST),
    "a put": lambda id: PutRow("plain", id, FIRST),
    "a save": lambda id: SaveRow("plain", id, FIRST),
    "a delete": lambda id: DeleteRow("plain", id),
    "a check": lambda id: CheckRow("plain", id, when=asked(id).when),
}


def update(id: str, changes: dict[str, Any] | None = None, when: Any = None) -> UpdateRow:
    said = asked(id)
    return UpdateRow("plain", id, changes or said.changes, when=when or said.when)


@pytest.mark.parametrize("name", OTHERS)
def test_another_call_under_the_key_is_refused_before_a_row_is_read(
    watched: Watched, records: Records, id: str, name: str
) -> None:
    records.create("plain", id, FIRST)
    (first,) = records.transaction(asked(id), key=id)
    watched.asked.clear()

    with pytest.raises(IdempotencyMismatch) as refusal:
        records.transaction(OTHERS[name](id), key=id)

    assert refusal.value.facts == {"key": id}
    assert watched.asked == ["receipt"]
    assert records.get("plain", id) == first
    assert records.transaction(asked(id), key=id) == (first,)


def test_adding_removing_or_reordering_actions_makes_another_call(
    records: Records, id: str
) -> None:
    made = [CreateRow("plain", f"{id}/{n}", FIRST) for n in range(2)]
    records.transaction(*made, key=id)

    for actions in ([made[0]], made[::-1], [*made, CreateRow("plain", id, FIRST)]):
        with pytest.raises(IdempotencyMismatch):
            records.transaction(*actions, key=id)

    assert records.find("plain", id) is None


@pytest.mark.parametrize("other", [NEXT, replace(FIRST, labels=frozenset({"y"}))])
def test_another_value_is_another_call(records: Records, id: str, other: Release) -> None:
    for verb in (records.put, records.save):
        first = verb("plain", id, FIRST, key=f"{id}/{verb.__name__}")
        with pytest.raises(IdempotencyMismatch):
            verb("plain", id, other, key=f"{id}/{verb.__name__}")
        assert records.get("plain", id) == first


def test_an_expected_count_is_part_of_the_call(records: Records, id: str) -> None:
    records.create("actual", id, Actual("active", "rel_001", scope=id))
    done = records.update("actual", id, {"status": "warm"}, expected_version=0, key=id)

    for expected in (None, 1):
        with pytest.raises(IdempotencyMismatch):
            records.update("actual", id, {"status": "warm"}, expected_version=expected, key=id)

    assert records.get("actual", id) == done


def test_a_key_belongs_to_the_caller_that_used_it(store: Store, id: str) -> None:
    ann, bob = (Records(store, lambda: T0, Meta(actor=actor)) for actor in ("ann", "bob"))
    made = ann.create("plain", id, FIRST, key=id)

    with pytest.raises(IdempotencyMismatch):
        bob.create("plain", id, FIRST, key=id)

    assert ann.create("plain", id, FIRST, key=id) == made


# ── what was lost, and what was refused ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_call_with_an_unknown_outcome_counts_once_when_sent_again(
    handles: list[Store], watched: Watched, records: Records, id: str, lost: str
) -> None:
    before = records.create("plain", id, FIRST)

    def add(writer: Records) -> Stored:
        return writer.update("plain", id, {"attempts": Add(1)}, expect=before.version, key=id)

    watched.losing = lost
    with pytest.raises(OutcomeUnknown):
        add(records)

    again = add(records)

    assert again.value.attempts == 1
    assert records.get("plain", id) == again
    assert add(others(handles[1])) == again


@pytest.mark.parametrize(
    "call",
    [
        lambda records, id, key: records.create("plain", f"{id}/new", NEXT, key=key),
        lambda records, id, key: records.update(
            "plain", id, {"status": "gone"}, when=Where("status", "==", "active"), key=key
        ),
        lambda records, id, key: records.transaction(
            DeleteRow("plain", id, when=Not(Absent())), key=key
        ),
        lambda records, id, key: records.update("plain", id, {"history": Append("x")}, key=key),
    ],
    ids=["create", "update", "delete", "append"],
)
def test_a_call_that_races_its_own_copy_is_answered_and_not_refused(
    handles: list[Store],
    watched: Watched,
    records: Records,
    id: str,
    call: Callable[[Records, str, str], object],
) -> None:
    """The copy commits between the read of the receipt and the read of the row."""
    records.create("plain", id, FIRST)
    copies: list[object] = []
    watched.asked.clear()
    watched.beforehand = lambda: copies.append(call(others(handles[1]), id, id))

    answer = call(records, id, id)

    assert [answer] == copies
    assert watched.asked[:2] == ["receipt", "get"]


def test_a_call_that_races_another_call_under_its_key_is_refused(
    handles: list[Store], watched: Watched, records: Records, id: str
) -> None:
    made: list[Stored] = []
    watched.beforehand = lambda: made.append(others(handles[1]).create("plain", id, FIRST, key=id))

    with pytest.raises(IdempotencyMismatch):
        records.create("plain", id, NEXT, key=id)
    watched.beforehand = None
    watched.meanwhile = lambda: made.append(
        others(handles[1]).create("plain", f"{id}/2", FIRST, key=f"{id}/2")
    )
    with pytest.raises(IdempotencyMismatch):
        records.put("plain", f"{id}/3", NEXT, key=f"{id}/2")

    assert [records.get("plain", stored.key.id) for stored in made] == made
    assert records.find("plain", f"{id}/3") is None


def test_a_call_that_reads_again_keeps_its_key(
    handles: list[Store], watched: Watched, records: Records, id: str
) -> None:
    records.create("plain", id, FIRST)
    watched.commits.clear()
    watched.meanwhile = lambda: others(handles[1]).update("plain", id, {"attempts": Add(10)})

    first = records.update("plain", id, {"attempts": Add(1)}, key=id)
    again = records.update("plain", id, {"attempts": Add(1)}, key=id)

    assert first.value.attempts == 11
    assert again == first
    assert [commit.once and commit.once.key for commit in watched.commits] == [id, id]


def test_a_refused_call_leaves_its_key_free(records: Records, id: str) -> None:
    with pytest.raises(NotFound):
        records.update("plain", id, {"attempts": Add(1)}, key=id)
    made = records.create("plain", id, FIRST)
    with pytest.raises(VersionConflict):
        records.update("plain", id, {"attempts": Add(1)}, expect=made.version + 1, key=id)
    with pytest.raises(ConditionFailed):
        records.update("plain", id, {"attempts": Add(1)}, when=Absent("status"), key=id)

    done = records.update("plain", id, {"attempts": Add(1)}, key=id)

    assert done.value.attempts == 1


def test_a_condition_on_the_time_is_not_checked_again_for_a_repeat(
    records: Records, clock: ManualClock, id: str
) -> None:
    records.create("actual", id, Actual("active", "rel_001", scope=id))
    clock.advance(LATER)
    fresh = Where("updatedAt", "<", NOW)
    done = records.update("actual", id, {"status": "warm"}, when=fresh, key=id)

    assert records.update("actual", id, {"status": "warm"}, when=fresh, key=id) == done
    with pytest.raises(IdempotencyMismatch):
        records.update(
            "actual", id, {"status": "warm"}, when=Where("updatedAt", "<", clock()), key=id
        )


# ── races ─────────────────────────────────────────────────────────────────────────────────────────


def test_racing_increments_under_one_key_count_once(handles: list[Store], id: str) -> None:
    Records(handles[0], lambda: T0).create("plain", id, FIRST)

    outcomes = race(
        handles,
        lambda store, n: Records(store, lambda: T0).update(
            "plain", id, {"attempts": Add(1)}, key=id
        ),
    )

    (found,) = Records(handles[0], lambda: T0).transaction(
        CheckRow("plain", id, when=Not(Absent()))
    )
    assert outcomes == [found] * RACERS
    assert found is not None
    assert found.value.attempts == 1


def test_racing_creations_under_one_key_all_succeed(handles: list[Store], id: str) -> None:
    outcomes = race(
        handles, lambda store, n: Records(store, lambda: T0).create("once", id, FIRST, key=id)
    )

    assert outcomes == [Records(handles[0], lambda: T0).get("once", id)] * RACERS


def test_one_of_several_different_calls_that_race_under_one_key_happens(
    handles: list[Store], id: str
) -> None:
    Records(handles[0], lambda: T0).create("plain", id, FIRST)

    outcomes = race(
        handles,
        lambda store, n: Records(store, lambda: T0).update(
            "plain", id, {"attempts": Add(n + 1)}, key=id
        ),
    )

    (done,) = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    refused = [code(outcome) for outcome in outcomes if isinstance(outcome, TidegateError)]
    assert refused == ["idempotency_mismatch"] * (RACERS - 1)
    assert Records(handles[0], lambda: T0).get("plain", id) == done


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "an idempotency key is empty"),
        ("a\x00b", "control character"),
        ("\ud800", "lone surrogate"),
        (7, "an idempotency key must be text, found int"),
        ("k" * (ONCE_KEY_BYTES_MAX + 1), "bytes of an idempotency key: found 129, allowed 128"),
        ("é" * 65, "bytes of an idempotency key: found 130, allowed 128"),
    ],
    ids=["empty", "control", "surrogate", "no text", "long", "long in bytes"],
)
def test_refuses_a_key_that_no_engine_holds_before_any_io(
    watched: Watched, records: Records, id: str, key: Any, words: str
) -> None:
    with pytest.raises((InvalidInput, LimitExceeded), match=words):
        records.create("plain", id, FIRST, key=key)

    assert watched.asked == []


def test_accepts_any_text_as_a_key_up_to_its_limit(records: Records, id: str) -> None:
    for key in (id + "k" * (ONCE_KEY_BYTES_MAX - len(id)), f"{id} 🔑 '\"%\\"):
        first = records.save("plain", id, FIRST, key=key)
        records.save("plain", id, NEXT)
        assert records.save("plain", id, FIRST, key=key) == first


def test_names_a_value_without_a_portable_form_before_any_io(
    watched: Watched, records: Records, id: str
) -> None:
    for value in (1.5, object(), 2**53, IfAbsent("\ud800"), {(1, 2): 3}):
        with pytest.raises(InvalidInput):
            records.update("plain", id, {"status": value}, key=id)

    assert watched.asked == []


def test_stores_in_an_answer_only_what_the_call_does_not_contain(
    watched: Watched, records: Records, id: str
) -> None:
    """A large row can be written under a key. The answer to an update is the row, and is
    limited.
    """
    large = replace(FIRST, history=("x" * ANSWER_BYTES_MAX,))

    made = records.create("plain", id, large, key=id)
    with pytest.raises(LimitExceeded, match="bytes of an answer"):
        records.update("plain", id, {"attempts": Add(1)}, key=f"{id}/2")

    assert records.create("plain", id, large, key=id) == made
    assert records.get("plain", id) == made
    assert records.update("plain", id, {"attempts": Add(1)}).value.attempts == 1


def test_counts_the_key_towards_the_limit_of_a_transaction(records: Records, id: str) -> None:
    actions = [PutRow("plain", f"{id}/{number}", FIRST) for number in range(99)]

    with pytest.raises(LimitExceeded, match="found 101, allowed 100"):
        records.transaction(*actions, key=id)
    made = records.transaction(*actions[:98], key=id)

    assert records.transaction(*actions[:98], key=id) == made


def test_a_batch_accepts_no_key(records: Records, id: str) -> None:
    with pytest.raises(TypeError, match="key"):
        cast(Any, records).batch(PutRow("plain", id, FIRST), key=id)
