"""Resident memory of a process that appends to our SQLite engine, and does nothing else.

`python -m bench.speed.memory HOME EVENTS` appends batches with ever new orders and customers. It
prints, as JSON, the resident memory at 30 % and at the end.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.speed.contender import batches
from bench.speed.log_cache import LogCache
from bench.speed.ours import open_sqlite
from bench.speed.processes import resident_bytes
from bench.speed.workload import growing

EARLY_SHARE = 0.3
SECONDS_MAX = 600


class Mark(Struct, frozen=True):
    """The resident memory after this many events; `private` excludes mapped files."""

    events: int
    resident: int
    private: int


def grown(log_cache: LogCache, events: int) -> tuple[Mark, Mark]:
    """The marks of a new process: the early one and the last."""
    with log_cache.copy() as home:
        answer = subprocess.run(
            [sys.executable, "-m", "bench.speed.memory", str(home), str(events)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=SECONDS_MAX,
            cwd=Path(__file__).parents[2],
        )
    return msgspec.json.decode(answer.stdout, type=tuple[Mark, Mark])


def _append(home: Path, events: int) -> tuple[Mark, Mark]:
    entries = growing()
    early = int(events * EARLY_SHARE)
    with closing(open_sqlite(home)) as log:
        marks = []
        for upto, count in ((early, early), (events, events - early)):
            for batch in batches(islice(entries, count)):
                log.append(batch)
            resident, shared = resident_bytes()
            marks.append(Mark(upto, resident, resident - shared))
    return marks[0], marks[1]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_append(Path(sys.argv[1]), int(sys.argv[2]))))
