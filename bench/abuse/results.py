"""The figures of each case, and their bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

GROWTH_BYTES_MAX = 20_000_000
UPLOAD_TIMES_MAX = 3  # the server's own size
LIVE_MS_MAX = 100.0
SLOWER_TIMES_MAX = 2.0  # compared with no abusive client


class Case(Struct, frozen=True):
    """One abusive client, or none."""

    name: str
    growth_bytes: int  # of private memory, at its peak
    growth_bytes_max: int
    cpu_share: float  # of a core, by the server
    live_median_ms: float
    live_tail_ms: float  # p99
    polls: int
    is_served: bool  # whether everyone else got the expected responses


class Results(Struct, frozen=True):
    at: str
    machine: dict[str, str]
    seconds: float
    agents: int
    every: float
    alone: Case  # without an abusive client
    cases: tuple[Case, ...]
    are_times_judged: bool

    def broken(self) -> list[str]:
        """The bounds that were exceeded, in words."""
        allowed_ms = max(LIVE_MS_MAX, SLOWER_TIMES_MAX * self.alone.live_tail_ms)
        found = []
        for case in (self.alone, *self.cases):
            if case.growth_bytes > case.growth_bytes_max:
                grown, most = case.growth_bytes / 1e6, case.growth_bytes_max / 1e6
                found.append(f"{case.name}: memory grew by {grown:.0f} MB, allowed {most:.0f} MB")
            if not case.is_served:
                found.append(f"{case.name}: another client was not served")
            if self.are_times_judged and case.live_tail_ms > allowed_ms:
                tail = f"{case.live_tail_ms:.0f} ms, allowed {allowed_ms:.0f} ms"
                found.append(f"{case.name}: p99 of /livez is {tail}")
        return found

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))
