"""`tidegate serve`, with the CPU of each frame of a request counted: `metered OUT serve …`.

parse     bytes become a request, and its path is chosen
auth      the session's MAC, its time, the host's key
decode    the body becomes a report, and is queued in its rollout's lane
decide    its slice decides
fold      folds and machines step their rows
commit    facts and rows become bytes; the store checks, writes and flushes
answer    rows get their versions, the response is encoded and sent

Each frame is wrapped where it begins and ends on one thread, by that thread's CPU clock. Reading
that clock takes most of a microsecond, so the sum is a little more than a plain server spends.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate import main as tidegate
from tidegate.api.agents.auth import AgentAuthenticator
from tidegate.api.agents.fast_path.protocol import FastConnection, FastExchange
from tidegate.control.fleet.agent_reports import AgentReports
from tidegate.control.lanes import Lanes
from tidegate.domain.rollouts import report_slices
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel.commit_builder import CommitBuilder

BEGIN: Final = signal.SIGUSR1  # reset the counters
FRAMES: Final = ("parse", "auth", "decode", "decide", "fold", "commit", "answer")


class Meter:
    """CPU seconds by frame, all threads. A frame inside another does not count in the outer one."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the counters."""
        self.seconds = dict.fromkeys(FRAMES, 0.0)

    def sync(self, frame: str, function: Callable[..., Any], inside: str = "") -> Any:
        def run(*args: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                self._add(frame, time.thread_time() - begun, inside)

        return run

    def _add(self, frame: str, seconds: float, inside: str) -> None:
        self.seconds[frame] += seconds
        if inside:
            self.seconds[inside] -= seconds

    def wrap(self, owner: Any, name: str, frame: str, inside: str = "") -> None:
        setattr(owner, name, self.sync(frame, getattr(owner, name), inside))


def install(meter: Meter) -> None:
    """Wrap the frames of this process."""
    meter.wrap(FastConnection, "data_received", "parse")
    meter.wrap(AgentAuthenticator, "_authenticate", "auth", inside="parse")
    meter.wrap(AgentReports, "take_one", "decode", inside="parse")
    plain = report_slices.report_event
    decide = meter.sync("decide", plain.decide, inside="fold")
    vars(report_slices)["report_event"] = replace(plain, decide=decide)
    meter.wrap(Lanes, "_decide", "fold")
    meter.wrap(CommitBuilder, "commit", "commit")
    meter.wrap(SqliteStore, "commit", "commit")
    meter.wrap(Lanes, "_answer", "answer")
    meter.wrap(FastExchange, "send_success", "answer")


def main() -> int:
    out, *words = sys.argv[1:]
    meter = Meter()
    install(meter)
    signal.signal(BEGIN, lambda *_: meter.begin())
    code = tidegate.main(words)
    Path(out).write_bytes(msgspec.json.encode(meter.seconds))
    return code


if __name__ == "__main__":
    sys.exit(main())
