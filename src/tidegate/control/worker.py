"""The worker: all that an installation does by itself, as named loops, until it is told to stop.

    loop         each time                                                    seconds
    orders       asks the gates, reserves orders; at the first, refills the queue   1
    timers       lets expire what is due                                            1
    outbox       does outside what is owed                                          1
    manifests    publishes what channels may run, on change and before it expires   2
    requests     ends what is over on protected channels, reminds of reviews        5
    notify       queues what people are to be told, and sends it                    1
    policies     promotes and rolls back where a channel's policy says so           2
    reconcile    looks at the world and at our rows                                60
    archive      mirrors the log, where a place for it is set                       2
    collection   removes blobs, sessions and publications past their time       3,600

Surroundings that fail are waited for: nothing is lost, because every round begins with what the
rows say. Any other error is a fault of ours; it ends the worker, loudly, rather than going on in a
state that nobody thought of. Several workers may run beside each other, in several processes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread
from types import TracebackType
from typing import Self

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge

from tidegate.clock import Clock
from tidegate.control import leaders, request_deadlines
from tidegate.control.fleet import dispatch, order_queue
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.fleet.timers import Timers, TimersResult
from tidegate.control.installation import Installation
from tidegate.control.notifications.notifier import Notifier
from tidegate.control.notifications.sender import NoticeSender
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.outbox.reconcile import Reconciler, ScopeHistoryTooLong
from tidegate.control.outbox.sender import OutboxSender as OutboxWorker
from tidegate.control.outbox.targets import Target
from tidegate.control.publication.manifests import RENEWED_BEFORE, ChannelManifest, Manifests
from tidegate.control.storage.archive import Archive
from tidegate.control.storage.archive.loop import ArchiveLoop
from tidegate.control.storage.archive.segment_store import SegmentStore
from tidegate.control.storage.blobs import BlobMissing
from tidegate.control.storage.garbage_collection import GarbageCollector
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.gates import automation as gate_automation, inputs
from tidegate.domain.notifications.slices import LEADER
from tidegate.domain.publication.rows import meta_key, pk_of
from tidegate.domain.releases.rows import ACTUAL, Actual
from tidegate.domain.requests.deadlines import LEADER as REQUESTS_LEADER
from tidegate.errors import Conflict, LeaseLost, TidegateError, Unavailable, Unknown
from tidegate.kernel import codec, leases, model, slices
from tidegate.kernel.store import Store, rows

THOROUGH_SECONDS = 15.0
SOON_SECONDS = 0.05  # a round that was full is followed by the next
DOUBLINGS_MAX = 16
WAIT_SECONDS_MAX = 30.0  # between rounds while surroundings fail, however often they did
STOP_SECONDS = 30.0
ACTOR = model.Meta(actor="worker")
SURROUNDINGS = (Unavailable, Unknown, Conflict)

log = logging.getLogger("tidegate.worker")

Round = Callable[[], bool]  # whether there is more to do at once
Wake = Callable[[Sequence[str]], None]


class LoopPace(Struct, frozen=True, kw_only=True):
    """How often each loop has its turn, in seconds."""

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
    """Something that is done again and again. ``bears``: errors that are told, and waited for."""

    name: str
    seconds: float
    round: Round
    bears: tuple[type[TidegateError], ...] = ()
    close: Callable[[], None] = lambda: None  # called after the last round
    rounds: int = 0
    troubles: int = 0  # in a row
    ended_at: float = field(default_factory=time.monotonic)

    @property
    def wait_seconds(self) -> float:
        """Twice as long after each failure."""
        patience = self.seconds * (1 << min(self.troubles, DOUBLINGS_MAX))
        return max(self.seconds, min(patience, WAIT_SECONDS_MAX))


class Counters:
    """What the worker counts about itself, for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter(
            "tidegate_worker_rounds",
            "Rounds of the worker's loops, by loop and outcome: done, waited, failed",
            ("loop", "outcome"),
            registry=registry,
        )
        self.busy = Gauge(
            "tidegate_worker_round_seconds",
            "How long the last round of a loop took",
            ("loop",),
            registry=registry,
        )
        self.left_out = Counter(
            "tidegate_dispatch_left_out",
            "Rollouts that a pass of the dispatcher left out, by what is wrong with them",
            ("code",),
            registry=registry,
        )
        self.manifest_age = Gauge(
            "tidegate_manifest_age_seconds",
            "Age of the oldest published channel manifest; it is renewed at 12 h, ends at 24",
            registry=registry,
        )


