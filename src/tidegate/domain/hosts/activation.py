"""From the acknowledgement of an order to the moment in which its target runs."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.hosts.effects import FireSwitch, ResetProbeCache
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    DispatchAck,
    DispatchReject,
    HostEvent,
    RecoveryActivationAssumed,
)
from tidegate.domain.hosts.orders import demand_order
from tidegate.domain.hosts.refusals import HostInvariant
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import HostState
from tidegate.domain.hosts.transition_steps import (
    NOTHING,
    Stepped,
    demand_closure,
    due_in,
    fail,
    illegal_transition,
    release_host,
    reserve_again,
    transition,
)


def acknowledge(record: HostRecord, event: DispatchAck, now: datetime) -> Stepped:
    demand_order(record)
    demand_closure(record, event.target_closure, record.target_closure)
    after = replace(
        record,
        state=HostState.ACTIVATING,
        current_closure_at_dispatch=event.current_closure_at_dispatch or None,
        current_closure=event.current_closure_at_dispatch or None,
        dispatch_acked_at=event.at,
        due_at=due_in(now, record.policy.activation_seconds),
    )
    moved = transition(record, HostState.ACTIVATING, event.at)
    return after, [moved, FireSwitch(record.target_closure)]


def reject(record: HostRecord, event: DispatchReject, now: datetime) -> Stepped:
    demand_order(record)
    return fail(record, "rejected", event.at, now)


def _demand_activation(record: HostRecord, event: HostEvent) -> None:
    """In Soaking only what an assumption overtook is heard."""
    if record.state is HostState.SOAKING and not record.activation_assumed:
        raise illegal_transition(record, event)


def start(record: HostRecord, event: ActivationStarted, now: datetime) -> Stepped:
    _demand_activation(record, event)
    return replace(record, activation_started_at=event.at), NOTHING


def complete(record: HostRecord, event: ActivationCompleted, now: datetime) -> Stepped:
    _demand_activation(record, event)
    demand_closure(record, event.observed_current_closure, record.target_closure)
    if event.exit_code != 0:
        raise HostInvariant(record.state, f"an activation that ends with {event.exit_code} failed")
    return _activated(record, event.at, now, assumed=False)


def assume(record: HostRecord, event: RecoveryActivationAssumed, now: datetime) -> Stepped:
    demand_closure(record, event.observed_current_closure, record.target_closure)
    return _activated(record, event.at, now, assumed=True)


def _activated(record: HostRecord, at: datetime, now: datetime, *, assumed: bool) -> Stepped:
    """The target runs: the soak begins here, and nothing that probes said before counts."""
    after = replace(
        reserve_again(record) if record.state is HostState.DEFERRED else record,
        state=HostState.SOAKING,
        current_closure=record.target_closure,
        activation_completed_at=at,
        activation_assumed=assumed,
        soak_due_at=due_in(at, record.policy.soak_seconds),
        topology_declared_at=None,
        probe_observed_first_at=None,
        probe_failure_first_at=None,
        probes={},
        due_at=due_in(now, record.policy.topology_seconds),
    )
    if record.state is HostState.SOAKING:
        return after, [ResetProbeCache()]
    return after, [transition(record, HostState.SOAKING, at), ResetProbeCache()]


def defer(record: HostRecord, event: ActivationDeferred, now: datetime) -> Stepped:
    _demand_activation(record, event)
    if record.state is HostState.SOAKING:
        return record, NOTHING  # it was rebooted since: the target runs
    due_at = due_in(now, record.policy.deferral_seconds)
    after = replace(release_host(record), state=HostState.DEFERRED, due_at=due_at)
    return after, [transition(record, HostState.DEFERRED, event.at)]


def activation_failed(record: HostRecord, event: ActivationFailed, now: datetime) -> Stepped:
    _demand_activation(record, event)
    return fail(replace(record, activation_failed_at=event.at), "activation", event.at, now)
