"""The transition table of rollouts, as data: the step asks it, and the tests walk it.

For each state the events that it accepts, and the states that may follow. One state that is the
same: nothing follows (a count may change). An event that is not there is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.hosts.facts import HostJoined, HostRegressed, HostSkipped, HostStateChanged
from tidegate.domain.rollouts.facts import (
    GateOverridden,
    OperatorClearance,
    RetentionExpired,
    RolloutAborted,
    RolloutConcluded,
    RolloutHalted,
    RolloutOpened,
    RolloutPaused,
    RolloutResumed,
    RolloutTerminal,
    SuccessorOpened,
    WaveAdvanced,
    WaveContinued,
    WaveSkipped,
)
from tidegate.domain.rollouts.states import RolloutState

RolloutEvent = (
    RolloutOpened
    | HostJoined
    | HostStateChanged
    | HostSkipped
    | HostRegressed
    | WaveAdvanced
    | WaveContinued
    | WaveSkipped
    | RolloutTerminal
    | RolloutHalted
    | RolloutPaused
    | RolloutResumed
    | SuccessorOpened
    | RetentionExpired
    | OperatorClearance
    | RolloutAborted
    | RolloutConcluded
    | GateOverridden
)

_OPENING, _ACTIVE, _CONVERGING, _TERMINAL, _REVERTED, _FAILED, _SUPERSEDED, _PRUNED = RolloutState


def _to(*states: RolloutState) -> frozenset[RolloutState]:
    return frozenset(states)


TABLE: Final[Mapping[RolloutState, Mapping[type[Struct], frozenset[RolloutState]]]] = (
    MappingProxyType(
        {
            _OPENING: {
                RolloutOpened: _to(_OPENING),
                GateOverridden: _to(_OPENING),
                HostJoined: _to(_ACTIVE),
                HostSkipped: _to(_OPENING, _CONVERGING),
                WaveAdvanced: _to(_OPENING, _CONVERGING),  # forced ones only
                WaveContinued: _to(_OPENING),
                WaveSkipped: _to(_OPENING, _CONVERGING),
                RolloutTerminal: _to(_TERMINAL),
                RolloutPaused: _to(_OPENING),
                RolloutResumed: _to(_OPENING),
                RolloutAborted: _to(_SUPERSEDED),
                SuccessorOpened: _to(_SUPERSEDED),
            },
            _ACTIVE: {
                RolloutOpened: _to(_ACTIVE),
                GateOverridden: _to(_ACTIVE),
                HostJoined: _to(_ACTIVE),
                HostStateChanged: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED),
                HostSkipped: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED),
                HostRegressed: _to(_ACTIVE),
                WaveAdvanced: _to(_ACTIVE, _CONVERGING),
                WaveContinued: _to(_ACTIVE),
                WaveSkipped: _to(_ACTIVE, _CONVERGING),
                RolloutHalted: _to(_ACTIVE),
                RolloutPaused: _to(_ACTIVE),
                RolloutResumed: _to(_ACTIVE),
                RolloutAborted: _to(_SUPERSEDED),
                SuccessorOpened: _to(_SUPERSEDED),
            },
            _CONVERGING: {
                RolloutOpened: _to(_CONVERGING),
                GateOverridden: _to(_CONVERGING),
                HostJoined: _to(_ACTIVE),
                HostStateChanged: _to(_ACTIVE, _CONVERGING, _FAILED),
                HostSkipped: _to(_CONVERGING),
                HostRegressed: _to(_CONVERGING),
                WaveAdvanced: _to(_ACTIVE, _CONVERGING),
                WaveContinued: _to(_CONVERGING),
                WaveSkipped: _to(_CONVERGING),
                RolloutTerminal: _to(_TERMINAL),
                RolloutHalted: _to(_CONVERGING),
                RolloutPaused: _to(_CONVERGING),
                RolloutResumed: _to(_CONVERGING),
                RolloutAborted: _to(_SUPERSEDED),
                SuccessorOpened: _to(_SUPERSEDED),
            },
            _TERMINAL: {
                RolloutOpened: _to(_TERMINAL),
                HostJoined: _to(_TERMINAL),  # late ones only
                HostSkipped: _to(_TERMINAL),  # late ones only
                HostStateChanged: _to(_TERMINAL),
                HostRegressed: _to(_TERMINAL),
                RolloutTerminal: _to(_TERMINAL),
                RolloutConcluded: _to(_TERMINAL),
                SuccessorOpened: _to(_SUPERSEDED),
                RetentionExpired: _to(_PRUNED),
            },
            _REVERTED: {
                RolloutOpened: _to(_REVERTED),
                GateOverridden: _to(_REVERTED),
                HostStateChanged: _to(_REVERTED, _FAILED),
                HostSkipped: _to(_REVERTED),
                HostRegressed: _to(_REVERTED),
                WaveAdvanced: _to(_REVERTED),
                RolloutTerminal: _to(_REVERTED),
                RolloutHalted: _to(_REVERTED),  # said of a host that was not tried again
                RolloutResumed: _to(_REVERTED),
                SuccessorOpened: _to(_SUPERSEDED),
                OperatorClearance: _to(_ACTIVE, _CONVERGING, _REVERTED, _SUPERSEDED),
            },
            _FAILED: {
                RolloutOpened: _to(_FAILED),
                GateOverridden: _to(_FAILED),
                HostStateChanged: _to(_FAILED),
                HostSkipped: _to(_FAILED),
                HostRegressed: _to(_FAILED),
                WaveAdvanced: _to(_FAILED),
                RolloutTerminal: _to(_FAILED),
                RolloutHalted: _to(_FAILED),  # said of the failure that led here
                RolloutResumed: _to(_FAILED),
                SuccessorOpened: _to(_SUPERSEDED),
                OperatorClearance: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED, _SUPERSEDED),
            },
            _SUPERSEDED: {
                RolloutOpened: _to(_SUPERSEDED),
                HostJoined: _to(_SUPERSEDED),  # late ones only
                HostStateChanged: _to(_SUPERSEDED),
                HostSkipped: _to(_SUPERSEDED),
                HostRegressed: _to(_SUPERSEDED),
                WaveAdvanced: _to(_SUPERSEDED),
                RolloutTerminal: _to(_SUPERSEDED),
                RolloutConcluded: _to(_SUPERSEDED),
                SuccessorOpened: _to(_SUPERSEDED),
                RetentionExpired: _to(_PRUNED),
            },
            _PRUNED: {},
        }
    )
)
