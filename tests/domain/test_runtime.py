"""One command: read, decided, folded and committed; retried when necessary, once when it has a
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace as redefined
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from tests.domain.sample_control import SampleControl
from tests.domain.sample_domain import (
    COLLECTIONS,
    FACTS,
    FOLD_LIST,
    PICKERS,
    SCHEMA,
    SLICES,
    T0,
    Barn,
    BarnShut,
    CloseBarn,
    FellTree,
    FruitPicked,
    HandPick,
    Picker,
    PlantTree,
    ReportPick,
    SequenceGap,
    Tree,
    barn_key,
    close_barn,
    errand_key,
    fell_tree,
    hand_pick,
    plant_tree,
    report_pick,
    tree_key,
)
from tidegate.control.runtime import BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX, REFOLDS_MAX, Control
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import (
    AttemptsExhausted,
    BoundaryMoved,
    Conflict,
    IdempotencyMismatch,
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    VersionConflict,
)
from tidegate.kernel.folds import Folds
from tidegate.kernel.idempotency import digest
from tidegate.kernel.model import ABSENT, COST_MAX, Boundary, Check, Commit, Key, Meta, Put, Record
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

ELM = tree_key("elm")
ANN = Key(PICKERS.name, "ann")


@pytest.fixture(params=["memory", "sqlite"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SampleControl]:
    """One tree that has not been picked from."""
    store = (
        MemoryStore(SCHEMA)
        if request.param == "memory"
        else SqliteStore(str(tmp_path / "orchard.db"), SCHEMA)
    )
    with closing(store):
        sample = SampleControl(store)
        sample.control.execute(plant_tree, PlantTree("elm", "north"))
        sample.committer.commits.clear()
        yield sample
        assert differences(store, sample.folds) == []


def counted(item: Slice) -> tuple[Slice, list[object]]:
    """Wrap the slice, and collect the states on which it was asked to decide."""
    states: list[object] = []

    def decide(state: object, command: Struct, now: datetime) -> Sequence[Struct]:
        states.append(state)
        return item.decide(state, command, now)

    return redefined(item, decide=decide), states


def felling_and_planting(sample: SampleControl) -> Callable[[], None]:
    """A rival that changes the boundary of every reader of the tree's facts, and no rows."""

    def act() -> None:
        sample.rival().execute(fell_tree, FellTree("elm"))
        sample.rival().execute(plant_tree, PlantTree("elm", "north"))

    return act


def picking(sample: SampleControl, picker: str = "bob", count: int = 1) -> Callable[[], object]:
    """A rival that changes rows of folds, and no boundary of a hand pick."""
    return lambda: sample.rival().execute(hand_pick, HandPick("elm", picker, count))


# ── the straight way ──────────────────────────────────────────────────────────────────────────────


def test_turns_a_command_into_facts_rows_and_an_answer(sample: SampleControl) -> None:
    sample.clock.advance(timedelta(hours=1))

    outcome = sample.control.execute(hand_pick, HandPick("elm", "ann", 30), meta=Meta("ann"))

    assert outcome.facts == (FruitPicked("elm", "ann", 30, 0),)
    assert outcome.answer == b"FruitPicked"
    assert outcome.receipt is not None
    assert (outcome.receipt.first, outcome.receipt.last, outcome.position) == (2, 6, 6)
    assert sample.types()[1:] == ["FruitPicked", *["BasketFilled"] * 3, "CartSent"]
    assert sample.row(ELM) == Tree("elm", "north", 30, 0, T0 + timedelta(hours=1))
    assert sample.row(barn_key("north")) == Barn("north", 3, 1)
    assert {event.at for event in sample.events()[1:]} == {T0 + timedelta(hours=1)}
    assert {event.meta for event in sample.events()[1:]} == {Meta("ann")}


def test_commits_nothing_for_an_empty_decision(sample: SampleControl) -> None:
    outcome = sample.control.execute(plant_tree, PlantTree("elm", "south"))

    assert (outcome.facts, outcome.receipt, outcome.position) == ((), None, 0)
    assert sample.committer.commits == []


