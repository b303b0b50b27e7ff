"""The order queue: what a poll returns to an agent, and how the queue is refilled.

    DispatchReserved ──▶ queued ──▶ delivered, leased ──▶ acknowledged: the row is deleted
                           ▲              │ the lease expired without a report
                           └──────────────┘

The records decide whether a queued order is still valid. If its rollout stopped or its host has
another order, the order is not sent, and a poll that finds it deletes it. If its rollout is paused,
its start time has not come, its channel is frozen or held, or its host is outside its maintenance
windows, the order stays in the queue and is sent later.
"""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from tidegate.clock import Clock
from tidegate.control.fleet.dispatch import has_stopped
from tidegate.control.runtime import Submit
from tidegate.domain.channels import rows as channel_rows, stops as channel_stops
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.hosts import orders as host_orders, rows as host_rows, states as host_states
from tidegate.domain.rollouts import (
    names,
    preconditions,
    rows as rollout_rows,
    states as rollout_states,
    tallies,
)
from tidegate.domain.windows.demands import judge_stops
from tidegate.errors import VersionConflict
from tidegate.kernel import codec, model
from tidegate.kernel.store import Store, values

LEASE_SECONDS = 30
QUEUED_MAX = 32  # rows of one host that a poll reads
ACTOR = model.Meta(actor="dispatcher")


class LeasedOrder(NamedTuple):
    """An order, to be sent once its lease is durable; None: there is nothing to send now."""

    order: host_rows.QueuedDispatch | None = None
    leased: Future[model.Receipt] | None = None


NOTHING: Final = LeasedOrder()


class _Standing(NamedTuple):
    """The rows that decide about an order in the queue."""

    record: host_rows.HostRecord | None
    tally: rollout_rows.RolloutTally | None
    stops: tuple[channel_stops.ChannelStops | None, ...]  # of its channel
    stops_version: model.Position  # of their last change
    gates: rollout_rows.RolloutGates | None  # of its rollout, from the last pass
    is_quarantined: bool  # its artifact, on its channel


