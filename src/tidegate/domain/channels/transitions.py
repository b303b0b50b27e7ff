"""Which event is legal in which state of a channel, and where it may lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelDeleted,
    ChannelEdited,
    ChannelHeld,
    ChannelProtectionSet,
    ChannelUnheld,
)
from tidegate.domain.channels.states import ChannelState
from tidegate.domain.rollouts.facts import (
    RolloutConcluded,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)

ChannelEvent = (
    ChannelCreated
    | ChannelEdited
    | ChannelDeleted
    | ChannelHeld
    | ChannelUnheld
    | ChannelProtectionSet
    | RolloutOpened
    | SuccessorOpened
    | RolloutTransitioned
    | RolloutConcluded
)


_IDLE = frozenset({ChannelState.IDLE})


_BUSY = frozenset({ChannelState.BUSY})


_EITHER = _IDLE | _BUSY


_ABSENT = frozenset({ChannelState.ABSENT})


# For each state the events that it accepts, and the states that may follow.
TABLE: Final[Mapping[ChannelState, Mapping[type[Struct], frozenset[ChannelState]]]] = {
    ChannelState.ABSENT: {
        ChannelCreated: _IDLE,
        RolloutTransitioned: _ABSENT,  # a rollout of a deleted channel is pruned
    },
    ChannelState.IDLE: {
        ChannelEdited: _IDLE,
        ChannelDeleted: _ABSENT,
        ChannelHeld: _IDLE,
        ChannelUnheld: _IDLE,
        ChannelProtectionSet: _IDLE,
        RolloutOpened: _BUSY,
        SuccessorOpened: _IDLE,
        RolloutTransitioned: _IDLE,  # an older rollout is pruned
        RolloutConcluded: _IDLE,
    },
    ChannelState.BUSY: {
        ChannelEdited: _BUSY,
        ChannelDeleted: _ABSENT,  # its newest rollout has ended
        ChannelHeld: _BUSY,
        ChannelUnheld: _BUSY,
        ChannelProtectionSet: _BUSY,
        RolloutOpened: _BUSY,  # the one that it has, once more; another is SupersessionExpected
        SuccessorOpened: _EITHER,
        RolloutTransitioned: _EITHER,
        RolloutConcluded: _BUSY,
    },
}
