"""Replay: the log alone determines what the rows must be, and replay finds every difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace as redefined
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.sample_control import SampleControl
from tests.domain.sample_domain import (
    COLLECTIONS,
    FACTS,
    FOLD_LIST,
    FOLDS,
    PICKERS,
    SCHEMA,
    SLICES,
    T0,
    TREES,
    BarnClosed,
    BasketFilled,
    CartSent,
    CloseBarn,
    FellTree,
    FruitPicked,
    HandPick,
    Picker,
    PlantTree,
    ReportPick,
    TreeFelled,
    barn_key,
    barn_machine,
    close_barn,
    fell_tree,
    hand_pick,
    picker_fold,
    plant_tree,
    record_fold,
    report_pick,
    tree_key,
    tree_machine,
)
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import StoreRefused, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Fold, Folds, Machine
from tidegate.kernel.model import Commit, EventPage, Key, Record
from tidegate.kernel.replay import differences, rebuild, rebuild_all, rebuild_changed
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import FOLD_NUMBERS, FoldNumber, Schema, Store
from tidegate.kernel.vocabulary import FactType, Vocabulary

Open = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "memory":
        store = MemoryStore(SCHEMA)
        return lambda: store
    return lambda: SqliteStore(str(tmp_path / "orchard.db"), SCHEMA)


@pytest.fixture
def sample(connect: Open) -> Iterator[SampleControl]:
    """One tree, ten baskets, three carts."""
    with closing(connect()) as store:
        sample = SampleControl(store)
        sample.control.execute(plant_tree, PlantTree("elm", "north"))
        for seq in range(1, 6):
            sample.clock.advance(timedelta(seconds=1))
            sample.control.execute(report_pick, ReportPick("elm", f"picker-{seq}", 20, seq))
        yield sample


def commands(random: Random, count: int) -> Iterator[tuple[Slice, Struct]]:
    """A series of commands on the orchard, many of which are refused."""
    for _ in range(count):
        tree = random.choice(["elm", "oak", "fir"])
        barn = random.choice(["north", "south"])
        picker = random.choice(["ann", "bob"])
        yield random.choice(
            [
                (plant_tree, PlantTree(tree, barn)),
                (fell_tree, FellTree(tree)),
                (hand_pick, HandPick(tree, picker, random.randrange(60))),
                (report_pick, ReportPick(tree, picker, random.randrange(30), random.randrange(4))),
                (close_barn, CloseBarn(barn if random.random() < 0.1 else "west")),
            ]
        )


def difference_kinds(store: Store, folds: Folds = FOLDS) -> list[tuple[str, str]]:
    return [(found.key, found.what) for found in differences(store, folds)]


def rows(store: Store, collection: str) -> list[Record]:
    return list(store.range(collection, limit=1_000))


def append(store: Store, *values: Struct) -> None:
    """Append facts that no fold has processed."""
    facts = tuple(SCHEMA.vocabulary.fact(value) for value in values)
    (result,) = store.commit(Commit(T0, facts=facts))
    assert not isinstance(result, TidegateError)


# ── equal ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
def test_finds_nothing_after_any_journey(connect: Open, seed: int) -> None:
    with closing(connect()) as store:
        sample = SampleControl(store)

        for item, command in commands(Random(seed), 120):
            sample.clock.advance(timedelta(milliseconds=7))
            with suppress(TidegateError):
                sample.control.execute(item, command)

        assert len(sample.events()) > 40
        assert differences(store, FOLDS) == []


@pytest.mark.parametrize("seed", range(3))
def test_finds_nothing_after_packs_in_lanes(connect: Open, seed: int) -> None:
    """Many reports of one tree share a commit, and the clock moves between two reads of it."""
    with closing(connect()) as store:
        sample = SampleControl(store)
        sample.control.execute(plant_tree, PlantTree("elm", "north"))
        sample.control.execute(plant_tree, PlantTree("oak", "north"))

        def restless() -> datetime:
            sample.clock.advance(timedelta(seconds=1))
            return sample.clock.now

        lanes = sample.lanes(clock=restless)
        random = Random(seed)
        gate = Event()
        with closing(lanes):
            lanes.command(
                "north", lambda: gate.wait(60)
            )  # what is added to the lane meanwhile waits together
            for seq in range(1, 60):
                for tree in ("elm", "oak"):
                    report = ReportPick(tree, random.choice(["ann", "bob"]), 7, seq)
                    lanes.record("north", report_pick, report)
            gate.set()

        assert sample.types().count("FruitPicked") == 118
        assert len({event.at for event in sample.events()}) < 118, "some shared a commit"
        assert differences(store, FOLDS) == []


def test_follows_a_live_store_to_the_moment_of_each_row(connect: Open) -> None:
    with closing(connect()) as store:
        sample = SampleControl(store)
        for tree in ("elm", "oak", "fir"):
            sample.control.execute(plant_tree, PlantTree(tree, "north"))
        stop = Event()

        def write(seed: int) -> None:
            random = Random(seed)
            with closing(connect()) as own:
                control = SampleControl(own).control
                while not stop.is_set():
                    for item, command in commands(random, 5):
                        with suppress(TidegateError):
                            control.execute(item, command)

        writers = [Thread(target=write, args=(seed,)) for seed in range(3)]
        for writer in writers:
            writer.start()
        found, moved = [], 0
        deadline = time.monotonic() + 120
        try:
            while moved < 5:
                assert time.monotonic() < deadline
                head = sample.events()[-1].position
                found += differences(store, FOLDS)
                moved += sample.events()[-1].position > head
        finally:
            stop.set()
            for writer in writers:
                writer.join()

        assert found == []
        assert differences(store, FOLDS) == []


class Moving(MemoryStore):
    """A store in which a tree is picked right before and right after its row is read."""

    picks = 0

    def range(self, collection: str, **bounds: Any) -> tuple[Record, ...]:
        if collection != TREES.name or self.picks:
            return super().range(collection, **bounds)
        self._pick()
        found = super().range(collection, **bounds)
        self._pick()
        return found

    def _pick(self) -> None:
        self.picks += 1
        SampleControl(self).control.execute(report_pick, ReportPick("elm", "ann", 7, self.picks))


def test_compares_a_row_as_of_the_fact_that_wrote_it_neither_earlier_nor_later() -> None:
    store = Moving(SCHEMA)
    SampleControl(store).control.execute(plant_tree, PlantTree("elm", "north"))

    assert differences(store, FOLDS) == []

    assert store.picks == 2


# ── differences ───────────────────────────────────────────────────────────────────────────────────


def test_finds_a_row_that_was_changed_by_hand(sample: SampleControl) -> None:
    picker, *others = rows(sample.store, PICKERS.name)
    altered = replace(picker, data=codec.encode(Picker(picker.key.id, 21)))

    sample.store.restore(PICKERS.name, [altered, *others])

    (found,) = differences(sample.store, FOLDS)
    assert (found.key, found.what) == (str(picker.key), "data")
    assert '"fruit":20' in found.expected
    assert '"fruit":21' in found.found


def test_finds_a_missing_row(sample: SampleControl) -> None:
    picker, *others = rows(sample.store, PICKERS.name)

    sample.store.restore(PICKERS.name, others)

    assert difference_kinds(sample.store) == [(str(picker.key), "missing row")]


def test_finds_an_emptied_collection(sample: SampleControl) -> None:
    sample.store.restore(PICKERS.name, [])

    assert difference_kinds(sample.store) == [
        (f"pickers/picker-{n}", "missing row") for n in range(1, 6)
    ]


def test_finds_an_extra_row(sample: SampleControl) -> None:
    picker, *others = rows(sample.store, PICKERS.name)
    extra = replace(picker, key=Key(PICKERS.name, "eve"))

    sample.store.restore(PICKERS.name, [extra, picker, *others])

    assert difference_kinds(sample.store) == [("pickers/eve", "extra row")]


@pytest.mark.parametrize("change", [{"version": 1}, {"born": 1}])
def test_finds_a_wrong_stamp(sample: SampleControl, change: dict[str, int]) -> None:
    picker, *others = rows(sample.store, PICKERS.name)

    sample.store.restore(PICKERS.name, [replace(picker, **change), *others])

    assert difference_kinds(sample.store) == [(str(picker.key), "stamp")]


def test_finds_a_stamp_beyond_the_end_of_the_log() -> None:
    store = MemoryStore(SCHEMA)  # SQL engines refuse such a row themselves
    SampleControl(store).control.execute(plant_tree, PlantTree("elm", "north"))
    (tree,) = rows(store, TREES.name)

    store.restore(TREES.name, [replace(tree, version=99)])

    assert difference_kinds(store) == [("trees/elm", "stamp")]


def test_finds_facts_that_no_fold_has_processed(sample: SampleControl) -> None:
    append(sample.store, FruitPicked("elm", "picker-1", 1, 6))

    assert difference_kinds(sample.store) == [
        ("trees/elm", "data"),
        ("trees/elm", "stamp"),
        ("pickers/picker-1", "data"),
        ("pickers/picker-1", "stamp"),
    ]


def test_finds_a_missing_follow_up(sample: SampleControl) -> None:
    append(sample.store, FruitPicked("elm", "picker-1", 10, 6))
    end = sample.events()[-1].position

    at_the_end = [found for found in difference_kinds(sample.store) if found[1] == "follow-up"]
    append(sample.store, BarnClosed("south"))
    inside = [found for found in difference_kinds(sample.store) if found[1] == "follow-up"]

    assert at_the_end == [(f"event_log/{end}", "follow-up")]
    assert inside == [(f"event_log/{end + 1}", "follow-up")]


def test_finds_an_altered_follow_up(sample: SampleControl) -> None:
    append(sample.store, FruitPicked("elm", "picker-1", 10, 6), BasketFilled("north", "oak"))

    (found,) = [item for item in differences(sample.store, FOLDS) if item.what == "follow-up"]

    assert "BasketFilled" in found.expected
    assert '"tree":"elm"' in found.expected
    assert '"tree":"oak"' in found.found


def test_finds_a_follow_up_with_other_tags(sample: SampleControl) -> None:
    picked = SCHEMA.vocabulary.fact(FruitPicked("elm", "picker-1", 10, 6))
    basket = replace(SCHEMA.vocabulary.fact(BasketFilled("north", "elm")), tags=("barn_id:south",))
    sample.store.commit(Commit(T0, facts=(picked, basket)))

    assert (f"event_log/{sample.events()[-1].position}", "follow-up") in difference_kinds(
        sample.store
    )


def test_finds_a_fact_that_was_refused(sample: SampleControl) -> None:
    append(sample.store, TreeFelled("oak"))

    (found,) = differences(sample.store, FOLDS)

    assert (found.key, found.what) == ("trees/oak", "refused fact in the log")
    assert "does not accept TreeFelled" in found.found


# ── change ────────────────────────────────────────────────────────────────────────────────────────


def basket_of_schema_2(content: dict[str, object]) -> dict[str, object]:
    return content | {"weight": 5}


class NewBasketFilled(Struct, frozen=True):
    barn_id: str
    tree: str
    weight: int


NewBasketFilled.__name__ = "BasketFilled"


def test_accepts_a_follow_up_of_an_older_schema_as_its_upgraded_form(
    sample: SampleControl,
) -> None:
    newer = FactType(NewBasketFilled, "orchard", 2, {1: basket_of_schema_2})
    types = [newer if known.name == "BasketFilled" else known for known in FACTS]
    schema = Schema(Vocabulary(types, SLICES), COLLECTIONS)

    def step(tree: object, fact: object, now: object) -> object:
        row, baskets = tree_machine.step(tree, fact, now)  # type: ignore[arg-type]
        return row, tuple(NewBasketFilled(item.barn_id, item.tree, 5) for item in baskets)

    def fill(barn: object, fact: object, now: object) -> object:
        if isinstance(fact, NewBasketFilled):
            fact = BasketFilled(fact.barn_id, fact.tree)
        return barn_machine.step(barn, fact, now)  # type: ignore[arg-type]

    folds = Folds(
        schema,
        [
            redefined(tree_machine, step=step),
            redefined(barn_machine, reads=(NewBasketFilled, CartSent, BarnClosed), step=fill),
            picker_fold,
            record_fold,
        ],
    )

    assert differences(sample.store, folds) == []
    append(sample.store, FruitPicked("elm", "picker-1", 10, 6), BasketFilled("north", "oak"))
    assert "follow-up" in [found.what for found in differences(sample.store, folds)]


def renumbered(fold: Fold, **changes: object) -> Folds:
    changed = redefined(fold, number=fold.number + 1, **changes)  # type: ignore[arg-type]
    return Folds(SCHEMA, [changed if item is fold else item for item in FOLD_LIST])


def test_rebuilds_an_emptied_collection_with_its_first_stamps(sample: SampleControl) -> None:
    for fold in FOLD_LIST:
        before = rows(sample.store, fold.collection.name)
        assert before
        sample.store.restore(fold.collection.name, [])

        assert rebuild(sample.store, FOLDS, fold) == len(before)

        assert rows(sample.store, fold.collection.name) == before
    assert differences(sample.store, FOLDS) == []


def test_rebuilds_a_fold_with_a_new_number_once(sample: SampleControl) -> None:
    remembered = rebuild_changed(sample.store, FOLDS, T0)
    assert remembered == ("trees", "barns", "pickers", "best_picks")
    before = rows(sample.store, PICKERS.name)
    doubled = renumbered(
        picker_fold, step=lambda row, fact, now: replace(row, fruit=row.fruit + 2 * fact.count)
    )

    assert rebuild_changed(sample.store, doubled, T0) == ("pickers",)

    after = rows(sample.store, PICKERS.name)
    assert [codec.decode(row.data, Picker).fruit for row in after] == [40] * 5
    assert [(row.key, row.version, row.born) for row in after] == [
        (row.key, row.version, row.born) for row in before
    ]
    (number,) = sample.store.get(Key(FOLD_NUMBERS.name, PICKERS.name))
    assert number is not None
    assert codec.decode(number.data, FoldNumber) == FoldNumber(2)
    head = number.version
    assert rebuild_changed(sample.store, doubled, T0) == ()
    assert sample.store.get(number.key) == (number,)
    assert differences(sample.store, doubled) == []
    assert sample.control.execute(close_barn, CloseBarn("west")).position == head + 1


def busier(row: Any, fact: Any, now: datetime) -> Any:
    """The trees' machine, which sends one cart too many at each basket."""
    tree, effects = tree_machine.step(row, fact, now)
    return tree, [*effects, *(CartSent("north", 1) for effect in effects)]


