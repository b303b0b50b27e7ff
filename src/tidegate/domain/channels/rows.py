"""The rows of channels, incarnations, freezes and quarantines."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.channels import facts, stops
from tidegate.kernel import collections as kernel_collections, model


class Rung(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A release that succeeded on the channel.

    The members of ``left`` record that an operator rolled the channel back from it since.
    """

    release_id: str
    digest: str
    rollout_id: str  # of its newest success
    succeeded_at: datetime
    hosts: int = 0  # hosts that converged in that rollout
    left_at: datetime | None = None
    left_by: str | None = None
    left_reason: str = ""


class Channel(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A channel, and the state of its machine: which rollout is its newest."""

    channel: str
    package: str
    selector: str
    policy: facts.ChannelPolicy
    created_at: datetime
    held_at: datetime | None = None
    held_by: str | None = None
    held_reason: str | None = None
    active_rollout_id: str | None = None  # the newest one that is not superseded or pruned
    newest_rollout_id: str | None = None
    newest_state: str | None = None  # of the newest one, for edges
    terminal_rollout_id: str | None = None  # the newest one on which every host converged
    terminal_ref: str | None = None
    ladder: tuple[Rung, ...] = ()  # the releases that succeeded on it; the newest success first
    outcomes: dict[str, int] = {}  # how many rollouts ended with each outcome
    protection: facts.ChannelProtection | None = None  # None: one person may do everything
    auto_promote_by: str | None = None  # who turned it on; None: it is off
    auto_rollback_by: str | None = None


class Incarnation(Struct, frozen=True, omit_defaults=True):
    """How often a release was rolled out on a channel."""

    channel: str
    target_ref: str
    count: int = 0


class Freeze(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An active freeze. When it ends, the row is removed."""

    freeze_id: str
    operator: str
    reason: str
    started_at: datetime
    channels: tuple[str, ...] = ()
    until: datetime | None = None


class ProtectedChannels(Struct, frozen=True, omit_defaults=True):
    """The channels that are protected now, by name.

    It is one row, so that a command on many channels can pin all of them at once. Only a change of
    a protection changes it.
    """

    channels: tuple[str, ...] = ()


CHANNELS = kernel_collections.Collection(
    "channels",
    Channel,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("channel", "package", "active_rollout_id", "newest_state"),
    indexes=(kernel_collections.Index("by_package", ("package",)),),
)
INCARNATIONS = kernel_collections.Collection(
    "rollout_incarnations",
    Incarnation,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("channel", "target_ref", "count"),
)
FREEZES = kernel_collections.Collection(
    "freezes",
    Freeze,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("freeze_id",),
)

PROTECTED_CHANNELS = kernel_collections.Collection(
    "protected_channels",
    ProtectedChannels,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


def protected_channels_key() -> model.Key:
    return model.Key(PROTECTED_CHANNELS.name, "all")


def channel_key(channel: str) -> model.Key:
    return model.Key(CHANNELS.name, channel)


def incarnation_key(channel: str, target_ref: str) -> model.Key:
    return model.Key(INCARNATIONS.name, f"{channel}/{target_ref}")


def freeze_key(freeze_id: str) -> model.Key:
    return model.Key(FREEZES.name, freeze_id)


class Quarantined(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A closure that must not be dispatched on the channel again.

    The rollback that shows the failure makes the row; lifting the quarantine removes it.
    """

    channel: str
    closure_hash: str
    quarantined_at: datetime
    rollout_id: str
    host_id: str
    reason: str


QUARANTINE = kernel_collections.Collection(
    "quarantined_closures",
    Quarantined,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("channel", "closure_hash", "quarantined_at"),
    indexes=(kernel_collections.Index("by_channel", ("channel",)),),
    stamps={"triggering_event_log_seq": "born"},
)


def quarantine_key(channel: str, closure_hash: str) -> model.Key:
    return model.Key(QUARANTINE.name, f"{channel}/{closure_hash}")


COLLECTIONS = (CHANNELS, INCARNATIONS, FREEZES, stops.CHANNEL_STOPS, QUARANTINE, PROTECTED_CHANNELS)
