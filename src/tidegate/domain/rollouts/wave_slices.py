"""What starts the next wave of a rollout: a timer, or an operator.

    start_due_wave     the delay before the next wave is over
    continue_rollout   an operator starts a manual wave
    skip_wave          an operator continues without a wave
    promote_all        an operator starts all waves at once

Each reads the tally, runs in the rollout's lane, and uses the same predicate as the machine's step
(``tallies.is_done``). None bypasses a gate or a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import REASON_BYTES_MAX, check_operator
from tidegate.domain.rollouts import (
    facts as rollout_facts,
    machine,
    preconditions,
    refusals,
    rows as rollout_rows,
    states,
    tallies,
)
from tidegate.domain.rollouts.names import check_rollout_id
from tidegate.kernel import model, slices

WAVE_BYTES_MAX = 256


class StartDueWave(Struct, frozen=True, kw_only=True):
    """The worker found that the time in the tally's ``due_at`` has come."""

    rollout_id: str
    due_at: datetime


class ContinueRollout(Struct, frozen=True, kw_only=True):
    """Start the next wave, which waits for a person."""

    rollout_id: str
    operator: str
    reason: str = ""
    expected_version: int | None = None  # of its row: the last transition that the operator saw


class SkipWave(Struct, frozen=True, kw_only=True):
    """Continue without this wave. It is given by name, or by number from 1."""

    rollout_id: str
    wave: str
    operator: str
    reason: str
    expected_version: int | None = None


class PromoteAll(Struct, frozen=True, kw_only=True):
    """Start every wave now, whether or not the earlier ones are done."""

    rollout_id: str
    operator: str
    reason: str
    expected_version: int | None = None


Passing = ContinueRollout | SkipWave | PromoteAll
Seen = tuple[rollout_rows.RolloutTally | None, rollout_rows.Rollout | None]


def rows_of_passing(command: Passing) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_rollout_id(command.rollout_id)
    if isinstance(command, ContinueRollout):
        check_operator(command.operator, "an operator's word")
        if command.reason:
            model.check_text("reason", command.reason, REASON_BYTES_MAX)
    else:
        check_operator(command.operator, command.reason)
    if isinstance(command, SkipWave):
        model.check_text("wave", command.wave, WAVE_BYTES_MAX)
    return rollout_rows.tally_key(command.rollout_id), rollout_rows.rollout_key(command.rollout_id)


_VERBS = {
    "continue": "continue it",
    "skip-wave": "skip a wave of it",
    "promote-all": "let all of its waves go",
}


def _demand_going(rows: Seen, command: Passing, verb: str) -> rollout_rows.RolloutTally:
    """Raises: RolloutUnknown, RolloutIsPruned, IllegalTransition: it is over, or halted."""
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state not in states.DISPATCHABLE or tally.halted_at is not None:
        raise refusals.refuse_verb(tally, verb, _VERBS[verb])
    return tally


def decide_due_wave(
    rows: tuple[rollout_rows.RolloutTally | None], command: StartDueWave, now: datetime
) -> Sequence[Struct]:
    """Start the wave, or do nothing if the rollout changed since the worker looked."""
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.due_at != command.due_at or not tallies.may_advance(tally, now):
        return ()
    wave = tally.current_wave
    return (
        rollout_facts.WaveAdvanced(
            rollout_id=tally.rollout_id, at=now, from_wave=wave, to_wave=wave + 1
        ),
    )


def decide_continue(rows: Seen, command: ContinueRollout, now: datetime) -> Sequence[Struct]:
    """Raises: NothingToContinue. No facts if the wave was already continued."""
    tally = _demand_going(rows, command, "continue")
    waves, cursor = tally.waves, tally.current_wave
    if waves and waves[cursor].continued and waves[cursor].hosts and not waves[cursor].joined:
        return ()  # the request was repeated; the operator has not seen this wave
    for number in (0, cursor + 1):
        if number < len(waves) and tallies.waits_for_person(waves[number]):
            return (
                rollout_facts.WaveContinued(
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
    raise refusals.NothingToContinue(tally.rollout_id, later[0] if later else None)


def decide_skip_wave(rows: Seen, command: SkipWave, now: datetime) -> Sequence[Struct]:
    """Raises: WaveNotFound, WavePassed. No facts if the wave was already skipped."""
    tally = _demand_going(rows, command, "skip-wave")
    names = [wave.name for wave in tally.waves]
    is_number = command.wave.isdecimal() and command.wave not in names
    number = int(command.wave) - 1 if is_number else -1
    if command.wave in names:
        number = names.index(command.wave)
    if not 0 <= number < len(names):
        raise refusals.WaveNotFound(tally.rollout_id, command.wave, tuple(names))
    if tally.waves[number].skipped:
        return ()
    if number < tally.current_wave:
        raise refusals.WavePassed(tally.rollout_id, names[number], names[tally.current_wave])
    return (
        rollout_facts.WaveSkipped(
            rollout_id=tally.rollout_id,
            at=now,
            wave=number,
            operator=command.operator,
            reason=command.reason,
        ),
    )


def decide_promote_all(rows: Seen, command: PromoteAll, now: datetime) -> Sequence[Struct]:
    """Return a fact for each wave that does not follow by itself; none if all have started."""
    tally = _demand_going(rows, command, "promote-all")
    members = {"operator": command.operator, "reason": command.reason}
    if len(tally.waves) == 1 and tallies.waits_for_person(tally.waves[0]):
        return (
            rollout_facts.WaveContinued(rollout_id=tally.rollout_id, at=now, wave=0, **members),
        )
    facts: list[rollout_facts.WaveAdvanced] = []
    while tallies.next_wave(tally) is not None:
        wave = tally.current_wave
        forced = rollout_facts.WaveAdvanced(
            rollout_id=tally.rollout_id,
            at=now,
            from_wave=wave,
            to_wave=wave + 1,
            forced=True,
            **members,
        )
        facts.append(forced)
        tally = _step(tally, forced, now)
    return tuple(facts)


def _step(
    tally: rollout_rows.RolloutTally, event: rollout_facts.WaveAdvanced, now: datetime
) -> rollout_rows.RolloutTally:
    """Step the tally by the event and by the waves that follow from it by themselves."""
    tally, caused = machine.step(tally, event, now)
    for fact in caused:
        if isinstance(fact, rollout_facts.WaveAdvanced):
            tally = _step(tally, fact, now)
    return tally


start_due_wave = slices.Slice(
    name="start-due-wave",
    command=StartDueWave,
    writes=(rollout_facts.WaveAdvanced,),
    rows=lambda command: (rollout_rows.tally_key(command.rollout_id),),
    decide=decide_due_wave,
)
continue_rollout = slices.Slice(
    name="continue-rollout",
    command=ContinueRollout,
    writes=(rollout_facts.WaveContinued,),
    rows=rows_of_passing,
    expects=preconditions.expect_version,
    decide=decide_continue,
)
skip_wave = slices.Slice(
    name="skip-wave",
    command=SkipWave,
    writes=(rollout_facts.WaveSkipped,),
    rows=rows_of_passing,
    expects=preconditions.expect_version,
    decide=decide_skip_wave,
)
promote_all = slices.Slice(
    name="promote-all",
    command=PromoteAll,
    writes=(rollout_facts.WaveAdvanced, rollout_facts.WaveContinued),
    rows=rows_of_passing,
    expects=preconditions.expect_version,
    decide=decide_promote_all,
)
SLICES = (start_due_wave, continue_rollout, skip_wave, promote_all)
