"""Measure our engines and their peers, print tables, and write them into the docs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random

from bench import options
from bench.speed import memory, report, rounds
from bench.speed.contender import Contender
from bench.speed.databases import Databases, serving
from bench.speed.eventsourcing_recorder import Eventsourcing
from bench.speed.log_cache import LogCache
from bench.speed.machine import described
from bench.speed.measure import Work
from bench.speed.ours import Memory, Postgres, Sqlite
from bench.speed.results import Results, by_name
from bench.speed.umadb_server import Umadb
from bench.speed.workload import Layout

MEMORY = "memory"  # besides the works: the resident memory of a process that appends


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    events: int
    rounds: int
    seconds: float
    contenders: tuple[str, ...]
    writes_page: bool


PEERS = ("sqlite", "postgres", "umadb", "eventsourcing")
MODES = {
    "ci": Mode(20_000, 2, 0.1, PEERS, writes_page=False),
    "long": Mode(1_000_000, 5, 1.0, (*PEERS, "umadb-tuned"), writes_page=True),
}


class Stable:
    """Creates contenders by name; starts a database server when the first one needs it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.log_cache = LogCache(home)
        self._stack = stack

    def contender(self, name: str) -> Contender:
        makers: dict[str, Callable[[], Contender]] = {
            "memory": Memory,
            "sqlite": lambda: Sqlite(self.log_cache),
            "postgres": lambda: Postgres(self._databases),
            "umadb": lambda: Umadb(self.log_cache),
            "umadb-tuned": lambda: Umadb(self.log_cache, tuned=True),
            "eventsourcing": lambda: Eventsourcing(self._databases),
        }
        return makers[name]()

    @cached_property
    def _databases(self) -> Databases:
        return self._stack.enter_context(serving(self.log_cache.home / "postgres"))


NAMES = ("memory", *PEERS, "umadb-tuned")


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    with ExitStack() as stack:
        stable = Stable(asked.state, stack)
        results = _measured(asked, stable)
    print(report.text(results))
    results.save(asked.state / "results.json")
    if asked.page is not None:
        report.write(asked.page, results)
    return 0


def _measured(asked: argparse.Namespace, stable: Stable) -> Results:
    layout = Layout(asked.events)
    contenders = [stable.contender(name) for name in asked.only]
    works = frozenset(Work(work) for work in asked.work if work != MEMORY)
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = described(stable.log_cache.home)
    samples = rounds.run(
        contenders,
        works,
        layout,
        rounds=asked.rounds,
        seconds=asked.seconds,
        random=Random(asked.seed),
        say=options.say,
    )
    marks = None
    if MEMORY in asked.work and "sqlite" in asked.only:
        options.say(f"resident memory over {asked.events:,} appends")
        marks = memory.grown(stable.log_cache, asked.events)
    return Results(
        at=at,
        machine=machine,
        events=layout.events,
        rounds=asked.rounds,
        seconds=asked.seconds,
        titles={contender.name: contender.title for contender in contenders},
        samples=by_name(samples),
        memory=marks,
    )


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    works = [*map(str, Work), MEMORY]
    parser = options.make_parser("speed", __doc__)
    options.add_modes(parser, MODES, "sets the defaults of the other options")
    add = parser.add_argument
    add("--events", type=int, help="size of the filled log")
    add("--rounds", type=int, help="rounds; the best one counts")
    add("--seconds", type=float, help="length of one cell")
    add("--only", type=_listed(NAMES), help=f"some of {', '.join(NAMES)}")
    add("--work", type=_listed(works), default=works, help=f"some of {', '.join(works)}")
    add("--seed", type=int, default=1, help="decides the order and the tags")
    asked = parser.parse_args(arguments)
    mode = MODES[asked.mode]
    whole = asked.events is None and asked.only is None and asked.work == works
    for name, default in (
        ("events", mode.events),
        ("rounds", mode.rounds),
        ("seconds", mode.seconds),
        ("only", mode.contenders),
        ("page", options.PAGE if mode.writes_page and whole else None),
    ):
        if getattr(asked, name) is None:
            setattr(asked, name, default)
    asked.state.mkdir(parents=True, exist_ok=True)
    return asked


def _listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    def listed(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return names

    return listed
