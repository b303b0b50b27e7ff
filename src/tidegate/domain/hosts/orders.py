"""Orders: how a host gets one, again in a later attempt, loses it, and leaves without one."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import astuple, replace

from tidegate.domain.hosts.effects import FireRollbackTo, QueueDispatch
from tidegate.domain.hosts.facts import DispatchCancelled, DispatchReserved, HostEvent, HostSkipped
from tidegate.domain.hosts.probes import open_failures
from tidegate.domain.hosts.refusals import HostBusy, HostInvariant, HostNotInRollout, OrderCancelled
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import HostPolicy, HostState
from tidegate.domain.hosts.transition_steps import (
    NOTHING,
    Stepped,
    due_in,
    illegal_transition,
    prior_closure,
    release_host,
    transition,
)
from tidegate.errors import InvalidInput

WAIVED: Final = "waived"  # as the reason of HostSkipped: an operator let the host go
SKIPPED: Final = "skipped"


def begin(event: HostEvent, now: datetime) -> Stepped:
    if isinstance(event, DispatchReserved):
        return _ordered(event, now)
    if isinstance(event, HostSkipped) and event.state is None:
        return _never_ordered(event), NOTHING
    raise HostNotInRollout(event.rollout_id, event.host_id)


def _ordered(event: DispatchReserved, now: datetime, before: HostRecord | None = None) -> Stepped:
    _check_policy(event.policy)
    record = HostRecord(
        rollout_id=event.rollout_id,
        host_id=event.host_id,
        channel=event.channel,
        state=HostState.PENDING,
        target_closure=event.target_closure,
        wave=event.wave,
        policy=event.policy,
        dispatched_at=event.at,
        attempt=event.attempt,
        late=event.late or (before is not None and before.left is not None),
        busy=True,
        budgets=tuple(slot.budget_id for slot in event.budgets),
        slots=event.budgets,
        last_event_seq=0 if before is None else before.last_event_seq,
        due_at=due_in(now, event.policy.ack_seconds),
    )
    return record, [QueueDispatch(event.host_id, event.rollout_id, event.attempt)]


def _check_policy(policy: HostPolicy) -> None:
    for name, value in zip(policy.__struct_fields__, astuple(policy), strict=True):
        if isinstance(value, int) and value < 0:
            raise InvalidInput(f"{name} counts seconds from 0 on, found {value}", field=name)


def _never_ordered(event: HostSkipped) -> HostRecord:
    """The record of a host that left before it had an order: so that it leaves once."""
    return HostRecord(
        rollout_id=event.rollout_id,
        host_id=event.host_id,
        channel=event.channel,
        state=HostState.PENDING,
        target_closure=event.target_closure,
        wave=event.wave,
        policy=HostPolicy(),
        dispatched_at=event.at,
        attempt=0,
        left=SKIPPED,
        cancelled_at=event.at,
    )


def reserve(record: HostRecord, event: DispatchReserved, now: datetime) -> Stepped:
    """An order of a later attempt begins anew; that of the same one is known."""
    if event.attempt <= record.attempt:
        return record, NOTHING
    if record.busy or (record.state is HostState.FAILED and record.due_at is not None):
        raise HostBusy(record.host_id, record.rollout_id)  # it runs the order, or goes back
    ended = record.state in (HostState.FAILED, HostState.REVERTED)
    runs = record.state in (HostState.SOAKING, HostState.CONVERGED)  # also if it was let go
    if runs or (not ended and record.left is None and record.cancelled_at is None):
        raise illegal_transition(record, event)
    after, queued = _ordered(event, now, record)
    if record.state is HostState.PENDING:
        return after, queued
    return after, [transition(record, HostState.PENDING, event.at), *queued]


def cancel(record: HostRecord, event: DispatchCancelled, now: datetime) -> Stepped:
    """The order is void. What waits for a reboot is removed, or gone back from if it runs."""
    demand_order(record)
    after = replace(
        release_host(record), state=HostState.PENDING, cancelled_at=event.at, due_at=None
    )
    moved = transition(record, HostState.PENDING, event.at)
    prior = prior_closure(record)
    if record.state is HostState.DEFERRED and prior is not None:
        return after, [moved, FireRollbackTo(prior)]
    return after, [moved]


def demand_order(record: HostRecord) -> None:
    if record.cancelled_at is not None:
        raise OrderCancelled(record.rollout_id, record.host_id)


def counted_as(record: HostRecord) -> HostState | None:
    """The state under which its wave counts the host; None: it has no order."""
    return None if record.cancelled_at is not None else record.state


def skip(record: HostRecord, event: HostSkipped, now: datetime) -> Stepped:
    if record.left is not None:
        raise HostInvariant(record.state, f"it was {record.left} before")
    if record.late and record.state not in _LATE_LEAVE:
        raise HostInvariant(record.state, "it came after the plan, so no wave waits for it")
    if (event.wave, event.state) != (record.wave, counted_as(record)):
        raise HostInvariant(
            record.state, f"it does not leave wave {event.wave} as {event.state or 'unordered'}"
        )
    return _leave(record, WAIVED if event.reason == WAIVED else SKIPPED, event.at)


_LATE_LEAVE: Final = (HostState.FAILED, HostState.REVERTED, HostState.SOAKING)


def _leave(record: HostRecord, why: str, at: datetime) -> Stepped:
    """The host does not count any more. Its order is void, unless it is on its way back."""
    after = replace(record, left=why)
    if record.state is HostState.PENDING:
        after = replace(after, cancelled_at=record.cancelled_at or at, due_at=None)
    if record.state is HostState.SOAKING:
        after = replace(after, due_at=None)
    if record.due_at is None or record.state is not HostState.FAILED:
        after = release_host(after)
    told = record.busy != after.busy or bool(open_failures(record))
    return after, [transition(record, record.state, at)] if told else NOTHING
