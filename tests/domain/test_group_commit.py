"""Group commit: many callers, one writer, one flush; each future gets its own answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import chain
from pathlib import Path
from threading import Barrier, Event, Thread, Timer

import pytest

from tests.domain.sample_domain import SCHEMA, T0, Errand, errand_key
from tidegate.engines import group_commit as group_module
from tidegate.engines.group_commit import GROUP_MAX, GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.model import ABSENT, Commit, Put, Receipt

WAIT = 60
HURRY = 0.05


class Stalling(MemoryStore):
    """A store that counts its flushes, and whose flushes can be blocked or fail."""

    def __init__(self) -> None:
        super().__init__(SCHEMA)
        self.groups: list[int] = []
        self.entered = Event()
        self.gate = Event()
        self.gate.set()
        self.error: BaseException | None = None

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        self.groups.append(len(commits))
        self.entered.set()
        assert self.gate.wait(WAIT)
        if self.error is not None:
            raise self.error
        return super().commit(*commits)

    def hold(self, writer: GroupCommit) -> Future[Receipt]:
        """Keep the writer busy with this commit until the gate opens, while all others wait."""
        self.gate.clear()
        self.entered.clear()
        holding = writer.submit(errand("holding"))
        assert self.entered.wait(WAIT)
        return holding


def errand(id: str, text: str = "x") -> Commit:
    row = codec.encode(Errand(text))
    return Commit(T0, writes=(Put(errand_key(id, 0), row, ABSENT),))


@pytest.fixture
def store() -> Stalling:
    return Stalling()


@pytest.fixture
def writer(store: Stalling) -> Iterator[GroupCommit]:
    with closing(GroupCommit(store)) as writer:
        yield writer
        store.gate.set()


def test_answers_each_commit_in_order(store: Stalling, writer: GroupCommit) -> None:
    store.hold(writer)
    futures = [writer.submit(errand(id)) for id in ("a", "b", "a", "c", "b", "d")]
    futures.append(writer.submit(Commit(T0, writes=(Put(errand_key("", 0), b"", -1),))))
    store.gate.set()

    answers = [future.exception(WAIT) or future.result() for future in futures]

    assert [a.first if isinstance(a, Receipt) else type(a) for a in answers] == [
        2,
        3,
        VersionConflict,
        4,
        VersionConflict,
        5,
        InvalidInput,
    ]
    assert store.groups == [1, 7]


def test_acknowledges_nothing_before_the_store_has_answered(
    store: Stalling, writer: GroupCommit
) -> None:
    holding = store.hold(writer)
    behind = writer.submit(errand("a"))

    assert not wait([holding, behind], timeout=0.05).done

    store.gate.set()
    assert holding.result(WAIT).first == 1
    assert behind.result(WAIT).first == 2


def test_really_forms_groups_under_sixteen_threads(tmp_path: Path) -> None:
    flushes = []

    class Counting(SqliteStore):
        def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
            flushes.append(len(commits))
            return super().commit(*commits)

    threads, each = 16, 25
    barrier = Barrier(threads)
    with (
        closing(Counting(str(tmp_path / "log.db"), SCHEMA)) as store,
        closing(GroupCommit(store)) as writer,
        ThreadPoolExecutor(threads) as callers,
    ):

        def write(number: int) -> list[int]:
            barrier.wait(WAIT)
            ids = [f"{number}-{turn}" for turn in range(each)]
            return [writer.submit(errand(id)).result(WAIT).first for id in ids]

        positions = list(callers.map(write, range(threads)))

    assert sorted(chain(*positions)) == list(range(1, threads * each + 1))
    assert all(found == sorted(found) for found in positions)
    assert sum(flushes) == threads * each
    assert len(flushes) <= threads * each / 3, "a flush serves several callers"


def test_limits_a_group_by_number_and_by_bytes(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.hold(writer)
    futures = [writer.submit(errand(str(number))) for number in range(GROUP_MAX + 1)]
    store.gate.set()
    wait(futures, WAIT)
    assert store.groups == [1, GROUP_MAX, 1]

    monkeypatch.setattr(group_module, "GROUP_BYTES_MAX", 10_000)
    store.hold(writer)
    futures = [writer.submit(errand(f"large-{n}", "x" * 4_000)) for n in range(6)]
    store.gate.set()
    wait(futures, WAIT)
    assert store.groups[4:] == [3, 3], "rows count, too"


def test_an_error_of_the_store_reaches_all_waiters_and_the_writer_survives(
    store: Stalling, writer: GroupCommit
) -> None:
    store.hold(writer)
    futures = [writer.submit(errand(id)) for id in ("a", "b")]
    store.error = OSError("the disk is gone")
    store.gate.set()

    for future in futures:
        with pytest.raises(OSError, match="the disk is gone"):
            future.result(WAIT)
    store.error = None
    assert writer.submit(errand("a")).result(WAIT).first == 1


def test_detects_a_store_that_returns_too_few_answers(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "commit", lambda *commits: ())

    with pytest.raises(AssertionError, match="answers every commit"):
        writer.submit(errand("a")).result(WAIT)

    monkeypatch.undo()
    assert writer.submit(errand("a")).result(WAIT).first == 1


def test_a_cancelled_waiter_is_dropped_and_the_writer_survives(
    store: Stalling, writer: GroupCommit
) -> None:
    holding = store.hold(writer)
    first, second = writer.submit(errand("a")), writer.submit(errand("b"))
    assert not holding.cancel(), "it is being committed"
    assert first.cancel()
    store.gate.set()

    assert second.result(WAIT).first == 2
    with pytest.raises(CancelledError):
        first.result(WAIT)
    assert store.get(errand_key("a", 0)) == (None,)


def test_a_group_whose_waiters_all_cancelled_is_not_committed(
    store: Stalling, writer: GroupCommit
) -> None:
    store.hold(writer)
    assert writer.submit(errand("a")).cancel()
    store.gate.set()

    assert writer.submit(errand("b")).result(WAIT).first == 2


def test_refuses_more_commits_than_its_queue_holds(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "WAITING_MAX", 3)
    store.hold(writer)
    futures = [writer.submit(errand(id)) for id in ("a", "b", "c")]

    with pytest.raises(StoreUnavailable):
        writer.submit(errand("d"))

    store.gate.set()
    assert [future.result(WAIT).first for future in futures] == [2, 3, 4]
    assert writer.submit(errand("d")).result(WAIT).first == 5


def test_finishes_waiting_commits_when_it_is_closed(store: Stalling) -> None:
    writer = GroupCommit(store)
    holding = store.hold(writer)
    futures = [writer.submit(errand(str(number))) for number in range(GROUP_MAX + 5)]
    closer = Thread(target=writer.close)
    closer.start()
    store.gate.set()
    closer.join(WAIT)

    assert holding.done()
    assert all(future.done() for future in futures)
    assert futures[-1].result(0).first == GROUP_MAX + 6
    with pytest.raises(StoreUnavailable):
        writer.submit(errand("late"))
    writer.close()


def test_a_commit_during_the_close_is_refused_or_answered(store: Stalling) -> None:
    """No commit may be queued after the end of the queue, where nothing would process it."""
    for turn in range(40):
        assert all(future.done() for future in submitted_beside_a_close(store, turn))


def submitted_beside_a_close(store: Stalling, turn: int) -> list[Future[Receipt]]:
    writer = GroupCommit(store)
    barrier = Barrier(5)
    submitted: list[Future[Receipt]] = []

    def submit(number: int) -> None:
        barrier.wait(WAIT)
        for step in range(20):
            try:
                submitted.append(writer.submit(errand(f"{turn}-{number}-{step}")))
            except StoreUnavailable:
                return

    callers = [Thread(target=submit, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    barrier.wait(WAIT)
    writer.close()
    for caller in callers:
        caller.join(WAIT)
    return submitted


def test_a_callback_runs_without_a_waiter(writer: GroupCommit) -> None:
    told = Event()

    writer.submit(errand("a")).add_done_callback(lambda _: told.set())

    assert told.wait(WAIT)


def test_a_callback_may_commit_and_wait_for_it(writer: GroupCommit) -> None:
    inner: list[Receipt] = []
    told = Event()

    def commit_again(_: Future[Receipt]) -> None:
        inner.append(writer.submit(errand("inner")).result())
        told.set()

    outer = writer.submit(errand("outer"))
    outer.add_done_callback(commit_again)

    assert told.wait(WAIT)
    assert outer.result().last < inner[0].first


def test_two_threads_may_wait_for_one_commit(store: Stalling, writer: GroupCommit) -> None:
    store.hold(writer)
    pending = writer.submit(errand("a"))

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(pending.result) for _ in range(2)]
        store.gate.set()
        assert answers[0].result(WAIT) == answers[1].result(WAIT)


def test_each_waiter_is_woken_although_others_wait_too(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "RECHECK_SECONDS", 10 * WAIT)  # no waiter wakes by itself
    for turn in range(20):
        store.hold(writer)
        futures = [writer.submit(errand(f"{turn}-{number}")) for number in range(24)]
        with ThreadPoolExecutor(8) as threads:
            waiting = [threads.submit(future.result) for future in futures[1::3]]
            assert futures[2].cancel()
            store.gate.set()

            receipts = [each.result(WAIT) for each in waiting]

        assert [each.first for each in receipts] == sorted(each.first for each in receipts)


def test_clients_without_a_pause_are_all_served(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "RECHECK_SECONDS", 10 * WAIT)

    all_queued = Barrier(16, action=store.gate.set)

    def client(name: int) -> int:
        first = writer.submit(errand(f"{name}-first"))
        all_queued.wait(WAIT)  # a fast machine ends one client before it starts the next
        served = first.result().first > 0
        return served + sum(
            writer.submit(errand(f"{name}-{number}")).result().first > 0 for number in range(99)
        )

    store.hold(writer)
    with ThreadPoolExecutor(16) as threads:
        served = [threads.submit(client, name) for name in range(16)]
        assert [each.result(WAIT) for each in served] == [100] * 16

    assert store.groups[:2] == [1, 16], "all that waited shared a flush"


def test_a_timeout_holds_while_another_thread_writes(store: Stalling, writer: GroupCommit) -> None:
    store.hold(writer)
    pending = writer.submit(errand("a"))

    with pytest.raises(TimeoutError):
        pending.result(0.05)
    store.gate.set()

    assert pending.result(WAIT).first > 0


def test_waiters_of_an_interrupted_writer_get_an_unknown_outcome(
    store: Stalling, writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "PATIENCE_SECONDS", WAIT)  # so that this thread leads
    first, second = writer.submit(errand("a")), writer.submit(errand("b"))
    store.error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        first.result()
    Timer(HURRY, writer.hurry).start()  # set while we wait: the thread waits long here
    with pytest.raises(OutcomeUnknown):
        second.result()
    store.error = None

    assert writer.submit(errand("c")).result().first > 0
