"""The control plane of a simulation: the production parts, in one thread, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from enum import Enum
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct

from tidegate.clock import ManualClock
from tidegate.control import lanes, runtime
from tidegate.control.fleet import dispatch, order_queue, reader, timers
from tidegate.control.operations import (
    automation,
    budgets,
    channels,
    execute,
    freezes,
    promotion,
    promotion_planning,
    protection,
    quarantine,
    rollouts,
    windows,
)
from tidegate.control.publication.manifests import Manifests
from tidegate.control.queries import as_of, log_reader, people
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.access import principals, roles
from tidegate.domain.fleet.rows import LIVENESS, Host, Liveness, host_key
from tidegate.domain.hosts import facts, orders, rows
from tidegate.domain.rollouts import report_slices
from tidegate.errors import TidegateError
from tidegate.kernel import folds as kernel_folds, model, slices
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store

HEARTBEAT_KEPT = timedelta(seconds=180)  # how precise a host's last_seen_at is
SILENCE_SECONDS = 600  # simulated hosts poll rarely when nothing happens

Observer = Callable[[model.Commit], None]


class CommitFate(Enum):
    """Whether the server dies around one commit."""

    LIVES = "it lives"
    DIES_BEFORE = "it dies before the commit: nothing of it is stored"
    DIES_AFTER = "it dies after the commit: all of it is there, and the caller gets no response"


class SimulatedCrash(BaseException):
    """The server died. A BaseException, so that no code of the server catches it."""


class InlineExecutor(Executor):
    """Runs each task at once, in the calling thread."""

    def __init__(self) -> None:
        self.answers_first = False  # after a crash, the caller may read earlier answers
        self.crashed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except SimulatedCrash:
            if not self.answers_first:
                raise
            self.crashed = True
        return future


class MemoryBlobs:
    """Blobs in memory, for the plans of a simulation."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def put(self, content: Any) -> str:
        body = content if isinstance(content, bytes) else b"".join(content)
        digest = f"sha256:{sha256(body).hexdigest()}"
        self._bodies[digest] = body
        return digest

    def get(self, digest: str) -> bytes:
        return self._bodies[digest]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a simulation does not {name} blobs")


class NoManifests:
    """Publishes no manifests: simulated agents do not read them."""

    def publish_promoted(self, channel: str, *, by: str) -> None:
        """Do nothing."""


def everybody_may(user_id: str) -> principals.Principal:
    """A person with all permissions, in whose name policies act."""
    return principals.Principal(
        user_id,
        "policy",
        (roles.Grant(roles.Role.ON_CALL), roles.Grant(roles.Role.RELEASE_MANAGER)),
    )


