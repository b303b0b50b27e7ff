"""The commands on hosts that need only the host's own record.

Those that also read the rollout are in ``domain.rollouts``: reports, orders and skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.hosts import facts, refusals, rows as host_rows, states, transition_steps
from tidegate.errors import IllegalTransition
from tidegate.kernel import model, slices

REASON_BYTES_MAX = 512
CANCELLABLE = frozenset({states.HostState.PENDING, states.HostState.DEFERRED})


class CancelDispatch(Struct, frozen=True, kw_only=True):
    """Cancel an order that the agent has not acknowledged, or that waits for a reboot."""

    rollout_id: str
    host_id: str
    reason: str


class ExpireDeadline(Struct, frozen=True, kw_only=True):
    """The host did not report before ``due_at``, as read by the timer."""

    rollout_id: str
    host_id: str
    due_at: datetime


def decide_cancel(
    rows: tuple[host_rows.HostRecord | None], command: CancelDispatch, now: datetime
) -> Sequence[Struct]:
    """Raises: HostNotInRollout, IllegalTransition: the host is carrying out the order.
    InvalidInput.
    """
    model.check_text("a reason", command.reason, REASON_BYTES_MAX)
    (record,) = rows
    if record is None:
        raise refusals.HostNotInRollout(command.rollout_id, command.host_id)
    if record.state not in CANCELLABLE:
        raise IllegalTransition("host", record.state, "the cancellation of its order")
    if record.cancelled_at is not None or (
        record.state is states.HostState.DEFERRED and record.left is not None
    ):
        return ()
    return (
        facts.DispatchCancelled(
            rollout_id=command.rollout_id, host_id=command.host_id, at=now, reason=command.reason
        ),
    )


def decide_expiry(
    rows: tuple[host_rows.HostRecord | None], command: ExpireDeadline, now: datetime
) -> Sequence[Struct]:
    """Expire the deadline, or do nothing if the host has reported since the timer looked.

    Raises:
        HostNotInRollout.
    """
    (record,) = rows
    if record is None:
        raise refusals.HostNotInRollout(command.rollout_id, command.host_id)
    deadline = transition_steps.deadline_of(record)
    if deadline is None or record.due_at != command.due_at or now < command.due_at:
        return ()
    counts = transition_steps.is_evidence(record)  # otherwise it quarantines nothing
    return (
        facts.DeadlineExpired(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            deadline=deadline,
            channel=record.channel if counts else "",
            target_closure=record.target_closure if counts else "",
        ),
    )


cancel_dispatch = slices.Slice(
    name="cancel-dispatch",
    command=CancelDispatch,
    writes=(facts.DispatchCancelled,),
    rows=lambda command: (host_rows.record_key(command.rollout_id, command.host_id),),
    decide=decide_cancel,
)
expire_deadline = slices.Slice(
    name="expire-deadline",
    command=ExpireDeadline,
    writes=(facts.DeadlineExpired,),
    rows=lambda command: (host_rows.record_key(command.rollout_id, command.host_id),),
    decide=decide_expiry,
)
SLICES = (cancel_dispatch, expire_deadline)
