"""What happens to a host in a rollout: our orders, its agent's reports, and silence.

    plan_action   DispatchReserved, DispatchCancelled          decided by the dispatcher
    agent_event   DispatchAck … Converged                      reported, numbered by ``seq``
    host_event    DeadlineExpired, RecoveryActivationAssumed   seen by the control plane itself
    rollout_event HostJoined, HostStateChanged                 follow-ups, read by the rollout

All are in the rollout's partition. ``at`` is the agent's clock in its reports, ours elsewhere; the
time of recording is the event's own time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct, field

from tidegate.domain.hosts import states
from tidegate.kernel import tags, vocabulary


class HostFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them have: the host, the rollout and the time."""

    rollout_id: Annotated[str, tags.Partition()]
    host_id: str
    at: datetime


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


class BudgetSlot(Struct, frozen=True, omit_defaults=True):
    """A budget that the host takes a slot of, and how many slots it has in this plan."""

    budget_id: str
    slots: int


class DispatchReserved(HostFact, frozen=True, kw_only=True):
    """The host should run the target: its order is queued, its budget slots are taken."""

    channel: str
    target_closure: str
    wave: int
    policy: states.HostPolicy
    attempt: int = 1
    budgets: tuple[BudgetSlot, ...] = ()
    late: bool = False  # it joined after the plan, and is counted separately


class DispatchCancelled(HostFact, frozen=True, kw_only=True):
    """The order was cancelled before the agent acknowledged it, or before the reboot that it waits
    for. Its slots are free.
    """

    reason: str


# ── reports of the agent ──────────────────────────────────────────────────────────────────────────


class AgentFact(HostFact, frozen=True, kw_only=True):
    """A report: numbered per host and rollout, from 1, without gaps."""

    seq: int


class DispatchAck(AgentFact, frozen=True, kw_only=True):
    """The agent accepted the order. ``current_closure_at_dispatch`` is what a rollback returns to.

    It is empty if nothing runs yet.
    """

    target_closure: str
    current_closure_at_dispatch: str


class DispatchReject(AgentFact, frozen=True, kw_only=True):
    """The agent refuses the target: it could not be verified, or already failed on this host."""

    reason: str


class ActivationStarted(AgentFact, frozen=True, kw_only=True):
    switch_method: str = ""


class ActivationCompleted(AgentFact, frozen=True, kw_only=True):
    observed_current_closure: str
    exit_code: int = 0


class ActivationFailed(AgentFact, frozen=True, kw_only=True):
    exit_code: int
    stderr_tail: str = ""


class ActivationDeferred(AgentFact, frozen=True, kw_only=True):
    """Staged: takes effect with the next reboot, because this component cannot be swapped live."""

    component: str


class ProbeDeclared(Struct, frozen=True, omit_defaults=True):
    """One probe of a host's topology."""

    probe_name: str
    kind: str
    mode: states.ProbeMode


class ProbeTopologyDeclared(AgentFact, frozen=True, kw_only=True):
    """The probes of this activation, declared before any result. The list may be empty."""

    probes: tuple[ProbeDeclared, ...] = ()


class ProbeObservedFirst(AgentFact, frozen=True, kw_only=True):
    probe_name: str
    mode: states.ProbeMode


class ProbeResult(AgentFact, frozen=True, kw_only=True):
    """A probe's first result after an activation, or a change of its result.

    The control plane adds the host's wave.
    """

    probe_name: str
    mode: states.ProbeMode
    status: states.ProbeStatus
    failure_reason: str | None = None
    wave: int = 0


class ProbeFailureFirst(AgentFact, frozen=True, kw_only=True):
    probe_name: str
    mode: states.ProbeMode


class Failed(AgentFact, frozen=True, kw_only=True):
    """Some enforced probe failed for too long."""

    sustained_duration_secs: int
    failing_probes: tuple[str, ...]
    policy_applied: states.OnFailure


class RollbackComplete(AgentFact, frozen=True, kw_only=True):
    """The host runs again what ran before. The control plane adds the release that it left."""

    reverted_to_closure: str
    exit_code: int = 0
    channel: str = ""
    target_closure: str = ""


