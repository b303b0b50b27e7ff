"""What is timed: reports in batches and one by one, and what grows with the fleet."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median

import msgspec
from msgspec import Struct

from bench.fleet import stages
from bench.fleet.clients import Sent, Task
from bench.fleet.fleets import (
    BATCH,
    REPORTS_PER_HOST,
    FleetAtWork,
    Here,
    Wire,
    at_work,
    channel_name,
    host_names,
    line,
    reports_of_host,
    rollout_of,
    sqlite_url,
)
from tidegate.clock import system_clock
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.dispatch_pass import survey
from tidegate.kernel.replay import rebuild

CLIENTS = 32
PROCESSES = 2
SMALL = 100  # hosts of the rollouts that a large one is compared with
PASSES = 3  # plan passes, of which the median is kept
FEED_PAGE = 10_000

Say = Callable[[str], None]


class Rate(Struct, frozen=True):
    """Reports that became durable."""

    reports: int
    facts: int
    seconds: float
    cpu_seconds: float  # of the processes that report, which contain all of Tidegate
    conflicts: int = 0  # reports answered with a conflict
    errors: int = 0  # reports answered with anything other than success

    @property
    def per_second(self) -> float:
        return self.reports / self.seconds

    @property
    def facts_per_second(self) -> float:
        return self.facts / self.seconds

    @property
    def microseconds(self) -> float:
        """CPU time of a report."""
        return self.cpu_seconds / self.reports * 1e6


class Growth(Struct, frozen=True):
    """CPU microseconds of a report in rollouts of one size, first reports separately."""

    hosts: int
    first: float
    later: float


class Crowd(Struct, frozen=True):
    """Rollouts of one size, and the hosts of each that report, round by round."""

    home: Path
    hosts: int  # of each rollout
    rounds: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
    random: Random  # in which order they report


class Size(Struct, frozen=True):
    """What a rollout over many hosts costs at once."""

    hosts: int
    open_seconds: float
    open_facts: int
    fresh_pass_seconds: float  # before any host has an order
    full_pass_seconds: float  # when every host has one


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


def in_batches(url: str, home: Path, hosts: int) -> Rate:
    """One client that sends 100 reports at a time and waits for the responses."""
    with at_work(url, home) as fleet:
        rollout_id = _ordered(fleet, hosts)
        rounds = _rounds(rollout_id, host_names(channel_name(0), hosts))
        before = _head(fleet)
        gc.collect()
        begun, cpu = time.perf_counter(), time.process_time()
        for reports in rounds:
            _send(fleet, rollout_id, reports)
        seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
        _demand_converged(fleet, rollout_id, hosts)
        return Rate(REPORTS_PER_HOST * hosts, _head(fleet) - before, seconds, spent)


def one_by_one(url: str, home: Path, hosts: int) -> Rate:
    """Many clients in two processes, all in one rollout, each with hosts of its own. A client sends
    a report and waits for the response.
    """
    with at_work(url, home) as fleet:
        rollout_id = _ordered(fleet, hosts)
        before = _head(fleet)
        sent = _run_clients(url, home, rollout_id, host_names(channel_name(0), hosts))
        _demand_converged(fleet, rollout_id, hosts - sum(item.errors for item in sent))
        return Rate(
            sum(item.reports for item in sent),
            _head(fleet) - before,
            max(item.ended for item in sent) - min(item.begun for item in sent),
            sum(item.cpu_seconds for item in sent),
            sum(item.conflicts for item in sent),
            sum(item.errors for item in sent),
        )


def _run_clients(url: str, home: Path, rollout_id: str, hosts: Sequence[str]) -> list[Sent]:
    """Start the processes, wait until each is ready, then start all of them at once."""
    processes = []
    for number in range(PROCESSES):
        task = Task(
            url, str(home), rollout_id, tuple(hosts[number::PROCESSES]), CLIENTS // PROCESSES
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.fleet.clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        process.stdin.flush()
        processes.append(process)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "a client could not start"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return [msgspec.json.decode(process.communicate()[0], type=Sent) for process in processes]


def by_stage(home: Path, hosts: int) -> dict[str, float]:
    """CPU microseconds of a report in each stage, in batches, on SQLite."""
    with at_work(sqlite_url(home), home, Here()) as fleet:
        rollout_id = _ordered(fleet, hosts)
        rounds = _rounds(rollout_id, host_names(channel_name(0), hosts))
        batches = [_batches(reports) for reports in rounds]
        seconds = stages.measured(fleet, [batch for batch_list in batches for batch in batch_list])
    return {stage: 1e6 * spent / (REPORTS_PER_HOST * hosts) for stage, spent in seconds.items()}


# ── growth ────────────────────────────────────────────────────────────────────────────────────────


def growth(crowds: Sequence[Crowd]) -> list[tuple[Growth, ...]]:
    """CPU of reports in rollouts of different sizes, in one thread. The sizes take turns, round by
    round, so that a busy minute affects all alike. The fleets are filled before.
    """
    with ExitStack() as stack:
        fleets = [
            stack.enter_context(at_work(sqlite_url(crowd.home), crowd.home, Here()))
            for crowd in crowds
        ]
        return [
            tuple(_spent(*pair, number) for pair in zip(fleets, crowds, strict=True))
            for number in range(min(len(crowd.rounds) for crowd in crowds))
        ]


def crowd(
    home: Path, rollouts: int, hosts: int, reporting: int, rounds: int, random: Random
) -> Crowd:
    """Pick this many hosts at random: whole rollouts, or parts of one, in each round."""
    parts = []
    for number in range(rollouts):
        channel = channel_name(number)
        names = random.sample(host_names(channel, hosts), reporting)
        slices = 1 if rollouts >= rounds else rounds
        parts += [(rollout_of(channel), tuple(names[start::slices])) for start in range(slices)]
    return Crowd(home, hosts, tuple(tuple(parts[start::rounds]) for start in range(rounds)), random)


def _spent(fleet: FleetAtWork, crowd: Crowd, number: int) -> Growth:
    first = later = 0.0
    count = 0
    for rollout_id, names in crowd.rounds[number]:
        count += len(names)
        for turn, reports in enumerate(_rounds(rollout_id, names)):
            shuffled = crowd.random.sample(reports, len(reports))
            cpu = time.process_time()
            _send(fleet, rollout_id, shuffled)
            spent = time.process_time() - cpu
            first, later = (first, later + spent) if turn else (first + spent, later)
    return Growth(crowd.hosts, 1e6 * first / count, 1e6 * later / (count * (REPORTS_PER_HOST - 1)))


def fill(home: Path, rollouts: int, hosts: int, say: Say) -> Size:
    """Open rollouts of this many hosts, and order all of them; return what the first one cost."""
    with at_work(sqlite_url(home), home) as fleet:
        fleet.offer()
        sizes = [_filled(fleet, channel_name(number), hosts, say) for number in range(rollouts)]
    return sizes[0]


def _filled(fleet: FleetAtWork, channel: str, hosts: int, say: Say) -> Size:
    fleet.enroll(channel, host_names(channel, hosts))
    gc.collect()
    begun = time.perf_counter()
    facts = fleet.open(channel)
    seconds = time.perf_counter() - begun
    fresh = _pass_seconds(fleet, rollout_of(channel), hosts)
    if hosts > SMALL:
        say(f"orders for {hosts:,} hosts")
    fleet.order()
    full = _pass_seconds(fleet, rollout_of(channel), 0)
    return Size(hosts, seconds, facts, fresh, full)


def _pass_seconds(fleet: FleetAtWork, rollout_id: str, waiting: int) -> float:
    """The time to read the fleet and check every gate for every host; the orders are not sent."""
    took = []
    for _ in range(PASSES):
        begun = time.perf_counter()
        found = survey(fleet.fleet_reader.state([rollout_id], system_clock()), rollout_id)
        took.append(time.perf_counter() - begun)
        assert found.waiting == waiting, "the pass counts the waiting hosts"
    return median(took)


def rebuilding(home: Path) -> tuple[int, float]:
    """The number of facts, and the seconds to rebuild all views from them."""
    with at_work(sqlite_url(home), home) as fleet:
        facts = _head(fleet)
        gc.collect()
        begun = time.perf_counter()
        rebuild(fleet.store, FOLDS, *FOLDS.folds)
        return facts, time.perf_counter() - begun


# ── rollouts ──────────────────────────────────────────────────────────────────────────────────────


def _ordered(fleet: FleetAtWork, hosts: int) -> str:
    """Open a rollout and order all its hosts; return its id."""
    channel = channel_name(0)
    fleet.offer()
    fleet.enroll(channel, host_names(channel, hosts))
    fleet.open(channel)
    fleet.order()
    return rollout_of(channel)


def _rounds(rollout_id: str, hosts: Sequence[str]) -> list[list[Wire]]:
    """Every host's first report, then every host's second one, and so on."""
    at = system_clock()
    passages = [reports_of_host(rollout_id, host_id, at) for host_id in hosts]
    return [[reports[turn] for reports in passages] for turn in range(REPORTS_PER_HOST)]


def _batches(reports: Sequence[Wire]) -> list[Sequence[Wire]]:
    return [reports[start : start + BATCH] for start in range(0, len(reports), BATCH)]


def _send(fleet: FleetAtWork, rollout_id: str, reports: Sequence[Wire]) -> None:
    for batch in _batches(reports):
        fleet.record(rollout_id, [line(report) for report in batch])


def _head(fleet: FleetAtWork) -> int:
    """The number of facts in the log: its positions have no gaps, except commits without facts."""
    count, after = 0, 0
    while events := fleet.store.feed(after=after, limit=FEED_PAGE).events:
        count, after = count + len(events), events[-1].position
    return count


def _demand_converged(fleet: FleetAtWork, rollout_id: str, hosts: int) -> None:
    tally = fleet.fleet_reader.tally(rollout_id).row
    found = sum(sum(wave.states.values()) for wave in tally.waves)
    assert found >= hosts, f"{found} of {hosts} hosts are counted in {rollout_id}"
