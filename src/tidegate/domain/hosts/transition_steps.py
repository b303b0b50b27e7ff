"""Steps that several host transitions share: change state, fail, become free, set deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from tidegate.domain.hosts import effects as host_effects, facts, refusals, rows, states
from tidegate.errors import IllegalTransition

Stepped = tuple[rows.HostRecord, Sequence[host_effects.Effect]]
NOTHING: Final[tuple[host_effects.Effect, ...]] = ()


def prior_closure(record: rows.HostRecord) -> str | None:
    """Return what a rollback returns to; None: nothing, or only the target itself."""
    prior = record.current_closure_at_dispatch
    return prior if prior and prior != record.target_closure else None


def rolls_back(record: rows.HostRecord) -> bool:
    """Whether this failed host should return to what ran before."""
    return record.policy_applied is states.OnFailure.ROLLBACK and prior_closure(record) is not None


def is_evidence(record: rows.HostRecord) -> bool:
    """Whether the end of this host's rollback quarantines the release.

    It does not if the host no longer counts, or only missed the deadline of its reboot: then it
    never ran the release.
    """
    return record.left is None and record.failure != states.Deadline.DEFERRAL


def deadline_of(record: rows.HostRecord) -> states.Deadline | None:
    """Return what the host's silence means when ``due_at`` passes; None: it may be silent."""
    if record.due_at is None:
        return None
    if record.state is states.HostState.SOAKING and record.topology_declared_at is None:
        return states.Deadline.TOPOLOGY
    return _DEADLINES.get(record.state)


_DEADLINES: Final[Mapping[states.HostState, states.Deadline]] = {
    states.HostState.PENDING: states.Deadline.ACK,
    states.HostState.ACTIVATING: states.Deadline.ACTIVATION,
    states.HostState.DEFERRED: states.Deadline.DEFERRAL,
    states.HostState.SOAKING: states.Deadline.CONVERGENCE,
    states.HostState.FAILED: states.Deadline.ROLLBACK,
}


def illegal_transition(record: rows.HostRecord, event: facts.HostEvent) -> IllegalTransition:
    return IllegalTransition("host", record.state, type(event).__name__)


def demand_closure(record: rows.HostRecord, found: str, expected: str) -> None:
    if found != expected:
        raise refusals.WrongClosure(record.state, found, expected)


def due_in(now: datetime, seconds: int) -> datetime:
    return now + timedelta(seconds=seconds)


def transition(
    record: rows.HostRecord, to: states.HostState, at: datetime
) -> host_effects.RecordTransition:
    return host_effects.RecordTransition(record.host_id, record.rollout_id, record.state, to, at)


def release_host(record: rows.HostRecord) -> rows.HostRecord:
    return replace(record, busy=False, budgets=())


def reserve_again(record: rows.HostRecord) -> rows.HostRecord:
    """After its reboot, the host takes its order and its slots again."""
    return replace(record, busy=True, budgets=tuple(slot.budget_id for slot in record.slots))


def fail(record: rows.HostRecord, why: str, at: datetime, now: datetime) -> Stepped:
    """Fail the host. It rolls back if its policy says so and something ran before."""
    policy = record.policy.on_failure
    after = replace(
        record, state=states.HostState.FAILED, failed_at=at, failure=why, policy_applied=policy
    )
    effects: list[host_effects.Effect] = [transition(record, states.HostState.FAILED, at)]
    prior = prior_closure(after)
    if policy is states.OnFailure.ROLLBACK and prior is not None:
        effects.append(host_effects.FireRollbackTo(prior))
        return replace(after, due_at=due_in(now, record.policy.rollback_seconds)), effects
    lost = policy is states.OnFailure.ROLLBACK  # nothing to roll back to: a person must look at it
    return replace(release_host(after), due_at=None, rollback_failed=lost), effects
