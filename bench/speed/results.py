"""The results of a run as a value: written as JSON, read by the floors and by the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.speed.measure import Cell, Sample, Work, best
from bench.speed.memory import Mark
from bench.speed.rounds import Samples


class Results(Struct, frozen=True):
    """One run. Skipped cells and contenders are not in it."""

    at: str
    machine: dict[str, str]
    events: int
    rounds: int
    seconds: float
    titles: dict[str, str]  # contender → its name in tables
    samples: dict[str, dict[str, list[Sample]]]  # cell → contender → one per round
    memory: tuple[Mark, Mark] | None = None

    def sample(
        self, contender: str, work: Work, size: int, *, filled: bool = True
    ) -> Sample | None:
        """The best of the cell's rounds."""
        rounds = self.rounds_of(contender, work, size, filled=filled)
        return best(rounds) if rounds else None

    def rounds_of(
        self, contender: str, work: Work, size: int, *, filled: bool = True
    ) -> list[Sample]:
        """The sample of each round of the cell."""
        return self.samples.get(str(Cell(work, filled, size)), {}).get(contender, [])

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def by_name(samples: Samples) -> dict[str, dict[str, list[Sample]]]:
    """Samples with their cells' names as keys, which JSON can hold."""
    named: Mapping[str, Mapping[str, list[Sample]]] = {
        str(cell): found for cell, found in samples.items()
    }
    return {cell: dict(found) for cell, found in named.items()}
