"""What happens to a channel: a scope of the registry that owns hosts and a rollout policy."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from tidegate.domain.hosts.states import OnFailure
from tidegate.kernel.tags import Partition, Untagged
from tidegate.kernel.vocabulary import facts


class WaveSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which hosts go together: those of a selector, of them a share or a number, or all the rest.

    A host goes with the first wave that takes it.
    """

    name: str = ""
    selector: str = "*"
    percent: int | None = None  # of the channel's hosts
    count: int | None = None
    soak_seconds: int = 0
    failures_max: int | None = None  # that are allowed for; None: 0
    failures_max_percent: int | None = None  # of the wave's hosts; with both, the smaller one


class HostEdge(Struct, frozen=True, omit_defaults=True):
    """A host that waits for another one of its channel."""

    before: str
    after: str


class ChannelPolicy(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a release reaches the channel's hosts. Empty waves: all at once."""

    waves: tuple[WaveSpec, ...] = ()
    on_failure: OnFailure = OnFailure.ROLLBACK
    sustained_failure_seconds: int = 120
    ack_seconds: int = 900
    activation_seconds: int = 600
    topology_seconds: int = 300
    convergence_seconds: int = 900
    rollback_seconds: int = 600
    deferral_seconds: int = 604_800
    offline_grace_seconds: int | None = None
    retention_seconds: int = 7_776_000  # 90 days
    freshness_seconds: int | None = None  # how old the evidence of a pin may be when orders go out
    edges: tuple[ChannelEdge, ...] = ()  # channels that come first
    host_edges: tuple[HostEdge, ...] = ()
    operations: tuple[str, ...] = ()  # what a promotion owes to the world


class ChannelFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    channel: Annotated[str, Partition()]
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


class ChannelHeld(ChannelFact, frozen=True, kw_only=True):
    """No promotion and no order on this channel, until it is let go."""

    reason: str


class ChannelUnheld(ChannelFact, frozen=True, kw_only=True):
    reason: str


class QuarantineLifted(ChannelFact, frozen=True, kw_only=True):
    """Somebody looked, and the closure may be dispatched again."""

    closure_hash: str
    reason: str


class FreezeStarted(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Nothing is dispatched on these channels (none named: on all) for a while."""

    freeze_id: Annotated[str, Partition()]
    operator: str
    reason: str
    at: datetime
    channels: Annotated[tuple[str, ...], Untagged()] = ()
    until: datetime | None = None


class FreezeEnded(Struct, frozen=True, omit_defaults=True, kw_only=True):
    freeze_id: Annotated[str, Partition()]
    operator: str
    reason: str
    at: datetime
    channels: Annotated[tuple[str, ...], Untagged()] = ()  # those that it froze; none: all


class EdgeRequires(StrEnum):
    """What a channel must show before the one that names it may go."""

    SUCCEEDED = "succeeded"  # this very release succeeded there, and nothing bad was said since
    IDLE = "idle"  # its newest rollout is over, whatever it was of: order alone


class ChannelEdge(Struct, frozen=True):
    """A channel that comes first. Stored in full: no member is left out because it is usual."""

    channel: str
    require: EdgeRequires = EdgeRequires.SUCCEEDED
    soak_seconds: int = 0  # for so long the release stayed that channel's newest success


FACTS = facts(
    "fleet",
    ChannelCreated,
    ChannelEdited,
    ChannelHeld,
    ChannelUnheld,
    QuarantineLifted,
    FreezeStarted,
    FreezeEnded,
)
