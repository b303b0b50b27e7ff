"""Races in threads and in processes on one log: what may happen once happens once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address, Connect
from tests.contract.conftest import PROCESSES
from tests.contract.racing import (
    Appending,
    Counting,
    Creating,
    Crowd,
    Ordering,
    acknowledged,
    append_until_killed,
    ordered,
)
from tests.contract.world import (
    VOCABULARY,
    Announced,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    ProductRenamed,
    append,
    boundary_of,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    stored,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, TidegateError
from tidegate.kernel import model
from tidegate.kernel.model import ALL, Commit, CommitKey, Query, Receipt
from tidegate.kernel.store import Store

WRITERS = 16
CAP = {"memory": 40, "sqlite": 40, "postgres": 40, "dynamodb": 20}
JOURNALED = 5  # commits of each writer before it is killed
SETTLE_SECONDS_MAX = 60.0


@pytest.mark.req("CB-1", "CB-15", "CB-22")
def test_a_cap_holds_under_16_writers_and_is_reached_exactly(
    crowd: Crowd, store: Store, engine: str
) -> None:
    placed = crowd.in_threads(Ordering(CAP[engine]), WRITERS)

    assert sum(placed) == ordered(store, "c1") == CAP[engine]


@pytest.mark.req("CB-1", "CB-10", "CB-15", "CB-22")
def test_a_cap_holds_over_several_processes_and_is_reached_exactly(
    crowd: Crowd, store: Store, engine: str
) -> None:
    placed = crowd.in_processes(Ordering(CAP[engine]), PROCESSES)

    assert sum(placed) == ordered(store, "c1") == CAP[engine]


@pytest.mark.req("CB-13")
@pytest.mark.parametrize("guarded", [False, True], ids=["read", "guarded"])
def test_exactly_one_of_many_first_writers_wins_in_threads(
    crowd: Crowd, rounds: int, guarded: bool
) -> None:
    won = crowd.in_threads(Creating(rounds, guarded), WRITERS)

    assert sorted(turn for turns in won for turn in turns) == list(range(rounds))


@pytest.mark.req("CB-13")
@pytest.mark.parametrize("guarded", [False, True], ids=["read", "guarded"])
def test_exactly_one_of_many_first_writers_wins_over_processes(
    crowd: Crowd, rounds: int, guarded: bool
) -> None:
    won = crowd.in_processes(Creating(4 * rounds, guarded), PROCESSES)

    assert sorted(turn for turns in won for turn in turns) == list(range(4 * rounds))


@pytest.mark.req("CB-1", "CB-13")
def test_one_of_several_decisions_that_all_read_before_any_wrote_commits(
    connect: Connect, rounds: int
) -> None:
    handles = [connect() for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        for turn in range(rounds):
            query = query_of(ProductAdded, tags=f"product_id:p{turn}")
            boundaries = [boundary_of(handles[n % 4], query) for n in range(8)]
            start = Barrier(8)

            decided = [
                commit_of(ProductAdded(f"p{turn}"), on=[boundary]) for boundary in boundaries
            ]

            def run(n: int, commit: Commit, start: Barrier = start) -> Receipt | TidegateError:
                start.wait()
                return handles[n % 4].commit(commit)[0]

            outcomes = list(threads.map(run, range(8), decided))

            (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
            losers = [outcome for outcome in outcomes if isinstance(outcome, BoundaryMoved)]
            assert [loser.facts["position"] for loser in losers] == [winner.last] * 7


Side = tuple[Query, ProductAdded | ProductRenamed | PriceChanged | OrderPlaced]


def across_tags(turn: int) -> tuple[Side, Side]:
    """One reads x and writes y; the other reads y and writes x."""
    x, y = f"x{turn}", f"y{turn}"
    return (
        (query_of(ProductAdded, tags=f"product_id:{x}"), ProductAdded(y)),
        (query_of(ProductAdded, tags=f"product_id:{y}"), ProductAdded(x)),
    )


def across_types(turn: int) -> tuple[Side, Side]:
    """In one partition, one reads names and writes a price; the other does the reverse."""
    tag = f"product_id:p{turn}"
    return (
        (query_of(ProductRenamed, tags=tag), PriceChanged(f"p{turn}")),
        (query_of(PriceChanged, tags=tag), ProductRenamed(f"p{turn}")),
    )


def across_scopes(turn: int) -> tuple[Side, Side]:
    """One reads a customer over all partitions and writes a product; the other does the reverse."""
    return (
        (query_of(OrderPlaced, tags=f"customer_id:c{turn}"), ProductAdded(f"p{turn}")),
        (query_of(ProductAdded, tags=f"product_id:p{turn}"), OrderPlaced(f"o{turn}", f"c{turn}")),
    )


@pytest.mark.req("CB-1", "CB-11")
@pytest.mark.parametrize("sides", [across_tags, across_types, across_scopes])
def test_write_skew_is_impossible(
    connect: Connect, rounds: int, sides: Callable[[int], tuple[Side, Side]]
) -> None:
    handles = (connect(), connect())
    with ThreadPoolExecutor(2) as threads:
        for turn in range(rounds):
            start = Barrier(2)

            def run(handle: Store, side: Side, start: Barrier = start) -> Receipt | TidegateError:
                query, fact = side
                boundary = boundary_of(handle, query)
                start.wait()  # both have read, neither has written
                return handle.commit(commit_of(fact, on=[boundary]))[0]

            outcomes = list(threads.map(run, handles, sides(turn)))

            assert sorted(type(outcome).__name__ for outcome in outcomes) == [
                "BoundaryMoved",
                "Receipt",
            ]


@pytest.mark.req("CB-12", "CB-22")
def test_decisions_that_share_nothing_all_commit_at_once(crowd: Crowd, store: Store) -> None:
    def decide(handle: Store, number: int) -> int:
        for turn in range(3):
            query = query_of(OrderPlaced, tags=f"customer_id:c{number}")
            boundary = boundary_of(handle, query)
            land(handle, commit_of(OrderPlaced(f"o{number}-{turn}", f"c{number}"), on=[boundary]))
        return 3

    assert sum(crowd.in_threads(decide, 8)) == len(whole_feed(store)) == 24


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_a_row_loses_no_update(crowd: Crowd, store: Store, engine: str, where: str) -> None:
    land(store, commit_of(writes=[put(item("counter"), row(count=0))]))
    times, writers = (3, 8) if engine == "dynamodb" else (6, 8)
    if where == "threads":
        crowd.in_threads(Counting(times), writers)
    else:
        writers = PROCESSES
        crowd.in_processes(Counting(times), writers)

    assert stored(store, item("counter")).data == row(count=times * writers)
    assert len(whole_feed(store)) == times * writers


def test_a_request_sent_many_times_at_once_is_applied_once(crowd: Crowd, store: Store) -> None:
    once = CommitKey("the request", b"digest", b"answer")

    def send(handle: Store, number: int) -> Receipt:
        return land(handle, commit_of(ProductAdded("p1", str(number)), once=once))

    receipts = crowd.in_threads(send, 8)

    assert [receipt.replayed for receipt in receipts].count(False) == 1
    assert len({(receipt.first, receipt.last, receipt.answer) for receipt in receipts}) == 1
    assert len(whole_feed(store)) == 1


@pytest.mark.req("CB-17")
def test_one_of_many_wins_a_race_for_the_first_event_of_a_type(crowd: Crowd, store: Store) -> None:
    boundary = boundary_of(store, query_of(Announced))

    def announce(handle: Store, number: int) -> bool:
        (outcome,) = handle.commit(commit_of(Announced(str(number)), on=[boundary]))
        return isinstance(outcome, Receipt)

    assert crowd.in_threads(announce, 8).count(True) == 1
    assert len(store.read(query_of(Announced)).events) == 1


# ── feeds under load ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def following(store: Store, page: int) -> Iterator[list[model.Event]]:
    """A follower that polls in pages while the block runs, and then to the end of the log.

    A feed stops before what a dead writer left open. A read of the whole log waits until that is
    closed, so it shows where the end is.
    """
    followed: list[model.Event] = []
    done = Event()
    ends: list[model.Position] = []

    def follow() -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            finished = done.is_set()
            after = followed[-1].position if followed else 0
            events = store.feed(after=after, limit=page).events
            followed.extend(events)
            if not events:
                if finished and after >= ends[-1]:
                    return
                time.sleep(0.002)

    with ThreadPoolExecutor(1) as thread:
        follower = thread.submit(follow)
        try:
            yield followed
        finally:
            ends.extend([0, *positions(store.read(ALL).events)])
            done.set()
            follower.result()


def check_complete(
    store: Store, followed: list[model.Event], landed: list[tuple[int, int]]
) -> None:
    """Check that the follower saw the log: in order, nothing missing, and nothing added below its
    position.
    """
    seen_positions = positions(followed)
    assert seen_positions == sorted(set(seen_positions))
    assert followed == whole_feed(store)
    assert {number for pair in landed for number in pair} <= set(seen_positions)


@pytest.mark.req("CB-10", "CB-15")
@pytest.mark.parametrize("page", [1, 100])
def test_a_feed_is_complete_and_in_order_while_processes_write(
    crowd: Crowd, connect: Connect, engine: str, page: int
) -> None:
    reader = connect()
    commits = 8 if engine == "dynamodb" else 20
    with following(reader, page) as followed:
        landed = crowd.in_processes(Appending(commits), PROCESSES)

    acked = [pair for pairs in landed for pair in pairs]
    check_complete(reader, followed, acked)
    assert len(followed) == 2 * len(acked)


@pytest.mark.req("CB-10", "CB-15")
def test_every_feed_is_complete_and_in_order_while_threads_write(
    crowd: Crowd, connect: Connect, engine: str
) -> None:
    readers = (connect(), connect())
    commits = 3 if engine == "dynamodb" else 10
    with following(readers[0], 3) as first, following(readers[1], 50) as second:
        landed = crowd.in_threads(Appending(commits), 8)

    acked = [pair for pairs in landed for pair in pairs]
    check_complete(readers[0], first, acked)
    check_complete(readers[1], second, acked)


def test_writers_that_die_between_read_and_commit_delay_no_other_writer(
    connect: Connect, rounds: int
) -> None:
    reader = connect()
    query = query_of(OrderPlaced, tags="customer_id:c1")
    with following(reader, 10) as followed:
        for turn in range(rounds):
            lost = connect()
            boundary_of(lost, query)  # it has read and decided, and does nothing more
            writer = connect()
            append(writer, OrderPlaced(f"o{turn}", "c1"))

    assert len(followed) == rounds
    check_complete(reader, followed, [])


@pytest.mark.long
def test_writers_that_are_killed_leave_whole_commits_and_a_complete_feed(
    connect: Connect, address: Address | None, tmp_path: Path
) -> None:
    """Memory dies with its process: there this shows only that the suite's own follower works."""
    reader = connect()
    journals = [tmp_path / f"journal-{number}" for number in range(2)]
    with following(reader, 50) as followed:
        if address is not None:
            writers = [
                CHILDREN.Process(target=append_until_killed, args=(address, number, str(journal)))
                for number, journal in enumerate(journals)
            ]
            for writer in writers:
                writer.start()
            wait_until(lambda: all(journaled(journal) >= JOURNALED for journal in journals))
            for writer in writers:
                writer.kill()
                writer.join()
            assert [writer.exitcode for writer in writers] == [-signal.SIGKILL] * 2
        last = append(reader, OrderPlaced("after", "c0"))

    landed = [
        pair
        for journal in journals
        if journal.exists()
        for pair in acknowledged(journal.read_text().splitlines(keepends=True))
    ]
    check_complete(reader, followed, [*landed, (last.first, last.last)])
    check_whole_commits(followed[:-1])


def journaled(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def check_whole_commits(events: list[model.Event]) -> None:
    """Check that each commit was an order and its note, next to each other: both or neither."""
    assert len(events) % 2 == 0
    for order, note in zip(events[::2], events[1::2], strict=True):
        assert (order.type, note.type) == ("OrderPlaced", "Rebooted")
        assert order.position + 1 == note.position
        placed, text = VOCABULARY.value(order), VOCABULARY.value(note)
        assert getattr(placed, "order_id", "") == "o-" + getattr(text, "text", "")


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not happened():
        assert time.monotonic() < deadline, "the writers did not start"
        time.sleep(0.01)
