"""The results of a run, and the floors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

MIB = 1024 * 1024
FLAT_SHARE = 1.1  # of the private memory at half time
PROMISED_AGENTS = 10_000


def at_share(times: Sequence[float], share: float) -> float:
    """The time that this share of them does not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Cost(Struct, frozen=True):
    """What a request costs its server, how many were answered, how long a client waited."""

    cpu_microseconds: float
    per_second: float
    median_ms: float
    tail_ms: float
    requests: int

    @classmethod
    def of(cls, cpu: float, seconds: float, took: Sequence[float]) -> Self:
        count = len(took)
        return cls(
            cpu / count * 1e6,
            count / seconds,
            at_share(took, 0.5) * 1e3,
            at_share(took, 0.99) * 1e3,
            count,
        )


class Running(Struct, frozen=True, kw_only=True):
    """A rollout that reaches polling agents."""

    agents: int
    every: float
    ordered: int
    polls: int
    poll_median_ms: float
    poll_tail_ms: float
    report_median_ms: float
    report_tail_ms: float
    cpu_share: float  # of one core
    resident_mib: tuple[float, ...]  # at the start, after each quarter
    private_mib: tuple[float, ...]

    @classmethod
    def of(
        cls,
        *,
        agents: int,
        every: float,
        ordered: int,
        polls: Sequence[float],
        reports: Sequence[float],
        cpu_share: float,
        memory: Sequence[tuple[int, int]],
    ) -> Self:
        marks = [memory[min(len(memory) - 1, len(memory) * n // 4)] for n in range(5)]
        return cls(
            agents=agents,
            every=every,
            ordered=ordered,
            polls=len(polls),
            poll_median_ms=at_share(polls, 0.5) * 1e3,
            poll_tail_ms=at_share(polls, 0.99) * 1e3,
            report_median_ms=at_share(reports, 0.5) * 1e3,
            report_tail_ms=at_share(reports, 0.99) * 1e3,
            cpu_share=cpu_share,
            resident_mib=tuple(resident / MIB for resident, _ in marks),
            private_mib=tuple(private / MIB for _, private in marks),
        )


class Following(Struct, frozen=True):
    """Subscribers that follow the log."""

    subscribers: int
    events: int  # for each of them
    cpu_microseconds: float  # of one event for one subscriber
    last_milliseconds: float  # from the last report's response to the last subscriber


class Results(Struct, frozen=True):
    """One run."""

    at: str
    machine: dict[str, str]
    report: Cost
    poll: Cost
    frames: dict[str, float]  # CPU microseconds of a report
    running: Running
    following: Following

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


class Floor(Struct, frozen=True):
    """One floor with the figure found."""

    text: str
    bound: float
    found: float
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.found >= self.bound if self.at_least else self.found <= self.bound


def floors(results: Results) -> tuple[Floor, ...]:
    private = results.running.private_mib
    return (
        Floor("server's CPU per durable single report, µs", 300, results.report.cpu_microseconds),
        Floor("server's CPU per unchanged poll, µs", 100, results.poll.cpu_microseconds),
        Floor("reports/s", 2_000, results.report.per_second, at_least=True),
        Floor("polls/s", 5_000, results.poll.per_second, at_least=True),
        Floor("poll while a rollout runs, p99 in ms", 50, results.running.poll_tail_ms),
        Floor("private memory at the end ÷ at half time", FLAT_SHARE, private[-1] / private[2]),
    )
