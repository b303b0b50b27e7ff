"""Concurrent clients that read, decide and commit, and write down what they asked and were told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from threading import Event as Flag
from time import monotonic

from tests.contract.address import Address
from tests.differential.history import (
    Attempt,
    History,
    Landed,
    Moved,
    Outcome,
    Reading,
    RowMoved,
    Unknown,
)
from tests.differential.world import CLAUSES, FACTS, SCHEMA
from tidegate.errors import BoundaryMoved, OutcomeUnknown, TidegateError, VersionConflict
from tidegate.kernel.model import (
    ABSENT,
    Boundary,
    Commit,
    Event,
    Fact,
    Key,
    Meta,
    Once,
    Position,
    Put,
    Query,
    Receipt,
)
from tidegate.kernel.store import Store

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
HELD_MAX = 4  # boundaries that a client remembers, to send a stale one now and then
PAGE = 50
PAGES_MAX = 10_000
FOLLOW_SECONDS = 0.002

# Each is fenced by exactly what it matches; few values, so that clients meet.
QUERIES = tuple(
    Query(tuple(CLAUSES[name] for name in names))
    for names in (
        ("[Opened @ order_id:1]",),
        ("[Audited|Opened|Placed @ order_id:1]",),
        ("[Placed|Registered @ customer_id:c]",),
        ("[Placed @ customer_id:C]", "[Opened @ order_id:1:1#]"),
        ("[Stocked @ bin_id:b & shelf_id:s]",),
        ("[Moved|Stocked @ shelf_id:s]", "[Placed @ order_id:1]"),
        ("[* @ shelf_id:é %_]",),
        ("[Announced|Audited @ no tag]",),
    )
)
KEYS = tuple(Key("tickets", id) for id in ("a", "é", "𐍈"))
ROW = b'{"state":"open"}'
NAMES = sorted(FACTS)


@dataclass(slots=True)
class Client:
    """One client: a store handle, a seeded coin, and a notebook."""

    store: Store
    number: int
    dice: random.Random
    readings: list[Reading] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    held: list[tuple[Reading, Boundary]] = field(default_factory=list)

    def operate(self) -> None:
        """One operation: mostly read, decide, commit; now and then something less usual."""
        chance = self.dice.random()
        if chance < 0.12:
            self.read()
        elif chance < 0.24:
            self.send(self.facts(), ())
        elif chance < 0.36 and self.held:
            self.send(self.facts(), (self.dice.choice(self.held),))
        elif chance < 0.42:
            self.send((), (self.read(),))
        elif chance < 0.54:
            self.send(self.facts(), (self.read(), self.read()), row=self.dice.choice(KEYS))
        elif chance < 0.70:
            self.send(self.facts(), (self.read(),), row=self.dice.choice(KEYS))
        else:
            self.send(self.facts(), (self.read(),))

    def facts(self) -> tuple[Fact, ...]:
        return tuple(FACTS[self.dice.choice(NAMES)] for _ in range(self.dice.randint(1, 3)))

    def read(self) -> tuple[Reading, Boundary]:
        query = self.dice.choice(QUERIES)
        invoked = monotonic()
        page = self.store.read(query)
        positions = tuple(event.position for event in page.events)
        reading = Reading(self.number, invoked, monotonic(), query, positions)
        self.readings.append(reading)
        assert page.boundary is not None
        self.held = [*self.held[1 - HELD_MAX :], (reading, page.boundary)]
        return reading, page.boundary

    def send(
        self,
        facts: tuple[Fact, ...],
        basis: Sequence[tuple[Reading, Boundary]],
        row: Key | None = None,
    ) -> None:
        token = f"{self.number}.{len(self.attempts)}"
        rows: tuple[tuple[Key, Position], ...] = ()
        if row is not None:
            (record,) = self.store.get(row)
            rows = ((row, ABSENT if record is None else record.version),)
        commit = Commit(
            T0,
            Meta(request=token),
            facts,
            tuple(boundary for _, boundary in basis),
            tuple(Put(key, ROW, version) for key, version in rows),
            Once(token, b"digest") if self.dice.random() < 0.3 else None,
        )
        # A second copy, as after a lost answer, is told what became of the first.
        for _ in range(1 + (commit.once is not None)):
            invoked = monotonic()
            (answer,) = self.store.commit(commit)
            self.attempts.append(
                Attempt(
                    self.number,
                    invoked,
                    monotonic(),
                    token,
                    facts,
                    tuple(reading for reading, _ in basis),
                    rows,
                    outcome_of(answer),
                )
            )
            if not isinstance(answer, Receipt):
                break


def number(error: TidegateError, name: str) -> int:
    """A number that the error tells, 0 if none."""
    found = error.facts[name]
    return found if isinstance(found, int) else 0


def outcome_of(answer: Receipt | TidegateError) -> Outcome:
    """What the client writes down. Raises: the error, if no client should ever meet it."""
    match answer:
        case Receipt(first, last):
            return Landed(first, last, answer.replayed)
        case BoundaryMoved():
            return Moved(number(answer, "position"))
        case VersionConflict():
            key = Key(str(answer.facts["collection"]), str(answer.facts["id"]))
            return RowMoved(key, number(answer, "expected"), number(answer, "found"))
        case OutcomeUnknown():
            return Unknown()
        case error:
            raise error


Notes = tuple[list[Reading], list[Attempt]]


def work(store: Store, number: int, operations: int) -> Notes:
    """A client's whole run."""
    client = Client(store, number, random.Random(number))
    for _ in range(operations):
        client.operate()
    return client.readings, client.attempts


