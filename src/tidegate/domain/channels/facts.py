"""What happens to a channel: a scope of the registry that owns hosts and a rollout policy.

The string below a member of the policy is its entry in docs/reference/policy.md.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from tidegate.domain.hosts.states import OnFailure
from tidegate.kernel import tags, vocabulary


class WaveSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which hosts get a release together: by selector, share or number.

    A host goes with the first wave that takes it. A host that no wave takes gets no order.
    """

    name: str = ""
    """What the wave is called on the dashboard and in events. A wave without a name is called
    `wave-` and its place in the list, counted from 1.
    """
    selector: str = "*"
    """Which of the channel's hosts the wave may take."""
    percent: int | None = None
    """How many hosts the wave takes, as a share of all hosts of the channel. It is rounded down,
    but never to 0.
    """
    count: int | None = None
    """How many hosts the wave takes at most. Without `count` and `percent` it takes every host of
    its selector that no earlier wave took.
    """
    soak_seconds: int = 0
    """How long a host must run the release, with its enforced probes passing, before it counts
    as converged.
    """
    failures_max: int | None = None
    """How many hosts of the wave may fail before the rollout halts. Without it and
    `failures_max_percent` the first failure halts the rollout.
    """
    failures_max_percent: int | None = None
    """The same limit as a share of the wave's hosts, rounded down. With both limits the smaller
    one counts.
    """
    converged_min: int = 1
    """How many hosts of the wave must have converged before the next wave starts; if the wave has
    fewer, all of them. Hosts that were skipped, or that wait for a reboot, do not count. With 0 the
    next wave may start although no host ran the release.
    """
    success_percent: int = 100
    """The share of the wave's hosts that must be done before the next wave starts. A host is done
    when it converged or waits for its reboot. Hosts that were skipped, waived or tolerated do not
    count. Below 100 the next wave may start while hosts of this one are still under way. A host
    that fails later halts the rollout all the same.
    """
    delay_seconds: int = 0
    """How long the rollout waits before this wave, counted from when the waves before it were
    done.
    """
    manual: bool = False
    """Whether this wave waits until an operator runs `tidegate rollout continue`."""


class HostEdge(Struct, frozen=True, omit_defaults=True):
    """A host that waits for another host of its channel."""

    before: str
    """The host that goes first. The other host waits until it is Converged or Deferred in the
    rollout.
    """
    after: str
    """The host that waits."""