class Worker:
    """Runs the loops, each in a thread of its own.

    ``wake`` hears of hosts that have orders now; ``failed`` of an error that ended the worker.
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
        self._counters = Counters(self._registry)
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
        orders = OrdersLoop(dispatcher, found.deliveries, found.nudge, self._counters)
        manifests = make_manifests_loop(found, self._counters)
        due = Timers(found.store, found.control, found.lanes, found.clock)
        reconciler = Reconciler(outbox)
        yield WorkerLoop("orders", pace.orders, orders.round)
        yield WorkerLoop("timers", pace.timers, lambda: self._told(due.tick() != TimersResult()))
        yield WorkerLoop("outbox", pace.outbox, lambda: self._told(bool(outbox.work(self._stop))))
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
            lambda: self._told(reconciler.run_once().appended > 0),
            (ScopeHistoryTooLong,),
        )
        if archive is not None:
            mirror = Archive(found.store, archive, log_id=found.log_id, clock=found.clock)
            mirroring = ArchiveLoop(mirror, self._stop, self._registry)
            yield WorkerLoop("archive", pace.archive, mirroring.round)
        collecting = make_garbage_collector(found, self._registry, archive)
        yield WorkerLoop("collection", pace.collection, collecting.round, (BlobMissing,))

    def _told(self, happened: bool) -> bool:
        """Tell who follows the log; a round that did something is no reason for the next one."""
        if happened:
            self._installation.nudge()
        return False

    # ── life ──

    def __enter__(self) -> Self:
        """It works while the block lasts; then it finishes what is under way."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raises: Exception: what ended the worker before its time."""
        self.stop()
        if self.failure is not None and error is None:
            raise self.failure

    def start(self) -> None:
        """Begin; comes back at once."""
        for loop in self.loops:
            thread = Thread(target=self._run, args=(loop,), name=f"tidegate-{loop.name}")
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        """Let every loop finish its round; what was begun outside is recorded. Twice is no fault.

        Raises:
            AssertionError: some round does not come to its end.
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
        except Exception as error:  # noqa: BLE001 — told apart below; none is dropped
            outcome = self._troubled(loop, error)
        loop.rounds += 1
        loop.ended_at = time.monotonic()
        self._counters.rounds.labels(loop.name, outcome).inc()
        self._counters.busy.labels(loop.name).set(loop.ended_at - began)
        return more

    def _troubled(self, loop: WorkerLoop, error: Exception) -> str:
        loop.troubles += 1
        if isinstance(error, TidegateError) and isinstance(error, (*SURROUNDINGS, *loop.bears)):
            if loop.troubles == 1:  # the first of a row; the counter has the rest
                log.warning("%s waits: %s: %s", loop.name, error.code, error.detail)
            return "waited"
        log.critical("the worker ends: a fault in %s", loop.name, exc_info=error)
        self.failure = self.failure or error
        self._stop.set()
        self._failed()
        return "failed"


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


class OrdersLoop:
    """Passes of the dispatcher: quick ones, and now and then a thorough one."""

    def __init__(
        self,
        dispatcher: dispatch.Dispatcher,
        deliveries: order_queue.OrderQueue,
        notify: Callable[[], None],
        counters: Counters,
    ) -> None:
        self._dispatcher = dispatcher
        self._deliveries = deliveries
        self._notify = notify
        self._counters = counters
        self._faults: dict[str, str] = {}  # rollout → what was last logged about it
        self._is_filled = False
        self._thorough_at = 0.0

    def round(self) -> bool:
        if not self._is_filled:
            self._deliveries.refill()
            self._is_filled = True
        now = time.monotonic()
        thorough = now >= self._thorough_at
        done = self._dispatcher.run_pass(thorough=thorough)
        self._tell(done, thorough)
        if thorough:
            self._thorough_at = now + THOROUGH_SECONDS
        if done.ordered or done.skipped or done.cancelled:
            self._notify()
        return False

    def _tell(self, done: dispatch.DispatchResult, thorough: bool) -> None:
        """Count what was left out; a line is written when it is new."""
        for fault in done.faults:
            self._counters.left_out.labels(fault.code).inc()
            if self._faults.get(fault.rollout_id) != fault.code:
                log.error("%s is left out: %s: %s", fault.rollout_id, fault.code, fault.detail)
        found = {fault.rollout_id: fault.code for fault in done.faults}
        self._faults = found if thorough else self._faults | found  # a quick one sees not all


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────


class ManifestsLoop:
    """Publishes a channel's manifest when its rows changed, and before the published one ends."""

    def __init__(
        self,
        store: Store,
        manifests: Manifests,
        clock: Clock,
        notify: Callable[[], None],
        counters: Counters,
    ) -> None:
        self._store = store
        self._manifests = manifests
        self._clock = clock
        self._notify = notify
        self._counters = counters
        # scope → the versions of its rows and of META at the last look, and what was published
        self._published: dict[str, tuple[tuple[int, ...], ChannelManifest]] = {}

    def round(self) -> bool:
        changed = False
        now = self._clock()
        scopes = []
        for record in rows(self._store, ACTUAL.name):
            scope = codec.decode(record.data, Actual).scope
            scopes.append(scope)
            versions = (record.version, *self._versions(scope))
            if self._is_done(scope, versions, now):
                continue
            with suppress(Conflict):  # another process publishes; the next round looks again
                manifest, did = self._manifests.refresh(scope, by=ACTOR.actor)
                changed |= did
                self._published[scope] = (versions, manifest)
        if changed:
            self._notify()
        self._note_age(scopes, now)
        return False

    def _is_done(self, scope: str, versions: tuple[int, ...], now: datetime) -> bool:
        found = self._published.get(scope)
        return (
            found is not None
            and found[0] == versions
            and found[1].expires_at - RENEWED_BEFORE > now
        )

    def _versions(self, scope: str) -> tuple[int, ...]:
        keys = channel_key(scope), meta_key(pk_of(scope))
        return tuple(0 if row is None else row.version for row in self._store.get(*keys))

    def _note_age(self, scopes: Sequence[str], now: datetime) -> None:
        ages = [
            (now - self._published[scope][1].generated_at).total_seconds()
            for scope in scopes
            if scope in self._published
        ]
        self._counters.manifest_age.set(max(ages, default=0.0))


