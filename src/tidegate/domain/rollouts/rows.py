"""The rows of rollouts.

rollouts          changes only with the state, so its version is the position of the last
                  transition, and ``born`` that of the opening
rollout_tallies   the machine's own state: hosts counted per wave and state, never listed
rollout_gates     the gates that hold a rollout back now
release_standings the last verdict on a release on a channel, which edges read
quarantined_closures
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.rollouts import states as rollout_states
from tidegate.kernel import collections as kernel_collections, model


class Rollout(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rollout as operators see it."""

    rollout_id: str
    channel: str
    target_ref: str
    state: rollout_states.RolloutState
    opened_at: datetime
    plan_digest: str
    target_closure: str
    current_wave: int  # no default, so that the column holds 0 too
    in_flight: str | None = None  # repeats the state while open, for the index
    incarnation: int = 1
    display_name: str = ""
    previous_ref: str | None = None
    opened_by: str = ""
    opened_reason: str = ""
    automatic: rollout_states.PolicyAction | None = (
        None  # the policy member behind it; None: a person opened it
    )
    reason: str = ""  # of the last transition
    terminal_at: datetime | None = None
    reverted_at: datetime | None = None
    failed_at: datetime | None = None
    superseded_at: datetime | None = None
    superseded_by: str | None = None
    pruned_at: datetime | None = None


