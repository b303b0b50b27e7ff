"""One cell of the tables: one kind of work on one log by some clients, for a second or so."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from random import Random
from statistics import median
from threading import Barrier, Thread
from typing import cast

from msgspec import Struct
from msgspec.structs import asdict

from bench.speed.contender import Client, Log, RowClient
from bench.speed.processes import cpu_seconds
from bench.speed.workload import BATCHES, CLIENTS, READS, Condition, Entry, Layout

PREPARED = 2_000  # events that a client prepares: their creation is not measured
WARM_UP_OPERATIONS = 5  # per client: connections, prepared statements, caches
WARM_UP_SECONDS_MAX = 0.2


class Work(StrEnum):
    """The operation that is repeated."""

    APPEND = "append"  # one event under a condition; size = clients
    READ = "read"  # all events under a tag; size = events
    BATCH = "batch"  # several events under a condition; size = events in one commit
    ALONE = "alone"  # as APPEND, measured together with ROWS
    ROWS = "rows"  # as APPEND, with a state row, an outbox row and an idempotency key

    @property
    def needs_rows(self) -> bool:
        """Whether only a store that keeps rows next to its log takes part."""
        return self in (Work.ALONE, Work.ROWS)


@dataclass(frozen=True, order=True)
class Cell:
    """Which work, on which log, at which size."""

    work: Work
    filled: bool
    size: int

    def __str__(self) -> str:
        return f"{self.work}/{'filled' if self.filled else 'empty'}/{self.size}"


class Sample(Struct, frozen=True):
    """The figures of one round of a cell. An operation is a commit or a read."""

    operations: int
    rate: float  # operations per second
    median: float  # microseconds of one operation, as its client waits for it
    p99: float
    client_cpu: float  # microseconds of CPU per operation in the clients' process
    server_cpu: float  # the same in the server, 0 where there is none


Operation = Callable[[], None]


def best(samples: Sequence[Sample]) -> Sample:
    """The best round of every figure: other load on the machine only slows a round down."""
    figures = {
        name: min(getattr(sample, name) for sample in samples)
        for name in ("median", "p99", "client_cpu", "server_cpu")
    }
    fastest = max(samples, key=lambda sample: sample.rate)
    return Sample(**{**asdict(fastest), **figures})


def cells(works: frozenset[Work]) -> list[Cell]:
    """The cells of these works, in the order in which a round visits them."""
    found = [Cell(Work.APPEND, filled, size) for filled in (False, True) for size in CLIENTS]
    found += [Cell(Work.READ, True, size) for size in READS]
    found += [Cell(Work.BATCH, True, size) for size in BATCHES]
    found += [Cell(work, True, size) for size in CLIENTS for work in (Work.ALONE, Work.ROWS)]
    return [cell for cell in found if cell.work in works]


def measure(cell: Cell, log: Log, layout: Layout, seconds: float, random: Random) -> Sample:
    """Run the cell's work for this long. Raises: ConditionFailed, AssertionError: wrong answers."""
    if cell.work is Work.READ:
        return _run([_reader(cell, log, layout, random)], log, seconds)
    clients = 1 if cell.work is Work.BATCH else cell.size
    appenders = [_Appender(cell, log, layout, (n, clients), random) for n in range(clients)]
    sample = _run(appenders, log, seconds)
    _check_nothing_lost(appenders)
    return sample


class _Appender:
    """One client that appends under a condition, having seen up to its own last commit."""

    def __init__(
        self, cell: Cell, log: Log, layout: Layout, place: tuple[int, int], random: Random
    ) -> None:
        client = log.client()
        self._append = _appending(cell.work, client)
        self._size = cell.size if cell.work is Work.BATCH else 1
        self._layout = layout
        self._place = place
        self._random = Random(random.random())
        self._prepared = cycle([self._entries() for _ in range(PREPARED // self._size or 1)])
        self.before = client.head(self._entries()[0].tags)
        self.position = self.before
        self.appended = 0

    def __call__(self) -> None:
        entries = next(self._prepared)
        condition = Condition(entries[0].tags, self.position)
        self.position = self._append(entries, condition)
        self.appended += len(entries)

    def _entries(self) -> list[Entry]:
        client, clients = self._place
        return self._layout.appended(client, clients, self._random, self._size)


def _appending(work: Work, client: Client) -> Callable[[Sequence[Entry], Condition], int]:
    if work is Work.ROWS:
        return cast(RowClient, client).append_with_rows
    return client.append


def _check_nothing_lost(appenders: Sequence[_Appender]) -> None:
    """Positions have no gaps on any contender: the head moved by the acknowledged events."""
    moved = max(item.position for item in appenders) - min(item.before for item in appenders)
    appended = sum(item.appended for item in appenders)
    assert moved == appended, f"{appended} events were acknowledged, the head moved by {moved}"


def _reader(cell: Cell, log: Log, layout: Layout, random: Random) -> Operation:
    client = log.client()
    whole = layout.events_under(cell.size)

    def read() -> None:
        found = client.read(layout.read_tag(cell.size, random))
        assert found == whole, f"{found} events were read, there are {whole}"

    return read


def _run(operations: Sequence[Operation], log: Log, seconds: float) -> Sample:
    """Repeat each operation in a thread of its own until the time is over."""
    stopwatch = _Stopwatch(log.server, seconds)
    start = Barrier(len(operations), action=stopwatch.start)
    failures: list[BaseException] = []

    def client(operation: Operation, took: list[int]) -> None:
        try:
            _warm_up(operation, min(seconds, WARM_UP_SECONDS_MAX))
            start.wait()
            while not took or time.perf_counter() < stopwatch.deadline:
                begun = time.perf_counter_ns()
                operation()
                took.append(time.perf_counter_ns() - begun)
        except Exception as error:  # noqa: BLE001 - it is raised below, where it is waited for
            failures.append(error)
            start.abort()

    times: list[list[int]] = [[] for _ in operations]
    threads = [Thread(target=client, args=pair) for pair in zip(operations, times, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return stopwatch.stop([took for client_times in times for took in client_times])


def _warm_up(operation: Operation, seconds_max: float) -> None:
    enough = time.perf_counter() + seconds_max
    for _ in range(WARM_UP_OPERATIONS):
        operation()
        if time.perf_counter() > enough:
            break


class _Stopwatch:
    """Wall time and CPU time from the moment when all clients are ready."""

    def __init__(self, server: int | None, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self.deadline = 0.0

    def start(self) -> None:
        gc.collect()
        self._server_cpu = self._server_seconds()
        self._client_cpu = time.process_time()
        self._begun = time.perf_counter()
        self.deadline = self._begun + self._seconds

    def stop(self, times: list[int]) -> Sample:
        """The sample of these operations, each in nanoseconds."""
        client_cpu = time.process_time() - self._client_cpu
        wall = time.perf_counter() - self._begun
        server_cpu = self._server_seconds() - self._server_cpu
        count = len(times)
        return Sample(
            operations=count,
            rate=count / wall,
            median=median(times) / 1e3,
            p99=sorted(times)[(count * 99 - 1) // 100] / 1e3,
            client_cpu=client_cpu / count * 1e6,
            server_cpu=server_cpu / count * 1e6,
        )

    def _server_seconds(self) -> float:
        return 0.0 if self._server is None else cpu_seconds(self._server)