def test_refuses_the_command_of_another_slice(sample: SampleControl) -> None:
    with pytest.raises(InvalidInput, match="plant-tree takes PlantTree"):
        sample.control.execute(plant_tree, FellTree("elm"))


def test_a_slice_starts_from_facts_or_from_rows() -> None:
    with pytest.raises(InvalidDefinition, match="one of the two"):
        redefined(hand_pick, rows=report_pick.rows)
    with pytest.raises(InvalidDefinition, match="one of the two"):
        redefined(report_pick, rows=None)
    with pytest.raises(InvalidDefinition, match="one of the two"):
        redefined(hand_pick, evolve=None)


def test_refuses_what_costs_too_much_before_anything_is_sent() -> None:
    fan = redefined(
        FOLD_LIST[2], ids=lambda fact: tuple(f"{fact.picker}/{n}" for n in range(COST_MAX))
    )
    folds = Folds(SCHEMA, [*FOLD_LIST[:2], fan, FOLD_LIST[3]])
    sample = SampleControl(folds=folds)
    sample.control.execute(plant_tree, PlantTree("elm", "north"))
    sample.committer.commits.clear()

    with pytest.raises(LimitExceeded, match=f"storage items of a commit: .* allowed {COST_MAX}"):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 1))

    assert sample.committer.commits == []


# ── conflicts ─────────────────────────────────────────────────────────────────────────────────────


def test_reads_and_decides_again_when_its_boundary_moved(sample: SampleControl) -> None:
    item, states = counted(hand_pick)
    sample.committer.before.append(lambda: sample.rival().execute(fell_tree, FellTree("elm")))

    with pytest.raises(NotFound):
        sample.control.execute(item, HandPick("elm", "ann", 1))

    assert states == [True, False]
    assert "FruitPicked" not in sample.types()


def test_gives_up_after_three_attempts_with_a_conflict_that_names_what_changed(
    sample: SampleControl,
) -> None:
    item, states = counted(hand_pick)
    sample.committer.before.extend([felling_and_planting(sample)] * 3)

    with pytest.raises(AttemptsExhausted, match="met another commit 3 times") as exhausted:
        sample.control.execute(item, HandPick("elm", "ann", 1))

    assert isinstance(exhausted.value, Conflict)
    assert isinstance(exhausted.value.__cause__, BoundaryMoved)
    assert exhausted.value.facts["attempts"] == 3
    assert exhausted.value.facts["position"] == sample.events()[-1].position
    assert states == [True] * 3
    assert "FruitPicked" not in sample.types()


def test_commits_at_its_third_attempt(sample: SampleControl) -> None:
    sample.committer.before.extend([felling_and_planting(sample)] * 2)

    assert sample.control.execute(hand_pick, HandPick("elm", "ann", 1)).position == 6


def test_waits_longer_after_each_attempt_up_to_a_limit_with_jitter(
    sample: SampleControl,
) -> None:
    for jitter in (0.0, 1.0):
        sample.waits.clear()
        control = sample.control_with(attempts_max=12, jitter=jitter)
        sample.committer.before.extend([felling_and_planting(sample)] * 12)

        with pytest.raises(AttemptsExhausted):
            control.execute(hand_pick, HandPick("elm", "ann", 1))

        bounds = [min(BACK_OFF_SECONDS * 2**n, BACK_OFF_SECONDS_MAX) for n in range(11)]
        assert sample.waits == [bound * jitter for bound in bounds]


def test_reads_the_clock_for_every_attempt(sample: SampleControl) -> None:
    def delay() -> None:
        felling_and_planting(sample)()
        sample.clock.advance(timedelta(minutes=5))

    sample.committer.before.append(delay)

    outcome = sample.control.execute(hand_pick, HandPick("elm", "ann", 1))

    assert outcome.receipt is not None
    assert outcome.receipt.at == T0 + timedelta(minutes=5)
    assert sample.row(ELM) == Tree("elm", "north", 1, 0, T0 + timedelta(minutes=5))


