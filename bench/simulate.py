"""Run seeded fleets with faults on all cores.

    ci      500 seeds, as in the test suite
    long    20,000 seeds and at least 5 million events: hours

A seed that fails is printed with the reason, and makes the run fail; the seed alone repeats it. If
you stop the run early, or set `--minutes`, you get the figures of the seeds that ran.
`TIDEGATE_PLANTED_BUG` plants one of the bugs of `tests.simulation.mutants`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from tests.simulation.mutants import planted
from tidegate.simulate.scenario import SimulationResult, draw_scenario
from tidegate.simulate.world import World

CHUNK = 20  # seeds that a process gets at once
AHEAD = 2  # chunks per process that wait for their turn
SAID_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    seeds: int
    events: int  # at least


MODES = {"ci": Mode(500, 100_000), "long": Mode(20_000, 5_000_000)}


@dataclass
class Sum:
    """The sum of some seeds' figures."""

    seeds: int = 0
    ran: set[int] = field(default_factory=set)
    events: int = 0
    host_events: int = 0
    cpu_seconds: float = 0.0
    broken: list[tuple[int, str]] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)  # of rollouts, at the end

    def add(self, other: Sum) -> None:
        self.seeds += other.seeds
        self.ran |= other.ran
        self.events += other.events
        self.host_events += other.host_events
        self.cpu_seconds += other.cpu_seconds
        self.broken += other.broken
        self.states.update(other.states)


def run(seeds: Sequence[int]) -> Sum:
    """Run these seeds, one after another."""
    return run_each(seeds, lambda seed: World(draw_scenario(seed)).run())


def run_each(seeds: Sequence[int], play_one: Callable[[int], SimulationResult]) -> Sum:
    """Run these seeds, one after another, each to its end; return the sum."""
    found = Sum()
    began = time.process_time()
    with planted():
        for seed in seeds:
            try:
                ended = play_one(seed)
            except Exception as error:  # noqa: BLE001 - any error counts as a failure of the seed
                found.broken.append((seed, f"{type(error).__name__}: {error}"[:500]))
            else:
                found.events += ended.events
                found.host_events += ended.host_events
                found.states.update(ended.states.values())
            found.seeds += 1
            found.ran.add(seed)
    found.cpu_seconds = time.process_time() - began
    return found


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    mode = MODES[asked.mode]
    seeds = mode.seeds if asked.seeds is None else asked.seeds
    events = 0 if asked.seeds is not None else mode.events
    found = play(run, asked.first, seeds, asked.processes, asked.minutes)
    if found.seeds >= seeds and found.events < events and not found.broken:
        print(f"fewer than {events} events: the scenarios are too small")
        return 1
    return 1 if found.broken else 0


def play(
    run: Callable[[Sequence[int]], Sum],
    first: int,
    seeds: int,
    processes: int,
    minutes: float | None,
) -> Sum:
    """Run this many seeds in processes; print the failures and the sum."""
    began = time.monotonic()
    found = Sum()
    try:
        for part in _parts(run, first, seeds, processes, minutes):
            found.add(part)
            for seed, what in part.broken:
                print(f"seed {seed}: {what}", flush=True)
            _say(found, time.monotonic() - began)
    except KeyboardInterrupt:
        print("stopped early", file=sys.stderr)
    print(_told(found, time.monotonic() - began, first), flush=True)
    return found


def _parts(
    run: Callable[[Sequence[int]], Sum],
    first: int,
    seeds: int,
    processes: int,
    minutes: float | None,
) -> Iterator[Sum]:
    """Sums of chunks as they complete. No new chunk starts when the time is over."""
    end = None if minutes is None else time.monotonic() + 60 * minutes
    chunks = (
        range(start, min(start + CHUNK, first + seeds))
        for start in range(first, first + seeds, CHUNK)
    )
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, chunk) for chunk in islice(chunks, processes * AHEAD)}
        while waiting:
            done = next(as_completed(waiting))
            waiting.remove(done)
            yield done.result()
            if end is not None and time.monotonic() > end:
                for future in waiting:
                    future.cancel()
                waiting = {future for future in waiting if not future.cancelled()}
            else:
                waiting |= {pool.submit(run, chunk) for chunk in islice(chunks, 1)}


class _Clock:
    said_at = 0.0


def _say(found: Sum, seconds: float) -> None:
    if seconds - _Clock.said_at < SAID_EVERY_SECONDS:
        return
    _Clock.said_at = seconds
    print(
        f"{found.seeds} seeds, {found.events} events, {len(found.broken)} broken, {seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def _told(found: Sum, seconds: float, first: int) -> str:
    each = found.cpu_seconds / max(found.seeds, 1)
    ends = ", ".join(f"{state} {count}" for state, count in sorted(found.states.items()))
    return "\n".join(
        [
            f"seeds        {found.seeds} from {first}",
            f"events       {found.events}, of hosts {found.host_events}",
            f"violations   {len(found.broken)}",
            f"rollouts     {ends}",
            f"took         {seconds:.1f} s, {found.cpu_seconds:.1f} s CPU, {each:.3f} s a seed",
        ]
    )


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--mode", choices=MODES, default="ci")
    add("--first", type=int, default=0, help="the first seed")
    add("--seeds", type=int, help="number of seeds, instead of the mode's")
    add("--minutes", type=float, help="start no more seeds after this time")
    add("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)
