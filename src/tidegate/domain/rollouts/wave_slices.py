"""What lets the next wave of a rollout go: a timer, or an operator.

    start_due_wave     the delay before the next wave is over
    continue_rollout   an operator lets a manual wave go
    skip_wave          an operator goes on without a wave
    promote_all        an operator waits for no wave any longer

Each starts from the tally, runs in the rollout's lane, and is decided by the same predicate as the
machine's own step (``tallies.is_done``). None passes a gate or a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import REASON_BYTES_MAX, check_operator
from tidegate.domain.rollouts import tallies
from tidegate.domain.rollouts.facts import WaveAdvanced, WaveContinued, WaveSkipped
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.names import check_rollout_id
from tidegate.domain.rollouts.refusals import (
    NothingToContinue,
    WaveNotFound,
    WavePassed,
    refuse_verb,
)
from tidegate.domain.rollouts.report_slices import demand_tally
from tidegate.domain.rollouts.rows import Rollout, RolloutTally, rollout_key, tally_key
from tidegate.domain.rollouts.states import DISPATCHABLE
from tidegate.kernel.model import Key, Position, check_text
from tidegate.kernel.slices import Slice

WAVE_BYTES_MAX = 256


class StartDueWave(Struct, frozen=True, kw_only=True):
    """The worker's word that the time in ``due_at`` of the tally has come."""

    rollout_id: str
    due_at: datetime


class ContinueRollout(Struct, frozen=True, kw_only=True):
    """Let the next wave go, which waits for a person."""

    rollout_id: str
    operator: str
    reason: str = ""
    expected_version: int | None = None  # of its row: the last transition that the operator saw


class SkipWave(Struct, frozen=True, kw_only=True):
    """Go on without this wave, which is named, or numbered from 1."""

    rollout_id: str
    wave: str
    operator: str
    reason: str
    expected_version: int | None = None


class PromoteAll(Struct, frozen=True, kw_only=True):
    """Let every wave go now, whatever became of those before."""

    rollout_id: str
    operator: str
    reason: str
    expected_version: int | None = None


Passing = ContinueRollout | SkipWave | PromoteAll
Seen = tuple[RolloutTally | None, Rollout | None]