def work_apart(address: Address, number: int, operations: int) -> Notes:
    """The same with a handle of its own, in a process of its own."""
    with closing(address.open(SCHEMA)) as store:
        return work(store, number, operations)


def whole_log(store: Store) -> tuple[Event, ...]:
    """All events, page by page."""
    events: list[Event] = []
    for _ in range(PAGES_MAX):
        page = store.feed(after=events[-1].position if events else 0, limit=PAGE)
        if not page.events:
            return tuple(events)
        events += page.events
    raise AssertionError("the log has no end")


def follow(store: Store, stop: Flag) -> tuple[Position, ...]:
    """Walk the feed while others write, and after the stop until it is empty."""
    positions: list[Position] = []
    while True:
        stopping = stop.is_set()
        page = store.feed(after=positions[-1] if positions else 0, limit=PAGE)
        positions += [event.position for event in page.events]
        if not page.events:
            if stopping:
                return tuple(positions)
            stop.wait(FOLLOW_SECONDS)


def history_of_threads(
    connect: Callable[[], Store], *, clients: int, operations: int, handles: int
) -> History:
    """Clients as threads that share some handles, one feed followed beside them."""
    with ExitStack() as opened, ThreadPoolExecutor(clients) as pool:
        stores = [opened.enter_context(closing(connect())) for _ in range(handles)]

        def run() -> list[Notes]:
            runs = [
                pool.submit(work, stores[number % handles], number, operations)
                for number in range(clients)
            ]
            return [run.result() for run in runs]

        return _watched(connect, run)


def history_of_processes(address: Address, *, clients: int, operations: int) -> History:
    """Clients as processes, each with a handle of its own."""

    def run() -> list[Notes]:
        with ProcessPoolExecutor(clients, mp_context=get_context("spawn")) as pool:
            runs = [pool.submit(work_apart, address, n, operations) for n in range(clients)]
            return [run.result() for run in runs]

    return _watched(lambda: address.open(SCHEMA), run)


def _watched(connect: Callable[[], Store], run: Callable[[], list[Notes]]) -> History:
    stop = Flag()
    with ThreadPoolExecutor(1) as pool, closing(connect()) as watching:
        followed = pool.submit(follow, watching, stop)
        try:
            notes = run()
        finally:
            stop.set()
        seen = followed.result()
    # The last word comes from a handle that was not open during the run.
    with closing(connect()) as fresh:
        records = fresh.get(*KEYS)
        return History(
            tuple(reading for readings, _ in notes for reading in readings),
            tuple(attempt for _, attempts in notes for attempt in attempts),
            whole_log(fresh),
            {record.key: record.version for record in records if record is not None},
            (seen,),
        )
