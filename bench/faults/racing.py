"""Clients that race while faults happen, and the checkers of the responses that they got.

A client that gets *unavailable* tries again. One that gets *unknown* records it. Commits with a key
are sent twice. The checkers are those of the histories: each acknowledged commit is in the log,
once, complete, and where its decision was valid.
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
from tests.differential.history import History, Landed, Moved, RowMoved, Rule, Unknown, anomalies
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
    """Clients at work in threads, each with a store of its own."""

    connect: Connect
    clients: list[Client] = field(default_factory=list)
    away: int = 0  # how often a client got *unavailable*
    pause: float = 0.0  # between two operations of a client
    quiet_seconds: float = 0.0  # after which a reader closes the position of a writer that is gone
    stop: Flag = field(default_factory=Flag)
    lock: Lock = field(default_factory=Lock)

    def landed(self) -> int:
        return sum(len(client.attempts) for client in self.clients)

    def wait_for(self, more: int, seconds_max: float) -> bool:
        """Wait for this many more answered commits; False if they do not come in time."""
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
        """The final state, read through a store that was not open before."""
        with closing(connect()) as fresh:
            records = fresh.get(*KEYS)
            return History(
                tuple(reading for client in self.clients for reading in client.readings),
                tuple(attempt for client in self.clients for attempt in client.attempts),
                _quiet_log(fresh, self.quiet_seconds),
                {record.key: record.version for record in records if record is not None},
            )


def _quiet_log(store: Store, quiet_seconds: float) -> tuple[Event, ...]:
    """All events; a position that a dead writer took is waited for and closed."""
    events: list[Event] = list(whole_log(store))
    for _ in range(QUIET_ROUNDS if quiet_seconds else 0):
        time.sleep(quiet_seconds)
        while page := store.feed(after=events[-1].position if events else 0, limit=50).events:
            events += page
    return tuple(events)


@contextmanager
def racing(connect: Connect, random: Random, count: int, pause: float = 0.0) -> Iterator[Race]:
    """Run this many clients while the block runs."""
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
    """Count what happened, and record violations."""
    for attempt in history.attempts:
        match attempt.outcome:
            case Landed():
                findings.counts["acknowledged"] += 1
            case Moved() | RowMoved():
                findings.counts["conflicts"] += 1
            case Unknown():
                findings.counts["unknown outcomes"] += 1
    has_unknown = findings.counts["unknown outcomes"] > 0
    # If the last writer of a row got no response, this rule sees a lost row; the replay is exact.
    wrong = [
        f"{found.rule}: {found.what}"
        for found in anomalies(history, SCHEMA.vocabulary, one_order=one_order)
        if not (has_unknown and found.rule == Rule.ROW_LOST)
    ]
    wrong += contradictions(history, SCHEMA)
    findings.failures += [what[:400] for what in wrong[:5]]
