"""Fill a fleet, measure reports and its size, print tables, and write them into the docs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from bench import options
from bench.fleet import measure, report
from bench.fleet.fleets import sqlite_url
from bench.fleet.measure import SMALL, Growth, Rate, Size
from bench.fleet.results import Results
from bench.speed.databases import Databases, serving
from bench.speed.log_cache import LogCache
from bench.speed.machine import described


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    hosts: int  # of the large fleet
    reporting: int  # hosts that report, where a rate is measured
    rounds: int  # of every rate; the best is kept
    writes_page: bool


MODES = {"ci": Mode(2_000, 500, 1, False), "long": Mode(100_000, 5_000, 5, True)}


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    log_cache = LogCache(asked.state)
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = described(log_cache.home)
    with _databases(log_cache, asked.sqlite_only) as databases:
        reports = _reports(log_cache, databases, asked.reporting, asked.rounds)
    options.say("CPU by stage")
    with log_cache.copy() as home:
        stages = measure.by_stage(home, asked.reporting)
    random = Random(asked.seed)
    size, growth, rebuilt = _sizes(log_cache, asked.hosts, asked.reporting, asked.rounds, random)
    results = Results(at, machine, reports, stages, tuple(growth), size, *rebuilt)
    print(report.text(results))
    results.save(asked.state / "fleet.json")
    if asked.page is not None:
        report.write(asked.page, results)
    return 0


def _databases(log_cache: LogCache, sqlite_only: bool) -> AbstractContextManager[Databases | None]:
    return nullcontext() if sqlite_only else serving(log_cache.home / "postgres")


def _reports(
    log_cache: LogCache, databases: Databases | None, hosts: int, rounds: int
) -> dict[str, Rate]:
    """The best round of each; they take turns, so that a busy minute affects all alike."""
    best: dict[str, Rate] = {}

    def run(name: str, measured: Callable[[str, Path, int], Rate], url: str, home: Path) -> None:
        options.say(name)
        rate = measured(url, home, hosts)
        if name not in best or rate.per_second > best[name].per_second:
            best[name] = rate

    for _ in range(rounds):
        for name, measured in (
            ("in batches", measure.in_batches),
            ("one by one", measure.one_by_one),
        ):
            with log_cache.copy() as home:
                run(f"sqlite, {name}", measured, sqlite_url(home), home)
            if databases is not None:
                with log_cache.copy() as home, databases.copy() as url:
                    run(f"postgres, {name}", measured, url, home)
    return best


def _sizes(
    log_cache: LogCache, hosts: int, reporting: int, rounds: int, random: Random
) -> tuple[Size, list[tuple[Growth, ...]], tuple[int, float]]:
    """Many small rollouts, and one large one; the same number of hosts report in each kind."""
    with log_cache.copy() as small, log_cache.copy() as large:
        options.say(f"rollouts of {SMALL} hosts")
        rollouts = max(reporting // SMALL, 1)
        measure.fill(small, rollouts, SMALL, options.say)
        options.say(f"a rollout of {hosts:,} hosts")
        size = measure.fill(large, 1, hosts, options.say)
        options.say("reports in both, in turns")
        crowds = (
            measure.crowd(small, rollouts, SMALL, SMALL, rounds, random),
            measure.crowd(large, 1, hosts, min(reporting, hosts), rounds, random),
        )
        grown = measure.growth(crowds)
        options.say("rebuild of all views")
        return size, grown, measure.rebuilding(large)


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = options.make_parser("fleet", __doc__)
    options.add_modes(parser, MODES, "sets the defaults of the other options")
    add = parser.add_argument
    add("--hosts", type=int, help="number of hosts in the large fleet")
    add("--reporting", type=int, help="number of hosts that report when a rate is measured")
    add("--rounds", type=int, help="rounds for every rate; the best one counts")
    add("--seed", type=int, default=1, help="decides which hosts report, and in which order")
    add("--sqlite-only", action="store_true", help="without PostgreSQL")
    asked = parser.parse_args(arguments)
    mode = MODES[asked.mode]
    whole = asked.hosts is asked.reporting is asked.rounds is None and not asked.sqlite_only
    for name, default in (
        ("hosts", mode.hosts),
        ("reporting", mode.reporting),
        ("rounds", mode.rounds),
        ("page", options.PAGE if mode.writes_page and whole else None),
    ):
        if getattr(asked, name) is None:
            setattr(asked, name, default)
    if min(asked.hosts, asked.reporting, asked.rounds) < 1:
        parser.error("--hosts, --reporting and --rounds are at least 1")
    return asked
