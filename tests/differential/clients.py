"""Concurrent clients that read, decide and commit, and record their requests and answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from threading import Event as Flag
from time import monotonic, sleep
from typing import Any

from msgspec import Struct

from tests.child_processes import CHILDREN
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
from tests.differential.world import CLAUSES, FACTS, SCHEMA, Opened, Placed, Registered, Stocked
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import (
    BoundaryMoved,
    OutcomeUnknown,
    StoreUnavailable,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.model import (
    ABSENT,
    Boundary,
    Clause,
    Commit,
    CommitKey,
    Event,
    Fact,
    Key,
    Meta,
    Position,
    Put,
    Query,
    Receipt,
)
from tidegate.kernel.store import Store

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
START_SECONDS_MAX = 120  # until the last of the processes has begun
ASKED_MAX = 1_000_000  # how often a client may find a full queue
PAGE = 50
PAGES_MAX = 10_000
FOLLOW_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Ground:
    """What clients ask and write. Each query is fenced by exactly what it matches."""

    queries: tuple[Query, ...]
    facts: tuple[Fact, ...]
    held_max: int  # boundaries that a client keeps, to send a stale one
    stale: float  # how often it does


# few values, so that clients conflict
FEW = Ground(
    tuple(
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
    ),
    tuple(FACTS[name] for name in sorted(FACTS)),
    held_max=4,
    stale=0.12,
)


def _many(count: int) -> Ground:
    """Use far more values than a small cache holds, and boundaries of every age: what conflicts
    with one of them is in the cache, was dropped, or is just being dropped.
    """
    numbers = [str(number) for number in range(count)]
    clauses: list[tuple[Clause, ...]] = []
    values: list[Struct] = []
    for here, there in zip(numbers, reversed(numbers), strict=True):
        order = frozenset({f"order_id:{here}"})
        customer = frozenset({f"customer_id:{there}"})
        shelf = frozenset({f"shelf_id:{here}"})
        opened = Clause(frozenset({"Opened"}), order)
        placed = Clause(frozenset({"Placed", "Registered"}), customer)
        clauses += [(opened,), (opened, placed), (Clause(None, shelf),)]
        values += [Opened(here), Placed(here, there), Registered(there), Stocked(here, "b")]
    facts = tuple(SCHEMA.vocabulary.fact(value) for value in values)
    return Ground(tuple(Query(each) for each in clauses), facts, held_max=3, stale=0.6)


MANY = _many(12)
# Handles, and operations in a row. SQLite caches only while one handle writes.
TURNS = {"sqlite": (2, 16), "postgres": (4, 1), "dynamodb": (4, 1)}
KEYS = tuple(Key("tickets", id) for id in ("a", "é", "𐍈"))
ROW = b'{"state":"open"}'


@dataclass(slots=True)
class Client:
    """One client: a store handle, a seeded random generator, and a record of its requests."""

    store: Store
    number: int
    dice: random.Random
    ground: Ground = FEW
    readings: list[Reading] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    held: list[tuple[Reading, Boundary]] = field(default_factory=list)

    def operate(self) -> None:
        """Run one operation: mostly read, decide, commit; sometimes something less usual."""
        chance = self.dice.random()
        if chance < 0.12:
            self.read()
        elif chance < 0.24:
            self.send(self.facts(), ())
        elif self.held and self.dice.random() < self.ground.stale:
            self.send(self.facts(), (self.dice.choice(self.held),))
        elif chance < 0.32:
            self.send((), (self.read(),))
        elif chance < 0.48:
            self.send(self.facts(), (self.read(), self.read()), row=self.dice.choice(KEYS))
        elif chance < 0.68:
            self.send(self.facts(), (self.read(),), row=self.dice.choice(KEYS))
        else:
            self.send(self.facts(), (self.read(),))

    def facts(self) -> tuple[Fact, ...]:
        return tuple(self.dice.choices(self.ground.facts, k=self.dice.randint(1, 3)))

    def read(self) -> tuple[Reading, Boundary]:
        query = self.dice.choice(self.ground.queries)
        invoked = monotonic()
        page = self.store.read(query)
        positions = tuple(event.position for event in page.events)
        reading = Reading(self.number, invoked, monotonic(), query, positions)
        self.readings.append(reading)
        assert page.has_boundary
        self.held = [*self.held[1 - self.ground.held_max :], (reading, page.boundary)]
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
            CommitKey(token, b"digest") if self.dice.random() < 0.3 else None,
        )
        # A second copy, as after a lost answer, returns the result of the first.
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
    """Return a number from the error, or 0 if it has none."""
    found = error.facts[name]
    return found if isinstance(found, int) else 0


def outcome_of(answer: Receipt | TidegateError) -> Outcome:
    """Return what the client records. Raises: the error, if no client should ever get it."""
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


class Queued:
    """A store whose commits go through a group's queue. A full queue is retried."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._group = GroupCommit(store)

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        return tuple(self._commit(commit) for commit in commits)

    def _commit(self, commit: Commit) -> Receipt | TidegateError:
        for _ in range(ASKED_MAX):
            try:
                pending = self._group.submit(commit)
            except StoreUnavailable:
                sleep(0)  # those in the queue need the interpreter
                continue
            error = pending.exception()
            assert error is None or isinstance(error, TidegateError)
            return pending.result() if error is None else error
        raise AssertionError("the queue stays full")

    def close(self) -> None:
        self._group.close()
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


