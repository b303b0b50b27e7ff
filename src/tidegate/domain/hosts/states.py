"""The vocabulary of a host in a rollout: its states, how it fails, how it is probed."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class HostState(StrEnum):
    """The state of a host in one rollout."""

    PENDING = "Pending"  # its order is reserved, not yet acknowledged by the agent
    ACTIVATING = "Activating"  # acknowledged; the switch is running or about to start
    DEFERRED = "Deferred"  # staged, takes effect with the next reboot
    SOAKING = "Soaking"  # activated; probes are running during the soak
    CONVERGED = "Converged"
    FAILED = "Failed"
    REVERTED = "Reverted"  # the agent rolled back to what ran before


_PREDICATES: Final = {
    HostState.CONVERGED: "has converged",
    HostState.FAILED: "has failed",
    HostState.REVERTED: "has rolled back",
}


def describe_host_state(state: HostState) -> str:
    """Phrase the state for a sentence: ``the host …``."""
    return _PREDICATES.get(state, f"is {state.lower()}")


IN_FLIGHT: Final = frozenset({HostState.PENDING, HostState.ACTIVATING, HostState.SOAKING})
SETTLED: Final = frozenset({HostState.CONVERGED, HostState.DEFERRED})  # "done" in docs
ENDED: Final = frozenset({HostState.CONVERGED, HostState.REVERTED})  # no event is legal here


class OnFailure(StrEnum):
    """What a host does when it fails. ``halt``: it stays as it is."""

    HALT = "halt"
    ROLLBACK = "rollback-and-halt"


class ProbeMode(StrEnum):
    """Whether a probe's result counts."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    DISABLED = "disabled"


class ProbeStatus(StrEnum):
    """A probe's result. An error of the probe itself is a failure."""

    PASS = "pass"
    FAIL = "fail"


class Deadline(StrEnum):
    """What a host has to do in time. ``ack`` only delivers the order again; the others fail the
    host.
    """

    ACK = "ack"
    ACTIVATION = "activation"
    TOPOLOGY = "topology"
    CONVERGENCE = "convergence"
    ROLLBACK = "rollback"
    DEFERRAL = "deferral"


class HostPolicy(Struct, frozen=True, omit_defaults=True):
    """The policy of a host in a rollout, frozen in the plan and carried by its order."""

    soak_seconds: int = 0
    on_failure: OnFailure = OnFailure.ROLLBACK
    sustained_failure_seconds: int = 120
    ack_seconds: int = 900
    activation_seconds: int = 600
    topology_seconds: int = 300  # from activation to the declaration of its probes
    convergence_seconds: int = 900  # from the end of the soak to the report of convergence
    rollback_seconds: int = 600
    deferral_seconds: int = 604_800
    must_fit: bool = False  # start only if the maintenance window is open long enough
    preempts: bool = False  # the order replaces one that soaks
