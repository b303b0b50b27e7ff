"""Which event is legal in which state of a channel, and the next states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tidegate.domain.channels import facts, states
from tidegate.domain.rollouts import facts as rollout_facts

ChannelEvent = (
    facts.ChannelCreated
    | facts.ChannelEdited
    | facts.ChannelDeleted
    | facts.ChannelHeld
    | facts.ChannelUnheld
    | facts.ChannelProtectionSet
    | rollout_facts.RolloutOpened
    | rollout_facts.SuccessorOpened
    | rollout_facts.RolloutTransitioned
    | rollout_facts.RolloutConcluded
)


_IDLE = frozenset({states.ChannelState.IDLE})


_BUSY = frozenset({states.ChannelState.BUSY})


_EITHER = _IDLE | _BUSY


_ABSENT = frozenset({states.ChannelState.ABSENT})


# For each state: the events that it accepts, and the states that may follow.
TABLE: Final[
    Mapping[states.ChannelState, Mapping[type[Struct], frozenset[states.ChannelState]]]
] = {
    states.ChannelState.ABSENT: {
        facts.ChannelCreated: _IDLE,
        rollout_facts.RolloutTransitioned: _ABSENT,  # a rollout of a deleted channel is pruned
    },
    states.ChannelState.IDLE: {
        facts.ChannelEdited: _IDLE,
        facts.ChannelDeleted: _ABSENT,
        facts.ChannelHeld: _IDLE,
        facts.ChannelUnheld: _IDLE,
        facts.ChannelProtectionSet: _IDLE,
        rollout_facts.RolloutOpened: _BUSY,
        rollout_facts.SuccessorOpened: _IDLE,
        rollout_facts.RolloutTransitioned: _IDLE,  # an older rollout is pruned
        rollout_facts.RolloutConcluded: _IDLE,
    },
    states.ChannelState.BUSY: {
        facts.ChannelEdited: _BUSY,
        facts.ChannelDeleted: _ABSENT,  # its newest rollout has ended
        facts.ChannelHeld: _BUSY,
        facts.ChannelUnheld: _BUSY,
        facts.ChannelProtectionSet: _BUSY,
        # the rollout that it has, again; another one is SupersessionExpected
        rollout_facts.RolloutOpened: _BUSY,
        rollout_facts.SuccessorOpened: _EITHER,
        rollout_facts.RolloutTransitioned: _EITHER,
        rollout_facts.RolloutConcluded: _BUSY,
    },
}
