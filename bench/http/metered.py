"""`tidegate serve`, with the CPU of each frame of a request counted: `metered OUT serve …`.

parse     bytes become a request, and the application is called
auth      the session's MAC, its time, the host's key
decode    the body becomes a report, and is queued in its rollout's lane
decide    its slice decides
fold      folds and machines step their rows
commit    facts and rows become bytes; the store checks, writes and flushes
answer    rows are settled, the answer is encoded and sent

Each frame is wrapped where it begins and ends on one thread, by that thread's CPU clock; reading
that clock takes most of a microsecond, so the sum is a little more than what a plain server spends.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidegate import main as tidegate
from tidegate.api import app, decoding
from tidegate.api.auth import Doorkeeper
from tidegate.control import ingest
from tidegate.control.lanes import Lanes
from tidegate.domain.rollouts.reports import report_event
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel.unfolding import Unfolding

BEGIN: Final = signal.SIGUSR1  # what was counted before is forgotten
FRAMES: Final = ("parse", "auth", "decode", "decide", "fold", "commit", "answer")


class Meter:
    """CPU seconds by frame, of all threads. A frame inside another takes its share from it."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was counted so far."""
        self.seconds = dict.fromkeys(FRAMES, 0.0)

    def sync(self, frame: str, function: Callable[..., Any], inside: str = "") -> Any:
        def run(*args: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                self._add(frame, time.thread_time() - begun, inside)

        return run

    def waited(self, frame: str, function: Callable[..., Awaitable[Any]]) -> Any:
        """For a coroutine that does not wait in truth: nothing else runs meanwhile."""

        async def run(*args: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return await function(*args, **named)
            finally:
                self._add(frame, time.thread_time() - begun, "")

        return run

    def _add(self, frame: str, seconds: float, inside: str) -> None:
        self.seconds[frame] += seconds
        if inside:
            self.seconds[inside] -= seconds

    def wrap(self, owner: Any, name: str, frame: str) -> None:
        setattr(owner, name, self.sync(frame, getattr(owner, name)))


def install(meter: Meter) -> None:
    """Wrap the frames of this process."""
    meter.wrap(HttpToolsProtocol, "data_received", "parse")
    meter.wrap(Doorkeeper, "principal", "auth")
    for name in ("path_of", "query_of", "body_of"):
        meter.wrap(decoding, name, "decode")
    for name in ("_read", "_queued"):
        meter.wrap(ingest, name, "decode")
    decide = meter.sync("decide", report_event.decide, inside="fold")
    vars(ingest)["report_event"] = replace(report_event, decide=decide)
    meter.wrap(Lanes, "_decide", "fold")
    meter.wrap(Unfolding, "commit", "commit")
    meter.wrap(SqliteStore, "commit", "commit")
    meter.wrap(Lanes, "_answer", "answer")
    exchange = app._Exchange
    exchange._send_answer = meter.waited("answer", exchange._send_answer)  # type: ignore[method-assign]


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
