"""The work of the suite's racers: plain functions of a store, to run in threads and processes.

A racer that ran out of attempts sends its command again, as a caller would; SENDS_MAX limits that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from threading import Barrier
from typing import TypeVar

from tests.contract.address import Address
from tests.contract.world import (
    SCHEMA,
    T0,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    Rebooted,
    boundary_of,
    clause,
    commit_of,
    item,
    land,
    put,
    query_of,
    row,
    stored,
    values,
)
from tidegate.errors import BoundaryMoved, Conflict, VersionConflict
from tidegate.kernel.model import Position, Query
from tidegate.kernel.store import Store, demand_boundary

ATTEMPTS_MAX = 3
SENDS_MAX = 2_000
PAUSE_SECONDS_MAX = 0.01
HANDLES_MAX = 4

Answer = TypeVar("Answer")
Work = Callable[[Store, int], Answer]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Runs one piece of work many times at once, on one log.

    Processes are spawned, so they share nothing but the log. Memory is one object in one process,
    so its racers are always threads.
    """

    connect: Callable[[], Store]
    address: Address | None
    pool: Callable[[], ProcessPoolExecutor]

    def in_threads(self, work: Work[Answer], count: int) -> list[Answer]:
        """Run each in a thread. They start together and share a few handles."""
        handles = [self.connect() for _ in range(min(count, HANDLES_MAX))]
        start = Barrier(count)

        def run(number: int) -> Answer:
            start.wait()
            return work(handles[number % len(handles)], number)

        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(run, range(count)))

    def in_processes(self, work: Work[Answer], count: int) -> list[Answer]:
        """Run each in a process with a handle of its own."""
        if self.address is None:
            return self.in_threads(work, count)
        pool = self.pool()
        waiting = [pool.submit(at, self.address, work, number) for number in range(count)]
        return [future.result() for future in waiting]


def at(address: Address, work: Work[Answer], number: int) -> Answer:
    """Do the work on a handle of this process."""
    with closing(address.open(SCHEMA)) as store:
        return work(store, number)


# ── caps ──────────────────────────────────────────────────────────────────────────────────────────


class CapReached(Exception):
    """A decision's refusal: the customer has everything that the cap allows."""


def ordered(store: Store, customer: str) -> int:
    """Count the units over all orders of a customer."""
    events = store.read(query_of(OrderPlaced, tags=f"customer_id:{customer}")).events
    return sum(fact.units for fact in values(events) if isinstance(fact, OrderPlaced))


def order(store: Store, order_id: str, customer: str, cap: int, skew: timedelta) -> None:
    """Send one command: read, decide and append, in up to three attempts.

    Raises:

        CapReached, Conflict.
    """
    query = Query(
        (
            clause(OrderPlaced, tags=f"order_id:{order_id}"),
            clause(OrderPlaced, tags=f"customer_id:{customer}"),
        )
    )
    for attempt in range(ATTEMPTS_MAX):
        page = store.read(query)
        if sum(fact.units for fact in values(page.events) if isinstance(fact, OrderPlaced)) >= cap:
            raise CapReached
        fact = OrderPlaced(order_id, customer)
        try:
            boundary = demand_boundary(page, query)
            land(store, commit_of(fact, on=[boundary], at=T0 + skew * (attempt + 1)))
            return
        except BoundaryMoved:
            continue
    raise Conflict("three attempts conflicted with other commits")


@dataclass(frozen=True, slots=True)
class Ordering:
    """Work: order one unit at a time up to the cap. Return how many orders were placed."""

    cap: int
    customer: str = "c1"

    def __call__(self, store: Store, number: int) -> int:
        placed = 0
        pause = Random(number)
        skew = timedelta(hours=1) * (-1) ** number  # half of the clocks are ahead, half are slow
        for _ in range(SENDS_MAX):
            try:
                order(store, f"o-{number}-{placed}", self.customer, self.cap, skew)
            except CapReached:
                return placed
            except Conflict:
                time.sleep(pause.uniform(0, PAUSE_SECONDS_MAX))
            else:
                placed += 1
        raise AssertionError(f"writer {number} was starved after {SENDS_MAX} sends")


