"""The transition table of rollouts, as data: the step reads it, and the tests walk it.

For each state: the events that it accepts, and the states that may follow. If the only such state
is the same one, the event changes counts at most. An event that is missing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.hosts.facts import HostJoined, HostRegressed, HostSkipped, HostStateChanged
from tidegate.domain.rollouts import facts, states as rollout_states

RolloutEvent = (
    facts.RolloutOpened
    | HostJoined
    | HostStateChanged
    | HostSkipped
    | HostRegressed
    | facts.WaveAdvanced
    | facts.WaveContinued
    | facts.WaveSkipped
    | facts.RolloutTerminal
    | facts.RolloutHalted
    | facts.RolloutPaused
    | facts.RolloutResumed
    | facts.SuccessorOpened
    | facts.RetentionExpired
    | facts.OperatorClearance
    | facts.RolloutAborted
    | facts.RolloutConcluded
    | facts.GateOverridden
)

_OPENING, _ACTIVE, _CONVERGING, _TERMINAL, _REVERTED, _FAILED, _SUPERSEDED, _PRUNED = (
    rollout_states.RolloutState
)


def _to(*states: rollout_states.RolloutState) -> frozenset[rollout_states.RolloutState]:
    return frozenset(states)


TABLE: Final[
    Mapping[
        rollout_states.RolloutState, Mapping[type[Struct], frozenset[rollout_states.RolloutState]]
    ]
] = MappingProxyType(
    {
        _OPENING: {
            facts.RolloutOpened: _to(_OPENING),
            facts.GateOverridden: _to(_OPENING),
            HostJoined: _to(_ACTIVE),
            HostSkipped: _to(_OPENING, _CONVERGING),
            facts.WaveAdvanced: _to(_OPENING, _CONVERGING),  # forced ones only
            facts.WaveContinued: _to(_OPENING),
            facts.WaveSkipped: _to(_OPENING, _CONVERGING),
            facts.RolloutTerminal: _to(_TERMINAL),
            facts.RolloutPaused: _to(_OPENING),
            facts.RolloutResumed: _to(_OPENING),
            facts.RolloutAborted: _to(_SUPERSEDED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
        },
        _ACTIVE: {
            facts.RolloutOpened: _to(_ACTIVE),
            facts.GateOverridden: _to(_ACTIVE),
            HostJoined: _to(_ACTIVE),
            HostStateChanged: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED),
            HostSkipped: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED),
            HostRegressed: _to(_ACTIVE),
            facts.WaveAdvanced: _to(_ACTIVE, _CONVERGING),
            facts.WaveContinued: _to(_ACTIVE),
            facts.WaveSkipped: _to(_ACTIVE, _CONVERGING),
            facts.RolloutHalted: _to(_ACTIVE),
            facts.RolloutPaused: _to(_ACTIVE),
            facts.RolloutResumed: _to(_ACTIVE),
            facts.RolloutAborted: _to(_SUPERSEDED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
        },
        _CONVERGING: {
            facts.RolloutOpened: _to(_CONVERGING),
            facts.GateOverridden: _to(_CONVERGING),
            HostJoined: _to(_ACTIVE),
            HostStateChanged: _to(_ACTIVE, _CONVERGING, _FAILED),
            HostSkipped: _to(_CONVERGING),
            HostRegressed: _to(_CONVERGING),
            facts.WaveAdvanced: _to(_ACTIVE, _CONVERGING),
            facts.WaveContinued: _to(_CONVERGING),
            facts.WaveSkipped: _to(_CONVERGING),
            facts.RolloutTerminal: _to(_TERMINAL),
            facts.RolloutHalted: _to(_CONVERGING),
            facts.RolloutPaused: _to(_CONVERGING),
            facts.RolloutResumed: _to(_CONVERGING),
            facts.RolloutAborted: _to(_SUPERSEDED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
        },
        _TERMINAL: {
            facts.RolloutOpened: _to(_TERMINAL),
            HostJoined: _to(_TERMINAL),  # late ones only
            HostSkipped: _to(_TERMINAL),  # late ones only
            HostStateChanged: _to(_TERMINAL),
            HostRegressed: _to(_TERMINAL),
            facts.RolloutTerminal: _to(_TERMINAL),
            facts.RolloutConcluded: _to(_TERMINAL),
            facts.SuccessorOpened: _to(_SUPERSEDED),
            facts.RetentionExpired: _to(_PRUNED),
        },
        _REVERTED: {
            facts.RolloutOpened: _to(_REVERTED),
            facts.GateOverridden: _to(_REVERTED),
            HostStateChanged: _to(_REVERTED, _FAILED),
            HostSkipped: _to(_REVERTED),
            HostRegressed: _to(_REVERTED),
            facts.WaveAdvanced: _to(_REVERTED),
            facts.RolloutTerminal: _to(_REVERTED),
            facts.RolloutHalted: _to(_REVERTED),  # for a host that was not retried
            facts.RolloutResumed: _to(_REVERTED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
            facts.OperatorClearance: _to(_ACTIVE, _CONVERGING, _REVERTED, _SUPERSEDED),
        },
        _FAILED: {
            facts.RolloutOpened: _to(_FAILED),
            facts.GateOverridden: _to(_FAILED),
            HostStateChanged: _to(_FAILED),
            HostSkipped: _to(_FAILED),
            HostRegressed: _to(_FAILED),
            facts.WaveAdvanced: _to(_FAILED),
            facts.RolloutTerminal: _to(_FAILED),
            facts.RolloutHalted: _to(_FAILED),  # for the failure that led here
            facts.RolloutResumed: _to(_FAILED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
            facts.OperatorClearance: _to(_ACTIVE, _CONVERGING, _REVERTED, _FAILED, _SUPERSEDED),
        },
        _SUPERSEDED: {
            facts.RolloutOpened: _to(_SUPERSEDED),
            HostJoined: _to(_SUPERSEDED),  # late ones only
            HostStateChanged: _to(_SUPERSEDED),
            HostSkipped: _to(_SUPERSEDED),
            HostRegressed: _to(_SUPERSEDED),
            facts.WaveAdvanced: _to(_SUPERSEDED),
            facts.RolloutTerminal: _to(_SUPERSEDED),
            facts.RolloutConcluded: _to(_SUPERSEDED),
            facts.SuccessorOpened: _to(_SUPERSEDED),
            facts.RetentionExpired: _to(_PRUNED),
        },
        _PRUNED: {},
    }
)
