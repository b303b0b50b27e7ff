"""Stepping: facts, their follow-ups and rows as one commit, all or nothing per call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace as redefined
from datetime import datetime

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct

from tests.domain.sample_control import SampleControl
from tests.domain.sample_domain import (
    ERRANDS,
    FOLD_LIST,
    FOLDS,
    PICKERS,
    SCHEMA,
    T0,
    BarnClosed,
    BarnShut,
    BasketFilled,
    CartSent,
    FruitPicked,
    ReportPick,
    Tree,
    TreeFelled,
    TreePlanted,
    barn_key,
    barn_machine,
    errand_key,
    picker_fold,
    record_fold,
    report_pick,
    tree_key,
    tree_machine,
)
from tests.quick import fewer
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    InvalidDefinition,
    LimitExceeded,
    Refused,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.commit_builder import FOLLOW_UPS_MAX, CommitBuilder, PackFull
from tidegate.kernel.folds import Fold, Folds, Machine, WorkRow
from tidegate.kernel.model import ABSENT, COST_MAX, Check, Commit, Delete, Key, Put, Receipt
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary, facts


def builder(store: Store, folds: Folds = FOLDS) -> CommitBuilder:
    return CommitBuilder(folds, store.get)


def land(store: Store, values: Sequence[Struct], folds: Folds = FOLDS) -> Receipt:
    """Commit these facts and everything that follows from them."""
    made = builder(store, folds)
    made.add(values, T0)
    (receipt,) = store.commit(made.commit(Commit(T0)))
    if isinstance(receipt, TidegateError):
        raise receipt
    return receipt


def types(made: CommitBuilder) -> list[str]:
    return [fact.type for fact in made.facts]


def stamp(store: Store, key: Key) -> tuple[int, int]:
    (record,) = store.get(key)
    assert record is not None
    return record.version, record.born


@pytest.fixture
def store() -> MemoryStore:
    """An orchard with one tree."""
    store = MemoryStore(SCHEMA)
    land(store, [TreePlanted("elm", "north")])
    return store


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


def test_puts_follow_ups_directly_after_their_cause_depth_first(store: MemoryStore) -> None:
    made = builder(store)

    made.add([FruitPicked("elm", "ann", 45, 1), BarnClosed("south")], T0)

    assert types(made) == [
        "FruitPicked",
        "BasketFilled",
        "BasketFilled",
        "BasketFilled",
        "CartSent",  # caused by the third basket, so before the fourth
        "BasketFilled",
        "BarnClosed",
    ]


class Rung(Struct, frozen=True):
    bell_id: str


class Heard(Struct, frozen=True):
    bell_id: str
    by: str


class Ears(Struct, frozen=True):
    count: int = 0


def listener(name: str, *, hears: int = 1) -> Machine:
    """A machine that counts how often it received a bell."""
    return Machine(
        collection=Collection(name, Ears, writers=Writers.FOLDED, nature=Nature.DERIVED),
        number=1,
        reads=(Rung,),
        ids=lambda fact: (fact.bell_id,),
        start=lambda id, fact: Ears(),
        step=lambda row, fact, now: (Ears(row.count + 1), (Heard(fact.bell_id, name),) * hears),
    )


def world_of(*folds: Fold, types: tuple[type[Struct], ...] = (Rung, Heard)) -> Folds:
    schema = Schema(Vocabulary(facts("bell", *types)), [fold.collection for fold in folds])
    return Folds(schema, folds)


def test_steps_several_folds_of_one_fact_in_their_order() -> None:
    for names in (("left", "right"), ("right", "left")):
        folds = world_of(*map(listener, names))
        made = builder(MemoryStore(folds.schema), folds)

        made.add([Rung("dong")], T0)

        assert [fact.body for fact in made.facts[1:]] == [
            b'{"bell_id":"dong","by":"%s"}' % name.encode() for name in names
        ]


def test_limits_the_follow_ups_of_one_fact() -> None:
    enough = world_of(listener("ears", hears=FOLLOW_UPS_MAX))
    too_many = world_of(listener("ears", hears=FOLLOW_UPS_MAX + 1))

    made = builder(MemoryStore(enough.schema), enough)
    made.add([Rung("ding"), Rung("dong")], T0)

    assert len(made.facts) == 2 * (1 + FOLLOW_UPS_MAX)
    made = builder(MemoryStore(too_many.schema), too_many)
    with pytest.raises(LimitExceeded, match="follow-ups of a fact"):
        made.add([Rung("dong")], T0)
    assert made.facts == []


def test_stops_a_cycle_of_machines_at_the_limit() -> None:
    echo = Machine(
        collection=Collection("echoes", Ears, writers=Writers.FOLDED, nature=Nature.DERIVED),
        number=1,
        reads=(Rung,),
        ids=lambda fact: (fact.bell_id,),
        start=lambda id, fact: Ears(),
        step=lambda row, fact, now: (Ears(row.count + 1), (fact,)),
    )
    made = builder(MemoryStore(world_of(echo).schema), world_of(echo))

    with pytest.raises(LimitExceeded, match="follow-ups of a fact"):
        made.add([Rung("dong")], T0)

    assert made.writes() == ()


# ── rows and their stamps ─────────────────────────────────────────────────────────────────────────


def test_stamps_a_row_with_the_last_fact_that_changed_it(store: MemoryStore) -> None:
    receipt = land(store, [FruitPicked("elm", "ann", 30, 1)])

    # FruitPicked, BasketFilled ×3, CartSent
    assert (receipt.first, receipt.last) == (2, 6)
    assert stamp(store, tree_key("elm")) == (2, 1)
    assert stamp(store, barn_key("north")) == (6, 3), "changed by all four, created by the first"
    assert stamp(store, errand_key("north", 1)) == (6, 6), "the intent's cause is the cart"
    assert differences(store, FOLDS) == []


def test_stamps_creation_and_change_separately_within_one_commit(store: MemoryStore) -> None:
    land(store, [TreePlanted("oak", "north"), FruitPicked("oak", "ann", 1, 1)])
    land(store, [TreeFelled("oak"), TreePlanted("oak", "south"), FruitPicked("oak", "ann", 2, 1)])

    assert stamp(store, tree_key("oak")) == (6, 5), "felled and planted again in one commit"
    assert differences(store, FOLDS) == []


def test_checks_a_row_that_a_step_did_not_change(store: MemoryStore) -> None:
    land(store, [FruitPicked("elm", "ann", 9, 1)])
    made = builder(store)

    made.add([FruitPicked("elm", "ann", 3, 2)], T0)

    best = Key(record_fold.collection.name, "ann")
    (check,) = [write for write in made.writes() if write.key == best]
    assert check == Check(best, 2)
    land(store, [FruitPicked("elm", "ann", 12, 2)])
    (conflict,) = store.commit(made.commit(Commit(T0)))
    assert isinstance(conflict, VersionConflict)


def test_writes_nothing_for_a_row_created_and_deleted_but_checks_its_absence() -> None:
    store = MemoryStore(SCHEMA)
    made = builder(store)

    made.add([TreePlanted("oak", "north"), TreeFelled("oak")], T0)

    assert made.writes() == (Check(tree_key("oak"), ABSENT),)
    (receipt,) = store.commit(made.commit(Commit(T0)))
    assert isinstance(receipt, Receipt)
    assert made.settled(receipt.first) == {tree_key("oak"): (ABSENT, None)}
    assert differences(store, FOLDS) == []


def test_deletes_a_row_at_the_version_that_it_had(store: MemoryStore) -> None:
    made = builder(store)

    made.add([TreeFelled("elm")], T0)

    assert made.writes() == (Delete(tree_key("elm"), 1, 0),)


def test_returns_the_rows_after_the_commit(store: MemoryStore) -> None:
    made = builder(store)
    made.add([FruitPicked("elm", "ann", 30, 1)], T0)
    (receipt,) = store.commit(made.commit(Commit(T0)))
    assert isinstance(receipt, Receipt)

    settled = made.settled(receipt.first)

    for key, (version, value) in settled.items():
        assert version == stamp(store, key)[0]
        assert value == SampleControl(store).row(key)
    assert errand_key("north", 1) in settled


def test_refuses_an_intent_for_a_row_that_this_commit_already_created(store: MemoryStore) -> None:
    made = builder(store)
    made.add([CartSent("north", 1)], T0)
    before = made.commit(Commit(T0))

    with pytest.raises(ConditionFailed, match="errands/north/1 exists already"):
        made.add([CartSent("north", 1)], T0)

    assert made.commit(Commit(T0)) == before


def test_writes_an_intent_to_a_row_that_the_slice_found_absent(
    store: MemoryStore,
) -> None:
    made = builder(store)

    assert made.row(errand_key("north", 1)) is None
    made.add([CartSent("north", 1)], T0)

    (put,) = [write for write in made.writes() if write.key.collection == ERRANDS.name]
    assert isinstance(put, Put)
    assert put.expect == ABSENT


def test_an_intent_may_not_name_a_folded_row(store: MemoryStore) -> None:
    planting = WorkRow(tree_key("oak"), Tree("oak"))
    machine = redefined(barn_machine, step=lambda row, fact, now: (row, (planting,)))
    made = builder(store, Folds(SCHEMA, [tree_machine, machine, picker_fold, record_fold]))

    with pytest.raises(AssertionError, match="written by its fold"):
        made.add([BarnClosed("north")], T0)

    assert made.facts == []


# ── all or nothing ────────────────────────────────────────────────────────────────────────────────


def test_a_refusal_deep_in_the_follow_ups_writes_nothing(store: MemoryStore) -> None:
    made = builder(store)
    made.add([FruitPicked("elm", "ann", 5, 1), BarnClosed("north")], T0)
    before = (list(made.facts), made.writes(), made.cost())

    with pytest.raises(BarnShut):
        made.add([FruitPicked("elm", "bob", 3, 2), FruitPicked("elm", "bob", 30, 3)], T0)

    assert (made.facts, made.writes(), made.cost()) == before
    assert made.row(tree_key("elm")).fruit == 5


def test_a_bug_in_a_step_writes_nothing_either(store: MemoryStore) -> None:
    def stumble(row: object, fact: object, now: datetime) -> object:
        raise ZeroDivisionError

    folds = Folds(
        SCHEMA, [tree_machine, barn_machine, redefined(picker_fold, step=stumble), record_fold]
    )
    made = builder(store, folds)

    with pytest.raises(ZeroDivisionError):
        made.add([FruitPicked("elm", "ann", 30, 1)], T0)

    assert (made.facts, made.writes(), made.cost()) == ([], (), 1)


TREE = st.sampled_from(["elm", "oak", "fir"])
BARN = st.sampled_from(["north", "south"])
VALUE = st.one_of(
    st.builds(TreePlanted, TREE, BARN),
    st.builds(TreeFelled, TREE),
    st.builds(
        FruitPicked, TREE, st.sampled_from(["ann", "bob"]), st.integers(0, 45), st.integers(1, 9)
    ),
    st.builds(BasketFilled, BARN, TREE),
    st.builds(CartSent, BARN, st.integers(1, 4)),
    st.builds(BarnClosed, BARN),
)
CALLS = st.lists(st.lists(VALUE, min_size=1, max_size=4), max_size=14)


@settings(max_examples=fewer(150), deadline=None)
@given(before=CALLS, calls=CALLS)
def test_refused_calls_have_no_effect(
    before: list[list[Struct]], calls: list[list[Struct]]
) -> None:
    store = MemoryStore(SCHEMA)
    for values in before:
        with suppress(TidegateError):
            land(store, values)
    made = builder(store)
    accepted = []

    for values in calls:
        unharmed = (list(made.facts), made.writes(), made.cost(), made.settled(100))
        try:
            made.add(values, T0)
            accepted.append(values)
        except TidegateError:
            assert (made.facts, made.writes(), made.cost(), made.settled(100)) == unharmed

    only_accepted = builder(store)
    for values in accepted:
        only_accepted.add(values, T0)
    assert made.commit(Commit(T0)) == only_accepted.commit(Commit(T0))
    assert made.cost() == only_accepted.cost()
    assert made.cost() >= SCHEMA.cost(made.commit(Commit(T0)))


@settings(max_examples=fewer(100), deadline=None)
@given(journey=CALLS)
def test_any_journey_can_be_replayed_to_the_same_rows_and_stamps(
    journey: list[list[Struct]],
) -> None:
    store = MemoryStore(SCHEMA)
    for values in journey:
        made = builder(store)
        for value in values:
            with suppress(TidegateError):
                made.add([value], T0)
        if made.facts:
            (receipt,) = store.commit(made.commit(Commit(T0)))
            assert isinstance(receipt, Receipt | VersionConflict)  # an errand that exists already

    assert differences(store, FOLDS) == []


# ── deciding on rows, and packs ───────────────────────────────────────────────────────────────────


def test_an_empty_decision_commits_only_checks_of_what_it_read(store: MemoryStore) -> None:
    made = builder(store)

    facts, answer = made.decide(report_pick, ReportPick("elm", "ann", 1, 0), T0)

    assert (facts, answer) == ((), b"")
    assert (made.facts, made.writes()) == ([], ())
    assert made.looked == {tree_key("elm"): 1}


def test_a_decision_reads_the_results_of_earlier_calls(store: MemoryStore) -> None:
    made = builder(store)

    for seq in (1, 2, 3):
        made.decide(report_pick, ReportPick("elm", "ann", 1, seq), T0)

    assert made.row(tree_key("elm")).seq == 3
    assert len(made.facts) == 3


def test_a_full_pack_accepts_no_more_calls_and_discards_what_did_not_fit(
    store: MemoryStore,
) -> None:
    made = CommitBuilder(FOLDS, store.get, pack_cost_max=9)
    made.decide(report_pick, ReportPick("elm", "ann", 1, 1), T0)
    before = made.commit(Commit(T0))

    with pytest.raises(PackFull):
        made.decide(report_pick, ReportPick("elm", "bob", 1, 2), T0)  # one more picker: 2 more rows

    assert made.commit(Commit(T0)) == before
    assert made.row(tree_key("elm")).seq == 1
    made.decide(report_pick, ReportPick("elm", "ann", 1, 2), T0)
    assert len(made.facts) == 2


def test_a_report_may_cost_no_more_in_a_large_pack_than_alone() -> None:
    wide = Fold(
        collection=Collection("wide", Ears, writers=Writers.FOLDED, nature=Nature.DERIVED),
        number=1,
        reads=(Rung,),
        ids=lambda fact: tuple(f"{fact.bell_id}/{n}" for n in range(COST_MAX)),
        start=lambda id, fact: Ears(),
        step=lambda row, fact, now: Ears(row.count + 1),
    )
    folds = world_of(wide)
    made = CommitBuilder(folds, MemoryStore(folds.schema).get, pack_cost_max=4_000)

    with pytest.raises(LimitExceeded, match="storage items of a report: found 103, allowed 100"):
        made.add([Rung("dong")], T0)

    assert made.facts == []


def test_reports_that_a_row_it_was_given_has_changed(store: MemoryStore) -> None:
    made = builder(store)
    made.fetch([tree_key("elm")])
    told = CommitBuilder(FOLDS, store.get, dict(made.known))
    told.decide(report_pick, ReportPick("elm", "ann", 1, 0), T0)
    told.demand_current(told.looked)

    land(store, [FruitPicked("elm", "ann", 1, 1)])

    with pytest.raises(VersionConflict):
        told.demand_current(told.looked)


# ── definitions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("folds", "complaint"),
    [
        ([*FOLD_LIST, tree_machine], "trees has two folds"),
        (FOLD_LIST[1:], r"no fold writes \['trees'\]"),
        ([*FOLD_LIST, redefined(picker_fold, collection=ERRANDS)], "errands is kept"),
        ([redefined(picker_fold, reads=(Rung,)), *FOLD_LIST[:2]], "reads Rung"),
        (
            [redefined(picker_fold, collection=redefined(PICKERS, name="others"))],
            "writes a collection unknown here",
        ),
    ],
)
def test_refuses_folds_that_cannot_work(folds: Sequence[Fold], complaint: str) -> None:
    with pytest.raises(InvalidDefinition, match=complaint):
        Folds(SCHEMA, folds)


def test_a_refused_fact_names_the_state_that_refused_it(store: MemoryStore) -> None:
    made = builder(store)

    with pytest.raises(IllegalTransition) as refusal:
        made.add([TreePlanted("elm", "south")], T0)

    assert isinstance(refusal.value, Refused)
    assert refusal.value.facts == {"machine": "tree", "state": "planted", "event": "TreePlanted"}
