"""Fast worker settings, and waiting for the effect of a loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.control.worker import LoopPace

QUICK = LoopPace(
    orders=0.02,
    timers=0.02,
    outbox=0.02,
    notify=0.02,
    policies=0.02,
    manifests=0.02,
    reconcile=0.05,
    collection=0.05,
)


SECONDS_MAX = 60.0


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.01)
