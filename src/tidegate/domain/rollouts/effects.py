"""The four effects of a rollout's step: values that are never stored.

    RecordRolloutTransition, UpdateCurrentWave   ──▶ RolloutTransitioned, a follow-up fact; a new
                                                     wave alone repeats the state
    SchedulePruning                              ──▶ ``due_at`` of the tally
    InsertQuarantineFromRollout                  ──▶ nothing to do: the quarantine is a fold of the
                                                     host's own fact, which is in this commit

A step may also return facts, which follow unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from tidegate.domain.hosts.facts import HostJoined, HostSkipped, HostStateChanged
from tidegate.domain.rollouts import facts, progress, rows, states


class RecordRolloutTransition(Struct, frozen=True):
    """The rollout's state changed."""

    rollout_id: str
    from_: states.RolloutState
    to: states.RolloutState
    at: datetime


class UpdateCurrentWave(Struct, frozen=True):
    """Hosts up to this wave may get orders."""

    rollout_id: str
    wave: int


class InsertQuarantineFromRollout(Struct, frozen=True):
    """The closure must not be dispatched on the channel again."""

    channel: str
    closure_hash: str
    triggering_event_log_seq: int | None = None  # a step sees no positions: the row is stamped


class SchedulePruning(Struct, frozen=True):
    """The rollout's retention begins."""

    rollout_id: str
    delay: timedelta


RolloutEffect = (
    RecordRolloutTransition | UpdateCurrentWave | InsertQuarantineFromRollout | SchedulePruning
)


def apply_effects(
    tally: rows.RolloutTally, effects: Sequence[Struct], event: Struct, now: datetime
) -> tuple[rows.RolloutTally, tuple[Struct, ...]]:
    """Return the tally and the follow-up facts that result from the effects of ``event``."""
    if not effects:
        return tally, ()
    follow_ups: list[Struct] = []
    moves = any(isinstance(effect, RecordRolloutTransition) for effect in effects)
    for effect in effects:
        match effect:
            case RecordRolloutTransition(rollout_id, from_, to, at):
                transitioned = facts.RolloutTransitioned(
                    rollout_id=rollout_id,
                    at=at,
                    from_=from_,
                    to=to,
                    current_wave=tally.current_wave,
                    reason=_reason(event),
                    successor_rollout_id=_successor(event),
                )
                follow_ups.append(transitioned)
            case SchedulePruning(delay=delay):
                tally = structs.replace(tally, due_at=now + delay)
            case UpdateCurrentWave(rollout_id, wave) if not moves:
                # Hosts of earlier waves are still under way, so the state does not change.
                # The rollout's row must still show the new wave.
                transitioned = facts.RolloutTransitioned(
                    rollout_id=rollout_id,
                    at=now,
                    from_=tally.state,
                    to=tally.state,
                    current_wave=wave,
                    reason=f"wave {progress.name_wave(tally, wave)} goes",
                )
                follow_ups.append(transitioned)
            case UpdateCurrentWave() | InsertQuarantineFromRollout():
                pass  # the transition and the host's fact record these
            case _:
                follow_ups.append(effect)
    return tally, tuple(follow_ups)


def _reason(event: Struct) -> str:
    match event:
        case HostJoined(host_id=host_id):
            return f"{host_id} joined"
        case HostStateChanged(host_id=host_id, to=to, rollback_failed=failed):
            return f"{host_id} {to}" + (", not rolled back" if failed else "")
        case HostSkipped(host_id=host_id, reason=reason):
            return f"{host_id} left: {reason}"
        case facts.RolloutTerminal(reason=reason):
            return reason
        case facts.OperatorClearance(mode=mode, reason=reason):
            return f"{mode}: {reason}"
        case facts.RolloutAborted(reason=reason):
            return f"aborted: {reason}"
        case facts.SuccessorOpened():
            return "superseded"
        case _:
            return ""


def _successor(event: Struct) -> str | None:
    return event.successor_rollout_id if isinstance(event, facts.SuccessorOpened) else None
