"""Run random walks of the rollout engine.

    python -m bench walks --first 0 --seeds 5000 --processes 2 --minutes 30

A walk is a small fleet with any policy and an operator who uses any verb
(`tests.simulation.walks`). Each ends with a replay that equals the rows, and on its way `explain`
names every wait. A walk that fails is printed with its seed, which alone repeats it, and makes the
run fail. A run that ends early prints the seed to continue from: all earlier seeds were walked.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from bench.simulate import Sum, play, run_each
from tests.simulation.walks import walk

WALKS = 5_000


def run(seeds: Sequence[int]) -> Sum:
    """These walks, one after another."""
    return run_each(seeds, lambda seed: walk(seed).ended)


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    found = play(run, asked.first, asked.seeds, asked.processes, asked.minutes)
    end = asked.first + asked.seeds
    left = next((seed for seed in range(asked.first, end) if seed not in found.ran), end)
    if left < end:
        print(f"continue     --first {left} --seeds {end - left}")
    return 1 if found.broken else 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench walks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--first", type=int, default=0, help="the first seed")
    add("--seeds", type=int, default=WALKS, help=f"number of walks; default {WALKS}")
    add("--minutes", type=float, help="start no more walks after this time")
    add("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)
