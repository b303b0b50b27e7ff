"""All cells, some rounds: within a cell the contenders take turns in random order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from random import Random

from bench.speed.contender import Contender, Log
from bench.speed.measure import Cell, Sample, Work, cells, measure
from bench.speed.workload import Layout

Samples = dict[Cell, dict[str, list[Sample]]]


def run(
    contenders: Sequence[Contender],
    works: frozenset[Work],
    layout: Layout,
    *,
    rounds: int,
    seconds: float,
    random: Random,
    say: Callable[[str], None],
) -> Samples:
    """Every sample of every cell, by contender."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        filled = {}
        for contender in contenders:
            begun = time.perf_counter()
            filled[contender.name] = stack.enter_context(contender.filled(layout))
            took = time.perf_counter() - begun
            say(f"{contender.name}: a log of {layout.events:,} events is ready after {took:.1f} s")
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}")
            _round(contenders, filled, works, layout, seconds, random, samples)
    return samples


def _round(
    contenders: Sequence[Contender],
    filled: Mapping[str, Log],
    works: frozenset[Work],
    layout: Layout,
    seconds: float,
    random: Random,
    samples: Samples,
) -> None:
    with ExitStack() as stack:
        empty: Mapping[str, Log] = {
            contender.name: stack.enter_context(contender.empty()) for contender in contenders
        }
        for cell in cells(works):
            turns = [item for item in contenders if item.rows or not cell.work.needs_rows]
            random.shuffle(turns)
            for contender in turns:
                log = (filled if cell.filled else empty)[contender.name]
                sample = measure(cell, log, layout, seconds, random)
                samples[cell][contender.name].append(sample)
