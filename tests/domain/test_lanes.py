"""Lanes: reports on one hot row, in order and in packs, each with its own answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace as redefined
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest
from msgspec import Struct

from tests.domain.sample_control import SampleControl
from tests.domain.sample_domain import (
    ERRANDS,
    FOLDS,
    SCHEMA,
    T0,
    Barn,
    CloseBarn,
    FellTree,
    FruitPicked,
    HandPick,
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
from tidegate.control import lanes as lanes_module
from tidegate.control.lanes import DEADLINE_SECONDS, GATHER_SECONDS, LANES_IDLE_MAX, PACK_MAX, Lanes
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import (
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    VersionConflict,
)
from tidegate.kernel.model import (
    ABSENT,
    COST_MAX,
    FACTS_MAX,
    ID_BYTES_MAX,
    NO_META,
    Commit,
    Key,
    Meta,
    Put,
    Record,
)
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

WAIT = 60  # seconds until a hanging future fails its test


def planted(store: Store | None = None, trees: Sequence[str] = ("elm",)) -> SampleControl:
    sample = SampleControl(store)
    for tree in trees:
        sample.control.execute(plant_tree, PlantTree(tree, "north"))
    sample.committer.commits.clear()
    return sample


@pytest.fixture
def sample() -> Iterator[SampleControl]:
    sample = planted()
    yield sample
    assert differences(sample.store, FOLDS) == []


@pytest.fixture
def lanes(sample: SampleControl) -> Iterator[Lanes]:
    with closing(sample.lanes()) as lanes:
        yield lanes


def report(lanes: Lanes, seq: int, fruit: int = 1, tree: str = "elm") -> Future[CommandOutcome]:
    return lanes.record("north", report_pick, ReportPick(tree, "ann", fruit, seq))


@contextmanager
def held(lanes: Lanes, lane: str = "north") -> Iterator[None]:
    """Hold the lane, so that everything added meanwhile waits together."""
    started, gate = Event(), Event()

    def hold() -> bool:
        started.set()
        return gate.wait(WAIT)

    holding = lanes.command(lane, hold)
    try:
        assert started.wait(WAIT)
        yield
    finally:
        gate.set()
    assert holding.result(WAIT)


def landed(futures: Sequence[Future[CommandOutcome]]) -> list[CommandOutcome]:
    outcomes = [future.result(WAIT) for future in futures]
    assert all(outcome.receipt is not None for outcome in outcomes)
    return outcomes


# ── packs ─────────────────────────────────────────────────────────────────────────────────────────


def test_commits_what_waits_as_one_pack_in_order(sample: SampleControl, lanes: Lanes) -> None:
    with held(lanes):
        futures = [report(lanes, seq, fruit=7) for seq in range(1, 41)]

    outcomes = landed(futures)

    assert len(sample.committer.commits) == 1
    by_position = {event.position: event for event in sample.events()}
    following = outcomes[0].receipt.first if outcomes[0].receipt else 0
    for seq, outcome in enumerate(outcomes, 1):
        assert outcome.facts == (FruitPicked("elm", "ann", 7, seq),)
        assert outcome.answer == b"FruitPicked"
        assert outcome.receipt is not None
        assert outcome.receipt.first == following, "its span is its own facts, one after another"
        assert by_position[outcome.receipt.first].type == "FruitPicked"
        rest = range(outcome.receipt.first + 1, outcome.receipt.last + 1)
        assert {by_position[position].type for position in rest} <= {"BasketFilled", "CartSent"}
        following = outcome.receipt.last + 1
    assert sample.row(tree_key("elm")) == Tree("elm", "north", 280, 40, T0)


def test_waits_a_moment_for_the_callers_of_the_last_pack_and_no_longer(
    sample: SampleControl, lanes: Lanes
) -> None:
    with held(lanes):
        several = [report(lanes, seq) for seq in (1, 2, 3)]
    landed(several)
    assert sample.waits == [], "no caller was there before"
    for seq in (4, 5):
        with held(lanes):
            alone = report(lanes, seq)
        landed([alone])
        assert sample.waits == [GATHER_SECONDS], "once it is alone, it is alone"


def test_limits_the_reports_of_a_pack(sample: SampleControl, lanes: Lanes) -> None:
    with held(lanes):
        futures = [report(lanes, seq) for seq in range(1, PACK_MAX + 2)]

    landed(futures)

    assert [len(commit.facts) for commit in sample.committer.commits] == [500 + 50 + 16, 1]


def test_a_refused_report_does_not_stop_its_neighbours(sample: SampleControl, lanes: Lanes) -> None:
    with held(lanes):
        first, gap, missing, second = (
            report(lanes, 1),
            report(lanes, 7),
            report(lanes, 1, tree="oak"),
            report(lanes, 2),
        )

    landed([first, second])
    with pytest.raises(SequenceGap) as refusal:
        gap.result(WAIT)
    assert refusal.value.facts == {"expected": 2}, "decided on the result of the report before it"
    with pytest.raises(NotFound):
        missing.result(WAIT)
    assert len(sample.committer.commits) == 1


def test_a_repeated_report_changes_nothing_and_has_no_receipt(
    sample: SampleControl, lanes: Lanes
) -> None:
    with held(lanes):
        first, again = report(lanes, 1), report(lanes, 1)

    landed([first])
    assert again.result(WAIT) == CommandOutcome((), None, b"")
    assert report(lanes, 1).result(WAIT).receipt is None
    assert sample.types().count("FruitPicked") == 1


def test_a_bug_in_one_report_does_not_affect_its_neighbours(
    sample: SampleControl, lanes: Lanes
) -> None:
    def stumble(rows: object, report: ReportPick, now: datetime) -> Sequence[Struct]:
        if report.count == 13:
            raise ZeroDivisionError
        return report_pick.decide(rows, report, now)

    item = redefined(report_pick, decide=stumble)
    with held(lanes):
        bad = lanes.record("north", item, ReportPick("elm", "ann", 13, 1))
        good = lanes.record("north", item, ReportPick("elm", "ann", 1, 1))

    landed([good])
    with pytest.raises(ZeroDivisionError):
        bad.result(WAIT)


def test_packs_reports_of_different_people_and_each_fact_names_its_actor(
    sample: SampleControl, lanes: Lanes
) -> None:
    people = [Meta("ann"), Meta("ann"), Meta("bob", request="r-3"), Meta("ann")]
    with held(lanes):
        futures = [
            lanes.record("north", report_pick, ReportPick("elm", "ann", 10, seq), meta=meta)
            for seq, meta in enumerate(people, 1)
        ]

    outcomes = landed(futures)

    assert len(sample.committer.commits) == 1
    by_position = {event.position: event for event in sample.events()}
    for meta, outcome in zip(people, outcomes, strict=True):
        assert outcome.receipt is not None
        span = range(outcome.receipt.first, outcome.receipt.last + 1)
        assert len(span) > 1, "follow-ups of a report carry its sender"
        assert {by_position[position].meta for position in span} == {meta}


def test_a_pack_whose_first_report_is_refused_still_names_the_actor_of_each_fact(
    sample: SampleControl, lanes: Lanes
) -> None:
    with held(lanes):
        gap = lanes.record("north", report_pick, ReportPick("elm", "ann", 1, 9), meta=Meta("ann"))
        good = lanes.record("north", report_pick, ReportPick("elm", "bob", 1, 1), meta=Meta("bob"))

    landed([good])
    with pytest.raises(SequenceGap):
        gap.result(WAIT)
    assert sample.events()[-1].meta == Meta("bob")


# ── batches ───────────────────────────────────────────────────────────────────────────────────────


def batch(count: int, first: int = 1) -> list[tuple[Slice, Struct, Meta]]:
    return [
        (report_pick, ReportPick("elm", "ann", 1, seq), Meta(f"agent-{seq}"))
        for seq in range(first, first + count)
    ]


def test_a_batch_of_a_hundred_reports_is_one_commit(sample: SampleControl, lanes: Lanes) -> None:
    outcomes = landed(lanes.record_all("north", batch(100)))

    assert [len(commit.facts) for commit in sample.committer.commits] == [100 + 10 + 3]
    assert [outcome.position for outcome in outcomes] == sorted(o.position for o in outcomes)
    picks = [event for event in sample.events() if event.type == "FruitPicked"]
    assert [event.meta.actor for event in picks] == [f"agent-{seq}" for seq in range(1, 101)]


def test_a_batch_stays_in_order_after_waiting_reports(sample: SampleControl, lanes: Lanes) -> None:
    with held(lanes):
        before = report(lanes, 1)
        futures = lanes.record_all("north", batch(5, first=2))
        after = report(lanes, 7)

    landed([before, *futures, after])

    assert len(sample.committer.commits) == 1


def test_a_batch_is_accepted_as_a_whole_or_not_at_all(
    sample: SampleControl, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "WAITING_MAX", 5)
    with held(lanes):
        futures = lanes.record_all("north", batch(3))
        with pytest.raises(StoreUnavailable, match="lane north is full"):
            lanes.record_all("north", batch(3, first=4))
        with pytest.raises(InvalidInput, match="report-pick takes ReportPick"):
            lanes.record_all("north", [*batch(1, 4), (report_pick, PlantTree("a", "b"), Meta())])
        with pytest.raises(LimitExceeded, match="reports at once"):
            lanes.record_all("north", batch(PACK_MAX + 1))
        assert lanes.record_all("north", []) == []

    landed(futures)
    assert sample.types().count("FruitPicked") == 3


class Asked(MemoryStore):
    """A store that records which rows were read together."""

    asked: ClassVar[list[tuple[Key, ...]]] = []

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        self.asked.append(keys)
        return super().get(*keys)


def test_reads_all_rows_that_a_fact_steps_in_one_go() -> None:
    sample = planted(Asked(SCHEMA))
    Asked.asked.clear()
    with closing(sample.lanes()) as lanes:
        landed([report(lanes, 1)])

    first, second = Asked.asked
    assert first == (tree_key("elm"),), "what the slice decides on"
    assert len(second) > 1, "the other rows that its fact steps"


def test_accepts_only_reports_that_are_decided_from_rows(lanes: Lanes) -> None:
    with pytest.raises(InvalidDefinition, match="hand-pick is no report"):
        lanes.record("north", hand_pick, HandPick("elm", "ann", 1))
    with pytest.raises(InvalidInput, match="report-pick takes ReportPick"):
        lanes.record("north", report_pick, HandPick("elm", "ann", 1))


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


class SmallPacks(MemoryStore):
    """A store that accepts only small commits."""

    pack_cost_max: ClassVar[int] = 20


def test_cuts_a_pack_by_its_cost_and_loses_nothing() -> None:
    trees = [f"tree-{number:02}" for number in range(60)]
    sample = planted(SmallPacks(SCHEMA), trees)
    with closing(sample.lanes()) as lanes:
        with held(lanes):
            futures = [report(lanes, 1, fruit=10, tree=tree) for tree in trees]

        outcomes = landed(futures)

    costs = [SCHEMA.cost(commit) for commit in sample.committer.commits]
    assert max(costs) <= 20
    assert len(costs) > 15
    assert [outcome.position for outcome in outcomes] == sorted(o.position for o in outcomes)
    assert sample.row(barn_key("north")) == Barn("north", 60, 20)
    assert differences(sample.store, FOLDS) == []


class LikeDynamo(MemoryStore):
    """A store with the limits of DynamoDB: 100 items, 128 facts."""

    pack_cost_max: ClassVar[int] = COST_MAX


def test_divides_a_pack_with_too_many_facts() -> None:
    sample = planted(LikeDynamo(SCHEMA))
    with closing(sample.lanes()) as lanes:
        with held(lanes):
            futures = [report(lanes, seq) for seq in range(1, PACK_MAX + 1)]

        landed(futures)

    written = [len(commit.facts) for commit in sample.committer.commits]
    assert sum(written) == PACK_MAX + 50 + 16
    assert max(written) <= FACTS_MAX
    assert len(written) == 5
    assert differences(sample.store, FOLDS) == []


@pytest.mark.parametrize("place", [0, 7, 19])
def test_a_report_too_large_for_the_store_does_not_affect_its_neighbours(
    sample: SampleControl, lanes: Lanes, place: int
) -> None:
    with held(lanes):
        seqs = iter(range(1, 20))
        futures = [report(lanes, next(seqs)) for _ in range(place)]
        long = ReportPick("elm", "x" * (ID_BYTES_MAX + 1), 1, place + 1)
        spoiled = lanes.record("north", report_pick, long)
        futures += [report(lanes, seq) for seq in seqs]

    landed(futures)
    with pytest.raises(LimitExceeded, match="bytes of a row id"):
        spoiled.result(WAIT)
    assert sample.types().count("FruitPicked") == len(futures) == 19


def test_an_errand_that_exists_already_fails_its_report_alone(
    sample: SampleControl, lanes: Lanes
) -> None:
    errand = Put(errand_key("north", 1), b'{"text":"of another hand"}', ABSENT)
    sample.store.commit(Commit(T0, writes=(errand,)))
    with held(lanes):
        before = [report(lanes, seq) for seq in (1, 2, 3)]
        sending = report(lanes, 4, fruit=30)
        after = [report(lanes, seq) for seq in (4, 5, 6)]

    landed([*before, *after])
    with pytest.raises(VersionConflict, match="errands/north/1"):
        sending.result(WAIT)
    assert sample.waits == [], "no retry can help, so none is made"
    sample.store.restore(ERRANDS.name, [])


def test_a_full_lane_refuses_reports(
    sample: SampleControl, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "WAITING_MAX", 3)
    with held(lanes):
        futures = [report(lanes, seq) for seq in (1, 2, 3)]
        commands = [lanes.command("north", lambda: None) for _ in range(3)]
        with pytest.raises(StoreUnavailable, match="lane north is full"):
            report(lanes, 4)
        with pytest.raises(StoreUnavailable, match="lane north is full"):
            lanes.command("north", lambda: None)
        elsewhere = lanes.command("south", lambda: "free")
        assert elsewhere.result(WAIT) == "free"

    landed(futures)
    assert [command.result(WAIT) for command in commands] == [None] * 3
    landed([report(lanes, 4)])


def test_evicts_the_lanes_that_have_been_idle_longest(sample: SampleControl, lanes: Lanes) -> None:
    with held(lanes, "busy"):
        for number in range(3 * LANES_IDLE_MAX):
            lanes.command(f"lane-{number}", lambda: None).result(WAIT)
        wait_for(lambda: len(lanes._lanes) == LANES_IDLE_MAX + 1)  # the last one rests, too

        assert len(lanes._idle) == LANES_IDLE_MAX
        assert "busy" in lanes._lanes
        assert f"lane-{3 * LANES_IDLE_MAX - 1}" in lanes._lanes


def test_evicts_cached_rows_over_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "ROWS_KNOWN_MAX", 10)
    trees = [f"tree-{number:02}" for number in range(40)]
    sample = planted(trees=trees)
    with closing(sample.lanes()) as lanes:
        for seq in (1, 2):
            landed([report(lanes, seq, tree=tree) for tree in trees])

        assert len(lanes._lanes["north"].known) <= 10


def test_evicts_lanes_that_cache_too_many_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "ROWS_IDLE_MAX", 10)
    trees = [f"tree-{number:02}" for number in range(8)]
    sample = planted(trees=trees)
    with closing(sample.lanes()) as lanes:
        landed([report(lanes, 1, tree=tree) for tree in trees])
        wait_for(lambda: "north" in lanes._idle)
        known = len(lanes._lanes["north"].known)
        south = [ReportPick(tree, "ann", 1, 2) for tree in trees]
        landed(lanes.record_all("south", [(report_pick, pick, NO_META) for pick in south]))
        wait_for(lambda: "south" in lanes._idle)

        assert 0 < known <= 10
        assert list(lanes._lanes) == ["south"]


def wait_for(reached: object) -> None:
    assert callable(reached)
    deadline = time.monotonic() + WAIT
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_report_that_waited_too_long_is_not_applied(sample: SampleControl) -> None:
    now = [0.0]
    with closing(sample.lanes(monotonic=lambda: now[0])) as lanes:
        with held(lanes):
            late = report(lanes, 1)
            now[0] = DEADLINE_SECONDS / 2
            in_time = report(lanes, 1, fruit=2)
            now[0] = DEADLINE_SECONDS + 1

        landed([in_time])
        with pytest.raises(StoreUnavailable, match="waited too long"):
            late.result(WAIT)
    assert sample.row(tree_key("elm")) == Tree("elm", "north", 2, 1, T0)


def test_retries_conflicts_until_the_deadline(sample: SampleControl) -> None:
    looks = count()
    conflict = VersionConflict("trees", "elm", 1, 2)
    sample.committer.errors.extend([conflict] * 20_000)
    with closing(sample.lanes(monotonic=lambda: next(looks) * 0.008)) as lanes:
        with pytest.raises(StoreUnavailable, match="waited too long"):
            report(lanes, 1).result(WAIT)
        sample.committer.errors.clear()

        assert len(sample.waits) > 1_100, "doubled as often, no number would hold the wait"
        assert max(sample.waits) <= lanes_module.BACK_OFF_SECONDS_MAX
        landed([report(lanes, 1)])


def test_gives_other_lanes_their_turn_between_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "THREADS_MAX", 1)
    monkeypatch.setattr(lanes_module, "PACK_MAX", 1)
    sample = planted(trees=("elm", "oak"))
    with closing(sample.lanes()) as lanes:
        with held(lanes):
            hot = [report(lanes, seq) for seq in range(1, 6)]
            other = lanes.record("other", report_pick, ReportPick("oak", "ann", 1, 1))

        landed([*hot, other])

    trees = [event.tags[0] for event in sample.events() if event.type == "FruitPicked"]
    assert trees.index("tree_id:oak") <= 1


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


def test_a_command_overtakes_the_reports_that_wait_and_runs_alone(
    sample: SampleControl, lanes: Lanes
) -> None:
    busy = []

    def close() -> list[str]:
        busy.append("command")
        sample.rival().execute(close_barn, CloseBarn("north"))
        seen = sample.types()
        time.sleep(0.01)
        busy.pop()
        return seen

    sample.committer.before.extend([lambda: busy and pytest.fail("a pack during a command")] * 9)
    with held(lanes):
        futures = [report(lanes, seq) for seq in (1, 2)]
        command = lanes.command("north", close)
        last = report(lanes, 3, fruit=10)

    assert command.result(WAIT) == ["TreePlanted", "BarnClosed"]
    landed(futures)
    with pytest.raises(Exception, match="north is closed"):
        last.result(WAIT)


def test_a_command_that_fails_raises_in_its_caller_and_the_lane_continues(
    sample: SampleControl, lanes: Lanes
) -> None:
    def leave() -> None:
        raise SystemExit(3)

    with held(lanes):
        failing = lanes.command("north", lambda: sample.row(Key("nowhere", "x")))
        leaving = lanes.command("north", leave)

    with pytest.raises(InvalidInput):
        failing.result(WAIT)
    with pytest.raises(SystemExit):
        leaving.result(WAIT)
    landed([report(lanes, 1)])


def test_reads_again_after_a_command(sample: SampleControl, lanes: Lanes) -> None:
    landed([report(lanes, 1)])
    sample.committer.commits.clear()

    lanes.command("north", lambda: sample.rival().execute(hand_pick, HandPick("elm", "bob", 1)))
    landed([report(lanes, 1)])  # the pick by hand reset the sequence

    assert len(sample.committer.commits) == 1
    assert sample.waits == [], "no conflict was needed to notice"


# ── other processes ───────────────────────────────────────────────────────────────────────────────


def test_drops_its_cache_when_another_process_changed_a_row(
    sample: SampleControl, lanes: Lanes
) -> None:
    landed([report(lanes, 1)])
    sample.rival().execute(report_pick, ReportPick("elm", "ann", 5, 2))
    sample.committer.commits.clear()
    with held(lanes):
        again = report(lanes, 2)
        new = report(lanes, 3)

    landed([new])
    assert again.result(WAIT).receipt is None
    assert sample.row(tree_key("elm")) == Tree("elm", "north", 7, 3, T0)


def test_does_not_trust_a_refusal_from_cached_rows(sample: SampleControl, lanes: Lanes) -> None:
    landed([report(lanes, 1)])
    sample.rival().execute(report_pick, ReportPick("elm", "ann", 5, 2))

    landed([report(lanes, 3)])  # by the lane's cached rows, the second is missing

    assert sample.row(tree_key("elm")) == Tree("elm", "north", 7, 3, T0)


def test_does_not_trust_a_repeat_found_in_cached_rows(sample: SampleControl, lanes: Lanes) -> None:
    landed([report(lanes, 1), report(lanes, 2)])
    sample.rival().execute(fell_tree, FellTree("elm"))
    sample.rival().execute(plant_tree, PlantTree("elm", "south"))

    landed([report(lanes, 1)])  # by the lane's cached rows, it had that one

    assert sample.row(tree_key("elm")) == Tree("elm", "south", 1, 1, T0)


def test_a_refusal_in_a_retried_pack_is_decided_again(sample: SampleControl, lanes: Lanes) -> None:
    sample.rival().execute(plant_tree, PlantTree("oak", "north"))
    with held(lanes):
        sample.committer.before.append(
            lambda: sample.rival().execute(report_pick, ReportPick("oak", "ann", 1, 1))
        )
        refused_at_first = report(lanes, 2, tree="oak")
        refused = report(lanes, 9)
        accepted = report(lanes, 1)

    landed([accepted, refused_at_first])
    with pytest.raises(SequenceGap):
        refused.result(WAIT)


def test_two_processes_on_one_hot_row_lose_nothing_and_get_no_conflict(tmp_path: Path) -> None:
    path = str(tmp_path / "orchard.db")
    trees = [f"tree-{number:02}" for number in range(24)]
    with closing(SqliteStore(path, SCHEMA)) as store:
        planted(store, trees)

        def reported(share: list[str]) -> int:
            with (
                closing(SqliteStore(path, SCHEMA)) as own,
                closing(GroupCommit(own)) as writer,
                closing(Lanes(own, FOLDS, writer.submit)) as lanes,
            ):

                def of_one(tree: str) -> int:
                    return len(landed([report(lanes, seq, 10, tree) for seq in range(1, 11)]))

                with ThreadPoolExecutor(12) as reporters:
                    return sum(reporters.map(of_one, share))

        with ThreadPoolExecutor(2) as processes:
            assert sum(processes.map(reported, [trees[::2], trees[1::2]])) == 240

        assert SampleControl(store).row(barn_key("north")) == Barn("north", 240, 80)
        assert differences(store, FOLDS) == []


# ── faults ────────────────────────────────────────────────────────────────────────────────────────


def test_a_pack_fails_as_a_whole_and_the_lane_continues(
    sample: SampleControl, lanes: Lanes
) -> None:
    sample.committer.errors.extend([ZeroDivisionError(), StoreUnavailable("down")])
    for error in (ZeroDivisionError, StoreUnavailable):
        with held(lanes):
            futures = [report(lanes, seq) for seq in (1, 2)]
        for future in futures:
            with pytest.raises(error):
                future.result(WAIT)

    assert sample.types() == ["TreePlanted"]
    landed([report(lanes, 1)])


def test_every_caller_in_a_pack_gets_its_unknown_outcome(
    sample: SampleControl, lanes: Lanes
) -> None:
    sample.committer.lost_answers = 1
    with held(lanes):
        futures = [report(lanes, seq) for seq in (1, 2)]

    for future in futures:
        with pytest.raises(OutcomeUnknown):
            future.result(WAIT)
    sample.committer.commits.clear()
    with held(lanes):
        again = report(lanes, 2)
        new = report(lanes, 3)
    assert again.result(WAIT).receipt is None, "it had committed"
    landed([new])
    assert len(sample.committer.commits) == 1, "decided on rows that were read again"


class Unreadable(MemoryStore):
    """A store whose next reads of rows fail."""

    failures = 0

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database is away")
        return super().get(*keys)


def test_reports_whose_rows_cannot_be_read_fail_and_the_lane_continues() -> None:
    store = Unreadable(SCHEMA)
    sample = planted(store)
    with closing(sample.lanes()) as lanes:
        with held(lanes):
            futures = [report(lanes, seq) for seq in (1, 2)]
            store.failures = 1

        for future in futures:
            with pytest.raises(StoreUnavailable, match="away"):
                future.result(WAIT)
        landed([report(lanes, 1)])


def test_a_cancelled_waiter_is_dropped_and_the_lane_continues(
    sample: SampleControl, lanes: Lanes
) -> None:
    with held(lanes):
        first, second, third = report(lanes, 1), report(lanes, 2), report(lanes, 2, fruit=5)
        command = lanes.command("north", lambda: pytest.fail("it was cancelled"))
        assert second.cancel()
        assert command.cancel()

    landed([first, third])
    with pytest.raises(CancelledError):
        second.result(WAIT)
    assert sample.row(tree_key("elm")) == Tree("elm", "north", 6, 2, T0)


def test_a_pack_whose_waiters_all_cancelled_is_not_committed(
    sample: SampleControl, lanes: Lanes
) -> None:
    with held(lanes):
        assert report(lanes, 1).cancel()

    landed([report(lanes, 1)])
    assert len(sample.committer.commits) == 1


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


def test_finishes_waiting_reports_when_it_is_closed(
    sample: SampleControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "PACK_MAX", 2)
    lanes = sample.lanes()
    gate = Event()
    holding = lanes.command("north", lambda: gate.wait(WAIT))
    futures = [report(lanes, seq) for seq in range(1, 10)]
    with ThreadPoolExecutor(1) as closer:
        closing_lanes = closer.submit(lanes.close)
        wait_for(lambda: lanes._closed)
        with pytest.raises(StoreUnavailable, match="closed"):
            report(lanes, 10)
        gate.set()
        closing_lanes.result(WAIT)

    assert holding.result(0)
    assert all(future.done() for future in futures)
    landed(futures)
    with pytest.raises(StoreUnavailable, match="closed"):
        report(lanes, 10)
    with pytest.raises(StoreUnavailable, match="closed"):
        lanes.command("south", lambda: None)
    assert sample.types().count("FruitPicked") == 9


def test_a_control_runs_its_commands_in_the_lane(sample: SampleControl, lanes: Lanes) -> None:
    control: Control = sample.control

    outcome = lanes.command(
        "north", lambda: control.execute(hand_pick, HandPick("elm", "ann", 30))
    ).result(WAIT)

    assert outcome.position == 6
