"""A process whose main thread commits while a signal handler raises in it every half millisecond.

    python -m tests.contract.interrupted_writer FILE direct|grouped SECONDS

Other threads commit at the same time and must not be affected. Prints which commits each thread had
acknowledged.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from threading import Event, Thread
from types import FrameType

from tests.contract.world import SCHEMA, OrderPlaced, commit_of
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import TidegateError, Unknown
from tidegate.kernel.model import Commit, CommitKey, Receipt

INTERVAL_SECONDS = 0.000_5
OTHERS = 3
PATIENCE_SECONDS = 60.0


class Interrupted(Exception):
    """What the signal handler raises."""


class Alarm:
    """Fires all the time, and interrupts a thread only while that thread is armed."""

    def __init__(self) -> None:
        self.is_armed = False
        signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def ring(self, number: int, frame: FrameType | None) -> None:
        if self.is_armed:
            raise Interrupted


class Writers:
    """All committing threads, and the acknowledgements of each."""

    def __init__(self, commit: Callable[[Commit], object], seconds: float) -> None:
        self._commit = commit
        self._seconds = seconds
        self._over = Event()
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.failed: list[str] = []

    def one(self, key: str) -> None:
        try:
            answer = self._commit(commit_of(OrderPlaced(key, "c"), once=CommitKey(key, b"d")))
        except Unknown:
            self.unknown.append(key)  # it was written together with the interrupted commit
            return
        except TidegateError as error:
            answer = error
        if isinstance(answer, Receipt):
            self.acknowledged.append(key)
        elif isinstance(answer, Unknown):
            self.unknown.append(key)
        else:
            self.failed.append(repr(answer))

    def other(self, name: str) -> None:
        number = 0
        while not self._over.is_set():
            self.one(f"{name}-{number}")
            number += 1

    def run(self) -> int:
        """Commit until the time is over. Return how often the main thread was interrupted."""
        threads = [Thread(target=self.other, args=(f"t{n}",), daemon=True) for n in range(OTHERS)]
        for thread in threads:
            thread.start()
        interrupted = tried = 0
        alarm = Alarm()
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            tried += 1
            key = f"main-{tried}"
            try:
                alarm.is_armed = True
                self.one(key)
                alarm.is_armed = False
            except Interrupted:
                alarm.is_armed = False
                interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._over.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a thread still waits"
        return interrupted


def main(path: str, mode: str, seconds: str) -> None:
    with closing(SqliteStore(path, SCHEMA)) as store, closing(GroupCommit(store)) as writer:
        ways: dict[str, Callable[[Commit], object]] = {
            "direct": lambda commit: store.commit(commit)[0],
            "grouped": lambda commit: writer.submit(commit).result(),
        }
        writers = Writers(ways[mode], float(seconds))
        interrupted = writers.run()
        writers.one("last")
        print(
            json.dumps(
                {
                    "interrupted": interrupted,
                    "acknowledged": writers.acknowledged,
                    "unknown": writers.unknown,
                    "failed": writers.failed,
                }
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