class OrderQueue:
    """Gives orders to agents, each under a lease."""

    def __init__(
        self, store: Store, submit: Submit, clock: Clock, *, lease_seconds: int = LEASE_SECONDS
    ) -> None:
        self._store = store
        self._submit = submit
        self._clock = clock
        self._lease = timedelta(seconds=lease_seconds)

    def poll(self, host_id: str) -> host_rows.QueuedDispatch | None:
        """Lease the host's order and return it; None: there is nothing to send now.

        Without an order, nothing is written.
        """
        prefix = f"{host_id}/"
        for record in self._store.range(
            host_rows.DISPATCH_QUEUE.name, prefix=prefix, limit=QUEUED_MAX
        ):
            row = codec.decode(record.data, host_rows.QueuedDispatch)
            standing = self._standing(row)
            if self._lease_left(record, row, standing) > 0:
                continue
            delivered = self._deliver(record, row, standing)
            if delivered is not None:
                return delivered
        return None

    def hand_out(self, host_id: str) -> LeasedOrder | None:
        """Poll without waiting for the lease. None: the queue must be cleaned up; call ``poll``."""
        prefix = f"{host_id}/"
        found = self._store.range(host_rows.DISPATCH_QUEUE.name, prefix=prefix, limit=2)
        if not found:
            return NOTHING
        if len(found) > 1:
            return None
        (stored,) = found
        row = codec.decode(stored.data, host_rows.QueuedDispatch)
        standing = self._standing(row)
        if self._lease_left(stored, row, standing) > 0:
            return NOTHING
        record, tally, *_ = standing
        if record is None or tally is None or not _counts(record, tally, row.attempt):
            return None
        if self._is_held(tally, record, standing):
            return NOTHING
        leased = self._leased(row)
        return LeasedOrder(
            leased, self._submit_write(model.Put(stored.key, codec.encode(leased), stored.version))
        )

    def next_look(self, host_id: str) -> float | None:
        """Return in how many seconds an order may be ready; 0: now, None: the host has none.

        This only reads, and only the host's own few rows.
        """
        prefix = f"{host_id}/"
        found = self._store.range(host_rows.DISPATCH_QUEUE.name, prefix=prefix, limit=QUEUED_MAX)
        if not found:
            return None
        return min(
            0.0 if row.lease_until is None else self._lease_left(record, row, self._standing(row))
            for record in found
            for row in [codec.decode(record.data, host_rows.QueuedDispatch)]
        )

    def clear(self, host_id: str, rollout_id: str, attempt: int) -> None:
        """Delete an order that was acknowledged or cancelled. May be called twice."""
        key = host_rows.dispatch_key(host_id, rollout_id, attempt)
        (record,) = self._store.get(key)
        if record is not None:
            self._write(model.Delete(key, record.version))

    def refill(self) -> int:
        """Queue every valid order that is not queued; return how many there were.

        Raises:
            Unavailable, Unknown.
        """
        count = 0
        for order in values(self._store, host_rows.HOST_ORDERS.name, host_rows.HostOrder):
            record, tally, *_ = self._standing(order)
            key = host_rows.dispatch_key(order.host_id, order.rollout_id, order.attempt)
            if record is None or tally is None or not _counts(record, tally, order.attempt):
                continue
            if self._store.get(key)[0] is None:
                queued = host_orders.to_queued_dispatch(record, record.dispatched_at)
                count += self._write(model.Put(key, codec.encode(queued), model.ABSENT))
        return count

    def _deliver(
        self, stored: model.Record, row: host_rows.QueuedDispatch, standing: _Standing
    ) -> host_rows.QueuedDispatch | None:
        record, tally, *_ = standing
        if record is None or tally is None or not _counts(record, tally, row.attempt):
            self._write(model.Delete(stored.key, stored.version))
            return None
        if self._is_held(tally, record, standing):
            return None
        leased = self._leased(row)
        landed = self._write(model.Put(stored.key, codec.encode(leased), stored.version))
        return leased if landed else None

    def _lease_left(
        self, stored: model.Record, row: host_rows.QueuedDispatch, standing: _Standing
    ) -> float:
        """Return for how many seconds the order is not sent again.

        A lease from before the last change of the channel's stops does not count, because the agent
        dropped the order if its acknowledgement was refused. An agent that still has the order
        ignores a second copy.
        """
        if row.lease_until is None or standing.stops_version > stored.version:
            return 0.0
        return max(0.0, (row.lease_until - self._clock()).total_seconds())

    def _is_held(
        self, tally: rollout_rows.RolloutTally, record: host_rows.HostRecord, standing: _Standing
    ) -> bool:
        """Whether the order stays in the queue until a person or the time releases it."""
        stopped = tally.halted_at is not None or tally.paused_at is not None
        if stopped or standing.is_quarantined:
            return True
        now = self._clock()
        if not (tallies.may_go(tally, record.host_id) and tallies.is_started(tally, now)):
            return True
        passed = tallies.list_passed(tally, now)
        if channel_stops.is_stopped(standing.stops, now, passed):
            return True
        if rollout_states.OverridableGate.WINDOW not in passed and self._is_outside_windows(
            record, standing
        ):
            return True
        return preconditions.shut_edge(standing.gates, passed) is not None

    def _is_outside_windows(self, record: host_rows.HostRecord, standing: _Standing) -> bool:
        if not channel_stops.windows_over(standing.stops):
            return False
        (row,) = self._store.get(host_key(record.host_id))
        host = None if row is None else codec.decode(row.data, Host)
        verdict = judge_stops(record.channel, standing.stops, host, record.policy, self._clock())
        return verdict is not None and not verdict.is_open

    def _leased(self, row: host_rows.QueuedDispatch) -> host_rows.QueuedDispatch:
        now = self._clock()
        return replace(
            row,
            delivered_at=row.delivered_at or now,
            lease_until=now + self._lease,
            deliveries=row.deliveries + 1,
        )

    def _standing(self, order: host_rows.QueuedDispatch | host_rows.HostOrder) -> _Standing:
        rollout_id, channel = order.rollout_id, names.channel_of(order.rollout_id)
        closure = order.target_closure if isinstance(order, host_rows.QueuedDispatch) else ""
        record, tally, gates, quarantined, *stops = self._store.get(
            host_rows.record_key(rollout_id, order.host_id),
            rollout_rows.tally_key(rollout_id),
            rollout_rows.gates_key(rollout_id),
            channel_rows.quarantine_key(channel, closure),
            *channel_stops.stops_keys(channel),
        )
        return _Standing(
            None if record is None else codec.decode(record.data, host_rows.HostRecord),
            None if tally is None else codec.decode(tally.data, rollout_rows.RolloutTally),
            tuple(
                None if row is None else codec.decode(row.data, channel_stops.ChannelStops)
                for row in stops
            ),
            max(0 if row is None else row.version for row in (*stops, gates)),
            None if gates is None else codec.decode(gates.data, rollout_rows.RolloutGates),
            quarantined is not None,
        )

    def _write(self, write: model.Write) -> bool:
        """Whether the write was committed; if not, another process did the same."""
        try:
            self._submit_write(write).result()
        except VersionConflict:
            return False
        return True

    def _submit_write(self, write: model.Write) -> Future[model.Receipt]:
        return self._submit(model.Commit(self._clock(), ACTOR, writes=(write,)))


def _counts(record: host_rows.HostRecord, tally: rollout_rows.RolloutTally, attempt: int) -> bool:
    """Whether the order is still valid: not acknowledged, cancelled or void."""
    if record.attempt != attempt or record.cancelled_at is not None:
        return False
    if tallies.is_late_order_void(tally, late=record.late, dispatched_at=record.dispatched_at):
        return False
    if tally.halted_at is not None:
        return True  # halted: it may be cleared, so the order is held, not deleted
    return record.state is host_states.HostState.PENDING and not has_stopped(tally)