def test_only_folds_again_when_a_row_of_a_fold_changed(sample: SampleControl) -> None:
    item, states = counted(hand_pick)
    control = sample.control_with(attempts_max=1)
    sample.committer.before.extend([picking(sample)] * 7)

    outcome = control.execute(item, HandPick("elm", "ann", 5))

    assert len(states) == 1
    assert len(sample.committer.commits) == 8
    assert outcome.receipt is not None
    assert sample.row(ELM) == Tree("elm", "north", 12, 0, T0)
    assert all(0 < wait <= BACK_OFF_SECONDS for wait in sample.waits)


def test_does_not_fold_again_for_ever(sample: SampleControl) -> None:
    control = sample.control_with(attempts_max=1)
    sample.committer.before.extend([picking(sample)] * REFOLDS_MAX)

    with pytest.raises(AttemptsExhausted) as exhausted:
        control.execute(hand_pick, HandPick("elm", "ann", 5))

    assert isinstance(exhausted.value.__cause__, VersionConflict)
    assert len(sample.committer.commits) == REFOLDS_MAX


def test_does_not_retry_a_conflict_that_a_rule_raises(sample: SampleControl) -> None:
    def decide(planted: bool, command: HandPick, now: datetime) -> Sequence[Struct]:
        raise VersionConflict("trees", command.tree_id, 7, 8)

    item, states = counted(redefined(hand_pick, decide=decide))

    with pytest.raises(VersionConflict):
        sample.control.execute(item, HandPick("elm", "ann", 1))

    assert len(states) == 1


def test_an_existing_work_row_costs_attempts_and_no_refolds(
    sample: SampleControl,
) -> None:
    errand = Put(errand_key("north", 1), b'{"text":"of another hand"}', ABSENT)
    sample.store.commit(Commit(T0, writes=(errand,)))

    with pytest.raises(AttemptsExhausted, match="errands/north/1"):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 30))

    assert len(sample.committer.commits) == 3
    assert "FruitPicked" not in sample.types()


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


def shut_barn(sample: SampleControl) -> None:
    sample.rival().execute(close_barn, CloseBarn("north"))


def test_a_fold_s_refusal_is_the_command_s(sample: SampleControl) -> None:
    shut_barn(sample)

    with pytest.raises(BarnShut):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 10))

    assert "FruitPicked" not in sample.types()
    assert [commit.facts for commit in sample.committer.commits] == [()]


class Interrupted(MemoryStore):
    """A store in which something happens right after the next read of some row."""

    plan: list[tuple[Key, Callable[[], object]]]

    def __init__(self) -> None:
        super().__init__(SCHEMA)
        self.plan = []

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        found = super().get(*keys)
        if self.plan and self.plan[0][0] in keys:
            self.plan.pop(0)[1]()
        return found


def test_a_fold_s_refusal_counts_only_while_the_boundary_holds() -> None:
    """The tree is felled and planted elsewhere after the decision: its row refuses the old one."""
    store = Interrupted()
    sample = SampleControl(store)
    sample.control.execute(plant_tree, PlantTree("elm", "north"))
    item, states = counted(plant_tree)
    sample.rival().execute(fell_tree, FellTree("elm"))

    class Late(Control):
        def _read(self, item: Slice, command: Struct) -> tuple[Boundary, object]:
            found = super()._read(item, command)
            if not sample.waits:  # the first attempt
                sample.rival().execute(plant_tree, PlantTree("elm", "south"))
            return found

    control = Late(
        store, sample.folds, sample.committer.submit, clock=sample.clock, sleep=sample.waits.append
    )

    outcome = control.execute(item, PlantTree("elm", "north"))

    assert states == [False, True]
    assert outcome.receipt is None, "planted already, as the second attempt read"
    assert sample.row(ELM) == Tree("elm", "south")


