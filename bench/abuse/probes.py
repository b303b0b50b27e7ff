"""Everyone else: agents that poll, a monitor that requests /livez, a person's new connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.http.calls import Tally, connected
from bench.http.prepared_data import PreparedData
from bench.http.signing import Signer

LIVE_EVERY_SECONDS = 0.02
READ_EVERY_SECONDS = 0.5
_LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Everyone:
    """The other clients: their requests, the responses, and the response times."""

    def __init__(self, prepared: PreparedData, port: int, every: float) -> None:
        self._harbour = prepared
        self._port = port
        self._every = every
        self.polls, self.lives, self.reads = Tally(), Tally(), Tally()
        self.live_seconds: list[float] = []
        self.failed = 0

    async def run(self, seconds: float) -> None:
        """Send requests for this many seconds."""
        hosts = self._harbour.polling
        signer = Signer(self._harbour)
        begun = time.monotonic()
        until = begun + seconds
        async with asyncio.TaskGroup() as group:
            for number, host in enumerate(hosts):
                first = begun + number / len(hosts) * self._every
                group.create_task(self._poll(signer, host, first, until))
            group.create_task(self._ask_live(until))
            group.create_task(self._read(until))

    def is_served(self) -> bool:
        """Whether every request got the expected response."""
        return (
            not self.failed
            and set(self.polls.statuses) <= {200, 204}
            and set(self.lives.statuses) == {200}
            and set(self.reads.statuses) == {200}
        )

    async def _poll(self, signer: Signer, host: str, turn: float, until: float) -> None:
        """An agent connects for its first poll and keeps the connection: the server closes one that
        is silent from the start.
        """
        await asyncio.sleep(max(0.0, min(turn, until) - time.monotonic()))
        call = await connected(self._port)
        while turn < until:
            await asyncio.sleep(max(0.0, turn - time.monotonic()))
            await self._try(lambda: call.send([signer.poll(host)], self.polls))
            turn += self._every
        call.close()

    async def _ask_live(self, until: float) -> None:
        """Each response time counts from when the request was due: a stall delays all requests due
        in it.
        """
        call = await connected(self._port)
        turn = time.monotonic()
        while turn < until:
            await asyncio.sleep(max(0.0, turn - time.monotonic()))
            await self._try(lambda: call.send([_LIVE], self.lives))
            self.live_seconds.append(time.monotonic() - turn)
            turn += LIVE_EVERY_SECONDS
        call.close()

    async def _read(self, until: float) -> None:
        request = (
            f"GET /v1/hosts?limit=10 HTTP/1.1\r\nhost: localhost\r\n"
            f"authorization: Bearer {self._harbour.token}\r\n\r\n"
        ).encode()
        while time.monotonic() < until:
            await self._try(lambda: self._read_once(request))
            await asyncio.sleep(READ_EVERY_SECONDS)

    async def _read_once(self, request: bytes) -> None:
        call = await connected(self._port)
        try:
            await call.send([request], self.reads)
        finally:
            call.close()

    async def _try(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except OSError:
            self.failed += 1
