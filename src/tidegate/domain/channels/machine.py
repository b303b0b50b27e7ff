"""A channel as a pure function of what happened to it: which of its rollouts is current.

    absent ──created──▶ idle ──opened──▶ busy ──superseded, pruned──▶ idle
                          └──deleted──▶ absent ◀──deleted──┘

A channel is busy if its newest rollout is not superseded or pruned; this includes Terminal,
Reverted and Failed ones. Opening on a busy channel is refused: the old rollout must end first.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.channels import facts, ladder, refusals, rows, states, transitions
from tidegate.domain.rollouts import facts as rollout_facts, names, states as rollout_states
from tidegate.errors import IllegalTransition

_OVER = frozenset({rollout_states.RolloutState.SUPERSEDED, rollout_states.RolloutState.PRUNED})


def state_of(channel: rows.Channel | None) -> states.ChannelState:
    if channel is None:
        return states.ChannelState.ABSENT
    return (
        states.ChannelState.IDLE if channel.active_rollout_id is None else states.ChannelState.BUSY
    )


def step(
    channel: rows.Channel | None, event: transitions.ChannelEvent, now: datetime
) -> rows.Channel | None:
    """Return the channel after ``event``; None: it does not exist.

    Raises:
        IllegalTransition: the table has no such pair. SupersessionExpected. ChannelOnHold.
    """
    state = state_of(channel)
    if type(event) not in transitions.TABLE[state]:
        raise IllegalTransition("channel", state, type(event).__name__)
    if channel is None and isinstance(event, rollout_facts.RolloutTransitioned):
        return None
    if channel is None:
        assert isinstance(event, facts.ChannelCreated), (
            "the table lets nothing else begin a channel"
        )
        return rows.Channel(
            channel=event.channel,
            package=event.package,
            selector=event.selector,
            policy=event.policy,
            created_at=event.at,
            auto_promote_by=event.operator if event.policy.auto_promote else None,
            auto_rollback_by=event.operator if event.policy.auto_rollback else None,
        )
    match event:
        case facts.ChannelDeleted():
            return None
        case facts.ChannelEdited():
            return _edit(channel, event)
        case facts.ChannelHeld(operator=operator, reason=reason, at=at):
            return replace(channel, held_at=at, held_by=operator, held_reason=reason)
        case facts.ChannelUnheld():
            return replace(channel, held_at=None, held_by=None, held_reason=None)
        case facts.ChannelProtectionSet(protection=protection):
            return replace(channel, protection=protection)
        case rollout_facts.RolloutOpened():
            return _open(channel, event)
        case rollout_facts.SuccessorOpened(superseded_rollout_id=rollout_id):
            return _forget_active(channel, rollout_id)
        case rollout_facts.RolloutTransitioned():
            return _transition(channel, event)
        case rollout_facts.RolloutConcluded():
            known = channel.outcomes.get(event.outcome.value, 0)
            return replace(
                channel,
                ladder=ladder.add_success(channel.ladder, event),
                outcomes={**channel.outcomes, event.outcome.value: known + 1},
            )
        case _:
            raise IllegalTransition("channel", state, type(event).__name__)


def _edit(channel: rows.Channel, event: facts.ChannelEdited) -> rows.Channel:
    """Edit the channel. Automatic promotion acts for the person who turned it on."""
    promoter = channel.auto_promote_by or event.operator
    returner = channel.auto_rollback_by or event.operator
    return replace(
        channel,
        selector=event.selector,
        policy=event.policy,
        auto_promote_by=promoter if event.policy.auto_promote else None,
        auto_rollback_by=returner if event.policy.auto_rollback else None,
    )


def _open(channel: rows.Channel, event: rollout_facts.RolloutOpened) -> rows.Channel:
    active = channel.active_rollout_id
    if active == event.rollout_id:
        return channel
    if active is not None:
        raise refusals.SupersessionExpected(channel.channel, active)
    # A rollback also opens on a held channel: its orders wait until the hold is released.
    if channel.held_at is not None and event.rollback_of is None:
        raise refusals.ChannelOnHold(channel.channel, channel.held_by, channel.held_reason)
    return replace(
        channel,
        active_rollout_id=event.rollout_id,
        newest_rollout_id=event.rollout_id,
        newest_state=rollout_states.RolloutState.OPENING,
        ladder=ladder.mark_left(channel.ladder, event),
    )


def _forget_active(channel: rows.Channel, rollout_id: str) -> rows.Channel:
    if channel.active_rollout_id != rollout_id:
        return channel
    return replace(channel, active_rollout_id=None)


def _transition(channel: rows.Channel, event: rollout_facts.RolloutTransitioned) -> rows.Channel:
    rollout_id = event.rollout_id
    if event.to in _OVER:
        channel = _forget_active(channel, rollout_id)
    if event.to is rollout_states.RolloutState.TERMINAL:
        ref = names.ref_of(rollout_id)
        channel = replace(channel, terminal_rollout_id=rollout_id, terminal_ref=ref)
    # Pruning comes long after the edges of later channels opened. They stay open.
    if (
        channel.newest_rollout_id == rollout_id
        and event.to is not rollout_states.RolloutState.PRUNED
    ):
        channel = replace(channel, newest_state=event.to)
    return channel
