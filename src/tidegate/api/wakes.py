"""Polls that wait for an order: each host's is woken by its own order, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from tidegate.api.tail import Entry, Tail

ORDERED = "DispatchReserved"
WAITING_MAX = 100_000  # polls at once; past it, they are answered without a wait


class _Ordered(Struct, frozen=True):
    host_id: str


_decoder = msgspec.json.Decoder(_Ordered)


class Wakes:
    """Who waits, on one event loop: told by the tail of every order, from whatever process."""

    def __init__(self, tail: Tail) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0
        tail.watchers.append(self._heard)

    @property
    def is_full(self) -> bool:
        return self._count >= WAITING_MAX

    def expect(self, host_id: str) -> asyncio.Future[None]:
        """What is resolved with the host's next order. Whoever asks gives it back by ``forget``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host_id, set()).add(future)
        self._count += 1
        return future

    def forget(self, host_id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[host_id]
        waiting.discard(future)
        self._count -= 1
        if not waiting:
            del self._waiting[host_id]

    def _heard(self, entries: Sequence[Entry]) -> None:
        """Wake who is meant; an end of the tail wakes everybody."""
        if not entries:
            for host_id in tuple(self._waiting):
                self._wake(host_id)
            return
        for entry in entries:
            if entry.event.type == ORDERED:
                self._wake(_decoder.decode(entry.event.body).host_id)

    def _wake(self, host_id: str) -> None:
        for future in self._waiting.get(host_id, ()):
            if not future.done():
                future.set_result(None)


_known: WeakKeyDictionary[Tail, Wakes] = WeakKeyDictionary()


def wakes_of(tail: Tail) -> Wakes:
    """The polls that follow this tail."""
    found = _known.get(tail)
    if found is None:
        found = _known[tail] = Wakes(tail)
    return found