def test_a_fold_s_refusal_counts_only_if_no_row_changed_meanwhile() -> None:
    """The barn is closed when its row is read, and was open when the tree's row was read."""
    store = Interrupted()
    sample = SampleControl(store)
    sample.control.execute(plant_tree, PlantTree("elm", "north"))
    shut_barn(sample)

    def move() -> None:
        sample.rival().execute(fell_tree, FellTree("elm"))
        sample.rival().execute(plant_tree, PlantTree("elm", "south"))

    store.plan.append((barn_key("north"), move))

    sample.control.execute(report_pick, ReportPick("elm", "ann", 10, 1))

    assert sample.row(barn_key("south")) == Barn("south", 1)
    assert differences(store, sample.folds) == []


@pytest.mark.parametrize("certify", [True, False])
def test_certifies_a_refusal_against_the_current_state(certify: bool) -> None:
    """F14: a stale read does not find what the caller has just created."""
    sample = SampleControl()

    class Behind(Control):
        def _read(self, item: Slice, command: Struct) -> tuple[Boundary, object]:
            found = super()._read(item, command)
            if not sample.waits:  # the first attempt
                sample.rival().execute(plant_tree, PlantTree("elm", "north"))
            return found

    control = Behind(sample.store, sample.folds, sample.committer.submit, sleep=sample.waits.append)
    item, states = counted(redefined(hand_pick, certify=certify))

    if certify:
        assert control.execute(item, HandPick("elm", "ann", 1)).position == 2
        assert states == [False, True]
    else:
        with pytest.raises(NotFound):
            control.execute(item, HandPick("elm", "ann", 1))
        assert states == [False]


def test_certifies_a_refusal_from_rows_by_their_versions() -> None:
    store = Interrupted()
    sample = SampleControl(store)
    item, states = counted(redefined(report_pick, certify=True))
    store.plan.append((ELM, lambda: sample.rival().execute(plant_tree, PlantTree("elm", "north"))))

    outcome = sample.control.execute(item, ReportPick("elm", "ann", 1, 1))

    assert states == [(None,), (Tree("elm", "north"),)]
    assert outcome.receipt is not None
    assert sample.committer.commits[0].writes == (Check(ELM, ABSENT),)


def test_a_certified_refusal_that_holds_is_raised(sample: SampleControl) -> None:
    item, states = counted(redefined(report_pick, certify=True))

    with pytest.raises(SequenceGap):
        sample.control.execute(item, ReportPick("elm", "ann", 1, 9))

    assert len(states) == 1
    assert [commit.facts for commit in sample.committer.commits] == [()]


# ── slices from rows ──────────────────────────────────────────────────────────────────────────────


def test_the_boundary_is_exactly_the_rows_that_were_read(sample: SampleControl) -> None:
    sample.control.execute(close_barn, CloseBarn("west"))

    (commit,) = sample.committer.commits
    assert commit.boundaries == ()
    assert [(write.key, write.expect) for write in commit.writes] == [(barn_key("west"), ABSENT)]


def test_checks_a_row_that_was_read_and_that_no_fold_writes(sample: SampleControl) -> None:
    item, states = counted(
        redefined(
            report_pick,
            rows=lambda report: (tree_key(report.tree_id), barn_key("west")),
            decide=decide_by_first,
        )
    )
    sample.committer.before.append(lambda: sample.rival().execute(close_barn, CloseBarn("west")))

    sample.control.execute(item, ReportPick("elm", "ann", 1, 1))

    assert states == [
        (Tree("elm", "north"), None),
        (Tree("elm", "north"), Barn("west", closed=True)),
    ]
    assert Check(barn_key("west"), 2) in sample.committer.commits[-1].writes


def decide_by_first(
    rows: tuple[Tree | None, object], report: ReportPick, now: datetime
) -> Sequence[Struct]:
    return report_pick.decide(rows[:1], report, now)