def test_does_not_compare_follow_ups_from_before_a_machines_new_number(
    sample: SampleControl,
) -> None:
    rebuild_changed(sample.store, FOLDS, T0)
    sample.control.execute(report_pick, ReportPick("elm", "ann", 20, 6))
    newer = renumbered(tree_machine, step=busier)
    assert {found.what for found in differences(sample.store, newer)} >= {"follow-up"}

    assert rebuild_changed(sample.store, newer, T0) == ("trees",)

    assert differences(sample.store, newer) == []


def test_compares_follow_ups_since_the_new_number(sample: SampleControl) -> None:
    newer = renumbered(tree_machine)
    rebuild_changed(sample.store, newer, T0)
    assert differences(sample.store, newer) == []

    sample.control.execute(report_pick, ReportPick("elm", "ann", 20, 6))

    assert differences(sample.store, newer) == []
    altered = Folds(
        SCHEMA,
        [
            redefined(tree_machine, number=2, step=busier),
            *(f for f in FOLD_LIST if f is not tree_machine),
        ],
    )
    assert {found.what for found in differences(sample.store, altered)} >= {"follow-up"}


def test_never_goes_back_to_an_older_number(sample: SampleControl) -> None:
    newer = renumbered(picker_fold, step=lambda row, fact, now: replace(row, fruit=1))
    rebuild_changed(sample.store, newer, T0)

    for do in (rebuild_changed, rebuild_all):
        with pytest.raises(StoreRefused, match=r"\(pickers\): upgrade Tidegate"):
            do(sample.store, FOLDS, T0)

    assert differences(sample.store, newer) == []


