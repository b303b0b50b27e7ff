"""Reports that wait to be durable: a pack of them lands in one step on the event loop.

A lane resolves the reports of a pack one right after the other, in a thread of its own. To wake the
loop for each would cost more than deciding them: it is woken once, and takes all that are there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any
from weakref import WeakKeyDictionary

from tidegate.api.tail import Tail

Waiting = asyncio.Future[None]


class Landings:
    """Who waits for what, on one event loop. The tail is told of each landing."""

    def __init__(self, tail: Tail) -> None:
        self._nudge = tail.nudge
        self._loop = asyncio.get_running_loop()
        self._landed: deque[tuple[Future[Any], Waiting]] = deque()
        self._woken = False

    def of(self, future: Future[Any]) -> Waiting:
        """What is resolved on the loop as this one is, with its error if it has one."""
        waiting: Waiting = self._loop.create_future()

        def landed(done: Future[Any]) -> None:
            self._landed.append((done, waiting))
            if not self._woken:
                self._woken = True  # two that both see it unset wake the loop twice: no harm
                self._loop.call_soon_threadsafe(self._take)

        future.add_done_callback(landed)
        return waiting

    def _take(self) -> None:
        self._woken = False  # before the look: what comes behind it wakes the loop again
        while self._landed:
            done, waiting = self._landed.popleft()
            if waiting.done():
                continue  # its client went away
            error = done.exception()
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
        self._nudge()


_known: WeakKeyDictionary[Tail, Landings] = WeakKeyDictionary()


def landings_of(tail: Tail) -> Landings:
    """Those of the server whose tail this is."""
    found = _known.get(tail)
    if found is None:
        found = _known[tail] = Landings(tail)
    return found
