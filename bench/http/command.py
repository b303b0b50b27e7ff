"""Fill a data directory, measure a server, print tables, and write them into the docs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench import options
from bench.http import measure, report
from bench.http.prepared_data import fill
from bench.http.results import Results
from bench.speed.log_cache import LogCache
from bench.speed.machine import described


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    reporting: int  # hosts that report
    rounds: int  # of the hot routes; the best is kept
    polls: int  # in a round
    agents: int
    every: float  # seconds between two polls of an agent
    seconds: float  # of the rollout
    subscribers: int
    followed: int  # reports that subscribers receive
    pause: float  # seconds between them
    writes_page: bool


MODES = {
    "tiny": Mode(48, 1, 50, 12, 0.5, 2.0, 3, 4, 0.02, False),  # for its own test
    "ci": Mode(240, 2, 1_000, 100, 1.0, 5.0, 20, 20, 0.02, False),
    "long": Mode(12_000, 5, 20_000, 10_000, 60.0, 125.0, 1_000, 100, 0.1, True),
}


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    mode = MODES[asked.mode]
    log_cache = LogCache(asked.state)
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = {
        **described(log_cache.home),
        "load while it ran": f"{os.getloadavg()[0]:.1f} before it",
    }
    with log_cache.copy() as home:
        options.say(f"{mode.reporting:,} hosts that report, {mode.agents:,} that poll")
        prepared = fill(home / "data", mode.reporting, mode.agents)
        reported, polled = measure.hot_routes(prepared, mode.rounds, mode.polls, options.say)
        options.say("frames")
        frames = measure.frames(prepared, home / "frames.json")
        options.say(f"{mode.subscribers:,} subscribers")
        following = measure.following(prepared, mode.subscribers, mode.followed, mode.pause)
        options.say(f"{mode.agents:,} agents at their own pace, {mode.seconds:g} s")
        running = measure.running(prepared, mode.every, mode.seconds)
    machine["load while it ran"] += f", {os.getloadavg()[0]:.1f} behind it"
    results = Results(at, machine, reported, polled, frames, running, following)
    print(report.text(results))
    results.save(asked.state / "http.json")
    if asked.page is not None:
        report.write(asked.page, results)
    return 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = options.make_parser("http", __doc__)
    options.add_modes(parser, MODES, "how thorough the run is")
    asked = parser.parse_args(arguments)
    if asked.page is None and MODES[asked.mode].writes_page:
        asked.page = options.PAGE
    return asked
