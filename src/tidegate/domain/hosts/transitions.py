"""Which event is legal in which state of a host, and where it may lead: data, used by ``step``.

A pair that is not here is an ``IllegalTransition``. A pair that is here may still be refused by a
guard of its event (a soak that runs, a closure that is another one, a deadline that is not due).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    Converged,
    DeadlineExpired,
    DispatchAck,
    DispatchCancelled,
    DispatchReject,
    DispatchReserved,
    Failed,
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
from tidegate.domain.hosts.states import HostState

Targets = frozenset[HostState]


def _to(*states: HostState) -> Targets:
    return frozenset(states)


_PENDING, _ACTIVATING, _DEFERRED, _SOAKING, _CONVERGED, _FAILED, _REVERTED = HostState

TABLE: Final[Mapping[HostState, Mapping[type[Struct], Targets]]] = MappingProxyType(
    {
        _PENDING: {
            DispatchReserved: _to(_PENDING),
            DispatchCancelled: _to(_PENDING),
            DispatchAck: _to(_ACTIVATING),
            DispatchReject: _to(_FAILED),
            DeadlineExpired: _to(_PENDING),
            HostSkipped: _to(_PENDING),
        },
        _ACTIVATING: {
            DispatchReserved: _to(_ACTIVATING),
            ActivationStarted: _to(_ACTIVATING),
            ActivationCompleted: _to(_SOAKING),
            ActivationFailed: _to(_FAILED),
            ActivationDeferred: _to(_DEFERRED),
            DeadlineExpired: _to(_FAILED),
            RecoveryActivationAssumed: _to(_SOAKING),
        },
        _DEFERRED: {
            DispatchReserved: _to(_DEFERRED, _PENDING),
            DispatchCancelled: _to(_PENDING),
            ActivationCompleted: _to(_SOAKING),
            ActivationFailed: _to(_FAILED),
            DeadlineExpired: _to(_FAILED),
            RecoveryActivationAssumed: _to(_SOAKING),
            HostSkipped: _to(_DEFERRED),
        },
        _SOAKING: {
            DispatchReserved: _to(_SOAKING),
            # While the activation is only assumed, the agent's own words about it are on their way.
            ActivationStarted: _to(_SOAKING),
            ActivationDeferred: _to(_SOAKING),
            ActivationCompleted: _to(_SOAKING),
            ActivationFailed: _to(_FAILED),
            ProbeTopologyDeclared: _to(_SOAKING),
            ProbeObservedFirst: _to(_SOAKING),
            ProbeResult: _to(_SOAKING),
            ProbeFailureFirst: _to(_SOAKING),
            Failed: _to(_FAILED),
            Converged: _to(_CONVERGED),
            DeadlineExpired: _to(_FAILED),
            HostSkipped: _to(_SOAKING),  # an emergency rollback needs the host
        },
        _CONVERGED: {
            DispatchReserved: _to(_CONVERGED),
            HostRegressed: _to(_CONVERGED),
        },
        _FAILED: {
            DispatchReserved: _to(_FAILED, _PENDING),
            RollbackComplete: _to(_REVERTED),
            RollbackFailed: _to(_FAILED),
            DeadlineExpired: _to(_FAILED),
            HostSkipped: _to(_FAILED),
        },
        _REVERTED: {
            DispatchReserved: _to(_REVERTED, _PENDING),
            HostSkipped: _to(_REVERTED),
        },
    }
)
