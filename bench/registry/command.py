"""Fill a small and a large registry, time each verb, print tables, and write them into the docs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from bench import options
from bench.registry import report
from bench.registry.measure import measured
from bench.registry.results import Results, in_milliseconds
from bench.registry.sample_registry import PER_PACKAGE
from bench.speed.log_cache import LogCache
from bench.speed.machine import described

SMALL = 1_000


@dataclass(frozen=True)
class Mode:
    """How thorough a run is."""

    revisions: int
    rounds: int
    writes_page: bool


MODES = {"ci": Mode(2_000, 50, False), "long": Mode(100_000, 2_000, True)}


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    log_cache = LogCache(asked.state)
    sizes = (SMALL, asked.revisions)
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = described(log_cache.home)
    took = measured(log_cache, sizes, asked.rounds, Random(asked.seed), options.say)
    results = Results(at, machine, asked.rounds, sizes, in_milliseconds(took))
    print(report.text(results))
    results.save(asked.state / "registry.json")
    if asked.page is not None:
        report.write(asked.page, results)
    return 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = options.make_parser("registry", __doc__)
    options.add_modes(parser, MODES, "sets the defaults of the other options")
    add = parser.add_argument
    add("--revisions", type=int, help="number of revisions in the large registry")
    add("--rounds", type=int, help="rounds; each runs every verb once")
    add("--seed", type=int, default=1, help="decides the packages and the order")
    asked = parser.parse_args(arguments)
    mode = MODES[asked.mode]
    whole = asked.revisions is None and asked.rounds is None
    for name, default in (
        ("revisions", mode.revisions),
        ("rounds", mode.rounds),
        ("page", options.PAGE if mode.writes_page and whole else None),
    ):
        if getattr(asked, name) is None:
            setattr(asked, name, default)
    if asked.revisions <= SMALL or asked.revisions % PER_PACKAGE:
        parser.error(f"--revisions: more than {SMALL:,}, in steps of {PER_PACKAGE}")
    return asked
