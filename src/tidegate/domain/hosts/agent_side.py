"""The agent's side of a passage, pure: what it says next, by the machine that both sides run.

    order ──▶ twin record ──▶ say(…) ──▶ the numbered report, and what to do about it
                    ▲                        │
                    └── the same step ◀──────┘

The agent keeps the twin beside its journal; the simulator keeps one per host. Both act on the
effects (``FireSwitch``, ``FireRollbackTo``, ``ResetProbeCache``) and leave the others alone.
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

# What a refusal of an order's acknowledgement may say without taking the order back.
WAITS: Final = frozenset({"rollout_paused"})
# What a host hears that is back from its reboot, while it can't take its order again.
NO_SLOT: Final = frozenset({"host_busy", "budget_exhausted"})

Said = tuple[rows.HostRecord, facts.AgentEvent, Sequence[host_effects.Effect]]


def record_from_order(
    order: rows.QueuedDispatch, before: rows.HostRecord | None, now: datetime
) -> rows.HostRecord:
    """The twin of an order that was handed out. Raises: Refused: it does not follow ``before``.

    A later attempt shows that the earlier order, which waits for a reboot, was taken back.
    """
    if before is not None and before.state is states.HostState.DEFERRED:
        before = before if order.attempt <= before.attempt else _cancelled(before, now)[0]
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
    """The next report of this kind, what the record is after it, and what to do.

    Raises:
        Refused: the machine does not accept it now; the number stays free.
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
    """What the passing of time makes the host say: that it converged, or that it failed."""
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
    """Whether the host failed and is on its way back."""
    waits = record.state is states.HostState.FAILED and not record.rollback_failed
    return waits and transition_steps.rolls_back(record)


def take_back(
    record: rows.HostRecord, now: datetime
) -> tuple[rows.HostRecord | None, Sequence[host_effects.Effect]]:
    """What an order that waits for a reboot leaves when it is taken back: the way back to what ran
    before, if there is one. Nothing is said of it: the order is void.
    """
    after, effects = _cancelled(record, now)
    return (after, effects) if is_withdrawing(after) else (None, ())


def _cancelled(
    record: rows.HostRecord, now: datetime
) -> tuple[rows.HostRecord, Sequence[host_effects.Effect]]:
    cancelled = facts.DispatchCancelled(
        rollout_id=record.rollout_id, host_id=record.host_id, at=now, reason="taken back"
    )
    return machine.step(record, cancelled, now)


def is_withdrawing(record: rows.HostRecord) -> bool:
    """Whether the order was taken back, and what it staged is to be removed."""
    return record.cancelled_at is not None and transition_steps.prior_closure(record) is not None


def waits(event: facts.AgentEvent, code: str | None) -> bool:
    """Whether a report that was refused so is sent again later. An acknowledgement is not, where a
    host failed; a host that comes back from its reboot then hears next that its order is void.
    """
    if code == "rollout_halted":
        return not isinstance(event, facts.DispatchAck)
    return code in WAITS or code in NO_SLOT


def drop_refused_report(
    before: rows.HostRecord, event: facts.AgentEvent, state: str, now: datetime
) -> tuple[rows.HostRecord | None, Sequence[host_effects.Effect]]:
    """What a report that was refused for good leaves: ``before`` is the twin as it was before the
    report, ``state`` where the control plane says that the host stands.

    An order that was not acknowledged is void. A host that still soaks for the control plane soaks
    on: its time may run later there, so what it concluded is said again. A host that was given up
    while it was silent has failed, and goes back if its policy says so. Otherwise it is over: None.
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
    expired = facts.DeadlineExpired(
        rollout_id=before.rollout_id, host_id=before.host_id, at=now, deadline=deadline
    )
    return machine.step(before, expired, max(now, before.due_at or now))


def _is_repeatable(before: rows.HostRecord, event: facts.AgentEvent) -> bool:
    """Whether it follows from the time alone, and nothing was done about it yet."""
    if isinstance(event, facts.Failed):
        return not transition_steps.rolls_back(before)  # else the rollback is under way
    return isinstance(event, facts.Converged)
