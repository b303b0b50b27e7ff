"""The threads of an agent around its orders, joined by one inbox.

    poller ──▶ │       │
    sender ──▶ │ inbox │ ──▶ the loop: orders, journal ──▶ jobs and batches for the threads
    switcher ▶ │       │
    probers ─▶ │       │

Only the loop's thread changes the state of orders. The others wait for the network or for programs
and put the results into the inbox. If a thread dies, the agent ends; its supervisor restarts it,
and it resumes from the journal.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Generic, TypeVar

from tidegate.agent import (
    config,
    drivers as agent_drivers,
    host_facts,
    manifest,
    order_runs,
    probe_schedule,
    probes,
)
from tidegate.agent.client import CONFLICTS, AgentClient
from tidegate.agent.errors import RefusedByServer, ServerAway
from tidegate.agent.journal import Journal, PendingReport
from tidegate.clock import Clock
from tidegate.domain.hosts import agent_side, protocol, report_json

PROBERS: Final = 4
BATCH_BYTES_MAX: Final = 128 * 1024
HELD_SECONDS: Final = 10.0  # until a postponed report is sent again
EMPTY_POLL_SECONDS: Final = 1.0  # a shorter poll did not wait, so the agent does
MANIFEST_SECONDS_MAX: Final = 5.0  # between attempts to fetch a manifest for an order
ORDER_HELD_SECONDS: Final = (
    60.0  # that an order waits for its manifest; the server repeats it sooner
)
STOP_SECONDS_MAX: Final = 10.0  # to wait for a running switch
DOUBLINGS_MAX: Final = 10
# Codes for "not now": the same report is sent again.
POSTPONING: Final = agent_side.WAITS | CONFLICTS | {"clock_skew"}
# Codes for a conclusion that the server does not share yet. The report is void. If the host still
# soaks, the agent reports again with a new time and number. All other codes are final.
NOT_YET: Final = frozenset({"early_convergence", "unsustained_failure", "sequence_gap"})
AWAY: Final = "the server is away"
REFUSES: Final = "the server refuses this host"
# Statuses that refuse the whole request, although every report in it may be valid.
NOT_THE_REPORTS: Final = frozenset({401, 403, 404, 405, 406, 426})

log = logging.getLogger("tidegate.agent")
Task = TypeVar("Task")
Inbox = SimpleQueue[Callable[[], None]]


class BackOff:
    """Exponential back-off with jitter."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._failures = 0

    def failed(self) -> float:
        """Count a failure; return the seconds until the next attempt."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        ceiling = min(self._seconds_max, 0.5 * float(1 << self._failures))
        return ceiling * random.uniform(0.5, 1.0)

    def worked(self) -> None:
        self._failures = 0


class TaskThreads(Generic[Task]):
    """Daemon threads that run one kind of task."""

    def __init__(self, name: str, size: int, do: Callable[[Task], None], inbox: Inbox) -> None:
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._do = do
        self._inbox = inbox
        for number in range(size):
            Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, task: Task) -> None:
        self._tasks.put(task)

    def _work(self) -> None:
        try:
            while True:
                self._do(self._tasks.get())
        finally:
            self._inbox.put(_died)  # the interpreter has printed the error


class ThreadDied(RuntimeError):
    """A thread of the agent ended, so the agent cannot work."""


def _died() -> None:
    raise ThreadDied("a thread of the agent died")


class AgentLoop:
    """The agent, from ``run`` until ``stop``."""

    def __init__(
        self,
        settings: config.AgentSettings,
        enrolled: protocol.EnrollmentAnswer,
        client: AgentClient,
        journal: Journal,
        drivers: Mapping[str, agent_drivers.Driver],
        clock: Clock,
        version: str,
    ) -> None:
        self._settings = settings
        self._enrolled = enrolled
        self._client = client
        self._journal = journal
        self._drivers = drivers
        self._clock = clock
        self._version = version
        self._memory = manifest.ManifestVersions(Path(settings.state), enrolled.log_id)
        self._order_runs = order_runs.OrderRuns(
            enrolled.host_id, journal, drivers, self._load_probes, clock
        )
        self._inbox: Inbox = SimpleQueue()
        self._stopping = Event()
        self._can_poll = Event()  # set while the host may take an order
        self._back_off = BackOff(settings.back_off_seconds_max)
        self._quiet_until = 0.0  # monotonic time, as all below
        self._postponed_until: dict[str, float] = {}
        self._heartbeat_at = 0.0
        self._is_sending = False
        self._one_by_one = False
        self._switching = 0
        self._facts: protocol.HostFacts | None = None  # what the server knows about this machine

    def stop(self) -> None:
        """Stop soon. Any thread and signal handlers may call it."""
        self._stopping.set()
        self._inbox.put(lambda: None)

    def run(self) -> None:
        """Run until stopped.

        Raises:
            ThreadDied. OSError: the journal cannot be written.
        """
        self._sender: TaskThreads[Callable[[], None]] = TaskThreads(
            "sender", 1, lambda do: do(), self._inbox
        )
        self._switcher = TaskThreads("switcher", 1, self._switch, self._inbox)
        self._probers = TaskThreads("prober", PROBERS, self._check, self._inbox)
        poller: TaskThreads[None] = TaskThreads("poller", 1, lambda _: self._poll(), self._inbox)
        poller.submit(None)
        self._order_runs.resume()
        tick_at = time.monotonic()
        while not self._stopping.is_set():
            if time.monotonic() >= tick_at:
                self._order_runs.tick()
                tick_at = time.monotonic() + self._settings.tick_seconds
            self._hand_out()
            self._run_next(tick_at - time.monotonic())
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._switching and time.monotonic() < deadline:
            self._run_next(deadline - time.monotonic())

    def _run_next(self, seconds: float) -> None:
        with suppress(Empty):
            self._inbox.get(timeout=max(0.0, seconds))()

    def _hand_out(self) -> None:
        """Give jobs, reports and heartbeats to their threads."""
        while self._order_runs.jobs:
            match self._order_runs.jobs.popleft():
                case order_runs.SwitchJob() as job:
                    self._switching += 1
                    self._switcher.submit(job)
                case probe_schedule.ProbeJob() as job:
                    self._probers.submit(job)
        if not self._is_sending:
            self._send_next()
        if self._order_runs.may_poll:
            self._can_poll.set()
        else:
            self._can_poll.clear()

    # ── orders, on the poller's thread ──

    def _poll(self) -> None:
        back_off = BackOff(self._settings.back_off_seconds_max)
        while not self._stopping.is_set():
            self._can_poll.wait()
            began = time.monotonic()
            try:
                order = self._client.dispatch(self._settings.poll_seconds)
                if order is not None:
                    self._await_manifest(order)
            except (ServerAway, RefusedByServer) as error:
                log.warning("no orders: %s", error.detail)
                self._stopping.wait(back_off.failed())
                continue
            back_off.worked()
            if order is None and time.monotonic() - began < EMPTY_POLL_SECONDS:
                self._stopping.wait(random.uniform(1.0, 2.0) * EMPTY_POLL_SECONDS)

    def _await_manifest(self, order: protocol.Order) -> None:
        """Deliver an order once a manifest decides it. Keep polling: a newer order wins."""
        back_off = BackOff(MANIFEST_SECONDS_MAX)
        since, logged = time.monotonic(), ""
        while not self._stopping.is_set():
            try:
                self._deliver(order, self._judge(order))
                return
            except (manifest.UntrustedManifest, ServerAway, RefusedByServer) as error:
                if str(error) != logged:
                    log.warning("order %s waits for its manifest: %s", order.rollout_id, error)
                logged = str(error)
            self._stopping.wait(back_off.failed())
            polled = self._poll_again()
            if polled is not None:
                if polled != order:
                    back_off = BackOff(MANIFEST_SECONDS_MAX)
                order, since = polled, time.monotonic()
            elif time.monotonic() - since > ORDER_HELD_SECONDS:
                return  # the server stopped repeating it

    def _poll_again(self) -> protocol.Order | None:
        """Poll without waiting: the same order, a newer one, or none."""
        try:
            return self._client.dispatch(0)
        except (ServerAway, RefusedByServer) as error:
            log.warning("no orders: %s", error.detail)
            return None

    def _judge(self, order: protocol.Order) -> str | None:
        """Why the manifest forbids the order.

        Raises:
            UntrustedManifest, ServerAway, RefusedByServer, OSError.
        """
        body = self._client.manifest(order.channel)
        keys = self._enrolled.manifest_keys
        current = manifest.verify(body, order.channel, keys, self._memory, self._clock())
        return manifest.judge(order, current)

    def _deliver(self, order: protocol.Order, objection: str | None) -> None:
        """Deliver an order and the last report number that the server has.

        Raises:
            ServerAway, RefusedByServer.
        """
        beat = self._client.heartbeat(self._version, self._closures(), (order.rollout_id,))
        numbered = beat.last_accepted_seq.get(order.rollout_id, 0)
        self._can_poll.clear()
        self._inbox.put(partial(self._order_runs.take, order, numbered, objection))

    def _closures(self) -> dict[str, str]:
        running = {channel: driver.current() for channel, driver in self._drivers.items()}
        return {channel: closure for channel, closure in running.items() if closure}

    # ── switches and probes, on their own threads ──

    def _switch(self, job: order_runs.SwitchJob) -> None:
        back_off = BackOff(self._settings.back_off_seconds_max)
        outcome: agent_drivers.SwitchOutcome | None = None
        while outcome is None:
            try:
                outcome = self._drivers[job.channel].switch(job.change)
            except ServerAway as away:
                if self._clock() >= job.until:
                    outcome = agent_drivers.SwitchFailed(agent_drivers.EXIT_BROKEN, away.detail)
                    continue
                log.warning("the switch of %s waits: %s", job.channel, away.detail)
                if self._stopping.wait(back_off.failed()):
                    self._inbox.put(self._switch_interrupted)
                    return
        self._inbox.put(partial(self._switch_ended, job, outcome))

    def _switch_interrupted(self) -> None:
        self._switching -= 1  # the next start resumes it

    def _switch_ended(
        self, job: order_runs.SwitchJob, outcome: agent_drivers.SwitchOutcome
    ) -> None:
        self._switching -= 1
        self._order_runs.end_switch(job, outcome)
        self._heartbeat_at = 0.0  # report at once what runs now

    def _check(self, job: probe_schedule.ProbeJob) -> None:
        result = probes.run_probe(job.probe)
        self._inbox.put(partial(self._order_runs.end_probe, job, result))

    def _load_probes(self, channel: str) -> tuple[probes.Probe, ...]:
        return probes.load(self._settings.channels[channel].probes)

    # ── reports and heartbeats, sent on the sender's thread ──

    def _send_next(self) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        batch = self._batch(now)
        if batch:
            self._is_sending = True
            self._sender.submit(partial(self._send_reports, batch))
        elif now >= self._heartbeat_at:
            self._is_sending = True
            self._sender.submit(partial(self._send_heartbeat, self._order_runs.staged))

    def _batch(self, now: float) -> tuple[PendingReport, ...]:
        """The reports that may be sent now, in order; none of a postponed rollout."""
        batch: list[PendingReport] = []
        size = 0
        for entry in self._journal.entries:
            if self._postponed_until.get(entry.event.rollout_id, 0.0) > now:
                continue
            size += len(str(report_json.event_to_json(entry.event)))
            if batch and (size > BATCH_BYTES_MAX or self._one_by_one):
                break
            batch.append(entry)
            if len(batch) == protocol.REPORTS_MAX:
                break
        return tuple(batch)

    def _send_reports(self, batch: Sequence[PendingReport]) -> None:
        try:
            answers = self._client.report(
                [report_json.event_to_json(entry.event) for entry in batch]
            )
        except ServerAway as away:
            self._inbox.put(partial(self._wait, AWAY, away.detail))
        except RefusedByServer as answered:
            self._inbox.put(partial(self._batch_refused, batch, answered))
        else:
            self._inbox.put(partial(self._reports_answered, batch, answers))

    def _send_heartbeat(self, staged: Sequence[str]) -> None:
        facts = host_facts.read_host_facts()
        new = None if facts == self._facts else facts
        try:
            answer = self._client.heartbeat(self._version, self._closures(), staged, new)
        except ServerAway as away:
            self._inbox.put(partial(self._wait, AWAY, away.detail))
        except RefusedByServer as answered:
            self._inbox.put(partial(self._wait, REFUSES, answered.detail))
        else:
            self._facts = None if answer.facts_missing else facts
            self._inbox.put(partial(self._heartbeat_sent, answer.taken_back))

    def _heartbeat_sent(self, taken_back: Sequence[str]) -> None:
        for rollout_id in taken_back:
            self._order_runs.withdraw(rollout_id)
        self._is_sending = False
        self._back_off.worked()
        self._heartbeat_at = time.monotonic() + self._settings.heartbeat_seconds

    def _wait(self, why: str, detail: str) -> None:
        """Send nothing for a while: the server does not answer, or refuses this host."""
        self._is_sending = False
        seconds = self._back_off.failed()
        log.warning("%s, the journal waits %.1f s: %s", why, seconds, detail)
        self._quiet_until = time.monotonic() + seconds

    def _batch_refused(self, batch: Sequence[PendingReport], answered: RefusedByServer) -> None:
        """Send the reports one by one: a bad one must not block the others."""
        if answered.status in NOT_THE_REPORTS:
            self._wait(REFUSES, answered.detail)
            return
        self._is_sending = False
        if len(batch) > 1:
            self._one_by_one = True
            return
        self._one_by_one = False
        self._give_up(batch[0], answered.detail, answered.members)

    def _reports_answered(
        self, batch: Sequence[PendingReport], answers: Sequence[protocol.ReportResult]
    ) -> None:
        self._is_sending = False
        self._one_by_one = False
        self._back_off.worked()
        through: dict[str, int] = {}
        refused: dict[
            str, tuple[PendingReport, protocol.ReportResult]
        ] = {}  # by rollout; its later reports are void, too
        for entry, answer in zip(batch, answers, strict=True):
            rollout_id = entry.event.rollout_id
            if rollout_id in refused:
                continue
            if answer.status == 200:
                through[rollout_id] = entry.event.seq
            else:
                refused[rollout_id] = (entry, answer)
        for rollout_id, seq in through.items():
            self._postponed_until.pop(rollout_id, None)
            self._order_runs.confirm(rollout_id, seq)
        for entry, answer in refused.values():
            self._report_refused(entry, answer)

    def _report_refused(self, entry: PendingReport, answer: protocol.ReportResult) -> None:
        rollout_id = entry.event.rollout_id
        later = answer.code in POSTPONING or agent_side.waits(entry.event, answer.code)
        if answer.status >= 500 or later:
            log.info("%s waits: %s", rollout_id, answer.detail)
            self._postponed_until[rollout_id] = time.monotonic() + HELD_SECONDS * random.uniform(
                0.5, 1.5
            )
        else:
            if answer.code in NOT_YET:  # no sooner than a postponed report
                self._postponed_until[rollout_id] = time.monotonic() + HELD_SECONDS
            members = {"state": answer.state, "expected": answer.expected}
            self._give_up(entry, f"{answer.code}: {answer.detail}", members)

    def _give_up(self, entry: PendingReport, detail: str, members: dict[str, Any]) -> None:
        name = type(entry.event).__name__
        log.warning("%s of %s is refused for good: %s", name, entry.event.rollout_id, detail)
        state, expected = members.get("state"), members.get("expected")
        self._order_runs.drop_refused(
            entry,
            state=state if isinstance(state, str) else "",
            expected=expected if isinstance(expected, int) else None,
        )