def rows_of_passing(command: Passing) -> tuple[Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_rollout_id(command.rollout_id)
    if isinstance(command, ContinueRollout):
        check_operator(command.operator, "an operator's word")
        if command.reason:
            check_text("reason", command.reason, REASON_BYTES_MAX)
    else:
        check_operator(command.operator, command.reason)
    if isinstance(command, SkipWave):
        check_text("wave", command.wave, WAVE_BYTES_MAX)
    return tally_key(command.rollout_id), rollout_key(command.rollout_id)


def _expected(command: Passing) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {rollout_key(command.rollout_id): command.expected_version}


_VERBS = {
    "continue": "continue it",
    "skip-wave": "skip a wave of it",
    "promote-all": "let all of its waves go",
}


def _demand_going(rows: Seen, command: Passing, verb: str) -> RolloutTally:
    """Raises: RolloutUnknown, RolloutIsPruned, IllegalTransition: it is over, or halted."""
    tally = demand_tally(rows[0], command.rollout_id)
    if tally.state not in DISPATCHABLE or tally.halted_at is not None:
        raise refuse_verb(tally, verb, _VERBS[verb])
    return tally


def decide_due_wave(
    rows: tuple[RolloutTally | None], command: StartDueWave, now: datetime
) -> Sequence[Struct]:
    """No facts where the rollout moved on since the worker looked."""
    tally = demand_tally(rows[0], command.rollout_id)
    if tally.due_at != command.due_at or not tallies.may_advance(tally, now):
        return ()
    wave = tally.current_wave
    return (WaveAdvanced(rollout_id=tally.rollout_id, at=now, from_wave=wave, to_wave=wave + 1),)


def decide_continue(rows: Seen, command: ContinueRollout, now: datetime) -> Sequence[Struct]:
    """Raises: NothingToContinue. No facts where it was continued already."""
    tally = _demand_going(rows, command, "continue")
    waves, cursor = tally.waves, tally.current_wave
    if waves and waves[cursor].continued and waves[cursor].hosts and not waves[cursor].joined:
        return ()  # asked twice: nobody has looked at this wave yet
    for number in (0, cursor + 1):
        if number < len(waves) and tallies.waits_for_person(waves[number]):
            return (
                WaveContinued(
                    rollout_id=tally.rollout_id,
                    at=now,
                    wave=number,
                    operator=command.operator,
                    reason=command.reason,
                ),
            )
    if any(wave.continued for wave in waves[cursor : cursor + 2]):
        return ()
    later = [wave.name for wave in waves[cursor + 1 :] if tallies.waits_for_person(wave)]
    raise NothingToContinue(tally.rollout_id, later[0] if later else None)


def decide_skip_wave(rows: Seen, command: SkipWave, now: datetime) -> Sequence[Struct]:
    """Raises: WaveNotFound, WavePassed. No facts where it was skipped already."""
    tally = _demand_going(rows, command, "skip-wave")
    names = [wave.name for wave in tally.waves]
    is_number = command.wave.isdecimal() and command.wave not in names
    number = int(command.wave) - 1 if is_number else -1
    if command.wave in names:
        number = names.index(command.wave)
    if not 0 <= number < len(names):
        raise WaveNotFound(tally.rollout_id, command.wave, tuple(names))
    if tally.waves[number].skipped:
        return ()
    if number < tally.current_wave:
        raise WavePassed(tally.rollout_id, names[number], names[tally.current_wave])
    return (
        WaveSkipped(
            rollout_id=tally.rollout_id,
            at=now,
            wave=number,
            operator=command.operator,
            reason=command.reason,
        ),
    )


def decide_promote_all(rows: Seen, command: PromoteAll, now: datetime) -> Sequence[Struct]:
    """One fact for each wave that does not go by itself behind the one before. No facts where
    every wave goes already.
    """
    tally = _demand_going(rows, command, "promote-all")
    said = {"operator": command.operator, "reason": command.reason}
    if len(tally.waves) == 1 and tallies.waits_for_person(tally.waves[0]):
        return (WaveContinued(rollout_id=tally.rollout_id, at=now, wave=0, **said),)
    facts: list[WaveAdvanced] = []
    while tallies.next_wave(tally) is not None:
        wave = tally.current_wave
        forced = WaveAdvanced(
            rollout_id=tally.rollout_id,
            at=now,
            from_wave=wave,
            to_wave=wave + 1,
            forced=True,
            **said,
        )
        facts.append(forced)
        tally = _stepped(tally, forced, now)
    return tuple(facts)


def _stepped(tally: RolloutTally, event: WaveAdvanced, now: datetime) -> RolloutTally:
    """The tally after the event, and after the waves that follow from it by themselves."""
    tally, caused = step(tally, event, now)
    for fact in caused:
        if isinstance(fact, WaveAdvanced):
            tally = _stepped(tally, fact, now)
    return tally


start_due_wave = Slice(
    name="start-due-wave",
    command=StartDueWave,
    writes=(WaveAdvanced,),
    rows=lambda command: (tally_key(command.rollout_id),),
    decide=decide_due_wave,
)
continue_rollout = Slice(
    name="continue-rollout",
    command=ContinueRollout,
    writes=(WaveContinued,),
    rows=rows_of_passing,
    expects=_expected,
    decide=decide_continue,
)
skip_wave = Slice(
    name="skip-wave",
    command=SkipWave,
    writes=(WaveSkipped,),
    rows=rows_of_passing,
    expects=_expected,
    decide=decide_skip_wave,
)
promote_all = Slice(
    name="promote-all",
    command=PromoteAll,
    writes=(WaveAdvanced, WaveContinued),
    rows=rows_of_passing,
    expects=_expected,
    decide=decide_promote_all,
)
SLICES = (start_due_wave, continue_rollout, skip_wave, promote_all)
