"""Each planted bug is found: by the comparison, by the history checker, or by replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.contract.dynamodb_faults import first, fresh_table
from tests.differential.clients import MANY, TURNS, Run, history_in_turns, history_of_threads
from tests.differential.history import Rule, anomalies
from tests.differential.logs import Logs
from tests.differential.machine import Difference, Machine
from tests.differential.mutants import (
    ENGINE_BUGS,
    MEMORY_BUGS,
    SQLITE_BUGS,
    FoldWithoutGuard,
    GuardOutside,
    KeyAfterDecide,
    VoidOnlyInMind,
)
from tests.differential.program import sample
from tests.differential.replaying import contradictions
from tests.differential.world import FACTS, SCHEMA
from tidegate.clock import ManualClock
from tidegate.control.runtime import Control, Submit
from tidegate.engines.dynamodb.log import GRACE_SECONDS, SlotLog
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import Refused, TidegateError
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.model import Commit, Event, Meta, Receipt
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary, facts

EXAMPLES_MAX = 60
SEED = 1
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def first_difference(fresh: Callable[[], Callable[[], Store]]) -> str:
    """Return the first difference of a store within a small budget, or an empty text."""
    for program in sample(SEED, EXAMPLES_MAX):
        try:
            Machine(MemoryStore(SCHEMA), fresh(), dense=True).run(program)
        except Difference as difference:
            return str(difference)
    return ""


@pytest.mark.parametrize(("mutant", "complaint"), ENGINE_BUGS, ids=lambda value: _name(value))
def test_the_comparison_finds_a_bug_of_an_engine(mutant: type[MemoryStore], complaint: str) -> None:
    def fresh() -> Callable[[], Store]:
        store = mutant(SCHEMA)
        return lambda: store

    assert re.search(complaint, first_difference(fresh))


@pytest.mark.parametrize(("mutant", "complaint"), SQLITE_BUGS, ids=lambda value: _name(value))
def test_the_comparison_finds_a_bug_of_the_sqlite_engine(
    mutant: type[SqliteStore], complaint: str, tmp_path: Path
) -> None:
    numbers = count(1)

    def fresh() -> Callable[[], Store]:
        path = str(tmp_path / f"{next(numbers)}.db")
        return lambda: mutant(path, SCHEMA)

    assert re.search(complaint, first_difference(fresh))


def _name(value: object) -> str | None:
    return value.__name__ if isinstance(value, type) else ""


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_the_checker_finds_a_guard_outside_the_transaction(engine: str, logs: Logs) -> None:
    connect = logs.fresh(SCHEMA)

    def mutant() -> Any:
        return GuardOutside(connect())

    history = history_of_threads(mutant, Run(4, 60), handles=2)

    found = {anomaly.rule for anomaly in anomalies(history, SCHEMA.vocabulary)}
    assert Rule.CONDITION_VIOLATED in found
    assert contradictions(history, SCHEMA)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("engine", "place", "mutant"), MEMORY_BUGS, scope="function")
def test_the_checker_finds_a_cache_that_drops_facts_silently(
    logs: Logs, place: str, mutant: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, mutant)
    handles, turn_max = TURNS[logs.engine]

    history = history_in_turns(
        logs.fresh(SCHEMA), Run(4, 80, MANY, SEED), handles=handles, turn_max=turn_max
    )

    found = {anomaly.rule for anomaly in anomalies(history, SCHEMA.vocabulary)}
    assert found == {Rule.CONDITION_VIOLATED}
    assert contradictions(history, SCHEMA)


# ── a number taken, and a writer that stalls before it commits ────────────────────────────────────


def followed_past_a_stalled_writer(
    endpoint: str, log: type[SlotLog]
) -> tuple[list[str], list[str]]:
    """Return the events in a reader's feed, and those in the log, when the first writer commits
    late.
    """
    table = fresh_table(endpoint, SCHEMA)
    (slow, meddler), (quick, _), (reader, _) = (table.open(SCHEMA) for _ in range(3))
    reader._log = log(reader._transport, reader._pace)
    followed: list[Event] = []

    def follow() -> None:
        followed.extend(
            reader.feed(after=followed[-1].position if followed else 0, limit=10).events
        )

    def meanwhile() -> None:
        quick.commit(Commit(T0, Meta(request="quick"), (FACTS['Opened {"order_id":"1"}'],)))
        follow()
        table.time.sleep(2 * GRACE_SECONDS)
        follow()

    meddler.plot("transact", first(meanwhile))
    slow.commit(Commit(T0, Meta(request="slow"), (FACTS['Announced {"text":"hear"}'],)))
    follow()
    log_now = quick.feed(after=0, limit=10).events
    for store in (slow, quick, reader):
        store.close()
    return [event.meta.request for event in followed], [event.meta.request for event in log_now]


def test_a_feed_closes_the_slot_of_a_stalled_writer(dynamodb_url: str) -> None:
    followed, log = followed_past_a_stalled_writer(dynamodb_url, SlotLog)

    assert followed == log == ["quick", "slow"]


def test_a_followed_feed_finds_a_void_slot_that_was_ignored(dynamodb_url: str) -> None:
    followed, log = followed_past_a_stalled_writer(dynamodb_url, VoidOnlyInMind)

    assert followed == ["quick"]
    assert log == ["slow", "quick"]


# ── above the engines: a seat that can be taken once, and a tally of the room ─────────────────────


class SeatTaken(Struct, frozen=True):
    seat_id: str
    room: str


class TakeSeat(Struct, frozen=True):
    seat_id: str
    room: str


class Tally(Struct, frozen=True):
    taken: int = 0


def decide(taken: bool, command: TakeSeat, now: datetime) -> tuple[SeatTaken, ...]:
    if taken:
        raise Refused("the seat is taken")
    return (SeatTaken(command.seat_id, command.room),)


TAKE_SEAT = Slice(
    name="take-seat",
    command=TakeSeat,
    writes=(SeatTaken,),
    reads=(SeatTaken,),
    start=lambda command: False,
    evolve=lambda taken, fact: True,
    decide=decide,
    answer=lambda decided: b"yours",
)
ROOMS = Collection("rooms", Tally, writers=Writers.FOLDED, nature=Nature.DERIVED)
TALLY = Fold(
    collection=ROOMS,
    number=1,
    reads=(SeatTaken,),
    ids=lambda fact: (fact.room,),
    start=lambda id, fact: Tally(),
    step=lambda tally, fact, at: Tally(tally.taken + 1),
)
ROOM_SCHEMA = Schema(Vocabulary(facts("seat", SeatTaken), (TAKE_SEAT,)), (ROOMS,))
FOLDS = Folds(ROOM_SCHEMA, (TALLY,))


def directly(store: Store) -> Submit:
    """Commit in the calling thread."""

    def submit(commit: Commit) -> Future[Receipt]:
        future: Future[Receipt] = Future()
        (answer,) = store.commit(commit)
        if isinstance(answer, TidegateError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    return submit


def control(kind: type[Control], store: Store, submit: Submit) -> Control:
    return kind(store, FOLDS, submit, clock=ManualClock(T0), sleep=lambda seconds: None)


def answers_of_a_repeat(kind: type[Control], store: Store) -> list[bytes]:
    """Return the two answers of one command that is sent twice under one key."""
    ours = control(kind, store, directly(store))
    command = TakeSeat("1a", "red")
    return [ours.execute(TAKE_SEAT, command, key="k1").answer for _ in range(2)]


def test_a_repeat_gets_the_first_answer(engine: str, logs: Logs) -> None:
    assert answers_of_a_repeat(Control, logs.store(ROOM_SCHEMA)) == [b"yours", b"yours"]


def test_a_repeat_finds_a_key_that_is_checked_after_the_decision() -> None:
    with pytest.raises(Refused, match="the seat is taken"):
        answers_of_a_repeat(KeyAfterDecide, MemoryStore(ROOM_SCHEMA))


def differences_after_a_race(store: Store) -> list[str]:
    """Take two seats of one room, the second while the first one's tally is being written."""
    rival = control(Control, store, directly(store))
    rivals = [TakeSeat("2b", "red")]

    def submit(commit: Commit) -> Future[Receipt]:
        if rivals:
            rival.execute(TAKE_SEAT, rivals.pop())
        return directly(store)(commit)

    control(Control, store, submit).execute(TAKE_SEAT, TakeSeat("1a", "red"))
    assert not rivals
    return [difference.what for difference in differences(store, FOLDS)]


def test_a_race_on_a_folded_row_leaves_no_difference(engine: str, logs: Logs) -> None:
    assert differences_after_a_race(logs.store(ROOM_SCHEMA)) == []


def test_replay_finds_a_folded_row_without_its_guard() -> None:
    unguarded: Any = FoldWithoutGuard(MemoryStore(ROOM_SCHEMA))

    assert "data" in differences_after_a_race(unguarded)
