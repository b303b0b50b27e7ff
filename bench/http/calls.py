"""Connections that send requests one after the other, and time the responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import uvloop

T = TypeVar("T")

HOST = "127.0.0.1"
LOOK_SECONDS = 0.001
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Tally:
    """How often each status came back, and how long every response took, in seconds."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []

    def demand(self, *allowed: int) -> None:
        """Demand only these statuses. Raises: AssertionError: another one came back."""
        assert set(self.statuses) <= set(allowed), self.statuses


class Call(asyncio.Protocol):
    """One connection of one client: it sends a request after the response to the last one."""

    def __init__(self) -> None:
        self.status = 0  # of the last response
        self._tally = Tally()
        self._heard = b""
        self._answered: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._requests: Iterator[bytes] = iter(())
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by its type

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("the server hung up"))

    async def send(self, requests: Iterable[bytes], tally: Tally) -> None:
        """Send all of them, each after the response to the one before."""
        self._tally = tally
        self._answered = asyncio.get_running_loop().create_future()
        self._requests = iter(requests)
        self._next()
        await self._answered

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        assert self._transport is not None
        assert self._answered is not None
        request = next(self._requests, None)
        if request is None:
            self._answered.set_result(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._heard = heard = self._heard + data if self._heard else data
        end = heard.find(_END)
        if end < 0:
            return
        length = 0
        if (at := heard.find(_LENGTH, 0, end)) >= 0:
            length = int(heard[at + len(_LENGTH) : heard.find(b"\r\n", at)])
        if len(heard) < end + len(_END) + length:
            return
        self._heard = b""
        self.status = int(heard[9:12])
        self._tally.took.append(time.perf_counter() - self._sent)
        self._tally.statuses[self.status] += 1
        self._next()


async def connected(port: int) -> Call:
    loop = asyncio.get_running_loop()
    _, call = await loop.create_connection(Call, HOST, port)
    return call


async def _replayed(port: int, shares: Sequence[Sequence[bytes]]) -> tuple[Tally, float]:
    tally = Tally()
    calls = [await connected(port) for _ in shares]
    work = zip(calls, shares, strict=True)
    pacing = asyncio.create_task(_pace())
    begun = time.perf_counter()
    await asyncio.gather(*(call.send(share, tally) for call, share in work))
    seconds = time.perf_counter() - begun
    pacing.cancel()
    for call in calls:
        call.close()
    return tally, seconds


async def _pace() -> None:
    """Check the sockets only at intervals: a client that waits for each response would make the
    server pay for waking it, which clients on other machines do not.
    """
    while True:
        time.sleep(LOOK_SECONDS)
        await asyncio.sleep(0)


def replay(port: int, shares: Sequence[Sequence[bytes]]) -> tuple[Tally, float]:
    """Send these requests, a connection for each share; return the responses and the seconds."""
    return run(_replayed(port, shares))


def run(story: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(story)
