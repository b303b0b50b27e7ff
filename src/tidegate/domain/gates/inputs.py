"""What gates look at: the rows of one moment, each with the position of its last event.

One function of the control plane builds a ``FleetState``. The dispatcher, ``explain`` and the
metrics share it, so they cannot disagree. No member has a default: a row that was not loaded cannot
be mistaken for a missing one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels.rows import Channel, Freeze, Quarantined
from tidegate.domain.fleet.rows import ENROLLED, Budget
from tidegate.domain.hosts import facts, rows, states
from tidegate.domain.planner import PlanByHost
from tidegate.domain.releases.rows import Actual
from tidegate.domain.rollouts.rows import GateOverride, ReleaseStanding, RolloutTally
from tidegate.domain.windows.rows import Window
from tidegate.errors import NotFound
from tidegate.kernel import codec, model

T = TypeVar("T")


class Versioned(Struct, Generic[T], frozen=True, gc=False):
    """A row, and its version: the position of the event that last wrote it."""

    row: T
    version: model.Position


class HostStanding(Struct, frozen=True, gc=False):
    """The fields of a host's record that gates need, decoded from the record's bytes."""

    host_id: str
    state: states.HostState
    wave: int = 0
    attempt: int = 1
    late: bool = False
    left: str | None = None
    busy: bool = False
    cancelled_at: datetime | None = None
    dispatched_at: datetime | None = None
    due_at: datetime | None = None
    topology_declared_at: datetime | None = None
    soak_due_at: datetime | None = None
    failed_at: datetime | None = None
    failure: str | None = None
    rollback_failed: bool = False
    regressed_at: datetime | None = None


class HostPresence(Struct, frozen=True, gc=False):
    """The fields of a host that gates need, decoded from the bytes of its row."""

    host_id: str
    status: str = ENROLLED
    silent_since: datetime | None = None
    labels: dict[str, str] = {}

    @property
    def is_reachable(self) -> bool:
        """Whether the host may report, and has done so lately."""
        return self.status == ENROLLED and self.silent_since is None


codec.prepare(HostStanding)
codec.prepare(HostPresence)


class Latecomer(Struct, frozen=True):
    """A host that joined after the plan, or was skipped. The current budgets limit it."""

    host_id: str
    budgets: tuple[facts.BudgetSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class PrecedingChannel:
    """What an edge looks at: the channel that comes first, and the release there."""

    channel: Versioned[Channel] | None
    standing: Versioned[ReleaseStanding] | None
    quarantined: Versioned[Quarantined] | None
    tally: Versioned[RolloutTally] | None  # of the release's newest rollout there, while it is open
    failure: str  # why the host failed that made it bad; empty: unknown
    overrode: GateOverride | None = None  # its success there ignored the edges there, if read


@dataclass(frozen=True, slots=True)
class GateInput:
    """One rollout, with its frozen plan and the state of its hosts."""

    tally: Versioned[RolloutTally]
    chart: PlanByHost
    standings: Mapping[str, Versioned[HostStanding]]  # of hosts that have a record
    failures: tuple[Versioned[rows.ProbeFailure], ...]  # open failures of this rollout
    quarantined: Versioned[Quarantined] | None  # the row of its channel and closure
    pin: Versioned[Actual] | None  # the channel's row in the registry
    edges: Mapping[str, PrecedingChannel]  # by channel: what the rollout's edges look at
    latecomers: tuple[Latecomer, ...]  # by name; see ``dispatch_pass.latecomers``
    blocked_since: Mapping[str, datetime]  # by gate that is recorded as shut: since when
    causes: Mapping[str, str] = field(default_factory=dict)  # how some hosts failed
    heard: Mapping[str, datetime] = field(
        default_factory=dict
    )  # by host: the last report of some that have not taken their order


class GateFault(Struct, frozen=True):
    """Why a rollout cannot be judged: its own plan or rows cannot be read."""

    rollout_id: str
    code: str
    detail: str


class RebootedHost(Struct, frozen=True):
    """A host that runs the target after its reboot, and has not taken its order again yet."""

    host_id: str
    rollout_id: str
    budgets: tuple[facts.BudgetSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetState:
    """The fleet at one moment. A requested rollout is in ``rollouts`` or in ``faults``."""

    at: datetime
    rollouts: Mapping[str, GateInput]
    channels: Mapping[str, Versioned[Channel]]  # those of the rollouts
    hosts: Mapping[str, Versioned[HostPresence]]
    orders: Mapping[str, Versioned[rows.HostOrder]]
    budgets: Mapping[str, Versioned[Budget]]
    freezes: tuple[Versioned[Freeze], ...]
    windows: tuple[Versioned[Window], ...]
    rebooted: Mapping[str, RebootedHost]  # by host: they precede hosts without an order
    faults: Mapping[str, GateFault]

    def sight(self, rollout_id: str) -> GateInput:
        """Raises: NotFound."""
        found = self.rollouts.get(rollout_id)
        if found is None:
            raise NotFound(f"there is no open rollout {rollout_id[:80]}", rollout_id=rollout_id)
        return found


class GateEvidence(Struct, frozen=True, omit_defaults=True):
    """The row that decides, and the position of the event that last wrote it."""

    collection: str
    id: str
    position: model.Position


class GateVerdict(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One gate's verdict on a host, or on all hosts that wait for their order."""

    gate: str
    passed: bool
    reason: str
    evidence: GateEvidence | None = None
    until: datetime | None = None  # when it opens by itself
    hosts: int = 0  # hosts that it holds back, if the whole rollout is explained


