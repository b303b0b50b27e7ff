"""Reports that wait for their commit: a batch of them is completed in one step on the event loop.

A lane completes the reports of a batch one after the other, in its own thread. Waking the loop for
each would cost more than deciding them, so it is woken once and takes all that are complete.
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
    """Calls waiting requests on one event loop, and hints to the tail that commits were made."""

    def __init__(self, tail: Tail) -> None:
        self._hint = tail.hint
        # The loop of the first request that waits.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._landed: deque[Then] = deque()
        self._woken = False

    def of(self, future: Future[Any]) -> asyncio.Future[None]:
        """A future of the event loop that gets the result or the error of this one."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resolve() -> None:
            if waiting.done():
                return  # its client disconnected
            error = future.exception()
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.call(future, resolve)
        return waiting

    def call(self, future: Future[Any], then: Then) -> None:
        """Call ``then`` on this event loop when the future is done."""
        self.attach()
        future.add_done_callback(lambda _: self.land(then))

    def attach(self) -> None:
        """Use the event loop that runs now. All waiting requests are on the same loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()

    def land(self, then: Then) -> None:
        """Call ``then``, which raises nothing, on the loop. From any thread, after ``attach``."""
        assert self._loop is not None
        self._landed.append(then)
        if not self._woken:
            # Two threads that both see False wake the loop twice, which is harmless.
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # set first, so that a later completion wakes the loop again
        while self._landed:
            self._landed.popleft()()
        self._hint()