class RollbackFailed(AgentFact, frozen=True, kw_only=True):
    """The host could not roll back; a person must look at it."""

    phase: str
    exit_code: int
    channel: str = ""
    target_closure: str = ""


class Converged(AgentFact, frozen=True, kw_only=True):
    """The soak is over, every enforced probe passes, the target runs."""

    current_closure: str


AgentEvent = (
    DispatchAck
    | DispatchReject
    | ActivationStarted
    | ActivationCompleted
    | ActivationFailed
    | ActivationDeferred
    | ProbeTopologyDeclared
    | ProbeObservedFirst
    | ProbeResult
    | ProbeFailureFirst
    | Failed
    | RollbackComplete
    | RollbackFailed
    | Converged
)


# ── seen by the control plane ─────────────────────────────────────────────────────────────────────


class DeadlineExpired(HostFact, frozen=True, kw_only=True):
    """The host did not report in time. Silence is an event, without a report number."""

    deadline: states.Deadline
    channel: str = ""
    target_closure: str = ""


class RecoveryActivationAssumed(HostFact, frozen=True, kw_only=True):
    """A heartbeat shows the target, but its activation was never reported: the soak starts here."""

    observed_current_closure: str


class HostRegressed(HostFact, frozen=True, kw_only=True):
    """A converged host runs something else, or its probes fail. This alerts; it opens no
    rollout.
    """

    reason: str
    observed_current_closure: str | None = None


# ── follow-ups for the rollout ────────────────────────────────────────────────────────────────────


class HostJoined(HostFact, frozen=True, kw_only=True):
    """An order went out for a host of the plan, or for a late host."""

    wave: int
    attempt: int = 1
    late: bool = False


class HostStateChanged(HostFact, frozen=True, kw_only=True):
    """A host changed. The rollout counts it, and budgets free its slots.

    If ``from`` equals ``to``, only another property changed: its rollback failed, or it is free.
    """

    from_: states.HostState = field(name="from")
    to: states.HostState
    wave: int
    attempt: int = 1
    late: bool = False
    left: bool = False  # it was waived or skipped, so its wave no longer counts it
    rollback_failed: bool = False
    freed: bool = False  # its order is over: the host and these slots are free
    budgets: tuple[str, ...] = ()
    retaken: bool = False  # after a reboot it takes its order and these slots again
    slots: tuple[BudgetSlot, ...] = ()
    cleared_probes: tuple[str, ...] = ()  # probes whose failures are no longer open


class HostSkipped(HostFact, frozen=True, kw_only=True):
    """The rollout continues without a host: it is silent, retired, waived, freed or skipped by an
    operator, or its failure was tolerated.
    """

    wave: int
    state: states.HostState | None  # None: it never got an order
    reason: str
    channel: str = ""
    target_closure: str = ""
    rollback_failed: bool = False  # as counted by the rollout
    operator: str = ""  # who skipped it; empty: automatic, it is silent or gone
    late: bool = False  # a late host that failed; others may get orders now


HostEvent = (
    DispatchReserved
    | DispatchCancelled
    | AgentEvent
    | DeadlineExpired
    | RecoveryActivationAssumed
    | HostRegressed
    | HostSkipped
)

FACTS = (
    *vocabulary.facts("plan_action", DispatchReserved, DispatchCancelled),
    *vocabulary.facts(
        "agent_event",
        DispatchAck,
        DispatchReject,
        ActivationStarted,
        ActivationCompleted,
        ActivationFailed,
        ActivationDeferred,
        ProbeTopologyDeclared,
        ProbeObservedFirst,
        ProbeResult,
        ProbeFailureFirst,
        Failed,
        RollbackComplete,
        RollbackFailed,
        Converged,
    ),
    *vocabulary.facts("host_event", DeadlineExpired, RecoveryActivationAssumed, HostRegressed),
    *vocabulary.facts("rollout_event", HostJoined, HostStateChanged, HostSkipped),
)