# ── notifications ─────────────────────────────────────────────────────────────────────────────────


class NotifyLoop:
    """Fills the queues of subscriptions and sends from them, in one of several processes."""

    def __init__(self, leader: leaders.Leader, notifier: Notifier, sender: NoticeSender) -> None:
        self._leader = leader
        self._notifier = notifier
        self._sender = sender

    def round(self) -> bool:
        if not self._leader.lead():
            return False
        more = self._notifier.round()
        self._sender.round()
        return more

    def close(self) -> None:
        self._sender.close()
        self._leader.resign()


# ── policies ──────────────────────────────────────────────────────────────────────────────────────


class PoliciesLoop:
    """Acts for channels with ``auto_promote`` or ``auto_rollback``, in one of several processes."""

    def __init__(
        self, leader: leaders.Leader, reader: FleetReader, automation: AutomationOperations
    ) -> None:
        self._leader = leader
        self._reader = reader
        self._automation = automation
        self._troubles: dict[str, str] = {}  # channel → what was last logged about it

    def round(self) -> bool:
        """One channel's trouble keeps no other from its turn.

        Raises:
            Unavailable, Unknown, Conflict: surroundings failed for every channel that acts.
        """
        if not self._leader.lead():
            return False
        acting = 0
        troubles: dict[str, TidegateError] = {}
        for seen in self._reader.channels():
            policy = seen.row.policy
            if policy.auto_promote or policy.auto_rollback:
                acting += 1
                try:
                    self._act(seen)
                except LeaseLost:
                    raise
                except TidegateError as error:
                    troubles[seen.row.channel] = error
        self._tell(troubles)
        surroundings = [error for error in troubles.values() if isinstance(error, SURROUNDINGS)]
        if surroundings and len(surroundings) == acting:
            raise surroundings[0]
        return False

    def _act(self, seen: inputs.Versioned[Channel]) -> None:
        term = gate_automation.LeadAutomation(self._leader.token)
        opened = self._automation.act(seen, slices.Alongside(gate_automation.lead_automation, term))
        if opened is not None:
            log.info("%s: the policy opened %s", seen.row.channel, opened)

    def _tell(self, troubles: Mapping[str, TidegateError]) -> None:
        """A line is written when the trouble is new."""
        for channel, error in troubles.items():
            if self._troubles.get(channel) != error.code:
                log.warning("%s does nothing by itself: %s: %s", channel, error.code, error.detail)
        self._troubles = {channel: error.code for channel, error in troubles.items()}

    def close(self) -> None:
        self._leader.resign()


# ── composed from an installation ─────────────────────────────────────────────────────────────────


def make_manifests_loop(found: Installation, counters: Counters) -> ManifestsLoop:
    """The loop that publishes manifests."""
    return ManifestsLoop(found.store, found.manifests, found.clock, found.nudge, counters)


def make_request_deadlines(found: Installation) -> request_deadlines.RequestDeadlines:
    """What ends requests."""
    leader = leaders.Leader(leases.Leases(found.store), REQUESTS_LEADER, found.clock)
    return request_deadlines.RequestDeadlines(
        found.control, found.reads, found.clock, leader, found.nudge
    )


def make_notify_loop(found: Installation) -> NotifyLoop:
    """The loop that tells people."""
    leader = leaders.Leader(leases.Leases(found.store), LEADER, found.clock)
    sender = NoticeSender(
        found.control,
        leader,
        found.addresses,
        found.notify_targets,
        found.installation_ref,
        found.name_of,
    )
    return NotifyLoop(leader, Notifier(found.control, leader), sender)


def make_policies_loop(found: Installation) -> PoliciesLoop:
    """The loop that acts for channels."""
    leader = leaders.Leader(leases.Leases(found.store), gate_automation.LEADER, found.clock)
    return PoliciesLoop(leader, found.fleet_reader, found.automation)


def make_garbage_collector(
    found: Installation, registry: CollectorRegistry, archive: SegmentStore | None = None
) -> GarbageCollector:
    """The collector of what is past its time."""
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