# ── first writers, skew, counters ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Creating:
    """Work: in each round create the product unless it exists. Return the rounds won."""

    rounds: int
    guarded: bool = False

    def __call__(self, store: Store, number: int) -> list[int]:
        won = []
        for turn in range(self.rounds):
            tag = f"product_id:race-{turn}"
            query = query_of(ProductAdded, tags=tag)
            # Guarded: the created type is not among the types read, so the model stays empty.
            guard = query_of(PriceChanged, tags=tag) if self.guarded else None
            page = store.read(query, guard=guard)
            if page.events or (
                self.guarded and store.read(query_of(PriceChanged, tags=tag)).events
            ):
                continue
            created = (
                PriceChanged(f"race-{turn}", number)
                if self.guarded
                else ProductAdded(f"race-{turn}", str(number))
            )
            (outcome,) = store.commit(commit_of(created, on=[demand_boundary(page, query)]))
            if not isinstance(outcome, Conflict):
                assert not isinstance(outcome, Exception), outcome
                won.append(turn)
        return won


@dataclass(frozen=True, slots=True)
class Counting:
    """Work: increment a row this many times, reading it again after each conflict."""

    times: int

    def __call__(self, store: Store, number: int) -> int:
        key = item("counter")
        lost = 0
        while_waiting = Random(number)
        for _ in range(self.times):
            for _ in range(SENDS_MAX):
                record = stored(store, key)
                count = int(record.data.partition(b'"count":')[2].rstrip(b"}") or 0)
                write = put(key, row(count=count + 1), expect=record.version)
                try:
                    land(store, commit_of(Rebooted(), writes=[write]))
                    break
                except VersionConflict:
                    lost += 1
                    time.sleep(while_waiting.uniform(0, PAUSE_SECONDS_MAX))
            else:
                raise AssertionError(f"writer {number} was starved")
        return lost


# ── appenders for feeds ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Appending:
    """Work: make this many commits, most of them decided on a shared customer, some after a stall.

    Returns the positions of every acknowledged commit.
    """

    commits: int

    def __call__(self, store: Store, number: int) -> list[tuple[Position, Position]]:
        landed = []
        pause = Random(number)
        for turn in range(self.commits):
            customer = f"c{turn % 2}"
            boundary = boundary_of(store, query_of(OrderPlaced, tags=f"customer_id:{customer}"))
            if turn % 3 == 0:
                time.sleep(pause.uniform(0, PAUSE_SECONDS_MAX))  # a writer that stalls
            fact = OrderPlaced(f"o-{number}-{turn}", customer)
            on = [boundary] if turn % 2 else []
            (outcome,) = store.commit(commit_of(fact, Rebooted(f"{number}-{turn}"), on=on))
            if isinstance(outcome, Conflict):
                continue
            assert not isinstance(outcome, Exception), outcome
            landed.append((outcome.first, outcome.last))
        return landed


def append_until_killed(address: Address, number: int, journal: str) -> None:
    """Commit for ever. Each acknowledged commit is one line of the journal, written before the next
    commit.

    The process that started this one kills it at an arbitrary moment.
    """
    note = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with closing(address.open(SCHEMA)) as store:
        for turn in range(SENDS_MAX):
            fact = OrderPlaced(f"o-{number}-{turn}", f"c{turn % 3}")
            receipt = land(store, commit_of(fact, Rebooted(f"{number}-{turn}")))
            os.write(note, f"{receipt.first} {receipt.last}\n".encode())


def acknowledged(lines: Sequence[str]) -> list[tuple[Position, Position]]:
    """Read the positions in a journal, without a last line that the kill cut short."""
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [(int(first), int(last)) for first, last in whole]