Notes = tuple[list[Reading], list[Attempt]]


@dataclass(frozen=True, slots=True)
class Run:
    """The same work for all clients of a run, each with random choices of its own."""

    clients: int
    operations: int
    ground: Ground = FEW
    seed: int = 0


def client_of(store: Store, number: int, run: Run) -> Client:
    return Client(store, number, random.Random(f"{run.seed}/{number}"), run.ground)


def work(store: Store, number: int, run: Run) -> Notes:
    """Run a client to its end."""
    client = client_of(store, number, run)
    for _ in range(run.operations):
        client.operate()
    return client.readings, client.attempts


def work_apart(address: Address, number: int, run: Run) -> Notes:
    """Do the same with a handle of its own, in a process of its own."""
    with closing(address.open(SCHEMA)) as store:
        return work(store, number, run)


def nothing() -> None:
    """Prepare nothing."""


def whole_log(store: Store) -> tuple[Event, ...]:
    """Read all events, page by page."""
    events: list[Event] = []
    for _ in range(PAGES_MAX):
        page = store.feed(after=events[-1].position if events else 0, limit=PAGE)
        if not page.events:
            return tuple(events)
        events += page.events
    raise AssertionError("the log has no end")


def follow(store: Store, stop: Flag) -> tuple[Position, ...]:
    """Follow the feed while others write, and after the stop until it is empty."""
    positions: list[Position] = []
    while True:
        stopping = stop.is_set()
        page = store.feed(after=positions[-1] if positions else 0, limit=PAGE)
        positions += [event.position for event in page.events]
        if not page.events:
            if stopping:
                return tuple(positions)
            stop.wait(FOLLOW_SECONDS)


def history_of_threads(connect: Callable[[], Store], run: Run, *, handles: int) -> History:
    """Run clients as threads that share some handles, and follow a feed meanwhile."""
    with ExitStack() as opened, ThreadPoolExecutor(run.clients) as pool:
        stores = [opened.enter_context(closing(connect())) for _ in range(handles)]

        def results() -> list[Notes]:
            works = [
                pool.submit(work, stores[number % handles], number, run)
                for number in range(run.clients)
            ]
            return [work.result() for work in works]

        return _watched(connect, results)


def history_in_turns(
    connect: Callable[[], Store], run: Run, *, handles: int, turn_max: int
) -> History:
    """Run clients in one thread. A seed decides which handle is next, and for how many operations
    of its clients, so the same seed gives the same history.
    """
    dice = random.Random(run.seed)
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(connect())) for _ in range(handles)]
        clients = [client_of(stores[n % handles], n, run) for n in range(run.clients)]
        left = run.clients * run.operations
        while left > 0:
            first, turn = dice.randrange(handles), dice.randint(1, turn_max)
            for _ in range(turn):
                dice.choice(clients[first::handles]).operate()
            left -= turn
        return _ended(connect, [(client.readings, client.attempts) for client in clients])


def history_of_processes(
    address: Address, run: Run, *, prepare: Callable[[], None] = nothing
) -> History:
    """Run clients as processes, each with a handle of its own. All begin once each is prepared."""
    ready = CHILDREN.Barrier(run.clients, timeout=START_SECONDS_MAX)

    def results() -> list[Notes]:
        with ProcessPoolExecutor(run.clients, CHILDREN, _begin, (prepare, ready)) as pool:
            works = [pool.submit(work_apart, address, n, run) for n in range(run.clients)]
            return [work.result() for work in works]

    return _watched(lambda: address.open(SCHEMA), results)


def _begin(prepare: Callable[[], None], ready: Barrier) -> None:
    prepare()
    ready.wait()


def _watched(connect: Callable[[], Store], run: Callable[[], list[Notes]]) -> History:
    stop = Flag()
    with ThreadPoolExecutor(1) as pool, closing(connect()) as watching:
        followed = pool.submit(follow, watching, stop)
        try:
            notes = run()
        finally:
            stop.set()
        seen = followed.result()
    return _ended(connect, notes, seen)


def _ended(
    connect: Callable[[], Store], notes: list[Notes], *followed: tuple[Position, ...]
) -> History:
    """Complete the history with a read by a handle that was not open during the run."""
    with closing(connect()) as fresh:
        records = fresh.get(*KEYS)
        return History(
            tuple(reading for readings, _ in notes for reading in readings),
            tuple(attempt for _, attempts in notes for attempt in attempts),
            whole_log(fresh),
            {record.key: record.version for record in records if record is not None},
            followed,
        )
