"""The hosts of the demo: simulated agents in one thread, on a real control plane.

    order reserved ──▶ wake ──▶ poll ──▶ take ──▶ journal ──▶ reports, through the rollout's lane
                                           ▲                      │ answers
                                           └──── the agent ◀──────┘

The agents are those of the simulator. Their clock is the real one, but their waits are shorter: a
minute takes a second at 60×.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from random import Random
from threading import Event, Lock

from tidegate import __version__, errors
from tidegate.control import lanes, runtime
from tidegate.control.installation import Installation
from tidegate.domain.fleet.rows import LIVENESS, Liveness
from tidegate.domain.hosts import agent_side, refusals, rows
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.kernel.model import Meta
from tidegate.simulate import agents, rates

BEAT_SECONDS = 0.1  # between two beats, which do what is due
POLL_SECONDS = 10.0  # between two polls of a host that was not woken
HEARD_SECONDS = 60.0
REPORTS_MAX = 10  # of one host in one beat
ACTIONS_MAX = 20_000  # in one beat

HEALTHY = rates.Rates(
    activation=rates.Span(20.0, 120.0),
    rollback=rates.Span(60.0, 180.0),
    probe=rates.Span(10.0, 40.0),
)
FAILING = rates.Rates(
    activation=HEALTHY.activation, rollback=HEALTHY.rollback, probe=HEALTHY.probe, probe_fails=1.0
)

Reported = tuple[agents.SimulatedAgent, agents.JournalEntry, "Future[runtime.CommandOutcome]"]


class DemoFleet:
    """The hosts of the demo. ``run`` drives them until it is stopped."""

    def __init__(self, installation: Installation, speed: float, seed: int = 1) -> None:
        self._installation = installation
        self._speed = speed
        self._random = Random(seed)
        self._agents: dict[str, agents.SimulatedAgent] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._woken: set[str] = set()
        self._lock = Lock()
        self._failing: dict[str, str] = {}  # artifact → the host whose probe fails on it
        self._reported: dict[str, dict[str, str]] = {}  # host → what its last heartbeat reported

    def join(self, host_ids: Iterable[str]) -> None:
        """Start agents for hosts that are enrolled."""
        for host_id in host_ids:
            agent = agents.SimulatedAgent(host_id, HEALTHY, self._random, self)
            self._agents[host_id] = agent
            self._at(self._random.uniform(0.0, POLL_SECONDS), partial(self._poll_regularly, agent))
            self._at(self._random.uniform(0.0, HEARD_SECONDS), partial(self._beat_regularly, agent))

    def make_probe_fail(self, target: str, host_id: str) -> None:
        """Let this host's probe fail on this artifact; it passes on every other host."""
        with self._lock:
            self._failing[target] = host_id

    def wake(self, host_ids: Sequence[str]) -> None:
        """These hosts have orders. Any thread may call it."""
        with self._lock:
            self._woken.update(host_ids)

    # ── the environment of agents ──

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(seconds / self._speed, action)

    def now(self) -> datetime:
        return self._installation.clock()

    def flush(self, agent: agents.SimulatedAgent) -> None:
        """Do nothing: every beat sends the journals."""

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._count, action))

    # ── life ──

    def run(self, stop: Event) -> None:
        """Run beats until ``stop`` is set."""
        while not stop.wait(BEAT_SECONDS):
            self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        for _ in range(ACTIONS_MAX):
            if not self._due or self._due[0][0] > now:
                break
            heapq.heappop(self._due)[2]()
        for agent in self._agents.values():
            if agent.running != self._reported.get(agent.host_id, {}):
                self._send_heartbeat(agent)
        with self._lock:
            woken, self._woken = self._woken, set()
        for host_id in sorted(woken & self._agents.keys()):
            self._poll(self._agents[host_id])
        self._report()

    def _poll_regularly(self, agent: agents.SimulatedAgent) -> None:
        self._at(POLL_SECONDS, partial(self._poll_regularly, agent))
        self._poll(agent)

    def _poll(self, agent: agents.SimulatedAgent) -> None:
        if agent.busy:
            return
        try:
            order = self._installation.deliveries.poll(agent.host_id)
        except (errors.Unavailable, errors.Unknown):
            return  # it polls again
        if order is not None:
            self._take(agent, order)

    def _take(self, agent: agents.SimulatedAgent, order: rows.QueuedDispatch) -> None:
        with self._lock:
            is_failing = self._failing.get(order.target_closure) == agent.host_id
        agent.rates = FAILING if is_failing else HEALTHY
        agent.take(order)

    def _beat_regularly(self, agent: agents.SimulatedAgent) -> None:
        self._at(HEARD_SECONDS, partial(self._beat_regularly, agent))
        self._send_heartbeat(agent)

    def _send_heartbeat(self, agent: agents.SimulatedAgent) -> None:
        """Report that the host is alive, and what it runs."""
        self._reported[agent.host_id] = running = dict(agent.running)
        seen = Liveness(
            host_id=agent.host_id,
            last_seen_at=self.now(),
            agent_version=__version__,
            current_closures=running,
        )
        meta = Meta(actor=f"host_{agent.host_id}")
        self._installation.records(meta).save(LIVENESS.name, agent.host_id, seen)

    # ── reports ──

    def _report(self) -> None:
        """Send the journals, all hosts of a rollout together, and handle each result."""
        waiting: dict[str, list[tuple[agents.SimulatedAgent, agents.JournalEntry]]] = {}
        for agent in self._agents.values():
            if agent.journal:
                rollout_id = agent.journal[0].event.rollout_id
                waiting.setdefault(rollout_id, []).extend(_batch(agent, rollout_id))
        sent: list[Reported] = []
        for rollout_id, entries in waiting.items():
            for start in range(0, len(entries), lanes.PACK_MAX):
                sent += self._send(rollout_id, entries[start : start + lanes.PACK_MAX])
        broken: set[str] = set()
        for agent, entry, future in sent:
            if agent.host_id not in broken and not _handle_answer(agent, entry, _error_of(future)):
                broken.add(agent.host_id)
        if sent:
            self._installation.nudge()

    def _send(
        self, rollout_id: str, entries: Sequence[tuple[agents.SimulatedAgent, agents.JournalEntry]]
    ) -> list[Reported]:
        reports = [
            (
                report_event,
                ReportEvent(rollout_id=rollout_id, host_id=agent.host_id, event=entry.event),
                Meta(actor=f"host_{agent.host_id}"),
            )
            for agent, entry in entries
        ]
        futures = self._installation.lanes.record_all(rollout_id, reports)
        return [(*entry, future) for entry, future in zip(entries, futures, strict=True)]


def _batch(
    agent: agents.SimulatedAgent, rollout_id: str
) -> list[tuple[agents.SimulatedAgent, agents.JournalEntry]]:
    """The first reports of a journal, if they belong to this rollout."""
    found: list[tuple[agents.SimulatedAgent, agents.JournalEntry]] = []
    for entry in agent.journal:
        if entry.event.rollout_id != rollout_id or len(found) == REPORTS_MAX:
            break
        found.append((agent, entry))
    return found


def _error_of(future: Future[runtime.CommandOutcome]) -> errors.TidegateError | None:
    try:
        future.result()
    except errors.TidegateError as error:
        return error
    return None


def _handle_answer(
    agent: agents.SimulatedAgent, entry: agents.JournalEntry, error: errors.TidegateError | None
) -> bool:
    """Handle the result of a report; return whether the agent's next one may be handled."""
    if error is None:
        agent.journal.remove(entry)
        agent.confirm(entry)
        return True
    again = isinstance(error, refusals.SequenceGap | errors.Unavailable | errors.Unknown)
    if not (again or agent_side.waits(entry.event, error.code)):
        agent.drop_refused(entry, error)
    return False
