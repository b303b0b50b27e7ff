"""The rows of hosts in rollouts, and their keys."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.hosts import facts, states
from tidegate.kernel import collections as kernel_collections, model


class Probe(Struct, frozen=True, omit_defaults=True):
    """The results of one probe since the last activation."""

    mode: states.ProbeMode
    kind: str = ""
    status: states.ProbeStatus | None = None  # None: declared, no result yet
    last_observed_at: datetime | None = None
    last_pass_at: datetime | None = None
    failing_since: datetime | None = None  # enforced probes only; a pass clears it
    failure_reason: str | None = None


class HostRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One host in one rollout: the state of its machine.

    Fields that are set only later are None until then.
    """

    rollout_id: str
    host_id: str
    channel: str
    state: states.HostState
    target_closure: str
    wave: int
    policy: states.HostPolicy
    dispatched_at: datetime
    attempt: int = 1
    late: bool = False
    left: str | None = None  # "waived" or "skipped": why it no longer counts
    busy: bool = False  # it has a valid order: it holds its slots, and gets no other order
    budgets: tuple[str, ...] = ()  # the budgets of which it holds slots; empty after it freed them
    slots: tuple[facts.BudgetSlot, ...] = ()  # of its order, to be taken again after a reboot
    cancelled_at: datetime | None = None  # when its order was cancelled
    last_event_seq: int = 0
    due_at: datetime | None = None  # when its silence becomes an event
    current_closure_at_dispatch: str | None = None
    current_closure: str | None = None
    reverted_to: str | None = None
    dispatch_acked_at: datetime | None = None
    activation_started_at: datetime | None = None
    activation_completed_at: datetime | None = None
    activation_assumed: bool = False  # by a heartbeat; the agent has not reported it yet
    activation_failed_at: datetime | None = None
    topology_declared_at: datetime | None = None
    probe_observed_first_at: datetime | None = None
    probe_failure_first_at: datetime | None = None
    soak_due_at: datetime | None = None
    converged_at: datetime | None = None
    failed_at: datetime | None = None
    failure: str | None = None  # why it failed: probes, activation or the name of a deadline
    policy_applied: states.OnFailure | None = None
    reverted_at: datetime | None = None
    rollback_failed: bool = False
    regressed_at: datetime | None = None
    probes: dict[str, Probe] = {}


class ProbeFailure(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An enforced probe that fails now. A pass removes the row, so each row is an open failure."""

    rollout_id: str
    host_id: str
    probe_name: str
    wave: int
    observed_at: datetime
    failure_reason: str | None = None
    control_id: str | None = None  # of a compliance framework; none is built yet
    framework: str | None = None


class HostOrder(Struct, frozen=True, omit_defaults=True, gc=False):
    """The one order that a host is busy with. Without this row the host is free for the next."""

    host_id: str
    rollout_id: str
    attempt: int


class QueuedDispatch(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An order on its way to the agent. Rebuilt from the records, not folded from facts."""

    host_id: str
    rollout_id: str
    attempt: int
    channel: str
    target_closure: str
    wave: int
    policy: states.HostPolicy
    enqueued_at: datetime
    last_event_seq: int = 0  # the agent's next report has the number after it
    delivered_at: datetime | None = None
    lease_until: datetime | None = None  # it is not delivered again before this time
    deliveries: int = 0


HOST_RECORDS = kernel_collections.Collection(
    "host_rollout_records",
    HostRecord,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.CACHE,
    columns=("rollout_id", "host_id", "channel", "state", "wave", "due_at"),
    allowed={"state": frozenset(states.HostState)},
    indexes=(
        kernel_collections.Index("by_due", ("due_at",)),
        kernel_collections.Index("by_host", ("host_id",)),
    ),
)
PROBE_FAILURES = kernel_collections.Collection(
    "probe_failures",
    ProbeFailure,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("rollout_id", "host_id", "probe_name", "control_id", "framework", "observed_at"),
)
HOST_ORDERS = kernel_collections.Collection(
    "host_orders",
    HostOrder,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.CACHE,
    columns=("host_id", "rollout_id"),
)
DISPATCH_QUEUE = kernel_collections.Collection(
    "dispatch_queue",
    QueuedDispatch,
    nature=kernel_collections.Nature.QUEUE,
    columns=("host_id", "rollout_id", "target_closure", "enqueued_at"),
)
COLLECTIONS = (HOST_RECORDS, PROBE_FAILURES, HOST_ORDERS, DISPATCH_QUEUE)


def record_id(rollout_id: str, host_id: str) -> str:
    return f"{rollout_id}/{host_id}"


def record_key(rollout_id: str, host_id: str) -> model.Key:
    return model.Key(HOST_RECORDS.name, record_id(rollout_id, host_id))


def probe_failure_id(rollout_id: str, host_id: str, probe_name: str) -> str:
    return f"{rollout_id}/{host_id}/{probe_name}"


def order_key(host_id: str) -> model.Key:
    return model.Key(HOST_ORDERS.name, host_id)


def dispatch_key(host_id: str, rollout_id: str, attempt: int) -> model.Key:
    return model.Key(DISPATCH_QUEUE.name, f"{host_id}/{rollout_id}/{attempt}")
