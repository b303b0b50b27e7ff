"""The results of a run as a value, and the floors."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.registry.measure import Seconds, Verb

MEDIAN, TAIL = 0.50, 0.99

# Of porch, as its performance test publishes them: one revision, kind and Gitea.
PEER: Final = {Verb.CREATE: 457.0, Verb.PROPOSE: 561.0, Verb.APPROVE: 699.0, Verb.DELETE: 3_171.0}

PROMISED: Final = (Verb.CREATE, Verb.PROPOSE, Verb.APPROVE, Verb.TRANSITION)
PROMISED_REVISIONS: Final = 100_000
MEDIAN_MAX, TAIL_MAX, PAGE_MAX, GROWTH_MAX = 5.0, 25.0, 30.0, 1.5


class Results(Struct, frozen=True):
    """One run; times in milliseconds, sorted."""

    at: str
    machine: dict[str, str]
    rounds: int
    sizes: tuple[int, ...]
    took: dict[str, dict[str, list[float]]]  # size → verb → one per round

    def share(self, size: int, verb: Verb, share: float) -> float:
        """The milliseconds that this share of the rounds does not exceed."""
        return at_share(self.took[str(size)][verb], share)

    def growth(self, verb: Verb) -> float:
        """The median of the largest registry as a multiple of the smallest one's."""
        small, large = self.sizes[0], self.sizes[-1]
        return self.share(large, verb, MEDIAN) / self.share(small, verb, MEDIAN)

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


class Floor(Struct, frozen=True):
    """One floor with the figure found."""

    text: str
    bound: float
    found: float

    @property
    def reached(self) -> bool:
        return self.found <= self.bound


def floors(results: Results) -> tuple[Floor, ...]:
    large = results.sizes[-1]
    found = []
    for verb in PROMISED:
        found += [
            Floor(f"{verb}, median, ms", MEDIAN_MAX, results.share(large, verb, MEDIAN)),
            Floor(f"{verb}, p99, ms", TAIL_MAX, results.share(large, verb, TAIL)),
        ]
    found.append(
        Floor(f"{Verb.PAGE}, median, ms", PAGE_MAX, results.share(large, Verb.PAGE, MEDIAN))
    )
    growing = (*PROMISED, Verb.PAGE)
    found += [Floor(f"{verb}, large ÷ small", GROWTH_MAX, results.growth(verb)) for verb in growing]
    return tuple(found)


def at_share(times: Sequence[float], share: float) -> float:
    """The smallest of the times that this share of them does not exceed."""
    return sorted(times)[max(ceil(share * len(times)), 1) - 1]


def in_milliseconds(took: dict[int, Seconds]) -> dict[str, dict[str, list[float]]]:
    return {
        str(size): {str(verb): [1e3 * each for each in times] for verb, times in of_size.items()}
        for size, of_size in took.items()
    }
