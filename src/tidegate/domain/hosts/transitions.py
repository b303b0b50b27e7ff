"""Which event is legal in which state of a host, and the next states: data for ``step``.

A pair that is missing is an ``IllegalTransition``. A guard may still refuse a legal pair: a soak is
running, the closure is another one, a deadline is not due.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.hosts import facts, states as host_states

Targets = frozenset[host_states.HostState]


def _to(*states: host_states.HostState) -> Targets:
    return frozenset(states)


_PENDING, _ACTIVATING, _DEFERRED, _SOAKING, _CONVERGED, _FAILED, _REVERTED = host_states.HostState

TABLE: Final[Mapping[host_states.HostState, Mapping[type[Struct], Targets]]] = MappingProxyType(
    {
        _PENDING: {
            facts.DispatchReserved: _to(_PENDING),
            facts.DispatchCancelled: _to(_PENDING),
            facts.DispatchAck: _to(_ACTIVATING),
            facts.DispatchReject: _to(_FAILED),
            facts.DeadlineExpired: _to(_PENDING),
            facts.HostSkipped: _to(_PENDING),
        },
        _ACTIVATING: {
            facts.DispatchReserved: _to(_ACTIVATING),
            facts.ActivationStarted: _to(_ACTIVATING),
            facts.ActivationCompleted: _to(_SOAKING),
            facts.ActivationFailed: _to(_FAILED),
            facts.ActivationDeferred: _to(_DEFERRED),
            facts.DeadlineExpired: _to(_FAILED),
            facts.RecoveryActivationAssumed: _to(_SOAKING),
        },
        _DEFERRED: {
            facts.DispatchReserved: _to(_DEFERRED, _PENDING),
            facts.DispatchCancelled: _to(_PENDING),
            facts.ActivationCompleted: _to(_SOAKING),
            facts.ActivationFailed: _to(_FAILED),
            facts.DeadlineExpired: _to(_FAILED),
            facts.RecoveryActivationAssumed: _to(_SOAKING),
            facts.HostSkipped: _to(_DEFERRED),
        },
        _SOAKING: {
            facts.DispatchReserved: _to(_SOAKING),
            # While the activation is only assumed, the agent's own reports of it may still arrive.
            facts.ActivationStarted: _to(_SOAKING),
            facts.ActivationDeferred: _to(_SOAKING),
            facts.ActivationCompleted: _to(_SOAKING),
            facts.ActivationFailed: _to(_FAILED),
            facts.ProbeTopologyDeclared: _to(_SOAKING),
            facts.ProbeObservedFirst: _to(_SOAKING),
            facts.ProbeResult: _to(_SOAKING),
            facts.ProbeFailureFirst: _to(_SOAKING),
            facts.Failed: _to(_FAILED),
            facts.Converged: _to(_CONVERGED),
            facts.DeadlineExpired: _to(_FAILED),
            facts.HostSkipped: _to(_SOAKING),  # an emergency rollback needs the host
        },
        _CONVERGED: {
            facts.DispatchReserved: _to(_CONVERGED),
            facts.HostRegressed: _to(_CONVERGED),
        },
        _FAILED: {
            facts.DispatchReserved: _to(_FAILED, _PENDING),
            facts.RollbackComplete: _to(_REVERTED),
            facts.RollbackFailed: _to(_FAILED),
            facts.DeadlineExpired: _to(_FAILED),
            facts.HostSkipped: _to(_FAILED),
        },
        _REVERTED: {
            facts.DispatchReserved: _to(_REVERTED, _PENDING),
            facts.HostSkipped: _to(_REVERTED),
        },
    }
)
