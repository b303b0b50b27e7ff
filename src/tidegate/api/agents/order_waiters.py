"""Polls for orders: who waits is woken by the host's own order, and by nothing else; who was told
that there is none is told so again, without a look, while nothing was ordered.

A poll that found an order which may not be handed out now is also woken when a stop ends.
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
WAITING_MAX = 100_000  # polls at once; past it, they are answered without a wait
FREE_MAX = 20_000  # hosts that are known to have no order; past it, all are looked up again


class _Ordered(Struct, frozen=True):
    host_id: str


_decoder = decoders.build(_Ordered)


class OrderWaiters:
    """Who waits, on one event loop: told by the tail of every order, from whatever process."""

    def __init__(self, tail: Tail, listeners: list[Callable[[], None]]) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._stopped: set[asyncio.Future[None]] = set()  # of those, with an order that is stopped
        self._count = 0
        self._free: set[str] = set()
        tail.watchers.append(self._heard)
        listeners.append(self.wake)

    @property
    def count(self) -> int:
        """How many polls wait."""
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= WAITING_MAX

    def is_free(self, host_id: str, look: Callable[[], bool]) -> bool:
        """Whether the host has no order; ``look`` tells, if that is not known."""
        free = self._free  # before the look: an order that comes behind it is not missed
        if host_id in free:
            return True
        found = look()
        if found and len(free) < FREE_MAX:
            free.add(host_id)
        elif found:
            self.wake()
        return found

    def wake(self) -> None:
        """Something was committed here, in whatever thread: it may be orders."""
        self._free = set()

    def expect(self, host_id: str) -> asyncio.Future[None]:
        """What is resolved with the host's next order. Whoever asks gives it back by ``forget``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host_id, set()).add(future)
        self._count += 1
        return future

    def expect_release(self, future: asyncio.Future[None]) -> None:
        """Resolve it with the end of a stop, too: the host's order may not be handed out now."""
        self._stopped.add(future)

    def forget(self, host_id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[host_id]
        waiting.discard(future)
        self._stopped.discard(future)
        self._count -= 1
        if not waiting:
            del self._waiting[host_id]

    def _heard(self, entries: Sequence[TailEntry]) -> None:
        """Wake who is meant; an end of the tail wakes everybody."""
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
