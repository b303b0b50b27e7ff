"""Clients that race while faults go on, and the checkers that judge what they were told.

A client that is told that the store is away asks again. One that is told that the outcome is
unknown writes that down. Commits with a key are sent twice. The checkers are those of the
histories: each acknowledged commit is in the log, once, whole, where its decision was right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event as Flag, Lock

from bench.trials import Findings
from tests.differential.clients import FEW, KEYS, Client, whole_log
from tests.differential.history import (
    History,
    Landed,
    Moved,
    RowMoved,
    Rule,
    Unknown,
    anomalies,
)
from tests.differential.replaying import contradictions
from tests.differential.world import SCHEMA
from tidegate.errors import OutcomeUnknown, StoreUnavailable
from tidegate.kernel.model import Event
from tidegate.kernel.store import Store

AWAY_SECONDS = 0.02
QUIET_ROUNDS = 4
JOIN_SECONDS_MAX = 120.0

Connect = Callable[[], Store]


@dataclass
class Race:
    """Clients at work in threads, each with a handle of its own."""

    connect: Connect
    clients: list[Client] = field(default_factory=list)
    away: int = 0  # how often a client was told so
    pause: float = 0.0  # between two operations of a client
    quiet_seconds: float = 0.0  # after which a reader closes the place of a writer that is gone
    stop: Flag = field(default_factory=Flag)
    lock: Lock = field(default_factory=Lock)

    def landed(self) -> int:
        return sum(len(client.attempts) for client in self.clients)

    def wait_for(self, more: int, seconds_max: float) -> bool:
        """Whether so many more commits were answered in time."""
        wanted, deadline = self.landed() + more, time.monotonic() + seconds_max
        while self.landed() < wanted:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def work(self, client: Client) -> None:
        while not self.stop.is_set():
            try:
                client.operate()
            except (StoreUnavailable, OutcomeUnknown):
                with self.lock:
                    self.away += 1
                self.stop.wait(AWAY_SECONDS)
            self.stop.wait(self.pause)

    def history(self, connect: Connect) -> History:
        """What is known in the end, by a handle that was not open before."""
        with closing(connect()) as fresh:
            records = fresh.get(*KEYS)
            return History(
                tuple(reading for client in self.clients for reading in client.readings),
                tuple(attempt for client in self.clients for attempt in client.attempts),
                _quiet_log(fresh, self.quiet_seconds),
                {record.key: record.version for record in records if record is not None},
            )


def _quiet_log(store: Store, quiet_seconds: float) -> tuple[Event, ...]:
    """All events: a place that a dead writer took is waited for, and closed."""
    events: list[Event] = list(whole_log(store))
    for _ in range(QUIET_ROUNDS if quiet_seconds else 0):
        time.sleep(quiet_seconds)
        while page := store.feed(after=events[-1].position if events else 0, limit=50).events:
            events += page
    return tuple(events)


@contextmanager
def racing(connect: Connect, random: Random, count: int, pause: float = 0.0) -> Iterator[Race]:
    """So many clients, at work while the block runs."""
    race = Race(connect, pause=pause)
    with ExitStack() as opened, ThreadPoolExecutor(count) as pool:
        for number in range(count):
            store = opened.enter_context(closing(connect()))
            race.clients.append(Client(store, number, Random(random.random()), FEW))
        works = [pool.submit(race.work, client) for client in race.clients]
        try:
            yield race
        finally:
            race.stop.set()
            for work in works:
                work.result(JOIN_SECONDS_MAX)


def judge(history: History, findings: Findings, *, one_order: bool) -> None:
    """Count what happened, and note what must not have."""
    for attempt in history.attempts:
        match attempt.outcome:
            case Landed():
                findings.counts["acknowledged"] += 1
            case Moved() | RowMoved():
                findings.counts["conflicts"] += 1
            case Unknown():
                findings.counts["unknown outcomes"] += 1
    has_unknown = findings.counts["unknown outcomes"] > 0
    # A row whose last writer never heard back seems lost to this one rule; the replay knows better.
    wrong = [
        f"{found.rule}: {found.what}"
        for found in anomalies(history, SCHEMA.vocabulary, one_order=one_order)
        if not (has_unknown and found.rule == Rule.ROW_LOST)
    ]
    wrong += contradictions(history, SCHEMA)
    findings.failures += [what[:400] for what in wrong[:5]]