class WaitEnds(StrEnum):
    """How a wait ends."""

    BY_ITSELF = "by_itself"  # by time, if nothing ends it before
    WHEN = "when"  # something else ends it
    NEVER = "never"  # a person must do something


class Remedy(Struct, frozen=True, omit_defaults=True):
    """A command that ends a wait, and when it is the right one."""

    command: str
    when: str = ""  # such as "if the release is bad"; empty: always
    needs: tuple[roles.Verb, ...] = ()  # one of these permissions, on each of the scopes
    scopes: tuple[str, ...] = ()


def make_remedy(step: steps.Step, channel: str, command: str, when: str = "") -> Remedy:
    """Make a remedy that takes this step on a channel."""
    return Remedy(command, when, step.verbs, (scopes.channel_scope(channel),))


class Wait(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that a rollout or a host waits for."""

    code: str
    sentence: str
    hosts: int = 0
    some: tuple[str, ...] = ()  # the names of some of these hosts
    since: datetime | None = None
    until: datetime | None = None
    ends: WaitEnds = WaitEnds.WHEN
    evidence: GateEvidence | None = None
    remedies: tuple[Remedy, ...] = ()  # commands that end it now, the most likely first
    ask: tuple[str, ...] = ()  # whom to ask for the commands that the caller may not run


class Explanation(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a host has no order, or why a rollout waits: an answer, then every gate."""

    rollout_id: str
    answer: str
    verdicts: tuple[GateVerdict, ...]
    waits: tuple[Wait, ...] = ()  # what it waits for, the most important first
    host_id: str | None = None
    wave: int | None = None
    host_state: states.HostState | None = None
    waiting: int = 0  # hosts without an order, if the whole rollout is explained
    ready: int = 0  # hosts among them that no gate holds back
    unstaged: int = 0  # hosts of the channel that are in no wave
    protection: str = ""  # set if the channel's commands need a second person


class DueOrder(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An order that may go out now, with what the reservation needs."""

    rollout_id: str
    host_id: str
    channel: str
    target_closure: str
    wave: int
    policy: states.HostPolicy
    attempt: int = 1
    budgets: tuple[facts.BudgetSlot, ...] = ()
    late: bool = False


class BlockedHosts(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How many hosts stop at a gate, and why the first of them does.

    A shut gate of the whole rollout counts no hosts if none waits there.
    """

    gate: str
    hosts: int
    host_id: str  # empty: no host waits
    reason: str
    evidence: GateEvidence | None = None
    until: datetime | None = None  # when the gate opens by itself


class HandedOut(Struct, frozen=True, omit_defaults=True):
    """What earlier passes have handed out and the rows do not show yet."""

    slots: dict[str, int] = {}  # budget → taken
    hosts: frozenset[str] = frozenset()


class Survey(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A pass over a rollout's hosts: who may get an order, and what holds the others back."""

    rollout_id: str
    orders: tuple[DueOrder, ...] = ()
    waiting: int = 0  # hosts without an order, these included
    ordered: int = 0  # hosts that have not acknowledged their order
    held: tuple[BlockedHosts, ...] = ()  # in the order of gates
    hidden: tuple[BlockedHosts, ...] = ()  # shut edges after another gate that holds all hosts
    given: HandedOut = HandedOut()
    whole: bool = True  # false: only the gates that are the same for all were asked


class Skip(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A host that its wave no longer waits for."""

    rollout_id: str
    host_id: str
    wave: int
    reason: str
    state: states.HostState | None = None
