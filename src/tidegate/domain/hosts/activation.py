"""From the acknowledgement of an order until its target runs."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.hosts import effects, facts, orders, refusals, rows, states, transition_steps


def acknowledge(
    record: rows.HostRecord, event: facts.DispatchAck, now: datetime
) -> transition_steps.Stepped:
    orders.demand_order(record)
    transition_steps.demand_closure(record, event.target_closure, record.target_closure)
    after = replace(
        record,
        state=states.HostState.ACTIVATING,
        current_closure_at_dispatch=event.current_closure_at_dispatch or None,
        current_closure=event.current_closure_at_dispatch or None,
        dispatch_acked_at=event.at,
        due_at=transition_steps.due_in(now, record.policy.activation_seconds),
    )
    moved = transition_steps.transition(record, states.HostState.ACTIVATING, event.at)
    return after, [moved, effects.FireSwitch(record.target_closure)]


def reject(
    record: rows.HostRecord, event: facts.DispatchReject, now: datetime
) -> transition_steps.Stepped:
    orders.demand_order(record)
    return transition_steps.fail(record, "rejected", event.at, now)


def _demand_activation(record: rows.HostRecord, event: facts.HostEvent) -> None:
    """In Soaking, accept a late report only if the activation was assumed."""
    if record.state is states.HostState.SOAKING and not record.activation_assumed:
        raise transition_steps.illegal_transition(record, event)


def start(
    record: rows.HostRecord, event: facts.ActivationStarted, now: datetime
) -> transition_steps.Stepped:
    _demand_activation(record, event)
    return replace(record, activation_started_at=event.at), transition_steps.NOTHING


def complete(
    record: rows.HostRecord, event: facts.ActivationCompleted, now: datetime
) -> transition_steps.Stepped:
    _demand_activation(record, event)
    transition_steps.demand_closure(record, event.observed_current_closure, record.target_closure)
    if event.exit_code != 0:
        raise refusals.HostInvariant(
            record.state, f"an activation that ends with {event.exit_code} failed"
        )
    return _activate(record, event.at, now, assumed=False)


def assume(
    record: rows.HostRecord, event: facts.RecoveryActivationAssumed, now: datetime
) -> transition_steps.Stepped:
    transition_steps.demand_closure(record, event.observed_current_closure, record.target_closure)
    return _activate(record, event.at, now, assumed=True)


def _activate(
    record: rows.HostRecord, at: datetime, now: datetime, *, assumed: bool
) -> transition_steps.Stepped:
    """The target runs: start the soak and forget earlier probe results."""
    after = replace(
        transition_steps.reserve_again(record)
        if record.state is states.HostState.DEFERRED
        else record,
        state=states.HostState.SOAKING,
        current_closure=record.target_closure,
        activation_completed_at=at,
        activation_assumed=assumed,
        soak_due_at=transition_steps.due_in(at, record.policy.soak_seconds),
        topology_declared_at=None,
        probe_observed_first_at=None,
        probe_failure_first_at=None,
        probes={},
        due_at=transition_steps.due_in(now, record.policy.topology_seconds),
    )
    if record.state is states.HostState.SOAKING:
        return after, [effects.ResetProbeCache()]
    return after, [
        transition_steps.transition(record, states.HostState.SOAKING, at),
        effects.ResetProbeCache(),
    ]


def defer(
    record: rows.HostRecord, event: facts.ActivationDeferred, now: datetime
) -> transition_steps.Stepped:
    _demand_activation(record, event)
    if record.state is states.HostState.SOAKING:
        return record, transition_steps.NOTHING  # it was rebooted since, so the target runs
    due_at = transition_steps.due_in(now, record.policy.deferral_seconds)
    after = replace(
        transition_steps.release_host(record), state=states.HostState.DEFERRED, due_at=due_at
    )
    return after, [transition_steps.transition(record, states.HostState.DEFERRED, event.at)]


def activation_failed(
    record: rows.HostRecord, event: facts.ActivationFailed, now: datetime
) -> transition_steps.Stepped:
    _demand_activation(record, event)
    return transition_steps.fail(
        replace(record, activation_failed_at=event.at), "activation", event.at, now
    )
