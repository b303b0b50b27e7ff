"""Fill a rollout, visit its pages in a browser, print a table, and write it into the docs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench import options
from bench.http.prepared_data import fill
from bench.pages import measure, report
from bench.pages.report import Results
from bench.speed.log_cache import LogCache
from bench.speed.machine import described


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    hosts: int
    rounds: int
    writes_page: bool


MODES = {
    "tiny": Mode(50, 1, False),  # for its own test
    "ci": Mode(5_000, 3, False),
    "long": Mode(100_000, 9, True),
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
        options.say(f"a rollout of {mode.hosts:,} hosts")
        prepared = fill(home / "data", mode.hosts, 0)
        overview, rollout, painted = measure.visits(prepared, mode.rounds)
    machine["load while it ran"] += f", {os.getloadavg()[0]:.1f} behind it"
    results = Results(at, machine, mode.hosts, overview, rollout, painted)
    print(report.text(results))
    results.save(asked.state / "pages.json")
    if asked.page is not None:
        report.write(asked.page, results)
    return 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = options.make_parser("pages", __doc__)
    options.add_modes(parser, MODES, "how thorough the run is")
    asked = parser.parse_args(arguments)
    if asked.page is None and MODES[asked.mode].writes_page:
        asked.page = options.PAGE
    return asked
