"""The figures: CPU and rates of the hot routes, a rollout at its own pace, subscribers, frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.fleet.fleets import REPORTS_PER_HOST
from bench.http.agents import Agents, subscribed
from bench.http.calls import Tally, connected, replay, run
from bench.http.metered import BEGIN, FRAMES
from bench.http.prepared_data import PreparedData
from bench.http.results import Cost, Following, Running
from bench.http.server import METERED, Server, serving
from bench.http.signing import Signer

CONNECTIONS = 64
REST = "rest"  # the event loop, sockets, and the handover between threads
QUIET_SECONDS_MAX = 30.0
ALONE = ("--worker", "false")  # the API is measured, not the other routes

Say = Callable[[str], None]


def _cost(server: Server, shares: Sequence[Sequence[bytes]], *allowed: int) -> Cost:
    before = server.cpu_seconds()
    tally, seconds = replay(server.port, shares)
    spent = server.cpu_seconds() - before
    tally.demand(*allowed)
    return Cost.of(spent, seconds, tally.took)


def _shares(requests: Sequence[bytes], each: int = 1) -> list[list[bytes]]:
    """Distribute over connections; ``each`` this many that belong together stay together."""
    groups = [requests[at : at + each] for at in range(0, len(requests), each)]
    return [
        [request for group in groups[number::CONNECTIONS] for request in group]
        for number in range(min(CONNECTIONS, len(groups)))
    ]


def hot_routes(prepared: PreparedData, rounds: int, polls: int, say: Say) -> tuple[Cost, Cost]:
    """The CPU cost of a durable report and of an unchanged poll, each in its best round."""
    per_round = len(prepared.reporting) // (rounds + 1)  # the last share is for others
    reported, polled = [], []
    with serving(prepared.data, *ALONE) as server:
        signer = Signer(prepared)
        for number in range(rounds):
            say(f"round {number + 1}: reports, then polls")
            hosts = prepared.reporting[number * per_round : (number + 1) * per_round]
            reported.append(_cost(server, _reports(prepared, server, hosts), 200))
            asked = [prepared.polling[n % len(prepared.polling)] for n in range(polls)]
            polled.append(_cost(server, _shares([*map(signer.poll, asked)]), 204))
    return min(reported, key=_cpu), min(polled, key=_cpu)


def _reports(prepared: PreparedData, server: Server, hosts: Sequence[str]) -> list[list[bytes]]:
    """The reports of these hosts, each sent by itself, after each host has polled for its order."""
    signer = Signer(prepared)
    tally, _ = replay(server.port, _shares([*map(signer.poll, hosts)]))
    tally.demand(200)
    return _shares(signer.passages(prepared.rollout_id, hosts), REPORTS_PER_HOST)


def _cpu(cost: Cost) -> float:
    return cost.cpu_microseconds


def frames(prepared: PreparedData, out: Path) -> dict[str, float]:
    """CPU microseconds of a report by frame; time in no frame counts as the rest."""
    hosts = prepared.reporting[-len(prepared.reporting) // 6 :][: len(prepared.reporting) // 24]
    with serving(prepared.data, *ALONE, program=(*METERED, str(out))) as server:
        shares = _reports(prepared, server, hosts)
        server.process.send_signal(BEGIN)
        cost = _cost(server, shares, 200)
    found = msgspec.json.decode(out.read_bytes(), type=dict[str, float])
    by_frame = {name: found[name] / cost.requests * 1e6 for name in FRAMES}
    return {**by_frame, REST: cost.cpu_microseconds - sum(by_frame.values())}


def running(prepared: PreparedData, every: float, seconds: float) -> Running:
    """Agents at their own pace while a rollout reaches all of them; the worker runs as well."""
    with serving(prepared.data) as server:
        before = server.cpu_seconds()
        agents = Agents(prepared, server, every, seconds)
        run(agents.run())
        spent = server.cpu_seconds() - before
    agents.polls.demand(200, 204)
    agents.reports.demand(200)
    return Running.of(
        agents=len(prepared.polling),
        every=every,
        ordered=agents.polls.statuses[200],
        polls=agents.polls.took,
        reports=agents.reports.took,
        cpu_share=spent / seconds,
        memory=agents.memory,
    )


def following(prepared: PreparedData, subscribers: int, reports: int, pause: float) -> Following:
    """Subscribers that get every event, while reports arrive one by one."""
    with serving(prepared.data, *ALONE) as server:
        hosts = prepared.reporting[-len(prepared.reporting) // 8 :]
        requests = Signer(prepared).passages(prepared.rollout_id, hosts)[:reports]
        return run(_followed(server, prepared.token, requests, subscribers, pause))


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
    await asyncio.sleep(1.0)  # all of them got a response, and are at the end of the log
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
