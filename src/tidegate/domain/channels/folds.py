"""How facts become the rows of channels: machine, incarnations, freezes, stops, quarantines."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec.structs import replace

from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelDeleted,
    ChannelHeld,
    ChannelProtectionSet,
    ChannelUnheld,
    FreezeEnded,
    FreezeStarted,
    QuarantineLifted,
)
from tidegate.domain.channels.ladder import changed_rungs
from tidegate.domain.channels.machine import step
from tidegate.domain.channels.rows import (
    CHANNELS,
    FREEZES,
    INCARNATIONS,
    PROTECTED_CHANNELS,
    QUARANTINE,
    Channel,
    Freeze,
    Incarnation,
    ProtectedChannels,
    Quarantined,
    incarnation_key,
    protected_channels_key,
    quarantine_key,
)
from tidegate.domain.channels.stops import CHANNEL_STOPS, EVERYWHERE, ChannelStops, FreezeSpan
from tidegate.domain.channels.transitions import ChannelEvent
from tidegate.domain.hosts.facts import DeadlineExpired, RollbackComplete, RollbackFailed
from tidegate.domain.hosts.states import Deadline
from tidegate.domain.releases.facts import ReleaseRetired, RollbackRungsChanged
from tidegate.domain.rollouts.facts import RolloutOpened, RolloutTransitioned, SuccessorOpened
from tidegate.domain.rollouts.names import channel_of
from tidegate.domain.windows.facts import WindowDeleted, WindowSet, WindowSpec
from tidegate.kernel.folds import Fold, Machine
from tidegate.kernel.model import at_most

FREEZES_MAX = 100  # of one channel at a time, and of all channels: each is in all copies
WINDOWS_MAX = 8  # that name one channel, and as many of all channels: 16 cover one at most


_REASONS = {
    RollbackComplete: "a host rolled back from it",
    RollbackFailed: "a host could not go back from it",
    DeadlineExpired: "a host did not report its rollback from it",
}


def _channel_ids(event: ChannelEvent | ReleaseRetired) -> tuple[str, ...]:
    match event:
        case ReleaseRetired(scope=scope):
            return (scope,)
        case RolloutTransitioned(rollout_id=rollout_id):
            return (channel_of(rollout_id),)
        case SuccessorOpened(superseded_rollout_id=rollout_id):
            return (channel_of(rollout_id),)
        case _:
            return (event.channel,)


def step_channel(
    row: Channel | None, event: ChannelEvent | ReleaseRetired, now: datetime
) -> tuple[Channel | None, tuple[RollbackRungsChanged, ...]]:
    """The machine's step, and what it changes for the releases of the ladder. A scope that is
    retired goes back to nothing. Raises: as ``step``.
    """
    if not isinstance(event, ReleaseRetired):
        after = step(row, event, now)
    else:
        after = None if row is None else replace(row, ladder=())
    return after, changed_rungs(row, after, now)


def step_incarnation(row: Incarnation, fact: RolloutOpened, now: datetime) -> Incarnation:
    return replace(row, count=max(row.count, fact.incarnation))


def step_freeze(
    row: Freeze | None, fact: FreezeStarted | FreezeEnded, now: datetime
) -> Freeze | None:
    if isinstance(fact, FreezeEnded):
        return None
    return Freeze(
        freeze_id=fact.freeze_id,
        operator=fact.operator,
        reason=fact.reason,
        started_at=fact.at,
        channels=fact.channels,
        until=fact.until,
    )


def step_protected(
    row: ProtectedChannels, fact: ChannelProtectionSet | ChannelDeleted, now: datetime
) -> ProtectedChannels:
    others = set(row.channels) - {fact.channel}
    is_over = isinstance(fact, ChannelDeleted) or fact.protection is None
    named = others if is_over else others | {fact.channel}
    return ProtectedChannels(tuple(sorted(named)))


# ── stops ─────────────────────────────────────────────────────────────────────────────────────────

Stopping = (
    ChannelCreated
    | ChannelDeleted
    | ChannelHeld
    | ChannelUnheld
    | FreezeStarted
    | FreezeEnded
    | WindowSet
    | WindowDeleted
)


def _stops_ids(fact: Stopping) -> tuple[str, ...]:
    if isinstance(fact, WindowDeleted):
        return fact.channels or EVERYWHERE
    if isinstance(fact, WindowSet):
        left = EVERYWHERE if fact.left_all else fact.left_channels
        return (*(fact.window.channels or EVERYWHERE), *left)
    if isinstance(fact, FreezeStarted | FreezeEnded):
        return fact.channels or EVERYWHERE
    return (fact.channel,)


def step_stops(row: ChannelStops, fact: Stopping, now: datetime) -> ChannelStops | None:
    """Raises: LimitExceeded: too many freezes or windows."""
    match fact:
        case ChannelCreated(package=package):
            return replace(row, package=package)
        case ChannelDeleted():
            return None
        case ChannelHeld(operator=operator, reason=reason):
            return replace(row, held_by=operator, held_reason=reason)
        case ChannelUnheld():
            return replace(row, held_by=None, held_reason=None)
        case FreezeStarted(freeze_id=freeze_id, until=until):
            at_most("freezes of a channel", len(row.freezes) + 1, FREEZES_MAX)
            return replace(row, freezes=(*row.freezes, FreezeSpan(freeze_id, until)))
        case FreezeEnded(freeze_id=freeze_id):
            rest = tuple(freeze for freeze in row.freezes if freeze.freeze_id != freeze_id)
            is_gone = not row.package and row.scope not in EVERYWHERE  # the channel was deleted
            return None if is_gone else replace(row, freezes=rest)
        case WindowSet(window_id=window_id, window=window):
            others = _without(row, window_id)
            if row.scope not in (window.channels or EVERYWHERE):
                return replace(row, windows=others)
            at_most("windows of a channel", len(others) + 1, WINDOWS_MAX)
            found = sorted((*others, window), key=lambda item: item.window_id)
            return replace(row, windows=tuple(found))
        case WindowDeleted(window_id=window_id):
            return replace(row, windows=_without(row, window_id))


def _without(row: ChannelStops, window_id: str) -> tuple[WindowSpec, ...]:
    return tuple(window for window in row.windows if window.window_id != window_id)


# ── quarantine ────────────────────────────────────────────────────────────────────────────────────

Shown = RollbackComplete | RollbackFailed | DeadlineExpired


def _quarantine_ids(fact: Shown | QuarantineLifted) -> tuple[str, ...]:
    """A host that had left its rollout's count shows nothing about the closure: its failure was
    allowed for. Its facts name no closure.
    """
    match fact:
        case QuarantineLifted(channel=channel, closure_hash=closure_hash):
            return (quarantine_key(channel, closure_hash).id,)
        case DeadlineExpired(deadline=deadline) if deadline is not Deadline.ROLLBACK:
            return ()
        case RollbackComplete() | RollbackFailed() | DeadlineExpired():
            if not (fact.channel and fact.target_closure):
                return ()
            return (quarantine_key(fact.channel, fact.target_closure).id,)


def step_quarantine(
    row: Quarantined | None, fact: Shown | QuarantineLifted, now: datetime
) -> Quarantined | None:
    """The first fact that shows it makes the row, so the row is born by the lowest of them."""
    if isinstance(fact, QuarantineLifted):
        return None
    if row is not None:
        return row
    return Quarantined(
        channel=fact.channel,
        closure_hash=fact.target_closure,
        quarantined_at=fact.at,
        rollout_id=fact.rollout_id,
        host_id=fact.host_id,
        reason=_REASONS[type(fact)],
    )


channels = Machine(
    collection=CHANNELS,
    number=7,
    reads=(*get_args(ChannelEvent), ReleaseRetired),
    ids=_channel_ids,
    start=lambda id, fact: None,
    step=step_channel,
)
rollout_incarnations = Fold(
    collection=INCARNATIONS,
    number=1,
    reads=(RolloutOpened,),
    ids=lambda fact: (incarnation_key(fact.channel, fact.target_ref).id,),
    start=lambda id, fact: Incarnation(fact.channel, fact.target_ref),
    step=step_incarnation,
)
freezes = Fold(
    collection=FREEZES,
    number=1,
    reads=(FreezeStarted, FreezeEnded),
    ids=lambda fact: (fact.freeze_id,),
    start=lambda id, fact: None,
    step=step_freeze,
)
channel_stops = Fold(
    collection=CHANNEL_STOPS,
    number=4,
    reads=get_args(Stopping),
    ids=_stops_ids,
    start=lambda id, fact: ChannelStops(scope=id),
    step=step_stops,
)
quarantined_closures = Fold(
    collection=QUARANTINE,
    number=1,
    reads=(RollbackComplete, RollbackFailed, DeadlineExpired, QuarantineLifted),
    ids=_quarantine_ids,
    start=lambda id, fact: None,
    step=step_quarantine,
)

protected_channels = Fold(
    collection=PROTECTED_CHANNELS,
    number=1,
    reads=(ChannelProtectionSet, ChannelDeleted),
    ids=lambda fact: (protected_channels_key().id,),
    start=lambda id, fact: ProtectedChannels(),
    step=step_protected,
)

FOLDS = (
    channels,
    rollout_incarnations,
    freezes,
    channel_stops,
    quarantined_closures,
    protected_channels,
)
