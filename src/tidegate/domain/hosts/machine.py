"""The machine of one host in one rollout. Control plane and agent step the same function.

    Pending ──▶ Activating ──▶ Soaking ──▶ Converged
       │          │   ▲ ╲         │
       │          │   │  Deferred │            soak from activation, probes after it
       ▼          ▼   ▼           ▼
    Failed ◀──────────────────────┘ ──▶ Reverted ──▶ Pending again, by a new attempt

``TABLE`` says what is legal where; here stands what it does. A transition has the time that its
event gives; deadlines run on ``now``, because an agent's clock is not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.hosts.activation import (
    acknowledge,
    activation_failed,
    assume,
    complete,
    defer,
    reject,
    start,
)
from tidegate.domain.hosts.effects import Effect, InsertQuarantine
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    AgentFact,
    Converged,
    DeadlineExpired,
    DispatchAck,
    DispatchCancelled,
    DispatchReject,
    DispatchReserved,
    Failed,
    HostEvent,
    HostRegressed,
    HostSkipped,
    ProbeFailureFirst,
    ProbeObservedFirst,
    ProbeResult,
    ProbeTopologyDeclared,
    RecoveryActivationAssumed,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.domain.hosts.orders import begin, cancel, reserve, skip
from tidegate.domain.hosts.probes import (
    declare,
    first_failed,
    first_observed,
    missing_for_convergence,
    observe,
    why_unsustained,
)
from tidegate.domain.hosts.refusals import (
    ClockSkew,
    EarlyConvergence,
    HostInvariant,
    SequenceGap,
    SequenceRegression,
    UnsustainedFailure,
)
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import Deadline, HostState
from tidegate.domain.hosts.transition_steps import (
    NOTHING,
    Stepped,
    deadline_of,
    demand_closure,
    due_in,
    fail,
    illegal_transition,
    prior_closure,
    release_host,
    rolls_back,
    transition,
)
from tidegate.domain.hosts.transitions import TABLE
from tidegate.errors import InvalidInput

SKEW_SECONDS_MAX = 60  # that an agent's clock may be ahead of ours


def step(
    record: HostRecord | None, event: HostEvent, now: datetime
) -> tuple[HostRecord, Sequence[Effect]]:
    """The host's record after the event, and what is to be done about it.

    Raises:
        IllegalTransition: the event has no place in this state.
        SequenceGap, SequenceRegression, ClockSkew: the report's number or time is wrong.
        Refused: a guard of the event says no. HostNotInRollout: it has no record.
    """
    if record is None:
        return begin(event, now)
    if (event.rollout_id, event.host_id) != (record.rollout_id, record.host_id):
        raise InvalidInput(
            f"{event.host_id} of {event.rollout_id} is not {record.host_id} of {record.rollout_id}"
        )
    if isinstance(event, AgentFact):
        _demand_next(record, event)
        if event.at > now and event.at > (latest := now + timedelta(seconds=SKEW_SECONDS_MAX)):
            raise ClockSkew(record.state, event.at, latest)
    targets = TABLE[record.state].get(type(event))
    if targets is None:
        raise illegal_transition(record, event)
    after, effects = _STEPS[type(event)](record, event, now)
    assert after.state in targets, f"{record.state} by {type(event).__name__} to {after.state}"
    if isinstance(event, AgentFact):
        after = replace(after, last_event_seq=event.seq)
    return after, effects


def expected_seq(record: HostRecord) -> int:
    """The number of the next report."""
    return record.last_event_seq + 1


def _demand_next(record: HostRecord, event: AgentFact) -> None:
    expected = expected_seq(record)
    if event.seq < expected:
        raise SequenceRegression(record.state, event.seq, expected)
    if event.seq > expected:
        raise SequenceGap(record.state, event.seq, expected)


# ── the soak ──────────────────────────────────────────────────────────────────────────────────────


def _declare(record: HostRecord, event: ProbeTopologyDeclared, now: datetime) -> Stepped:
    policy = record.policy
    due_at = due_in(now, policy.soak_seconds + policy.convergence_seconds)
    after = replace(declare(record, event), activation_assumed=False, due_at=due_at)
    return after, NOTHING


def _probed(record: HostRecord, event: Any, now: datetime) -> Stepped:
    return _PROBED[type(event)](record, event), NOTHING


_PROBED: Final[Mapping[type[Struct], Callable[[HostRecord, Any], HostRecord]]] = {
    ProbeObservedFirst: first_observed,
    ProbeResult: observe,
    ProbeFailureFirst: first_failed,
}


def _probes_failed(record: HostRecord, event: Failed, now: datetime) -> Stepped:
    if event.policy_applied is not record.policy.on_failure:
        raise HostInvariant(
            record.state, f"its policy is {record.policy.on_failure}, not {event.policy_applied}"
        )
    if found := why_unsustained(record, event.failing_probes, event.at):
        raise UnsustainedFailure(record.state, found)
    return fail(record, "probes", event.at, now)


def _converge(record: HostRecord, event: Converged, now: datetime) -> Stepped:
    demand_closure(record, event.current_closure, record.target_closure)
    if missing := missing_for_convergence(record, event.at):
        raise EarlyConvergence(record.state, missing)
    after = replace(
        release_host(record), state=HostState.CONVERGED, converged_at=event.at, due_at=None
    )
    return after, [transition(record, HostState.CONVERGED, event.at)]


def _regress(record: HostRecord, event: HostRegressed, now: datetime) -> Stepped:
    if record.regressed_at is not None:
        raise HostInvariant(record.state, "that it regressed is known")
    return replace(record, regressed_at=event.at), NOTHING


# ── going back, and silence ───────────────────────────────────────────────────────────────────────


def _demand_rollback(record: HostRecord, event: HostEvent) -> str:
    prior = prior_closure(record)
    if not rolls_back(record) or prior is None:
        raise HostInvariant(record.state, f"no rollback is due, so no {type(event).__name__}")
    return prior


def _quarantine(record: HostRecord) -> list[Effect]:
    """A failure that was allowed for keeps the closure from nobody."""
    if record.left is not None:
        return []
    return [InsertQuarantine(record.channel, record.target_closure)]


def _reverted(record: HostRecord, event: RollbackComplete, now: datetime) -> Stepped:
    demand_closure(record, event.reverted_to_closure, _demand_rollback(record, event))
    if event.exit_code != 0:
        raise HostInvariant(record.state, f"a rollback that ends with {event.exit_code} failed")
    after = replace(
        release_host(record),
        state=HostState.REVERTED,
        reverted_to=event.reverted_to_closure,
        current_closure=event.reverted_to_closure,
        reverted_at=event.at,
        rollback_failed=False,
        due_at=None,
    )
    moved = transition(record, HostState.REVERTED, event.at)
    return after, [*_quarantine(record), moved]


def _rollback_failed(
    record: HostRecord, event: RollbackFailed | DeadlineExpired, now: datetime
) -> Stepped:
    _demand_rollback(record, event)
    after = replace(release_host(record), rollback_failed=True, due_at=None)
    told = [] if record.rollback_failed else [transition(record, HostState.FAILED, event.at)]
    return after, [*_quarantine(record), *told]


def _expire(record: HostRecord, event: DeadlineExpired, now: datetime) -> Stepped:
    wanted = deadline_of(record)
    if event.deadline is not wanted or record.due_at is None or record.due_at > now:
        due = "nothing" if wanted is None else f"{wanted} at {record.due_at}"
        raise HostInvariant(record.state, f"{event.deadline} is not due; it is {due}")
    if wanted is Deadline.ACK:
        return replace(record, due_at=due_in(now, record.policy.ack_seconds)), NOTHING
    if wanted is Deadline.ROLLBACK:
        return _rollback_failed(record, event, now)
    return fail(record, wanted.value, event.at, now)


_STEPS: Final[Mapping[type[Struct], Callable[[HostRecord, Any, datetime], Stepped]]] = {
    DispatchReserved: reserve,
    DispatchCancelled: cancel,
    DispatchAck: acknowledge,
    DispatchReject: reject,
    ActivationStarted: start,
    ActivationCompleted: complete,
    ActivationFailed: activation_failed,
    ActivationDeferred: defer,
    ProbeTopologyDeclared: _declare,
    ProbeObservedFirst: _probed,
    ProbeResult: _probed,
    ProbeFailureFirst: _probed,
    Failed: _probes_failed,
    RollbackComplete: _reverted,
    RollbackFailed: _rollback_failed,
    Converged: _converge,
    DeadlineExpired: _expire,
    RecoveryActivationAssumed: assume,
    HostRegressed: _regress,
    HostSkipped: skip,
}
