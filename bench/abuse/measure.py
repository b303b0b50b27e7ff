"""One case: an abusive client in its own process, everyone else, and the server's memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.abuse.attacks import ANSWER_SECONDS_MAX, UPLOAD_BYTES
from bench.abuse.probes import Everyone
from bench.abuse.results import GROWTH_BYTES_MAX, UPLOAD_TIMES_MAX, Case
from bench.http.calls import run
from bench.http.prepared_data import PreparedData
from bench.http.results import at_share
from bench.http.server import Server

ALONE = "no abusive client"
UPLOAD = "one faulty upload"
SAMPLE_SECONDS = 0.02
OVERTIME_SECONDS_MAX = 2 * ANSWER_SECONDS_MAX  # after which the case counts as stuck


def case(prepared: PreparedData, server: Server, name: str, seconds: float, every: float) -> Case:
    """Measure what this client costs; ``ALONE``: what everyone else costs without one."""
    return run(_case(prepared, server, name, seconds, every))


async def _case(
    prepared: PreparedData, server: Server, name: str, seconds: float, every: float
) -> Case:
    everyone = Everyone(prepared, server.port, every)
    before = server.memory_bytes()[1]
    most = before
    begun, spent = time.monotonic(), server.cpu_seconds()

    async def sample() -> None:
        nonlocal most
        while True:
            most = max(most, server.memory_bytes()[1])
            await asyncio.sleep(SAMPLE_SECONDS)

    sampling = asyncio.create_task(sample())
    async with _attacked(prepared, server, name, seconds):
        async with asyncio.timeout(seconds + OVERTIME_SECONDS_MAX):
            await everyone.run(seconds)
    sampling.cancel()
    cpu_share = (server.cpu_seconds() - spent) / (time.monotonic() - begun)
    is_upload = name == UPLOAD
    return Case(
        name=name,
        growth_bytes=most - before,
        growth_bytes_max=UPLOAD_TIMES_MAX * UPLOAD_BYTES if is_upload else GROWTH_BYTES_MAX,
        cpu_share=cpu_share,
        live_median_ms=at_share(everyone.live_seconds, 0.5) * 1e3,
        live_tail_ms=at_share(everyone.live_seconds, 0.99) * 1e3,
        polls=len(everyone.polls.took),
        is_served=everyone.is_served(),
    )


@asynccontextmanager
async def _attacked(
    prepared: PreparedData, server: Server, name: str, seconds: float
) -> AsyncIterator[None]:
    """Run the abusive client around the block, and wait until it ends.

    Raises:
        AssertionError: the abusive client itself failed.
    """
    if name == ALONE:
        yield
        return
    words = ["-m", "bench.abuse.attacks", name, str(server.port), str(seconds)]
    attack = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE)
    try:
        assert attack.stdin is not None
        with attack.stdin as given:
            given.write(f"{prepared.token}\n".encode())
        yield
        code = await asyncio.to_thread(attack.wait, seconds + OVERTIME_SECONDS_MAX)
        assert code == 0, f"{name} failed"
    finally:
        if attack.poll() is None:
            attack.kill()
            attack.wait()