def test_a_changed_row_that_was_read_causes_a_new_attempt(sample: SampleControl) -> None:
    item, states = counted(report_pick)
    sample.committer.before.append(picking(sample))

    outcome = sample.control.execute(item, ReportPick("elm", "ann", 1, 1))

    assert states == [(Tree("elm", "north"),), (Tree("elm", "north", 1, 0, T0),)]
    assert outcome.receipt is not None
    assert len(sample.committer.commits) == 2, "stepping the same rows again would change nothing"


def test_an_absent_row_that_was_created_causes_a_new_attempt(sample: SampleControl) -> None:
    item, states = counted(close_barn)
    sample.committer.before.append(lambda: sample.rival().execute(close_barn, CloseBarn("west")))

    outcome = sample.control.execute(item, CloseBarn("west"))

    assert states == [(None,), (Barn("west", closed=True),)]
    assert outcome.receipt is None


def test_a_changed_row_of_another_fold_is_stepped_again_without_deciding(
    sample: SampleControl,
) -> None:
    sample.rival().execute(plant_tree, PlantTree("oak", "north"))
    item, states = counted(report_pick)
    control = sample.control_with(attempts_max=1)
    sample.committer.before.extend(
        [lambda: sample.rival().execute(hand_pick, HandPick("oak", "ann", 4))] * 3
    )

    control.execute(item, ReportPick("elm", "ann", 5, 1))

    assert len(states) == 1
    assert sample.row(ANN) == Picker("ann", 17)


def test_a_row_named_twice_is_read_once(sample: SampleControl) -> None:
    item = redefined(
        report_pick,
        rows=lambda report: (tree_key(report.tree_id), tree_key(report.tree_id)),
        decide=decide_by_first,
        certify=True,
    )

    assert sample.control.execute(item, ReportPick("elm", "ann", 1, 1)).receipt is not None
    with pytest.raises(SequenceGap):
        sample.control.execute(item, ReportPick("elm", "ann", 1, 5))


# ── once ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeat_with_the_same_key_gets_the_first_answer(sample: SampleControl) -> None:
    item, states = counted(hand_pick)
    command = HandPick("elm", "ann", 30)
    first = sample.control.execute(item, command, key="k")

    again = sample.control.execute(item, command, key="k", meta=Meta(request="another"))

    assert again.receipt is not None
    assert again.receipt.replayed
    assert (again.receipt.first, again.position) == (2, first.position)
    assert again.answer == first.answer == b"FruitPicked"
    assert len(states) == 1
    assert sample.types().count("FruitPicked") == 1


def test_a_key_belongs_to_one_command_of_one_actor_on_one_route(sample: SampleControl) -> None:
    command = HandPick("elm", "ann", 1)
    sample.control.execute(hand_pick, command, key="k", meta=Meta("ann"))

    for item, other, actor in (
        (hand_pick, HandPick("elm", "ann", 2), "ann"),
        (hand_pick, command, "bob"),
        (fell_tree, FellTree("elm"), "ann"),
    ):
        with pytest.raises(IdempotencyMismatch):
            sample.control.execute(item, other, key="k", meta=Meta(actor))


def test_the_digest_is_of_actor_route_and_command_alone() -> None:
    command = HandPick("elm", "ann", 1)

    assert digest("ann", "hand-pick", command) == digest(
        "ann", "hand-pick", HandPick("elm", "ann", 1)
    )
    assert (
        len(
            {
                digest("ann", "hand-pick", command),
                digest("annh", "and-pick", command),
                digest("bob", "hand-pick", command),
                digest("ann", "fell-tree", command),
                digest("ann", "hand-pick", HandPick("elm", "ann", 2)),
            }
        )
        == 5
    )


