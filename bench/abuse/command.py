"""Attack a server in several ways, print a table, and fail if a bound is exceeded."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from bench import options
from bench.abuse import measure, report
from bench.abuse.attacks import ATTACKS
from bench.abuse.results import Results
from bench.http.prepared_data import fill
from bench.http.server import serving
from bench.speed.log_cache import LogCache
from bench.speed.machine import described

AGENTS = 200
EVERY_SECONDS = 30.0
CI_SECONDS = 3.0
SECONDS = 60.0
RATES = ("--reads-per-second", "200", "--writes-per-second", "50")  # those of a real server


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    seconds = asked.seconds or (CI_SECONDS if asked.ci else SECONDS)
    every = min(EVERY_SECONDS, seconds)
    log_cache = LogCache(asked.state)
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = {**described(log_cache.home), "load": f"{os.getloadavg()[0]:.1f} before it"}
    with log_cache.copy() as home:
        prepared = fill(home / "data", 8, AGENTS)
        with serving(prepared.data, *RATES) as server:
            measure.case(prepared, server, measure.ALONE, CI_SECONDS, CI_SECONDS)  # warm-up
            cases = []
            for name in (measure.ALONE, *(asked.case or ATTACKS)):
                options.say(name)
                cases.append(measure.case(prepared, server, name, seconds, every))
    machine["load"] += f", {os.getloadavg()[0]:.1f} after it"
    results = Results(
        at=at,
        machine=machine,
        seconds=seconds,
        agents=AGENTS,
        every=every,
        alone=cases[0],
        cases=tuple(cases[1:]),
        are_times_judged=not asked.ci,
    )
    print(report.text(results))
    results.save(asked.state / "abuse.json")
    return 1 if results.broken() else 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = options.make_parser("abuse", __doc__)
    add = parser.add_argument
    add(
        "--seconds",
        type=float,
        help=f"for each case; default {SECONDS:g}, with --ci {CI_SECONDS:g}",
    )
    add("--ci", action="store_true", help="short, and response times are not checked")
    add("--case", action="append", choices=ATTACKS, help="run only this case; may be repeated")
    return parser.parse_args(arguments)
