"""Polls that wait for orders. A poll is woken only by an order for its own host.

A host that had no order is known to be idle, without a read, until some order is queued. A poll
whose order may not be sent now is also woken when a stop ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from tidegate import decoders
from tidegate.api.feed.tail import Tail, TailEntry

ORDERED = "DispatchReserved"
RELEASING = frozenset(
    {"FreezeEnded", "ChannelUnheld", "RolloutResumed", "WindowSet", "WindowDeleted"}
)
WAITING_MAX = 100_000  # polls that wait at once; more are answered without a wait
FREE_MAX = 20_000  # hosts that are known to be idle; with more, the cache is emptied


class _Ordered(Struct, frozen=True):
    host_id: str


_decoder = decoders.build(_Ordered)


class OrderWaiters:
    """Wakes waiting polls on one event loop. The tail reports every order, from any process."""

    def __init__(self, tail: Tail, listeners: list[Callable[[], None]]) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._stopped: set[asyncio.Future[None]] = set()  # of these, polls whose order is stopped
        self._count = 0
        self._free: set[str] = set()
        tail.watchers.append(self._heard)
        listeners.append(self.wake)

    @property
    def count(self) -> int:
        """The number of polls that wait."""
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= WAITING_MAX

    def is_free(self, host_id: str, look: Callable[[], bool]) -> bool:
        """Whether the host has no order; ``look`` reads it if that is not known."""
        free = self._free  # read first, so that an order that arrives meanwhile is not missed
        if host_id in free:
            return True
        found = look()
        if found and len(free) < FREE_MAX:
            free.add(host_id)
        elif found:
            self.wake()
        return found

    def wake(self) -> None:
        """Note a commit of this process, which may contain orders. Called from any thread."""
        self._free = set()

    def expect(self, host_id: str) -> asyncio.Future[None]:
        """A future for the host's next order. The caller must return it with ``forget``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host_id, set()).add(future)
        self._count += 1
        return future

    def expect_release(self, future: asyncio.Future[None]) -> None:
        """Complete the future also when a stop ends: the host's order may not be sent now."""
        self._stopped.add(future)

    def forget(self, host_id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[host_id]
        waiting.discard(future)
        self._stopped.discard(future)
        self._count -= 1
        if not waiting:
            del self._waiting[host_id]

    def _heard(self, entries: Sequence[TailEntry]) -> None:
        """Wake the polls of the hosts in these events; when the tail ends, wake all."""
        if not entries:
            for host_id in tuple(self._waiting):
                self._wake(host_id)
            return
        for entry in entries:
            if entry.event.type == ORDERED:
                host_id = _decoder.decode(entry.event.body).host_id
                self._free.discard(host_id)
                self._wake(host_id)
            elif entry.event.type in RELEASING:
                _resolve(self._stopped)

    def _wake(self, host_id: str) -> None:
        _resolve(self._waiting.get(host_id, ()))


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