def test_stores_no_key_of_a_command_that_was_not_committed(sample: SampleControl) -> None:
    with pytest.raises(NotFound):
        sample.control.execute(hand_pick, HandPick("oak", "ann", 1), key="refused")
    sample.control.execute(plant_tree, PlantTree("elm", "north"), key="empty")
    sample.committer.before.extend([felling_and_planting(sample)] * 3)
    with pytest.raises(AttemptsExhausted):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 1), key="conflict")
    sample.committer.errors.append(StoreUnavailable("no"))
    with pytest.raises(StoreUnavailable):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 1), key="unavailable")

    for key in ("refused", "empty", "conflict", "unavailable"):
        assert sample.store.receipt(key) is None
        sample.control.execute(hand_pick, HandPick("elm", "ann", 1), key=key)
        assert sample.store.receipt(key) is not None


def test_a_repeat_with_the_key_gets_a_lost_answer(sample: SampleControl) -> None:
    sample.committer.lost_answers = 1
    command = HandPick("elm", "ann", 30)
    with pytest.raises(OutcomeUnknown):
        sample.control.execute(hand_pick, command, key="k")

    outcome = sample.control.execute(hand_pick, command, key="k")

    assert outcome.receipt is not None
    assert outcome.receipt.replayed
    assert (outcome.receipt.first, outcome.position, outcome.answer) == (2, 6, b"FruitPicked")
    assert sample.types().count("FruitPicked") == 1


def in_flight(sample: SampleControl, item: Slice, command: Struct) -> Control:
    """A control whose first read of the key comes just before the command's first copy commits."""

    class Racing(Control):
        def _attempt(self, *args: object) -> object:  # type: ignore[override]
            if not landed:
                landed.append(sample.rival().execute(item, command, key="k"))
            return super()._attempt(*args)  # type: ignore[arg-type]

    landed: list[object] = []
    return Racing(
        sample.store,
        sample.folds,
        sample.committer.submit,
        clock=sample.clock,
        sleep=lambda _: None,
    )


@pytest.mark.parametrize(
    ("item", "command"),
    [
        (fell_tree, FellTree("elm")),  # would be refused by now: there is no such tree
        (plant_tree, PlantTree("oak", "north")),  # would be empty by now: it exists
        (hand_pick, HandPick("elm", "ann", 1)),  # would commit a second time
        (report_pick, ReportPick("elm", "ann", 1, 1)),
    ],
    ids=lambda value: value.name if isinstance(value, Slice) else "",
)
def test_a_copy_in_flight_gives_the_first_answer(
    sample: SampleControl, item: Slice, command: Struct
) -> None:
    count = len(sample.events())

    outcome = in_flight(sample, item, command).execute(item, command, key="k")

    assert outcome.receipt is not None
    assert outcome.receipt.replayed
    assert outcome.answer == item.writes[0].__name__.encode()
    assert len(sample.events()) == count + 1


def test_an_unknown_outcome_is_reported_and_not_retried(sample: SampleControl) -> None:
    sample.committer.errors.append(OutcomeUnknown("?"))

    with pytest.raises(OutcomeUnknown):
        sample.control.execute(hand_pick, HandPick("elm", "ann", 1), key="k")

    assert len(sample.committer.commits) == 1


def test_a_key_is_kept_through_attempts_and_refolds(sample: SampleControl) -> None:
    sample.committer.before.extend([felling_and_planting(sample), picking(sample)])
    command = HandPick("elm", "ann", 1)

    first = sample.control.execute(hand_pick, command, key="k")

    assert sample.control.execute(hand_pick, command, key="k").position == first.position
    assert {c.once.key for c in sample.committer.commits if c.once is not None} == {"k"}


# ── definitions ───────────────────────────────────────────────────────────────────────────────────


def test_folds_process_facts_that_no_slice_reads() -> None:
    """A vocabulary without slices still indexes, folds and replays."""
    schema = Schema(Vocabulary(FACTS, SLICES[:1]), COLLECTIONS)
    sample = SampleControl(MemoryStore(schema), Folds(schema, FOLD_LIST))

    sample.control.execute(plant_tree, PlantTree("elm", "north"))

    assert sample.row(ELM) == Tree("elm", "north")
