"""The worker's loops that keep state: orders, manifests, notifications and policies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from tidegate.clock import Clock
from tidegate.control import leaders
from tidegate.control.fleet import dispatch, order_queue
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.notifications.notifier import Notifier
from tidegate.control.notifications.sender import NoticeSender
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.publication.manifests import RENEWED_BEFORE, ChannelManifest, Manifests
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.gates import automation as gate_automation, inputs
from tidegate.domain.publication.rows import meta_key, pk_of
from tidegate.domain.releases.rows import ACTUAL, Actual
from tidegate.errors import TRANSIENT, Conflict, LeaseLost, TidegateError
from tidegate.kernel import codec, model, slices
from tidegate.kernel.store import Store, rows

THOROUGH_SECONDS = 15.0
ACTOR = model.Meta(actor="worker")

log = logging.getLogger("tidegate.worker")


class Counters:
    """The worker's metrics for Prometheus."""

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


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


class OrdersLoop:
    """Runs passes of the dispatcher: quick ones, and a thorough one every few seconds."""

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
        self._log_faults(done, thorough)
        if thorough:
            self._thorough_at = now + THOROUGH_SECONDS
        if done.ordered or done.skipped or done.cancelled:
            self._notify()
        return False

    def _log_faults(self, done: dispatch.DispatchResult, thorough: bool) -> None:
        """Count the rollouts that were skipped, and log each fault once."""
        for fault in done.faults:
            self._counters.left_out.labels(fault.code).inc()
            if self._faults.get(fault.rollout_id) != fault.code:
                log.error("%s is skipped: %s: %s", fault.rollout_id, fault.code, fault.detail)
        found = {fault.rollout_id: fault.code for fault in done.faults}
        self._faults = found if thorough else self._faults | found  # a quick pass does not see all


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────


class ManifestsLoop:
    """Publishes a channel's manifest when its rows changed, and before it expires."""

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
        # scope → the versions of its rows and META in the last round, and the published manifest
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
            with suppress(Conflict):  # another process publishes it; the next round checks again
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
    """Fills and empties the queues of subscriptions, in the process that is the leader."""

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
    """Acts for channels with ``auto_promote`` or ``auto_rollback``, in the leading process."""

    def __init__(
        self, leader: leaders.Leader, reader: FleetReader, automation: AutomationOperations
    ) -> None:
        self._leader = leader
        self._reader = reader
        self._automation = automation
        self._troubles: dict[str, str] = {}  # channel → what was last logged about it

    def round(self) -> bool:
        """Act for each channel; the failure of one does not stop the others.

        Raises:
            Unavailable, Unknown, Conflict: all channels failed with such an error.
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
        self._log_troubles(troubles)
        transient = [error for error in troubles.values() if isinstance(error, TRANSIENT)]
        if transient and len(transient) == acting:
            raise transient[0]
        return False

    def _act(self, seen: inputs.Versioned[Channel]) -> None:
        term = gate_automation.LeadAutomation(self._leader.token)
        opened = self._automation.act(seen, slices.Alongside(gate_automation.lead_automation, term))
        if opened is not None:
            log.info("%s: the policy opened %s", seen.row.channel, opened)

    def _log_troubles(self, troubles: Mapping[str, TidegateError]) -> None:
        """Log each failure once, when it is new."""
        for channel, error in troubles.items():
            if self._troubles.get(channel) != error.code:
                log.warning("%s does nothing by itself: %s: %s", channel, error.code, error.detail)
        self._troubles = {channel: error.code for channel, error in troubles.items()}

    def close(self) -> None:
        self._leader.resign()