def test_reads_the_log_once_for_all_folds_that_changed() -> None:
    fed = []

    class Counting(MemoryStore):
        def feed(self, *, after: int, limit: int) -> EventPage:
            fed.append(after)
            return super().feed(after=after, limit=limit)

    store = Counting(SCHEMA)
    SampleControl(store).control.execute(plant_tree, PlantTree("elm", "north"))

    assert len(rebuild_changed(store, FOLDS, T0)) == len(FOLD_LIST)

    assert fed == [0]


def test_keeps_a_number_that_another_start_has_written_meanwhile() -> None:
    class Raced(MemoryStore):
        """Another process finishes its start while ours replays."""

        raced = False

        def feed(self, *, after: int, limit: int) -> EventPage:
            if not self.raced:
                self.raced = True
                rebuild_changed(self, FOLDS, T0)
            return super().feed(after=after, limit=limit)

    store = Raced(SCHEMA)

    assert len(rebuild_changed(store, FOLDS, T0)) == len(FOLD_LIST)

    assert rebuild_changed(store, FOLDS, T0) == ()


def test_a_machine_that_is_rebuilt_emits_nothing(sample: SampleControl) -> None:
    events = sample.events()
    rebuild_changed(sample.store, FOLDS, T0)

    machines = (tree_machine, barn_machine)
    both = [
        redefined(fold, number=fold.number + 1) if fold in machines else fold for fold in FOLD_LIST
    ]
    assert len(rebuild_changed(sample.store, Folds(SCHEMA, both), T0)) == len(machines)

    assert isinstance(tree_machine, Machine)
    assert sample.events() == events
    assert sample.row(barn_key("north")) is not None
    assert sample.row(tree_key("elm")) is not None