class WaveTally(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A wave in numbers. ``hosts`` are planned; a host in no other count has no order."""

    name: str
    hosts: int
    soak_seconds: int = 0
    failures_max: int = 0
    converged_min: int = 1
    success_percent: int = 100
    delay_seconds: int = 0  # before this wave
    manual: bool = False  # it waits for an operator
    continued: bool = False  # an operator started it
    skipped: bool = False  # its hosts without an order get none
    forced: bool = False  # an operator did not wait for it
    states: dict[HostState, int] = {}  # counted hosts with an order, by state
    left: int = 0  # waived or skipped
    tolerated: int = 0  # of these, tolerated failures

    @property
    def joined(self) -> int:
        return sum(self.states.values())

    def count(self, *states: HostState) -> int:
        found = 0
        for state in states:
            found += self.states.get(state, 0)
        return found


class GateOverride(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A gate that the rollout passes, and who overrode it."""

    gate: rollout_states.OverridableGate
    operator: str
    reason: str
    at: datetime
    until: datetime | None = None  # None: until the rollout ends


class RolloutTally(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of the rollout's machine."""

    rollout_id: str
    channel: str
    target_ref: str
    target_closure: str
    on_failure: OnFailure
    opened_at: datetime
    retention_seconds: int
    plan_digest: str
    state: rollout_states.RolloutState = rollout_states.RolloutState.OPENING
    current_wave: int = 0
    waves: tuple[WaveTally, ...] = ()
    attempt: int = 1  # grows with each resume; failed hosts of earlier attempts are retried
    retried: tuple[str, ...] = ()  # the only hosts that get orders during a retry
    offline_grace_seconds: int | None = None
    edges: tuple[ChannelEdge, ...] = ()
    incarnation: int = 1
    rollback_of: str | None = None  # the release that the channel is rolled back from
    emergency: bool = False  # overrides every gate that can be overridden
    start_at: datetime | None = None  # no order before
    auto_rollback: bool = False  # if hosts fail, the worker rolls the channel back
    halted_at: datetime | None = None
    halted_by: str | None = None  # the host that failed
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_reason: str = ""
    rollback_failed: int = 0
    failures: int = 0  # how often a host failed, whatever happened next
    gave_up: int = 0  # planned hosts that were skipped or waived while Failed or Reverted
    waived: int = 0  # planned hosts that an operator waived
    late: dict[HostState, int] = {}  # late hosts, by state
    busy: int = 0  # hosts that have an order of this rollout, counted or not
    degraded: bool = False
    done_at: datetime | None = None  # when the last wave so far became done
    due_at: datetime | None = None  # when the next wave may start, or the retention ends
    terminal_at: datetime | None = None
    superseded_at: datetime | None = None
    outcome: rollout_states.Outcome | None = None  # set once, with the end
    outcome_at: datetime | None = None
    cause: rollout_states.Cause | None = None
    cause_id: str | None = None
    overrides: tuple[GateOverride, ...] = ()  # one per gate, the newest


class GateStatus(Struct, frozen=True, omit_defaults=True):
    """What one gate reports, and since when."""

    gate: str
    reason: str
    since: datetime


class RolloutGates(Struct, frozen=True, omit_defaults=True):
    """The gates that hold a rollout back now."""

    rollout_id: str
    blocked: tuple[GateStatus, ...] = ()


class ReleaseStanding(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The last verdict on a release on a channel, over all its rollouts there."""

    channel: str
    release_id: str
    word: rollout_states.Word | None = None  # None: no verdict yet
    said_at: datetime | None = None  # since when the verdict holds
    said_in: str | None = None  # the rollout with the verdict
    host_id: str | None = None  # the host whose failure made it bad
    operator: str | None = None  # who made it bad, by rolling the channel back
    reason: str = ""  # the operator's
    rollout_id: str | None = None  # its newest rollout here
    outcome: rollout_states.Outcome | None = None  # of that rollout
    outcome_at: datetime | None = None
    followed_by: str | None = None  # the release that followed on the channel
    succeeded_in: str | None = None  # the rollout of its newest success
    running_since: datetime | None = None  # since when it is the channel's newest success
    soaked_seconds: int = 0  # the longest past run since the last bad verdict
    auto_rolled_back: bool = False  # whether the worker ever rolled the channel back from it


ROLLOUTS = kernel_collections.Collection(
    "rollouts",
    Rollout,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=(
        "rollout_id",
        "channel",
        "target_ref",
        "state",
        "current_wave",
        "in_flight",
        "opened_at",
        "terminal_at",
        "superseded_at",
    ),
    required=("rollout_id", "channel", "target_ref", "state", "current_wave", "opened_at"),
    allowed={
        "state": frozenset(rollout_states.RolloutState),
        "in_flight": frozenset(rollout_states.OPEN),
    },
    indexes=(
        kernel_collections.Index("channel_state", ("channel", "state")),
        kernel_collections.Index("by_state", ("state",)),
        kernel_collections.Index("by_in_flight", ("in_flight",)),
        kernel_collections.Index("by_opening", ("opened_at",)),
        kernel_collections.Index("channel_opening", ("channel", "opened_at")),
    ),
    stamps={"opened_event_log_seq": "born", "last_transition_event_log_seq": "version"},
)
TALLIES = kernel_collections.Collection(
    "rollout_tallies",
    RolloutTally,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.CACHE,
    columns=("rollout_id", "channel", "state", "due_at"),
    allowed={"state": frozenset(rollout_states.RolloutState)},
    indexes=(kernel_collections.Index("by_due", ("due_at",)),),
)
GATES = kernel_collections.Collection(
    "rollout_gates",
    RolloutGates,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("rollout_id",),
)
STANDINGS = kernel_collections.Collection(
    "release_standings",
    ReleaseStanding,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("channel", "release_id", "word"),
    allowed={"word": frozenset(rollout_states.Word)},
)


def rollout_key(rollout_id: str) -> model.Key:
    return model.Key(ROLLOUTS.name, rollout_id)


def tally_key(rollout_id: str) -> model.Key:
    return model.Key(TALLIES.name, rollout_id)


def gates_key(rollout_id: str) -> model.Key:
    return model.Key(GATES.name, rollout_id)


def standing_key(channel: str, release_id: str) -> model.Key:
    return model.Key(STANDINGS.name, f"{channel}/{release_id}")


COLLECTIONS = (ROLLOUTS, TALLIES, GATES, STANDINGS)
