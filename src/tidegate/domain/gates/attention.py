"""Whether a shut gate needs a person, or opens by itself.

A soak, a delay, a window, a full budget and a wave that is under way end without a person. A gate
that never opens by itself is an alarm: ``tidegate status`` and ``rollout show`` mark only those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.domain.channels.facts import ChannelEdge, EdgeRequires
from tidegate.domain.gates.inputs import PrecedingChannel
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import progress, rows, states, tallies

ALWAYS: Final = frozenset({"halted", "paused", "hold", "quarantine", "freshness", "probe-failures"})

Edges = Iterable[tuple[ChannelEdge, PrecedingChannel]]


def needs_person(gate: str, tally: rows.RolloutTally, edges: Edges) -> bool:
    """Whether a gate that is shut for this rollout stays shut until a person does something."""
    match gate:
        case "channel-edges":
            return any(not _opens_by_itself(edge, seen) for edge, seen in edges)
        case "wave-promotion":
            return bool(describe_stuck_wave(tally))
        case "host-silent":
            return tally.offline_grace_seconds is None  # else the host is skipped
    return gate in ALWAYS


def _opens_by_itself(edge: ChannelEdge, seen: PrecedingChannel) -> bool:
    """Whether the edge is open, or opens with time or with the rollout on the first channel."""
    if seen.channel is None:
        return False
    if edge.require is EdgeRequires.IDLE:
        return True  # that channel shows what holds it
    if seen.standing is None or seen.quarantined is not None:
        return False
    standing = seen.standing.row
    first = None if seen.tally is None else seen.tally.row
    if standing.word is states.Word.GOOD:
        has_soaked = standing.soaked_seconds >= edge.soak_seconds
        if standing.running_since is not None or has_soaked:
            return True
    return first is not None and first.halted_at is None and first.paused_at is None


def describe_stuck_wave(tally: rows.RolloutTally) -> str:
    """Say why a wave needs a person to start; empty: the waves start by themselves."""
    if tally.waves and tallies.waits_for_person(tally.waves[0]):
        return f"wave {progress.name_wave(tally, 0)} waits for an operator to continue it"
    last = len(tally.waves) - 1
    for number, wave in enumerate(tally.waves[: min(tallies.reached(tally) + 1, last)]):
        if tallies.missing(wave) > wave.hosts - wave.left - wave.count(HostState.CONVERGED):
            return (
                f"wave {progress.name_wave(tally, number)} has too few hosts left that can converge"
            )
    number = tally.current_wave + 1
    if (
        tally.done_at is not None
        and number <= last
        and tallies.waits_for_person(tally.waves[number])
    ):
        return f"wave {progress.name_wave(tally, number)} waits for an operator to continue it"
    return ""
