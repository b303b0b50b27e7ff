"""Orders: how a host gets one, gets another attempt, loses it, or is skipped without one."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import astuple, replace

from tidegate.domain.hosts import effects, facts, probes, refusals, rows, states, transition_steps
from tidegate.errors import InvalidInput

WAIVED: Final = "waived"  # a reason of HostSkipped: an operator waived the host
SKIPPED: Final = "skipped"


def begin(event: facts.HostEvent, now: datetime) -> transition_steps.Stepped:
    if isinstance(event, facts.DispatchReserved):
        return _order(event, now)
    if isinstance(event, facts.HostSkipped) and event.state is None:
        return _make_unordered(event), transition_steps.NOTHING
    raise refusals.HostNotInRollout(event.rollout_id, event.host_id)


def _order(
    event: facts.DispatchReserved, now: datetime, before: rows.HostRecord | None = None
) -> transition_steps.Stepped:
    _check_policy(event.policy)
    record = rows.HostRecord(
        rollout_id=event.rollout_id,
        host_id=event.host_id,
        channel=event.channel,
        state=states.HostState.PENDING,
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
        due_at=transition_steps.due_in(now, event.policy.ack_seconds),
    )
    return record, [effects.QueueDispatch(event.host_id, event.rollout_id, event.attempt)]


def _check_policy(policy: states.HostPolicy) -> None:
    for name, value in zip(policy.__struct_fields__, astuple(policy), strict=True):
        if isinstance(value, int) and value < 0:
            raise InvalidInput(f"{name} counts seconds from 0 on, found {value}", field=name)


def _make_unordered(event: facts.HostSkipped) -> rows.HostRecord:
    """Build the record of a host that was skipped before it had an order, so that it happens
    once.
    """
    return rows.HostRecord(
        rollout_id=event.rollout_id,
        host_id=event.host_id,
        channel=event.channel,
        state=states.HostState.PENDING,
        target_closure=event.target_closure,
        wave=event.wave,
        policy=states.HostPolicy(),
        dispatched_at=event.at,
        attempt=0,
        left=SKIPPED,
        cancelled_at=event.at,
    )


def reserve(
    record: rows.HostRecord, event: facts.DispatchReserved, now: datetime
) -> transition_steps.Stepped:
    """Reserve an order. A later attempt starts over; the same attempt changes nothing."""
    if event.attempt <= record.attempt:
        return record, transition_steps.NOTHING
    if record.busy or (record.state is states.HostState.FAILED and record.due_at is not None):
        raise refusals.HostBusy(
            record.host_id, record.rollout_id
        )  # it carries out the order, or rolls back
    ended = record.state in (states.HostState.FAILED, states.HostState.REVERTED)
    runs = record.state in (
        states.HostState.SOAKING,
        states.HostState.CONVERGED,
    )  # also if it was waived or skipped
    if runs or (not ended and record.left is None and record.cancelled_at is None):
        raise transition_steps.illegal_transition(record, event)
    after, queued = _order(event, now, record)
    if record.state is states.HostState.PENDING:
        return after, queued
    return after, [transition_steps.transition(record, states.HostState.PENDING, event.at), *queued]


def cancel(
    record: rows.HostRecord, event: facts.DispatchCancelled, now: datetime
) -> transition_steps.Stepped:
    """Cancel the order. Content that waits for a reboot is removed, or rolled back if it runs."""
    demand_order(record)
    after = replace(
        transition_steps.release_host(record),
        state=states.HostState.PENDING,
        cancelled_at=event.at,
        due_at=None,
    )
    moved = transition_steps.transition(record, states.HostState.PENDING, event.at)
    prior = transition_steps.prior_closure(record)
    if record.state is states.HostState.DEFERRED and prior is not None:
        return after, [moved, effects.FireRollbackTo(prior)]
    return after, [moved]


def demand_order(record: rows.HostRecord) -> None:
    if record.cancelled_at is not None:
        raise refusals.OrderCancelled(record.rollout_id, record.host_id)


def is_withdrawn(record: rows.HostRecord) -> bool:
    """Whether the agent must remove what it staged: its order was cancelled, or the deadline of its
    reboot passed.
    """
    is_late = record.state is states.HostState.FAILED and record.failure == states.Deadline.DEFERRAL
    return record.cancelled_at is not None or is_late


def counted_as(record: rows.HostRecord) -> states.HostState | None:
    """Return the state in which its wave counts the host; None: it has no order."""
    return None if record.cancelled_at is not None else record.state


def skip(
    record: rows.HostRecord, event: facts.HostSkipped, now: datetime
) -> transition_steps.Stepped:
    if record.left is not None:
        raise refusals.HostInvariant(record.state, f"it was {record.left} before")
    if record.late and record.state not in _LATE_LEAVE:
        raise refusals.HostInvariant(
            record.state, "it came after the plan, so no wave waits for it"
        )
    if (event.wave, event.state) != (record.wave, counted_as(record)):
        raise refusals.HostInvariant(
            record.state, f"it does not leave wave {event.wave} as {event.state or 'unordered'}"
        )
    return _leave(record, WAIVED if event.reason == WAIVED else SKIPPED, event.at)


_LATE_LEAVE: Final = (states.HostState.FAILED, states.HostState.REVERTED, states.HostState.SOAKING)


def _leave(record: rows.HostRecord, why: str, at: datetime) -> transition_steps.Stepped:
    """Stop counting the host. Its order is void, unless it is rolling back."""
    after = replace(record, left=why)
    if record.state is states.HostState.PENDING:
        after = replace(after, cancelled_at=record.cancelled_at or at, due_at=None)
    if record.state is states.HostState.SOAKING:
        after = replace(after, due_at=None)
    if record.due_at is None or record.state is not states.HostState.FAILED:
        after = transition_steps.release_host(after)
    is_change = record.busy != after.busy or bool(probes.open_failures(record))
    return after, [
        transition_steps.transition(record, record.state, at)
    ] if is_change else transition_steps.NOTHING


def to_queued_dispatch(record: rows.HostRecord, enqueued_at: datetime) -> rows.QueuedDispatch:
    """Make the queue row of a record's order, before any delivery."""
    return rows.QueuedDispatch(
        host_id=record.host_id,
        rollout_id=record.rollout_id,
        attempt=record.attempt,
        channel=record.channel,
        target_closure=record.target_closure,
        wave=record.wave,
        policy=record.policy,
        enqueued_at=enqueued_at,
        last_event_seq=record.last_event_seq,
    )
