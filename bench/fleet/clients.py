"""One process of several that report into one rollout: a thread per client, a report at a time.

It reads a task from its standard input, prints ``ready``, waits for another line, and prints its
results as JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import msgspec
from msgspec import Struct

from bench.fleet.fleets import FleetAtWork, Wire, at_work, line, reports_of_host
from tidegate.clock import system_clock
from tidegate.errors import Conflict, TidegateError


class Task(Struct, frozen=True):
    """The work of one process."""

    url: str
    home: str
    rollout_id: str
    hosts: tuple[str, ...]
    clients: int


class Sent(Struct, frozen=True):
    """The results; times are of the machine's monotonic clock, which all processes share."""

    reports: int
    conflicts: int
    errors: int
    begun: float
    ended: float
    cpu_seconds: float


def main() -> None:
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    with at_work(task.url, Path(task.home)) as fleet:
        at = system_clock()
        shares = [
            [
                reports_of_host(task.rollout_id, host_id, at)
                for host_id in task.hosts[n :: task.clients]
            ]
            for n in range(task.clients)
        ]
        answers: list[list[TidegateError | None]] = [[] for _ in shares]
        threads = [
            Thread(target=_report, args=(fleet, task.rollout_id, passages, found))
            for passages, found in zip(shares, answers, strict=True)
        ]
        print("ready", flush=True)
        sys.stdin.readline()
        begun, cpu = time.monotonic(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended, spent = time.monotonic(), time.process_time() - cpu
    found = [answer for client in answers for answer in client]
    errors = [answer for answer in found if answer is not None]
    conflicts = sum(isinstance(error, Conflict) for error in errors)
    sent = Sent(len(found), conflicts, len(errors), begun, ended, spent)
    print(msgspec.json.encode(sent).decode())


def _report(
    fleet: FleetAtWork,
    rollout_id: str,
    passages: Sequence[Sequence[Wire]],
    answers: list[TidegateError | None],
) -> None:
    for report in (report for reports in passages for report in reports):
        item, command, meta = line(report)
        try:
            fleet.lanes.record(rollout_id, item, command, meta=meta).result()
        except TidegateError as error:
            answers.append(error)
        else:
            answers.append(None)


if __name__ == "__main__":
    main()
