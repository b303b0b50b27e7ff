"""A channel as a pure function of what happened to it: which of its rollouts counts.

    absent ──created──▶ idle ──opened──▶ busy ──superseded, pruned──▶ idle
                          └──deleted──▶ absent ◀──deleted──┘

Busy is a channel whose newest rollout is not superseded or pruned; Terminal, Reverted and Failed
ones count too. Opening on a busy channel is refused: the old rollout's end goes first.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelDeleted,
    ChannelEdited,
    ChannelHeld,
    ChannelProtectionSet,
    ChannelUnheld,
)
from tidegate.domain.channels.ladder import add_success, mark_left
from tidegate.domain.channels.refusals import ChannelOnHold, SupersessionExpected
from tidegate.domain.channels.rows import Channel
from tidegate.domain.channels.states import ChannelState
from tidegate.domain.channels.transitions import TABLE, ChannelEvent
from tidegate.domain.rollouts.facts import (
    RolloutConcluded,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)
from tidegate.domain.rollouts.names import ref_of
from tidegate.domain.rollouts.states import RolloutState
from tidegate.errors import IllegalTransition

_OVER = frozenset({RolloutState.SUPERSEDED, RolloutState.PRUNED})


def state_of(channel: Channel | None) -> ChannelState:
    if channel is None:
        return ChannelState.ABSENT
    return ChannelState.IDLE if channel.active_rollout_id is None else ChannelState.BUSY


def step(channel: Channel | None, event: ChannelEvent, now: datetime) -> Channel | None:
    """The channel after ``event``; None: it does not exist.

    Raises:
        IllegalTransition: the table has no such pair. SupersessionExpected. ChannelOnHold.
    """
    state = state_of(channel)
    if type(event) not in TABLE[state]:
        raise IllegalTransition("channel", state, type(event).__name__)
    if channel is None and isinstance(event, RolloutTransitioned):
        return None
    if channel is None:
        assert isinstance(event, ChannelCreated), "the table lets nothing else begin a channel"
        return Channel(
            channel=event.channel,
            package=event.package,
            selector=event.selector,
            policy=event.policy,
            created_at=event.at,
            auto_promote_by=event.operator if event.policy.auto_promote else None,
            auto_rollback_by=event.operator if event.policy.auto_rollback else None,
        )
    match event:
        case ChannelDeleted():
            return None
        case ChannelEdited():
            return _edited(channel, event)
        case ChannelHeld(operator=operator, reason=reason, at=at):
            return replace(channel, held_at=at, held_by=operator, held_reason=reason)
        case ChannelUnheld():
            return replace(channel, held_at=None, held_by=None, held_reason=None)
        case ChannelProtectionSet(protection=protection):
            return replace(channel, protection=protection)
        case RolloutOpened():
            return _opened(channel, event)
        case SuccessorOpened(superseded_rollout_id=rollout_id):
            return _without(channel, rollout_id)
        case RolloutTransitioned():
            return _transitioned(channel, event)
        case RolloutConcluded():
            known = channel.outcomes.get(event.outcome.value, 0)
            return replace(
                channel,
                ladder=add_success(channel.ladder, event),
                outcomes={**channel.outcomes, event.outcome.value: known + 1},
            )
        case _:
            raise IllegalTransition("channel", state, type(event).__name__)


def _edited(channel: Channel, event: ChannelEdited) -> Channel:
    """What the policy does by itself, it does for the person who switched that on."""
    promoter = channel.auto_promote_by or event.operator
    returner = channel.auto_rollback_by or event.operator
    return replace(
        channel,
        selector=event.selector,
        policy=event.policy,
        auto_promote_by=promoter if event.policy.auto_promote else None,
        auto_rollback_by=returner if event.policy.auto_rollback else None,
    )


def _opened(channel: Channel, event: RolloutOpened) -> Channel:
    active = channel.active_rollout_id
    if active == event.rollout_id:
        return channel
    if active is not None:
        raise SupersessionExpected(channel.channel, active)
    # A rollback opens on a held channel, too: its orders wait until the hold is released.
    if channel.held_at is not None and event.rollback_of is None:
        raise ChannelOnHold(channel.channel, channel.held_by, channel.held_reason)
    return replace(
        channel,
        active_rollout_id=event.rollout_id,
        newest_rollout_id=event.rollout_id,
        newest_state=RolloutState.OPENING,
        ladder=mark_left(channel.ladder, event),
    )


def _without(channel: Channel, rollout_id: str) -> Channel:
    if channel.active_rollout_id != rollout_id:
        return channel
    return replace(channel, active_rollout_id=None)


def _transitioned(channel: Channel, event: RolloutTransitioned) -> Channel:
    rollout_id = event.rollout_id
    if event.to in _OVER:
        channel = _without(channel, rollout_id)
    if event.to is RolloutState.TERMINAL:
        ref = ref_of(rollout_id)
        channel = replace(channel, terminal_rollout_id=rollout_id, terminal_ref=ref)
    # A rollout is pruned long after it let the channels behind it go: that stays as it was.
    if channel.newest_rollout_id == rollout_id and event.to is not RolloutState.PRUNED:
        channel = replace(channel, newest_state=event.to)
    return channel
