"""Agents that poll at their own pace, on connections of their own, and carry out their orders."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable

from bench.fleet.fleets import RELEASE, reports_of_host
from bench.http.calls import HOST, Call, Tally, connected
from bench.http.prepared_data import CHANNEL, PreparedData
from bench.http.server import Server
from bench.http.signing import Signer
from tidegate.clock import system_clock

AT_ONCE = 200  # connections that are opened together
SAMPLE_SECONDS = 0.5


class Agents:
    """All hosts of the prepared data's second channel, while a rollout reaches them."""

    def __init__(
        self, prepared: PreparedData, server: Server, every: float, seconds: float
    ) -> None:
        self._harbour = prepared
        self._server = server
        self._signer = Signer(prepared)
        self._every = every
        self._seconds = seconds
        self.polls, self.reports = Tally(), Tally()
        self.memory: list[tuple[int, int]] = []  # resident, and the private part of it

    async def run(self) -> None:
        hosts = self._harbour.polling
        calls: list[Call] = []
        for start in range(0, len(hosts), AT_ONCE):
            some = hosts[start : start + AT_ONCE]
            calls += await asyncio.gather(*(connected(self._server.port) for _ in some))
        begun = time.monotonic()
        tasks = [
            asyncio.create_task(self._work(host_id, call, begun, number / len(hosts)))
            for number, (host_id, call) in enumerate(zip(hosts, calls, strict=True))
        ]
        sampling = asyncio.create_task(self._sample())
        await asyncio.sleep(self._every / 4)
        await asyncio.get_running_loop().run_in_executor(None, self._promote)
        await asyncio.gather(*tasks)
        sampling.cancel()
        for call in calls:
            call.close()

    async def _work(self, host_id: str, call: Call, begun: float, at: float) -> None:
        """Poll, send the reports that an order leads to, and wait for the next turn."""
        turn = begun + at * self._every
        rollout_id = f"{CHANNEL}@{RELEASE}"
        while turn < begun + self._seconds:
            await asyncio.sleep(max(0.0, turn - time.monotonic()))
            await call.send([self._signer.poll(host_id)], self.polls)
            if call.status == 200:
                for content in reports_of_host(rollout_id, host_id, system_clock()):
                    await call.send([self._signer.report(content)], self.reports)
            turn += self._every

    async def _sample(self) -> None:
        while True:
            self.memory.append(self._server.memory_bytes())
            await asyncio.sleep(SAMPLE_SECONDS)

    def _promote(self) -> None:
        status = _post(
            self._server.port,
            f"/v1/channels/{CHANNEL}/promote",
            {"release_id": RELEASE},
            self._harbour.token,
        )
        assert status == 200, f"the promotion was answered {status}"


def _post(port: int, path: str, body: object, token: str) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


class Subscriber(asyncio.Protocol):
    """A client that follows the log by server-sent events, and counts the events."""

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self._rest = b""
        self.answered = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.answered.set()
        seen = self._rest + data
        self._heard(seen.count(_EVENT))
        self._rest = seen[-(len(_EVENT) - 1) :]


_EVENT = b"\nevent: tidegate."
ANSWERED_SECONDS_MAX = 60


async def subscribed(
    server: Server, token: str, count: int, heard: Callable[[int], None]
) -> list[asyncio.Transport]:
    """Open this many subscriptions; each has got its response."""
    loop = asyncio.get_running_loop()
    request = (
        f"GET /v1/events HTTP/1.1\r\nhost: {HOST}\r\naccept: text/event-stream\r\n"
        f"authorization: Bearer {token}\r\n\r\n"
    ).encode()
    transports: list[asyncio.Transport] = []
    async with asyncio.timeout(ANSWERED_SECONDS_MAX), asyncio.TaskGroup() as group:
        for _ in range(count):
            transport, subscriber = await loop.create_connection(
                lambda: Subscriber(heard), HOST, server.port
            )
            transport.write(request)
            transports.append(transport)
            group.create_task(subscriber.answered.wait())
    return transports