class ChannelPolicy(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a release reaches the channel's hosts. Without waves every host gets it at once."""

    waves: tuple[WaveSpec, ...] = ()
    """The groups of hosts that get a release one after the other. Without waves every host gets
    it at once.
    """
    on_failure: OnFailure = OnFailure.ROLLBACK
    """What a host does when it fails. `rollback-and-halt`: it activates again what it ran
    before. `halt`: it stays as it is. Either way the rollout halts, unless the wave allows for
    the failure.
    """
    sustained_failure_seconds: int = 120
    """How long an enforced probe must fail without a pass in between before the host fails."""
    ack_seconds: int = 900
    """How long an agent may take to acknowledge an order before the order is delivered again. No
    host fails because of it.
    """
    activation_seconds: int = 600
    """How long an agent may take to fetch the release and switch to it. After that the host
    fails.
    """
    topology_seconds: int = 300
    """How long an agent may take after the switch to declare its probes. After that the host
    fails.
    """
    convergence_seconds: int = 900
    """How long after the soak a host may take to report that it converged. After that the host
    fails.
    """
    rollback_seconds: int = 600
    """How long a failed host may take to activate again what it ran before. After that its
    rollback counts as failed.
    """
    deferral_seconds: int = 604_800
    """How long a host may wait for the reboot that puts a staged release into effect. After that
    the host fails. The default is 7 days.
    """
    must_fit: bool = False
    """Whether a host gets an order only if its maintenance window stays open for as long as the
    host may take: `activation_seconds` and the `soak_seconds` of its wave.
    """
    offline_grace_seconds: int | None = None
    """How long a host may be silent before the rollout continues without it. A host that began to
    activate is never skipped for silence. `null`: the rollout waits.
    """
    retention_seconds: int = 7_776_000
    """How long a finished rollout is kept before it is pruned. The default is 90 days."""
    freshness_seconds: int | None = None
    """How old the evidence for the channel's pin may be when an order is sent. `null`: evidence
    does not age.
    """
    edges: tuple[ChannelEdge, ...] = ()
    """The channels that come first: orders go out only while every one of these edges is open."""
    host_edges: tuple[HostEdge, ...] = ()
    """Pairs of hosts of this channel of which one waits for the other."""
    auto_promote: bool = False
    """Whether the channel takes a release by itself: the one with the highest number that every
    edge lets through, above the one that is pinned. It needs an edge with `require: "succeeded"`.
    After a rollout that failed, was aborted or was rolled back it stays off until a person
    promotes. On a protected channel it makes a request instead.
    """
    auto_rollback: bool = False
    """Whether the channel rolls back by itself when a rollout stops because hosts failed: to what
    `tidegate channel rollback` would take, on all hosts in one wave. Budgets, freezes and windows
    hold it back as usual. It happens once for a release, and never after a rollback. It counts for
    rollouts that open after it was switched on.
    """
    operations: tuple[str, ...] = ()
    """The outbox operations that every promotion requests, for example a webhook. The server's
    settings name a target for each of them.
    """


class ChannelFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    channel: Annotated[str, tags.Partition()]
    operator: str
    at: datetime


class ChannelCreated(ChannelFact, frozen=True, kw_only=True):
    """A channel carries one package and owns the hosts that its selector matches."""

    package: str
    selector: str
    policy: ChannelPolicy


class ChannelEdited(ChannelFact, frozen=True, kw_only=True):
    """Later rollouts follow another selector or policy; open ones keep their frozen plan."""

    selector: str
    policy: ChannelPolicy


class ChannelDeleted(ChannelFact, frozen=True, kw_only=True):
    """The channel is gone, and its hosts are free. Its history stays."""

    reason: str


class ChannelHeld(ChannelFact, frozen=True, kw_only=True):
    """No promotion and no order on this channel until the hold is released."""

    reason: str


class ChannelUnheld(ChannelFact, frozen=True, kw_only=True):
    reason: str


class ChannelProtection(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How many other people must approve what promotes, loosens or bypasses something on a
    protected channel.
    """

    approvals: int = 1
    """How many other people must approve a request, 1 to 5."""
    request_seconds: int = 86_400
    """How long a request waits before it expires."""
    break_glass: bool = True
    """Whether a person with the permission `emergency` may act alone and be reviewed later."""


class ChannelProtectionSet(ChannelFact, frozen=True, kw_only=True):
    """The channel is protected from now on, or no longer."""

    protection: ChannelProtection | None
    reason: str


class QuarantineLifted(ChannelFact, frozen=True, kw_only=True):
    """An operator allows the closure to be dispatched again."""

    closure_hash: str
    reason: str


class FreezeStarted(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Nothing is dispatched on these channels (none named: on all) for a while."""

    freeze_id: Annotated[str, tags.Partition()]
    operator: str
    reason: str
    at: datetime
    channels: Annotated[tuple[str, ...], tags.Untagged()] = ()
    until: datetime | None = None


class FreezeEnded(Struct, frozen=True, omit_defaults=True, kw_only=True):
    freeze_id: Annotated[str, tags.Partition()]
    operator: str
    reason: str
    at: datetime
    channels: Annotated[tuple[str, ...], tags.Untagged()] = ()  # frozen channels; none: all


class EdgeRequires(StrEnum):
    """What a channel must show before orders go out on the channel that names it."""

    SUCCEEDED = "succeeded"
    """The same release succeeded on that channel, nothing bad was recorded about it there since,
    and its artifact is not quarantined there.
    """
    IDLE = "idle"
    """The newest rollout of that channel has ended, whatever release it was of. A channel that
    never had a rollout is idle.
    """


class ChannelEdge(Struct, frozen=True):
    """A channel that comes first. Stored in full: members at their default are stored too."""

    channel: str
    """The channel that comes first. It must exist, and channels may not wait for each other in a
    circle.
    """
    require: EdgeRequires = EdgeRequires.SUCCEEDED
    """What that channel must show. Between channels of different packages only `idle` is
    allowed.
    """
    soak_seconds: int = 0
    """With `succeeded`: how long the release must have been the newest success of that channel.
    It must be 0 with `idle`.
    """


FACTS = vocabulary.facts(
    "fleet",
    ChannelCreated,
    ChannelEdited,
    ChannelDeleted,
    ChannelHeld,
    ChannelUnheld,
    ChannelProtectionSet,
    QuarantineLifted,
    FreezeStarted,
    FreezeEnded,
)
