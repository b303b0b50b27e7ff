"""What happens to a rollout. These facts share the rollout's partition with its hosts' facts.

The eight events of the seed are ``RolloutOpened``, ``HostJoined``, ``HostStateChanged``,
``WaveAdvanced``, ``RolloutTerminal``, ``SuccessorOpened``, ``RetentionExpired`` and
``OperatorClearance``; two of them are the hosts' (``domain.hosts.facts``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct, field

from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.rollouts import states
from tidegate.kernel import tags, vocabulary


class RolloutFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all facts of rollouts have: the rollout and the time."""

    rollout_id: Annotated[str, tags.Partition()]
    at: datetime


class OpenedWave(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A wave of the frozen plan in numbers; the plan's blob lists the hosts."""

    name: str
    hosts: int
    soak_seconds: int = 0
    failures_max: int = 0  # tolerated failures; one more halts the rollout
    converged_min: int = 1  # that must have converged before the next wave
    success_percent: int = 100  # of the counted hosts must be done before the next wave
    delay_seconds: int = 0  # before this wave
    manual: bool = False  # this wave waits for an operator


class RolloutOpened(RolloutFact, frozen=True, kw_only=True):
    """A release should reach the channel's hosts, by a plan that is frozen from now on."""

    channel: Annotated[str, tags.Cross()]
    target_ref: str
    target_closure: str  # the digest that hosts should run
    plan_digest: str
    waves: tuple[OpenedWave, ...]
    on_failure: OnFailure
    retention_seconds: int
    incarnation: int = 1
    offline_grace_seconds: int | None = None  # None: wait for silent hosts
    edges: tuple[ChannelEdge, ...] = ()  # conditions on other channels
    empty_waves: tuple[str, ...] = ()  # waves of the policy that match no host
    previous_ref: str | None = None
    rollback_of: str | None = None  # the release that an operator rolls the channel back from
    emergency: bool = False  # a rollback that reaches all hosts now, whatever gates say
    start_at: datetime | None = None  # no order before; None: at once
    auto_rollback: bool = False  # if hosts fail, the worker rolls the channel back, once
    automatic: states.PolicyAction | None = None  # None: a person opened it
    display_name: str = ""
    operator: str = ""  # who opened it; of an automatic rollout: who enabled the automation
    reason: str = ""  # the operator's, for opening it


class WaveAdvanced(RolloutFact, frozen=True, kw_only=True):
    """Every wave so far is done: the next one may start."""

    from_wave: int
    to_wave: int
    forced: bool = False  # an operator did not wait for the earlier waves
    operator: str = ""  # who forced it, and why
    reason: str = ""


class WaveContinued(RolloutFact, frozen=True, kw_only=True):
    """An operator starts a wave that waits for a person."""

    wave: int
    operator: str
    reason: str = ""


class WaveSkipped(RolloutFact, frozen=True, kw_only=True):
    """An operator continues without a wave: its hosts without an order get none in this rollout."""

    wave: int
    operator: str
    reason: str


class RolloutTerminal(RolloutFact, frozen=True, kw_only=True):
    """Every host of every wave converged, or was skipped or waived."""

    reason: str = "converged"  # or: empty_plan


class SuccessorOpened(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Another rollout of the channel replaced this one. Undelivered orders are void."""

    superseded_rollout_id: Annotated[str, tags.Partition("rollout_id")]
    successor_rollout_id: Annotated[str, tags.Untagged()]
    at: datetime


class RetentionExpired(RolloutFact, frozen=True, kw_only=True):
    """The retention is over: the row stays, but accepts no more events."""


class ClearedHost(Struct, frozen=True, omit_defaults=True):
    """A host that a clearance names, and its state at that time."""

    host_id: Annotated[str, tags.Untagged()]
    wave: int
    state: HostState | None  # None: it had no order
    rollback_failed: bool = False


class OperatorClearance(RolloutFact, frozen=True, kw_only=True):
    """An operator clears a halted rollout and gives a reason."""

    operator: str
    reason: str
    mode: states.Clearance
    hosts: tuple[ClearedHost, ...] = ()  # hosts that are waived, or the only ones to retry


class RolloutAborted(RolloutFact, frozen=True, kw_only=True):
    """An operator ends an open rollout without a successor. Undelivered orders are void."""

    operator: str
    reason: str


class RolloutTransitioned(RolloutFact, frozen=True, kw_only=True):
    """The rollout's state changed: the record for the seed's RecordRolloutTransition."""

    from_: states.RolloutState | None = field(name="from")  # None: it was opened
    to: states.RolloutState
    current_wave: int
    reason: str = ""
    successor_rollout_id: Annotated[str | None, tags.Untagged()] = None


class HostCounts(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The planned hosts of a rollout at its end, in numbers."""

    hosts: int = 0
    converged: int = 0
    failed: int = 0
    reverted: int = 0
    tolerated: int = 0  # failures that the policy allowed
    skipped: int = 0
    waived: int = 0


class RolloutConcluded(RolloutFact, frozen=True, kw_only=True):
    """How a rollout ended. It follows the transition that ended it, once."""

    channel: Annotated[str, tags.Cross()]
    outcome: states.Outcome
    target_ref: str
    target_closure: str
    cause: states.Cause
    cause_id: Annotated[
        str, tags.Untagged()
    ]  # of that host, operator or rollout; of a plan: its digest
    counts: HostCounts
    opened_at: datetime
    incarnation: int = 1
    rollback_of: str | None = None


class RolloutHalted(RolloutFact, frozen=True, kw_only=True):
    """A host failed: no order, acknowledgement or wave until an operator clears the rollout."""

    host_id: str
    reason: str


class RolloutPaused(RolloutFact, frozen=True, kw_only=True):
    operator: str
    reason: str


class RolloutResumed(RolloutFact, frozen=True, kw_only=True):
    operator: str
    reason: str


class GateOverridden(RolloutFact, frozen=True, kw_only=True):
    """A person overrides a gate for this rollout, until a time or until the rollout ends."""

    gate: states.OverridableGate
    operator: str
    reason: str
    until: datetime | None = None


class GateChanged(RolloutFact, frozen=True, kw_only=True):
    """A gate started or stopped holding hosts of this rollout back. Recorded on change only."""

    gate: str
    blocked: bool
    reason: str = ""


FACTS = (
    *vocabulary.facts(
        "rollout_event",
        RolloutOpened,
        WaveAdvanced,
        WaveContinued,
        WaveSkipped,
        RolloutTerminal,
        SuccessorOpened,
        RetentionExpired,
        OperatorClearance,
        RolloutAborted,
        RolloutTransitioned,
        RolloutConcluded,
        RolloutHalted,
        RolloutPaused,
        RolloutResumed,
        GateOverridden,
    ),
    *vocabulary.facts("gate_decision", GateChanged),
)
