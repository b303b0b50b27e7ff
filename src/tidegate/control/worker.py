"""The worker: all background work of an installation, as named loops, until it is stopped.

    loop         each time                                                    seconds
    orders       checks gates, reserves orders; the first round refills the queue   1
    timers       records deadlines that have passed                                 1
    outbox       delivers due intents                                               1
    manifests    publishes channel manifests, on change and before they expire      2
    requests     ends requests that expired or are void, reminds of reviews         5
    notify       queues notifications and sends them                                1
    policies     promotes and rolls back where a channel's policy says so           2
    reconcile    compares external systems with our rows                           60
    archive      copies the log, if an archive is configured                        2
    collection   deletes expired blobs, sessions and publications               3,600

When the store or the network fails, a loop waits and retries. Nothing is lost, because every round
starts from the rows. Any other error is a bug: it ends the worker with a critical log line, rather
than continuing in an unknown state. Several workers may run at once, in several processes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from types import TracebackType
from typing import Self

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tidegate.control import leaders, request_deadlines, worker_loops
from tidegate.control.fleet import dispatch
from tidegate.control.fleet.timers import Timers, TimersResult
from tidegate.control.installation import Installation
from tidegate.control.notifications.notifier import Notifier
from tidegate.control.notifications.sender import NoticeSender
from tidegate.control.outbox.reconcile import Reconciler, ScopeHistoryTooLong
from tidegate.control.outbox.sender import OutboxSender as OutboxWorker
from tidegate.control.outbox.targets import Target
from tidegate.control.storage.archive import Archive
from tidegate.control.storage.archive.loop import ArchiveLoop
from tidegate.control.storage.archive.segment_store import SegmentStore
from tidegate.control.storage.blobs import BlobMissing
from tidegate.control.storage.garbage_collection import GarbageCollector
from tidegate.domain.gates import automation as gate_automation
from tidegate.domain.notifications.slices import LEADER
from tidegate.domain.requests.deadlines import LEADER as REQUESTS_LEADER
from tidegate.errors import TRANSIENT, TidegateError
from tidegate.kernel import leases

SOON_SECONDS = 0.05  # wait between rounds while there is more to do
DOUBLINGS_MAX = 16
WAIT_SECONDS_MAX = 30.0  # between rounds while they keep failing
STOP_SECONDS = 30.0

log = logging.getLogger("tidegate.worker")

Round = Callable[[], bool]  # returns whether there is more to do at once
Wake = Callable[[Sequence[str]], None]


class LoopPace(Struct, frozen=True, kw_only=True):
    """The seconds between the rounds of each loop."""

    orders: float = 1.0
    timers: float = 1.0
    outbox: float = 1.0
    notify: float = 1.0
    requests: float = 5.0
    policies: float = 2.0
    manifests: float = 2.0
    reconcile: float = 60.0
    archive: float = 2.0
    collection: float = 3_600.0


USUAL = LoopPace()


@dataclass(slots=True)
class WorkerLoop:
    """A loop of the worker. ``bears``: errors that are logged and retried, besides TRANSIENT."""

    name: str
    seconds: float
    round: Round
    bears: tuple[type[TidegateError], ...] = ()
    close: Callable[[], None] = lambda: None  # called after the last round
    rounds: int = 0
    troubles: int = 0  # failed rounds in a row
    ended_at: float = field(default_factory=time.monotonic)

    @property
    def wait_seconds(self) -> float:
        """How long to wait before the next round: doubled after each failure."""
        patience = self.seconds * (1 << min(self.troubles, DOUBLINGS_MAX))
        return max(self.seconds, min(patience, WAIT_SECONDS_MAX))


class Worker:
    """Runs each loop in a thread of its own.

    ``wake`` is called with hosts that now have orders, ``failed`` when an error ended the worker.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        targets: Mapping[str, Target] | None = None,
        archive: SegmentStore | None = None,
        pace: LoopPace = USUAL,
        registry: CollectorRegistry | None = None,
        wake: Wake = lambda hosts: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._installation = installation
        self._registry = registry or CollectorRegistry()
        self._counters = worker_loops.Counters(self._registry)
        self._failed = failed
        self._stop = Event()
        self.threads: list[Thread] = []
        self.failure: Exception | None = None
        self.loops = tuple(self._loops(targets or {}, archive, pace, wake))

    def _loops(
        self,
        targets: Mapping[str, Target],
        archive: SegmentStore | None,
        pace: LoopPace,
        wake: Wake,
    ) -> Iterator[WorkerLoop]:
        found = self._installation
        outbox = OutboxWorker(found.control, targets)
        dispatcher = dispatch.Dispatcher(found.lanes, found.fleet_reader, found.clock, wake)
        orders = worker_loops.OrdersLoop(dispatcher, found.deliveries, found.nudge, self._counters)
        manifests = make_manifests_loop(found, self._counters)
        due = Timers(found.store, found.control, found.lanes, found.clock)
        reconciler = Reconciler(outbox)
        yield WorkerLoop("orders", pace.orders, orders.round)
        yield WorkerLoop(
            "timers", pace.timers, lambda: self._notify_if(due.tick() != TimersResult())
        )
        yield WorkerLoop(
            "outbox", pace.outbox, lambda: self._notify_if(bool(outbox.work(self._stop)))
        )
        notify = make_notify_loop(found)
        yield WorkerLoop("notify", pace.notify, notify.round, close=notify.close)
        requests = make_request_deadlines(found)
        yield WorkerLoop("requests", pace.requests, requests.round, close=requests.close)
        policies = make_policies_loop(found)
        yield WorkerLoop("policies", pace.policies, policies.round, close=policies.close)
        yield WorkerLoop("manifests", pace.manifests, manifests.round)
        yield WorkerLoop(
            "reconcile",
            pace.reconcile,
            lambda: self._notify_if(reconciler.run_once().appended > 0),
            (ScopeHistoryTooLong,),
        )
        if archive is not None:
            mirror = Archive(found.store, archive, log_id=found.log_id, clock=found.clock)
            mirroring = ArchiveLoop(mirror, self._stop, self._registry)
            yield WorkerLoop("archive", pace.archive, mirroring.round)
        collecting = make_garbage_collector(found, self._registry, archive)
        yield WorkerLoop("collection", pace.collection, collecting.round, (BlobMissing,))

    def _notify_if(self, happened: bool) -> bool:
        """Notify the followers of the log if a round did something. False: no more to do."""
        if happened:
            self._installation.nudge()
        return False

    # ── life ──

    def __enter__(self) -> Self:
        """Run for the duration of the block; then finish the current rounds."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raises: Exception: the error that ended the worker."""
        self.stop()
        if self.failure is not None and error is None:
            raise self.failure

    def start(self) -> None:
        """Start all threads and return."""
        for loop in self.loops:
            thread = Thread(target=self._run, args=(loop,), name=f"tidegate-{loop.name}")
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        """Stop after the current rounds, so that started effects are recorded. May be called twice.

        Raises:
            AssertionError: a round does not end in time.
        """
        self._stop.set()
        for thread in self.threads:
            thread.join(STOP_SECONDS)
        stuck = [thread.name for thread in self.threads if thread.is_alive()]
        assert not stuck, f"still at work after {STOP_SECONDS} s: {', '.join(stuck)}"

    def _run(self, loop: WorkerLoop) -> None:
        while not self._stop.is_set():
            more = self._round(loop)
            self._stop.wait(SOON_SECONDS if more else loop.wait_seconds)
        loop.close()

    def _round(self, loop: WorkerLoop) -> bool:
        began = time.monotonic()
        outcome, more = "done", False
        try:
            more = loop.round()
            loop.troubles = 0
        except Exception as error:  # noqa: BLE001 — handled by kind below; none is dropped
            outcome = self._troubled(loop, error)
        loop.rounds += 1
        loop.ended_at = time.monotonic()
        self._counters.rounds.labels(loop.name, outcome).inc()
        self._counters.busy.labels(loop.name).set(loop.ended_at - began)
        return more

    def _troubled(self, loop: WorkerLoop, error: Exception) -> str:
        loop.troubles += 1
        if isinstance(error, TidegateError) and isinstance(error, (*TRANSIENT, *loop.bears)):
            if loop.troubles == 1:  # log only the first of a row; the counter has the rest
                log.warning("%s waits: %s: %s", loop.name, error.code, error.detail)
            return "waited"
        log.critical("the worker ends: a fault in %s", loop.name, exc_info=error)
        self.failure = self.failure or error
        self._stop.set()
        self._failed()
        return "failed"


