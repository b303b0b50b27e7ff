"""The results of a run as a value, and the floors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.fleet.measure import Growth, Rate, Size

PROMISED_HOSTS: Final = 100_000

# The sizes that others are designed for; these are limits, nothing here was measured.
PEERS: Final = {
    "envelope of an older runtime": "256 hosts, 8 open rollouts",
    "envelope of another peer": "20,000 hosts a group, 5,000 a transaction",
}


class Results(Struct, frozen=True):
    """One run."""

    at: str
    machine: dict[str, str]
    reports: dict[str, Rate]  # by engine and way: "sqlite, in batches", …
    stages: dict[str, float]  # CPU microseconds of a report
    growth: tuple[tuple[Growth, ...], ...]  # round by round: small rollouts, a large one
    size: Size
    rebuilt_facts: int
    rebuilt_seconds: float

    @property
    def growths(self) -> list[float]:
        """For each round, the cost of a later report in the large rollout ÷ that in a small one."""
        return [large.later / small.later for small, large in self.growth]

    @property
    def rebuilt_per_second(self) -> float:
        return self.rebuilt_facts / self.rebuilt_seconds

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


class Floor(Struct, frozen=True):
    """One floor with the figure found."""

    text: str
    bound: float
    found: float
    at_least: bool = True

    @property
    def reached(self) -> bool:
        return self.found >= self.bound if self.at_least else self.found <= self.bound


def floors(results: Results) -> tuple[Floor, ...]:
    """The floors for which the run has figures."""
    found: list[Floor] = []
    for name, bound in (("sqlite, in batches", 5_000), ("postgres, in batches", 2_500)):
        if (rate := results.reports.get(name)) is not None:
            found.append(Floor(f"{name}, reports/s", bound, rate.per_second))
    batches = results.reports["sqlite, in batches"]
    found.append(Floor("sqlite, in batches, facts/s", 10_000, batches.facts_per_second))
    single = results.reports["sqlite, one by one"]
    return (
        *found,
        Floor("sqlite, one by one, reports/s", 2_500, single.per_second),
        Floor("sqlite, one by one, answered by a conflict", 0, single.conflicts, at_least=False),
        Floor("opening, s", 2, results.size.open_seconds, at_least=False),
        Floor("opening, facts", 10, results.size.open_facts, at_least=False),
        Floor("plan pass, nobody ordered, s", 1, results.size.fresh_pass_seconds, at_least=False),
        Floor("plan pass, everybody ordered, s", 1, results.size.full_pass_seconds, at_least=False),
        Floor("CPU of a later report, large ÷ small", 1.5, min(results.growths), at_least=False),
        Floor("rebuild of all views, facts/s", 20_000, results.rebuilt_per_second),
    )
