"""The figures: CPU and rates of the hot routes, a rollout at its own pace, subscribers, frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.fleet.fleets import PASSAGE
from bench.http.agents import Agents, subscribed
from bench.http.calls import Tally, connected, replay, run
from bench.http.metered import BEGIN, FRAMES
from bench.http.prepared_data import Harbour
from bench.http.results import Cost, Following, Running
from bench.http.server import METERED, Server, serving
from bench.http.signing import Signer

CONNECTIONS = 64
REST = "rest"  # the event loop, sockets, and handing over between threads
QUIET_SECONDS_MAX = 30.0
ALONE = ("--worker", "false")  # what is measured is the API

Say = Callable[[str], None]


def _cost(server: Server, shares: Sequence[Sequence[bytes]], *allowed: int) -> Cost:
    before = server.cpu_seconds()
    tally, seconds = replay(server.port, shares)
    spent = server.cpu_seconds() - before
    tally.demand(*allowed)
    return Cost.of(spent, seconds, tally.took)


def _shares(requests: Sequence[bytes], each: int = 1) -> list[list[bytes]]:
    """Dealt out to connections; ``each`` that belong together stay together."""
    groups = [requests[at : at + each] for at in range(0, len(requests), each)]
    return [
        [request for group in groups[number::CONNECTIONS] for request in group]
        for number in range(min(CONNECTIONS, len(groups)))
    ]


def hot_routes(harbour: Harbour, rounds: int, polls: int, say: Say) -> tuple[Cost, Cost]:
    """A durable report and an unchanged poll, each in its best round."""
    per_round = len(harbour.reporting) // (rounds + 1)  # the last share is for others
    reported, polled = [], []
    with serving(harbour.data, *ALONE) as server:
        signer = Signer(harbour)
        for number in range(rounds):
            say(f"round {number + 1}: reports, then polls")
            hosts = harbour.reporting[number * per_round : (number + 1) * per_round]
            reported.append(_cost(server, _reports(harbour, server, hosts), 200))
            asked = [harbour.polling[n % len(harbour.polling)] for n in range(polls)]
            polled.append(_cost(server, _shares([*map(signer.poll, asked)]), 204))
    return min(reported, key=_cpu), min(polled, key=_cpu)


def _reports(harbour: Harbour, server: Server, hosts: Sequence[str]) -> list[list[bytes]]:
    """What the hosts report, each report by itself. They have polled: an order comes by a poll."""
    signer = Signer(harbour)
    tally, _ = replay(server.port, _shares([*map(signer.poll, hosts)]))
    tally.demand(200)
    return _shares(signer.passages(harbour.rollout_id, hosts), PASSAGE)


def _cpu(cost: Cost) -> float:
    return cost.cpu_microseconds


def frames(harbour: Harbour, out: Path) -> dict[str, float]:
    """CPU microseconds of a report by frame; what no frame accounts for is the rest."""
    hosts = harbour.reporting[-len(harbour.reporting) // 6 :][: len(harbour.reporting) // 24]
    with serving(harbour.data, *ALONE, program=(*METERED, str(out))) as server:
        shares = _reports(harbour, server, hosts)
        server.process.send_signal(BEGIN)
        cost = _cost(server, shares, 200)
    found = msgspec.json.decode(out.read_bytes(), type=dict[str, float])
    by_frame = {name: found[name] / cost.requests * 1e6 for name in FRAMES}
    return {**by_frame, REST: cost.cpu_microseconds - sum(by_frame.values())}


def running(harbour: Harbour, every: float, seconds: float) -> Running:
    """Agents at their own pace while a rollout reaches all of them; the worker works, too."""
    with serving(harbour.data) as server:
        before = server.cpu_seconds()
        agents = Agents(harbour, server, every, seconds)
        run(agents.run())
        spent = server.cpu_seconds() - before
    agents.polls.demand(200, 204)
    agents.reports.demand(200)
    return Running.of(
        agents=len(harbour.polling),
        every=every,
        ordered=agents.polls.statuses[200],
        polls=agents.polls.took,
        reports=agents.reports.took,
        cpu_share=spent / seconds,
        memory=agents.memory,
    )


def following(harbour: Harbour, subscribers: int, reports: int, pause: float) -> Following:
    """Subscribers that get every event, while reports come one by one."""
    with serving(harbour.data, *ALONE) as server:
        hosts = harbour.reporting[-len(harbour.reporting) // 8 :]
        requests = Signer(harbour).passages(harbour.rollout_id, hosts)[:reports]
        return run(_followed(server, harbour.token, requests, subscribers, pause))


async def _followed(
    server: Server, token: str, requests: Sequence[bytes], subscribers: int, pause: float
) -> Following:
    heard = 0
    last = time.perf_counter()

    def count(events: int) -> None:
        nonlocal heard, last
        heard += events
        last = time.perf_counter()

    transports = await subscribed(server, token, subscribers, count)
    await asyncio.sleep(1.0)  # all of them are answered, and stand at the end of the log
    tally = Tally()
    call = await connected(server.port)
    before = server.cpu_seconds()
    for request in requests:
        await call.send([request], tally)
        await asyncio.sleep(pause)
    answered = time.perf_counter() - pause
    deadline = answered + QUIET_SECONDS_MAX
    while time.perf_counter() - max(last, answered) < 1.0 and time.perf_counter() < deadline:
        await asyncio.sleep(0.1)
    spent = server.cpu_seconds() - before
    for transport in transports:
        transport.close()
    call.close()
    tally.demand(200)
    assert heard % subscribers == 0, "somebody missed an event"
    assert heard >= subscribers * len(requests), "not every report was heard of"
    return Following(
        subscribers=subscribers,
        events=heard // subscribers,
        cpu_microseconds=spent / heard * 1e6,
        last_milliseconds=(last - answered) * 1e3,
    )
