"""Reports that wait to be durable: a pack of them lands in one step on the event loop.

A lane resolves the reports of a pack one right after the other, in a thread of its own. To wake the
loop for each would cost more than deciding them: it is woken once, and takes all that are there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tidegate.api.feed.tail import Tail

Then = Callable[[], None]


class CommitWaiters:
    """Who waits for what, on one event loop. The tail is told of each landing."""

    def __init__(self, tail: Tail) -> None:
        self._hint = tail.hint
        self._loop: asyncio.AbstractEventLoop | None = None  # the one of the first who waits
        self._landed: deque[Then] = deque()
        self._woken = False

    def of(self, future: Future[Any]) -> asyncio.Future[None]:
        """What is resolved on the loop as this one is, with its error if it has one."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resolve() -> None:
            if waiting.done():
                return  # its client went away
            error = future.exception()
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.call(future, resolve)
        return waiting

    def call(self, future: Future[Any], then: Then) -> None:
        """Have ``then`` called on this event loop once it is resolved."""
        self.attach()
        future.add_done_callback(lambda _: self.land(then))

    def attach(self) -> None:
        """Call back on the event loop that runs now. All who wait are on the same loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()

    def land(self, then: Then) -> None:
        """Have this called on the loop; from any thread, after ``attach``. It raises nothing."""
        assert self._loop is not None
        self._landed.append(then)
        if not self._woken:
            self._woken = True  # two that both see it unset wake the loop twice: no harm
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # before the look: what comes behind it wakes the loop again
        while self._landed:
            self._landed.popleft()()
        self._hint()
