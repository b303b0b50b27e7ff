"""The machine of one host in one rollout. Control plane and agent step the same function.

    Pending ──▶ Activating ──▶ Soaking ──▶ Converged
       │          │   ▲ ╲         │
       │          │   │  Deferred │            soak from activation, probes after it
       ▼          ▼   ▼           ▼
    Failed ◀──────────────────────┘ ──▶ Reverted ──▶ Pending again, by a new attempt

``TABLE`` lists the legal pairs; this module holds what they do. A transition has the time of its
event. Deadlines use ``now``, because an agent's clock may differ from ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.domain.hosts import (
    activation,
    effects as host_effects,
    facts,
    orders,
    probes,
    refusals,
    rows,
    states,
    transition_steps,
    transitions,
)
from tidegate.errors import InvalidInput

SKEW_SECONDS_MAX = 60  # tolerated lead of an agent's clock over ours


def step(
    record: rows.HostRecord | None, event: facts.HostEvent, now: datetime
) -> tuple[rows.HostRecord, Sequence[host_effects.Effect]]:
    """Return the host's record after the event, and the effects.

    Raises:
        IllegalTransition: the state does not accept the event.
        SequenceGap, SequenceRegression, ClockSkew: the report's number or time is wrong.
        Refused: a guard of the event refuses it. HostNotInRollout: it has no record.
    """
    if record is None:
        return orders.begin(event, now)
    if (event.rollout_id, event.host_id) != (record.rollout_id, record.host_id):
        raise InvalidInput(
            f"{event.host_id} of {event.rollout_id} is not {record.host_id} of {record.rollout_id}"
        )
    if isinstance(event, facts.AgentFact):
        _demand_next(record, event)
        if event.at > now and event.at > (latest := now + timedelta(seconds=SKEW_SECONDS_MAX)):
            raise refusals.ClockSkew(record.state, event.at, latest)
    targets = transitions.TABLE[record.state].get(type(event))
    if targets is None:
        raise transition_steps.illegal_transition(record, event)
    after, effects = _STEPS[type(event)](record, event, now)
    assert after.state in targets, f"{record.state} by {type(event).__name__} to {after.state}"
    if isinstance(event, facts.AgentFact):
        after = structs.replace(after, last_event_seq=event.seq)
    return after, effects


def expected_seq(record: rows.HostRecord) -> int:
    """Return the number of the next report."""
    return record.last_event_seq + 1


def _demand_next(record: rows.HostRecord, event: facts.AgentFact) -> None:
    expected = expected_seq(record)
    if event.seq < expected:
        raise refusals.SequenceRegression(record.state, event.seq, expected)
    if event.seq > expected:
        raise refusals.SequenceGap(record.state, event.seq, expected)


# ── the soak ──────────────────────────────────────────────────────────────────────────────────────


def _declare(
    record: rows.HostRecord, event: facts.ProbeTopologyDeclared, now: datetime
) -> transition_steps.Stepped:
    policy = record.policy
    due_at = transition_steps.due_in(now, policy.soak_seconds + policy.convergence_seconds)
    after = structs.replace(probes.declare(record, event), activation_assumed=False, due_at=due_at)
    return after, transition_steps.NOTHING


def _observe_probe(record: rows.HostRecord, event: Any, now: datetime) -> transition_steps.Stepped:
    return _PROBE_STEPS[type(event)](record, event), transition_steps.NOTHING


_PROBE_STEPS: Final[Mapping[type[Struct], Callable[[rows.HostRecord, Any], rows.HostRecord]]] = {
    facts.ProbeObservedFirst: probes.first_observed,
    facts.ProbeResult: probes.observe,
    facts.ProbeFailureFirst: probes.first_failed,
}


def _fail_probes(
    record: rows.HostRecord, event: facts.Failed, now: datetime
) -> transition_steps.Stepped:
    if event.policy_applied is not record.policy.on_failure:
        raise refusals.HostInvariant(
            record.state, f"its policy is {record.policy.on_failure}, not {event.policy_applied}"
        )
    if found := probes.why_unsustained(record, event.failing_probes, event.at):
        raise refusals.UnsustainedFailure(record.state, found)
    return transition_steps.fail(record, "probes", event.at, now)


def _converge(
    record: rows.HostRecord, event: facts.Converged, now: datetime
) -> transition_steps.Stepped:
    transition_steps.demand_closure(record, event.current_closure, record.target_closure)
    if missing := probes.missing_for_convergence(record, event.at):
        raise refusals.EarlyConvergence(record.state, missing)
    after = structs.replace(
        transition_steps.release_host(record),
        state=states.HostState.CONVERGED,
        converged_at=event.at,
        due_at=None,
    )
    return after, [transition_steps.transition(record, states.HostState.CONVERGED, event.at)]


def _regress(
    record: rows.HostRecord, event: facts.HostRegressed, now: datetime
) -> transition_steps.Stepped:
    if record.regressed_at is not None:
        raise refusals.HostInvariant(record.state, "that it regressed is known")
    return structs.replace(record, regressed_at=event.at), transition_steps.NOTHING


# ── rollbacks and deadlines ───────────────────────────────────────────────────────────────────────


def _demand_rollback(record: rows.HostRecord, event: facts.HostEvent) -> str:
    prior = transition_steps.prior_closure(record)
    if not transition_steps.rolls_back(record) or prior is None:
        raise refusals.HostInvariant(
            record.state, f"no rollback is due, so no {type(event).__name__}"
        )
    return prior


def _quarantine(record: rows.HostRecord) -> list[host_effects.Effect]:
    """Return the quarantine of the closure. A tolerated failure causes none."""
    if not transition_steps.is_evidence(record):
        return []
    return [host_effects.InsertQuarantine(record.channel, record.target_closure)]


def _revert(
    record: rows.HostRecord, event: facts.RollbackComplete, now: datetime
) -> transition_steps.Stepped:
    transition_steps.demand_closure(
        record, event.reverted_to_closure, _demand_rollback(record, event)
    )
    if event.exit_code != 0:
        raise refusals.HostInvariant(
            record.state, f"a rollback that ends with {event.exit_code} failed"
        )
    after = structs.replace(
        transition_steps.release_host(record),
        state=states.HostState.REVERTED,
        reverted_to=event.reverted_to_closure,
        current_closure=event.reverted_to_closure,
        reverted_at=event.at,
        rollback_failed=False,
        due_at=None,
    )
    moved = transition_steps.transition(record, states.HostState.REVERTED, event.at)
    return after, [*_quarantine(record), moved]


def _fail_rollback(
    record: rows.HostRecord, event: facts.RollbackFailed | facts.DeadlineExpired, now: datetime
) -> transition_steps.Stepped:
    _demand_rollback(record, event)
    after = structs.replace(
        transition_steps.release_host(record), rollback_failed=True, due_at=None
    )
    effects = (
        []
        if record.rollback_failed
        else [transition_steps.transition(record, states.HostState.FAILED, event.at)]
    )
    return after, [*_quarantine(record), *effects]


def _expire(
    record: rows.HostRecord, event: facts.DeadlineExpired, now: datetime
) -> transition_steps.Stepped:
    wanted = transition_steps.deadline_of(record)
    if event.deadline is not wanted or record.due_at is None or record.due_at > now:
        due = "nothing" if wanted is None else f"{wanted} at {record.due_at}"
        raise refusals.HostInvariant(record.state, f"{event.deadline} is not due; it is {due}")
    if wanted is states.Deadline.ACK:
        return structs.replace(
            record, due_at=transition_steps.due_in(now, record.policy.ack_seconds)
        ), transition_steps.NOTHING
    if wanted is states.Deadline.ROLLBACK:
        return _fail_rollback(record, event, now)
    return transition_steps.fail(record, wanted.value, event.at, now)


_STEPS: Final[
    Mapping[type[Struct], Callable[[rows.HostRecord, Any, datetime], transition_steps.Stepped]]
] = {
    facts.DispatchReserved: orders.reserve,
    facts.DispatchCancelled: orders.cancel,
    facts.DispatchAck: activation.acknowledge,
    facts.DispatchReject: activation.reject,
    facts.ActivationStarted: activation.start,
    facts.ActivationCompleted: activation.complete,
    facts.ActivationFailed: activation.activation_failed,
    facts.ActivationDeferred: activation.defer,
    facts.ProbeTopologyDeclared: _declare,
    facts.ProbeObservedFirst: _observe_probe,
    facts.ProbeResult: _observe_probe,
    facts.ProbeFailureFirst: _observe_probe,
    facts.Failed: _fail_probes,
    facts.RollbackComplete: _revert,
    facts.RollbackFailed: _fail_rollback,
    facts.Converged: _converge,
    facts.DeadlineExpired: _expire,
    facts.RecoveryActivationAssumed: activation.assume,
    facts.HostRegressed: _regress,
    facts.HostSkipped: orders.skip,
}
