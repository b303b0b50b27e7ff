"""How facts become the rows of channels: machine, incarnations, freezes, stops, quarantines."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec.structs import replace

from tidegate.domain.channels import facts, ladder, machine, rows, stops, transitions
from tidegate.domain.hosts import facts as host_facts, states
from tidegate.domain.releases.facts import ReleaseRetired, RollbackRungsChanged
from tidegate.domain.rollouts import facts as rollout_facts, names
from tidegate.domain.windows.facts import WindowDeleted, WindowSet, WindowSpec
from tidegate.kernel import folds, model

FREEZES_MAX = 100  # of one channel, and of all channels: each copy holds all of these
WINDOWS_MAX = 8  # that name one channel, and as many for all channels: at most 16 cover one


_REASONS = {
    host_facts.RollbackComplete: "a host rolled back from it",
    host_facts.RollbackFailed: "a host could not go back from it",
    host_facts.DeadlineExpired: "a host did not report its rollback from it",
}


def _channel_ids(event: transitions.ChannelEvent | ReleaseRetired) -> tuple[str, ...]:
    match event:
        case ReleaseRetired(scope=scope):
            return (scope,)
        case rollout_facts.RolloutTransitioned(rollout_id=rollout_id):
            return (names.channel_of(rollout_id),)
        case rollout_facts.SuccessorOpened(superseded_rollout_id=rollout_id):
            return (names.channel_of(rollout_id),)
        case _:
            return (event.channel,)


def step_channel(
    row: rows.Channel | None, event: transitions.ChannelEvent | ReleaseRetired, now: datetime
) -> tuple[rows.Channel | None, tuple[RollbackRungsChanged, ...]]:
    """Step the machine, and mark what changes for the releases of the ladder.

    The row of a retired scope is removed. Raises: as ``step``.
    """
    if not isinstance(event, ReleaseRetired):
        after = machine.step(row, event, now)
    else:
        after = None if row is None else replace(row, ladder=())
    return after, ladder.changed_rungs(row, after, now)


def step_incarnation(
    row: rows.Incarnation, fact: rollout_facts.RolloutOpened, now: datetime
) -> rows.Incarnation:
    return replace(row, count=max(row.count, fact.incarnation))


def step_freeze(
    row: rows.Freeze | None, fact: facts.FreezeStarted | facts.FreezeEnded, now: datetime
) -> rows.Freeze | None:
    if isinstance(fact, facts.FreezeEnded):
        return None
    return rows.Freeze(
        freeze_id=fact.freeze_id,
        operator=fact.operator,
        reason=fact.reason,
        started_at=fact.at,
        channels=fact.channels,
        until=fact.until,
    )


def step_protected(
    row: rows.ProtectedChannels,
    fact: facts.ChannelProtectionSet | facts.ChannelDeleted,
    now: datetime,
) -> rows.ProtectedChannels:
    others = set(row.channels) - {fact.channel}
    is_over = isinstance(fact, facts.ChannelDeleted) or fact.protection is None
    named = others if is_over else others | {fact.channel}
    return rows.ProtectedChannels(tuple(sorted(named)))


# ── stops ─────────────────────────────────────────────────────────────────────────────────────────

Stopping = (
    facts.ChannelCreated
    | facts.ChannelDeleted
    | facts.ChannelHeld
    | facts.ChannelUnheld
    | facts.FreezeStarted
    | facts.FreezeEnded
    | WindowSet
    | WindowDeleted
)


def _stops_ids(fact: Stopping) -> tuple[str, ...]:
    if isinstance(fact, WindowDeleted):
        return fact.channels or stops.EVERYWHERE
    if isinstance(fact, WindowSet):
        left = stops.EVERYWHERE if fact.left_all else fact.left_channels
        return (*(fact.window.channels or stops.EVERYWHERE), *left)
    if isinstance(fact, facts.FreezeStarted | facts.FreezeEnded):
        return fact.channels or stops.EVERYWHERE
    return (fact.channel,)


def step_stops(row: stops.ChannelStops, fact: Stopping, now: datetime) -> stops.ChannelStops | None:
    """Raises: LimitExceeded: too many freezes or windows."""
    match fact:
        case facts.ChannelCreated(package=package):
            return replace(row, package=package)
        case facts.ChannelDeleted():
            return None
        case facts.ChannelHeld(operator=operator, reason=reason):
            return replace(row, held_by=operator, held_reason=reason)
        case facts.ChannelUnheld():
            return replace(row, held_by=None, held_reason=None)
        case facts.FreezeStarted(freeze_id=freeze_id, until=until):
            model.at_most("freezes of a channel", len(row.freezes) + 1, FREEZES_MAX)
            return replace(row, freezes=(*row.freezes, stops.FreezeSpan(freeze_id, until)))
        case facts.FreezeEnded(freeze_id=freeze_id):
            rest = tuple(freeze for freeze in row.freezes if freeze.freeze_id != freeze_id)
            is_gone = (
                not row.package and row.scope not in stops.EVERYWHERE
            )  # the channel was deleted
            return None if is_gone else replace(row, freezes=rest)
        case WindowSet(window_id=window_id, window=window):
            others = _without(row, window_id)
            if row.scope not in (window.channels or stops.EVERYWHERE):
                return replace(row, windows=others)
            model.at_most("windows of a channel", len(others) + 1, WINDOWS_MAX)
            found = sorted((*others, window), key=lambda item: item.window_id)
            return replace(row, windows=tuple(found))
        case WindowDeleted(window_id=window_id):
            return replace(row, windows=_without(row, window_id))


def _without(row: stops.ChannelStops, window_id: str) -> tuple[WindowSpec, ...]:
    return tuple(window for window in row.windows if window.window_id != window_id)


# ── quarantine ────────────────────────────────────────────────────────────────────────────────────

Shown = host_facts.RollbackComplete | host_facts.RollbackFailed | host_facts.DeadlineExpired


def _quarantine_ids(fact: Shown | facts.QuarantineLifted) -> tuple[str, ...]:
    """Return the quarantine rows that a fact changes.

    A host that no longer counts in its rollout names no closure: its failure was tolerated.
    """
    match fact:
        case facts.QuarantineLifted(channel=channel, closure_hash=closure_hash):
            return (rows.quarantine_key(channel, closure_hash).id,)
        case host_facts.DeadlineExpired(deadline=deadline) if (
            deadline is not states.Deadline.ROLLBACK
        ):
            return ()
        case (
            host_facts.RollbackComplete()
            | host_facts.RollbackFailed()
            | host_facts.DeadlineExpired()
        ):
            if not (fact.channel and fact.target_closure):
                return ()
            return (rows.quarantine_key(fact.channel, fact.target_closure).id,)


def step_quarantine(
    row: rows.Quarantined | None, fact: Shown | facts.QuarantineLifted, now: datetime
) -> rows.Quarantined | None:
    """Quarantine the closure. The first fact that shows the failure makes the row."""
    if isinstance(fact, facts.QuarantineLifted):
        return None
    if row is not None:
        return row
    return rows.Quarantined(
        channel=fact.channel,
        closure_hash=fact.target_closure,
        quarantined_at=fact.at,
        rollout_id=fact.rollout_id,
        host_id=fact.host_id,
        reason=_REASONS[type(fact)],
    )


channels = folds.Machine(
    collection=rows.CHANNELS,
    number=7,
    reads=(*get_args(transitions.ChannelEvent), ReleaseRetired),
    ids=_channel_ids,
    start=lambda id, fact: None,
    step=step_channel,
)
rollout_incarnations = folds.Fold(
    collection=rows.INCARNATIONS,
    number=1,
    reads=(rollout_facts.RolloutOpened,),
    ids=lambda fact: (rows.incarnation_key(fact.channel, fact.target_ref).id,),
    start=lambda id, fact: rows.Incarnation(fact.channel, fact.target_ref),
    step=step_incarnation,
)
freezes = folds.Fold(
    collection=rows.FREEZES,
    number=1,
    reads=(facts.FreezeStarted, facts.FreezeEnded),
    ids=lambda fact: (fact.freeze_id,),
    start=lambda id, fact: None,
    step=step_freeze,
)
channel_stops = folds.Fold(
    collection=stops.CHANNEL_STOPS,
    number=4,
    reads=get_args(Stopping),
    ids=_stops_ids,
    start=lambda id, fact: stops.ChannelStops(scope=id),
    step=step_stops,
)
quarantined_closures = folds.Fold(
    collection=rows.QUARANTINE,
    number=1,
    reads=(
        host_facts.RollbackComplete,
        host_facts.RollbackFailed,
        host_facts.DeadlineExpired,
        facts.QuarantineLifted,
    ),
    ids=_quarantine_ids,
    start=lambda id, fact: None,
    step=step_quarantine,
)

protected_channels = folds.Fold(
    collection=rows.PROTECTED_CHANNELS,
    number=1,
    reads=(facts.ChannelProtectionSet, facts.ChannelDeleted),
    ids=lambda fact: (rows.protected_channels_key().id,),
    start=lambda id, fact: rows.ProtectedChannels(),
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