# ── composed from an installation ─────────────────────────────────────────────────────────────────


def make_manifests_loop(
    found: Installation, counters: worker_loops.Counters
) -> worker_loops.ManifestsLoop:
    """Make the loop that publishes manifests."""
    return worker_loops.ManifestsLoop(
        found.store, found.manifests, found.clock, found.nudge, counters
    )


def make_request_deadlines(found: Installation) -> request_deadlines.RequestDeadlines:
    """Make the loop that ends requests."""
    leader = leaders.Leader(leases.Leases(found.store), REQUESTS_LEADER, found.clock)
    return request_deadlines.RequestDeadlines(
        found.control, found.reads, found.clock, leader, found.nudge
    )


def make_notify_loop(found: Installation) -> worker_loops.NotifyLoop:
    """Make the loop that sends notifications."""
    leader = leaders.Leader(leases.Leases(found.store), LEADER, found.clock)
    sender = NoticeSender(
        found.control,
        leader,
        found.addresses,
        found.notify_targets,
        found.installation_ref,
        found.name_of,
    )
    notifier = Notifier(found.control, leader, found.fleet_reader)
    return worker_loops.NotifyLoop(leader, notifier, sender)


def make_policies_loop(found: Installation) -> worker_loops.PoliciesLoop:
    """Make the loop that promotes and rolls back automatically."""
    leader = leaders.Leader(leases.Leases(found.store), gate_automation.LEADER, found.clock)
    return worker_loops.PoliciesLoop(leader, found.fleet_reader, found.automation)


def make_garbage_collector(
    found: Installation, registry: CollectorRegistry, archive: SegmentStore | None = None
) -> GarbageCollector:
    """Make the garbage collector."""
    return GarbageCollector(
        found.control,
        found.store,
        found.blobs,
        found.records,
        found.enrollment.prune,
        found.clock,
        found.nudge,
        registry,
        archive,
    )
