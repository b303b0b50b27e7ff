"""What happens to a host in a rollout: orders of ours, reports of its agent, and silence.

    plan_action   DispatchReserved, DispatchCancelled          decided by the dispatcher
    agent_event   DispatchAck … Converged                      reported, numbered by ``seq``
    host_event    DeadlineExpired, RecoveryActivationAssumed   seen by the control plane itself
    rollout_event HostJoined, HostStateChanged                 follow-ups, read by the rollout

All stand in the rollout's partition. ``at`` is the agent's clock in its reports, ours elsewhere;
when a fact was recorded is the event's own time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct, field

from tidegate.domain.hosts import states
from tidegate.kernel import tags, vocabulary


class HostFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them say: which host, in which rollout, when."""

    rollout_id: Annotated[str, tags.Partition()]
    host_id: str
    at: datetime


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


class BudgetSlot(Struct, frozen=True, omit_defaults=True):
    """A budget that the host takes a slot of, and how many it has in this plan."""

    budget_id: str
    slots: int


class DispatchReserved(HostFact, frozen=True, kw_only=True):
    """The host is to run the target: its order is queued, its budget slots are taken."""

    channel: str
    target_closure: str
    wave: int
    policy: states.HostPolicy
    attempt: int = 1
    budgets: tuple[BudgetSlot, ...] = ()
    late: bool = False  # it came after the plan: it is counted apart


class DispatchCancelled(HostFact, frozen=True, kw_only=True):
    """The order was taken back before the agent acknowledged it, or before the reboot that it
    waits for; its slots are free.
    """

    reason: str


# ── what agents report ────────────────────────────────────────────────────────────────────────────


class AgentFact(HostFact, frozen=True, kw_only=True):
    """A report: numbered per host and rollout, from 1, without gaps."""

    seq: int


class DispatchAck(AgentFact, frozen=True, kw_only=True):
    """The agent took the order, and says what it runs now: there a rollback returns to.

    An empty text: nothing runs yet.
    """

    target_closure: str
    current_closure_at_dispatch: str


class DispatchReject(AgentFact, frozen=True, kw_only=True):
    """The agent will not run the target: it could not be verified, or was tried in vain here."""

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
    """Staged; takes effect with the next reboot, because this component cannot be swapped live."""

    component: str


class ProbeDeclared(Struct, frozen=True, omit_defaults=True):
    """One probe of a host's topology."""

    probe_name: str
    kind: str
    mode: states.ProbeMode


class ProbeTopologyDeclared(AgentFact, frozen=True, kw_only=True):
    """The probes of this activation, before any result. None is a valid declaration."""

    probes: tuple[ProbeDeclared, ...] = ()


class ProbeObservedFirst(AgentFact, frozen=True, kw_only=True):
    probe_name: str
    mode: states.ProbeMode


class ProbeResult(AgentFact, frozen=True, kw_only=True):
    """A probe's first word after an activation, or another one than before.

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
    """The host runs again what ran before. The control plane adds what it was sent away from."""

    reverted_to_closure: str
    exit_code: int = 0
    channel: str = ""
    target_closure: str = ""


class RollbackFailed(AgentFact, frozen=True, kw_only=True):
    """The host could not go back; somebody must look at it."""

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


# ── what the control plane sees by itself ─────────────────────────────────────────────────────────


class DeadlineExpired(HostFact, frozen=True, kw_only=True):
    """Nothing was heard in time. Silence is an event; it takes no number of the agent's."""

    deadline: states.Deadline
    channel: str = ""
    target_closure: str = ""


class RecoveryActivationAssumed(HostFact, frozen=True, kw_only=True):
    """A heartbeat says that the target runs, whose completion was never heard: soak from here."""

    observed_current_closure: str


class HostRegressed(HostFact, frozen=True, kw_only=True):
    """A converged host runs something else, or its probes fail: an alert, never a new rollout."""

    reason: str
    observed_current_closure: str | None = None


# ── what the rollout hears ────────────────────────────────────────────────────────────────────────


class HostJoined(HostFact, frozen=True, kw_only=True):
    """An order went out for a host of the plan (or, late, for one that came after it)."""

    wave: int
    attempt: int = 1
    late: bool = False


class HostStateChanged(HostFact, frozen=True, kw_only=True):
    """A host moved. The rollout counts by it, budgets free their slots by it.

    With ``from`` = ``to`` only something about it changed: its rollback failed, or it is free.
    """

    from_: states.HostState = field(name="from")
    to: states.HostState
    wave: int
    attempt: int = 1
    late: bool = False
    left: bool = False  # it was waived or skipped: it does not count in its wave any more
    rollback_failed: bool = False
    freed: bool = False  # its order is done with: these slots are free, and so is the host
    budgets: tuple[str, ...] = ()
    retaken: bool = False  # back from a reboot, it takes its order again, and these slots
    slots: tuple[BudgetSlot, ...] = ()
    cleared_probes: tuple[str, ...] = ()  # whose failures are not open any more


class HostSkipped(HostFact, frozen=True, kw_only=True):
    """A host leaves the rollout's count: nobody hears of it, or its failure was allowed for."""

    wave: int
    state: states.HostState | None  # None: it never got an order
    reason: str
    channel: str = ""
    target_closure: str = ""
    rollback_failed: bool = False  # as the rollout counted it
    operator: str = ""  # who skips it; empty: nobody, it is silent or gone
    late: bool = False  # it came after the plan, and failed: others may go now


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