class SimulatedControlPlane:
    """The parts of a server over one store. ``restart`` forgets everything except the store."""

    def __init__(
        self,
        store: Store,
        folds: kernel_folds.Folds,
        clock: ManualClock,
        blobs: Blobs,
        observe: Observer,
        wake: Callable[[Sequence[str]], None],
        fate: Callable[[], CommitFate] = lambda: CommitFate.LIVES,
        silence_seconds: int = SILENCE_SECONDS,
        principal: people.Principals = everybody_may,
    ) -> None:
        self.store = store
        self.folds = folds
        self.clock = clock
        self.blobs = blobs
        self._observe = observe
        self._wake = wake
        self._fate = fate
        self._silence_seconds = silence_seconds
        self._principal = principal
        self.restart()

    def restart(self) -> None:
        """Restart as after a crash: caches, lanes and leases in memory are lost."""
        self._inline = InlineExecutor()
        self.control = runtime.Control(
            self.store,
            self.folds,
            self.submit,
            clock=self.clock,
            sleep=lambda seconds: None,
            jitter=lambda: 0.0,
        )
        self.lanes = lanes.Lanes(
            self.store,
            self.folds,
            self.submit,
            clock=self.clock,
            monotonic=lambda: 0.0,
            sleep=lambda seconds: None,
            jitter=lambda: 0.0,
            threads=self._inline,
        )
        self.fleet_reader = reader.FleetReader(self.store, self.blobs)
        self.promotions = promotion_planning.Promotions(self.control, self.fleet_reader, self.blobs)
        self.execute = execute.Execute(self.control, lambda: None)
        reads = Reads(self.store)
        guard = protection.ProtectionGuard(self.execute, reads, lambda user_id: None)
        self.rollouts = rollouts.RolloutOperations(
            self.execute, self.lanes, reads, self.fleet_reader, guard
        )
        log = log_reader.LogReader(self.store, self.folds.vocabulary)
        self.channels = channels.ChannelOperations(
            self.execute, self.lanes, reads, self.fleet_reader, log, guard
        )
        self.promotion = promotion.PromotionOperations(
            self.execute,
            self.lanes,
            reads,
            as_of.RowHistory(self.store, self.folds),
            self.promotions,
            cast(Manifests, NoManifests()),
            guard,
        )
        self.automation = automation.AutomationOperations(
            self.fleet_reader, reads, self.promotion, self._principal, self.clock
        )
        self.freezes = freezes.FreezeOperations(self.execute, reads, self.clock, guard)
        self.windows = windows.WindowOperations(self.execute, reads, self.clock, guard)
        self.quarantine = quarantine.QuarantineOperations(self.execute, reads, guard)
        self.budgets = budgets.BudgetOperations(self.execute, reads, self.fleet_reader, guard)
        self.dispatcher = dispatch.Dispatcher(self.lanes, self.fleet_reader, self.clock, self._wake)
        self.deliveries = order_queue.OrderQueue(self.store, self.submit, self.clock)
        self.due = timers.Timers(
            self.store, self.control, self.lanes, self.clock, silence_seconds=self._silence_seconds
        )

    def act(self) -> list[str]:
        """Run the automation of every channel; return the rollouts that it opened."""
        opened = [self.automation.act(seen) for seen in self.fleet_reader.channels()]
        return [rollout_id for rollout_id in opened if rollout_id is not None]

    def submit(self, commit: model.Commit) -> Future[model.Receipt]:
        """Commit, unless the server dies. Raises: SimulatedCrash."""
        fate = self._fate()
        if fate is CommitFate.DIES_BEFORE:
            raise SimulatedCrash
        future = self.commit(commit)
        if fate is CommitFate.DIES_AFTER:
            raise SimulatedCrash
        return future

    def commit(self, commit: model.Commit) -> Future[model.Receipt]:
        """Commit, and pass the commit to the observer."""
        future: Future[model.Receipt] = Future()
        (outcome,) = self.store.commit(commit)
        if isinstance(outcome, TidegateError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
            self._observe(commit)
        return future

    # ── requests of agents ──

    def report(
        self, *events: facts.AgentEvent
    ) -> list[runtime.CommandOutcome | TidegateError | None]:
        """Record reports of one rollout; return a result for each, in order. None: the server
        died before it answered.
        """
        rollout_id = events[0].rollout_id
        reports = [
            (
                report_slices.report_event,
                report_slices.ReportEvent(
                    rollout_id=rollout_id, host_id=event.host_id, event=event
                ),
                model.Meta(actor=f"host_{event.host_id}"),
            )
            for event in events
        ]
        self._inline.answers_first = True
        futures = self.lanes.record_all(rollout_id, reports)
        self._inline.answers_first = False
        return [_answer(future) if future.done() else None for future in futures]

    @property
    def crashed(self) -> bool:
        """Whether it died while it recorded reports; then it must be restarted."""
        return self._inline.crashed

    def record(
        self, rollout_id: str, item: slices.Slice, report: Struct
    ) -> runtime.CommandOutcome | TidegateError:
        """Record one report. Raises: SimulatedCrash."""
        return _answer(self.lanes.record(rollout_id, item, report))

    def observe(self, rollout_id: str, host_id: str, closure: str) -> None:
        """A heartbeat reported what runs."""
        command = report_slices.ObserveHost(
            rollout_id=rollout_id, host_id=host_id, current_closure=closure
        )
        self.record(rollout_id, report_slices.observe_host, command)

    def is_withdrawn(self, rollout_id: str, host_id: str) -> bool:
        """Whether the host's order was withdrawn; agents learn it from heartbeats."""
        found = self.fleet_reader.row(rows.record_key(rollout_id, host_id), rows.HostRecord)
        return found is not None and orders.is_withdrawn(found.row)

    def note_poll(self, host_id: str) -> None:
        """The host polled: update its last_seen_at."""
        now = self.clock()
        records = Records(self.store, self.clock)
        known = records.find(LIVENESS.name, host_id)
        if known is not None and now - known.value.last_seen_at < HEARTBEAT_KEPT:
            return
        records.save(LIVENESS.name, host_id, Liveness(host_id=host_id, last_seen_at=now))
        found = self.fleet_reader.row(host_key(host_id), Host)
        if found is not None and found.row.silent_since is not None:
            self.due.heard(host_id)


def _answer(future: Future[runtime.CommandOutcome]) -> runtime.CommandOutcome | TidegateError:
    try:
        return future.result()
    except TidegateError as error:
        return error
