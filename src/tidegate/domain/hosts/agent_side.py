"""The agent's side of a host in a rollout, pure: its next report, by the machine of both sides.

    order ──▶ twin record ──▶ report(…) ──▶ the numbered report, and its effects
                    ▲                          │
                    └──── the same step ◀──────┘

The agent keeps the twin next to its journal; the simulator keeps one per host. Both carry out the
effects ``FireSwitch``, ``FireRollbackTo`` and ``ResetProbeCache`` and ignore the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from tidegate.domain.hosts import (
    effects as host_effects,
    facts,
    machine,
    probes,
    rows,
    states,
    transition_steps,
)

# Refusals of an acknowledgement that leave the order valid.
WAITS: Final = frozenset({"rollout_paused"})
# Refusals of a rebooted host that cannot take its order again yet.
NO_SLOT: Final = frozenset({"host_busy", "budget_exhausted"})

Said = tuple[rows.HostRecord, facts.AgentEvent, Sequence[host_effects.Effect]]


def record_from_order(
    order: rows.QueuedDispatch, before: rows.HostRecord | None, now: datetime
) -> rows.HostRecord:
    """Build the twin of a delivered order. Raises: Refused: it does not follow ``before``.

    A later attempt means that the earlier order, which waits for a reboot, was cancelled.
    """
    if before is not None and before.state is states.HostState.DEFERRED:
        before = before if order.attempt <= before.attempt else _cancel(before, now)[0]
    reserved = facts.DispatchReserved(
        rollout_id=order.rollout_id,
        host_id=order.host_id,
        at=order.enqueued_at,
        channel=order.channel,
        target_closure=order.target_closure,
        wave=order.wave,
        policy=order.policy,
        attempt=order.attempt,
    )
    record, _ = machine.step(before, reserved, now)
    if record is before:
        return record
    return replace(record, last_event_seq=max(record.last_event_seq, order.last_event_seq))


def report(
    record: rows.HostRecord, kind: type[facts.AgentEvent], now: datetime, **members: Any
) -> Said:
    """Return the next report of this kind, the record after it, and the effects.

    Raises:
        Refused: the machine does not accept it now; the number is not used up.
    """
    event: facts.AgentEvent = kind(
        rollout_id=record.rollout_id,
        host_id=record.host_id,
        at=now,
        seq=machine.expected_seq(record),
        **members,
    )
    after, effects = machine.step(record, event, now)
    return after, event, effects


def tick(record: rows.HostRecord, now: datetime) -> Said | None:
    """Return the report that is due by time alone: the host converged, or it failed."""
    if record.state is not states.HostState.SOAKING:
        return None
    failing = probes.list_sustained(record, now)
    if failing:
        longest = min(since for name in failing if (since := record.probes[name].failing_since))
        return report(
            record,
            facts.Failed,
            now,
            sustained_duration_secs=int((now - longest).total_seconds()),
            failing_probes=failing,
            policy_applied=record.policy.on_failure,
        )
    if probes.missing_for_convergence(record, now):
        return None
    assert record.current_closure is not None, "a host that soaks runs something"
    return report(record, facts.Converged, now, current_closure=record.current_closure)


def is_rolling_back(record: rows.HostRecord) -> bool:
    """Whether the host failed and is rolling back."""
    waits = record.state is states.HostState.FAILED and not record.rollback_failed
    return waits and transition_steps.rolls_back(record)


def withdraw(
    record: rows.HostRecord, now: datetime
) -> tuple[rows.HostRecord | None, Sequence[host_effects.Effect]]:
    """Return the twin after the server withdrew its order, which waits for a reboot.

    If the deadline of the reboot has passed, the host failed, and reports its rollback if its
    policy says so. Should the order have been cancelled at that time, the report is refused and
    dropped.
    """
    if record.due_at is not None and record.due_at <= now:
        failed, effects = _expire(record, states.Deadline.DEFERRAL, now)
        if is_rolling_back(failed):
            return failed, effects
    return take_back(record, now)


def take_back(
    record: rows.HostRecord, now: datetime
) -> tuple[rows.HostRecord | None, Sequence[host_effects.Effect]]:
    """Return the twin after its order, which waits for a reboot, was cancelled.

    It rolls back if something ran before. The order is void, so nothing is reported.
    """
    after, effects = _cancel(record, now)
    return (after, effects) if is_withdrawing(after) else (None, ())


def _cancel(
    record: rows.HostRecord, now: datetime
) -> tuple[rows.HostRecord, Sequence[host_effects.Effect]]:
    cancelled = facts.DispatchCancelled(
        rollout_id=record.rollout_id, host_id=record.host_id, at=now, reason="taken back"
    )
    return machine.step(record, cancelled, now)


def is_withdrawing(record: rows.HostRecord) -> bool:
    """Whether the order was cancelled and its staged content must be removed."""
    return record.cancelled_at is not None and transition_steps.prior_closure(record) is not None


def waits(event: facts.AgentEvent, code: str | None) -> bool:
    """Whether a report with this refusal is sent again later.

    An acknowledgement is not sent again after a host failed. A rebooted host then learns with its
    next report that its order is void.
    """
    if code == "rollout_halted":
        return not isinstance(event, facts.DispatchAck)
    return code in WAITS or code in NO_SLOT


def drop_refused_report(
    before: rows.HostRecord, event: facts.AgentEvent, state: str, now: datetime
) -> tuple[rows.HostRecord | None, Sequence[host_effects.Effect]]:
    """Return the twin after a report was refused for good; None: it is over.

    ``before`` is the twin before the report, ``state`` the host's state in the control plane. An
    order that was not acknowledged is void. A host that the control plane counts as soaking keeps
    soaking: the time may end later there, so its result is reported again. A host that was given up
    while it was silent has failed, and rolls back if its policy says so.
    """
    if isinstance(event, facts.DispatchAck):
        return None, ()
    if state == before.state == states.HostState.SOAKING and _is_repeatable(before, event):
        return before, ()
    if before.state is states.HostState.DEFERRED and state == states.HostState.PENDING:
        return take_back(before, now)
    deadline = transition_steps.deadline_of(before)
    if (
        state != states.HostState.FAILED
        or deadline is None
        or before.state is states.HostState.FAILED
    ):
        return None, ()
    return _expire(before, deadline, now)


def _expire(
    record: rows.HostRecord, deadline: states.Deadline, now: datetime
) -> tuple[rows.HostRecord, Sequence[host_effects.Effect]]:
    """Fail the host as the server did, even if its deadline is later on this clock."""
    expired = facts.DeadlineExpired(
        rollout_id=record.rollout_id, host_id=record.host_id, at=now, deadline=deadline
    )
    return machine.step(record, expired, max(now, record.due_at or now))


def _is_repeatable(before: rows.HostRecord, event: facts.AgentEvent) -> bool:
    """Whether the report follows from time alone and had no effect yet."""
    if isinstance(event, facts.Failed):
        return not transition_steps.rolls_back(before)  # otherwise the rollback is under way
    return isinstance(event, facts.Converged)
