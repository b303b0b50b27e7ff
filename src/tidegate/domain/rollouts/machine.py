"""A rollout as a pure function of what happened to it and to its hosts.

    Opening ──▶ Active ◀──▶ Converging ──▶ Terminal ──┐
                   └─── halted ───┘                   ├──▶ Superseded ──▶ Pruned
                    ▼            ▼                    │
                Reverted ──▶ Failed ──────────────────┘

Active, Converging, Reverted and Failed follow from the counts (``state_of_counts``): equal tallies
are in the same state, whatever led to them. Only a clearance leaves Failed. ``RolloutTerminal``
enters Terminal; this machine causes that fact itself, once. A rollout that enters Terminal or
Superseded gets its outcome, and ``RolloutConcluded`` follows. ``TABLE`` lists which events a state
accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.domain.hosts import facts as host_facts, orders, states as host_states
from tidegate.domain.rollouts import (
    effects as rollout_effects,
    facts,
    outcomes,
    refusals,
    rows,
    states,
    tallies,
    transitions,
)
from tidegate.errors import IllegalTransition, InvalidInput

TOLERATED: Final = "tolerated failure"  # the reason for skipping a host

Stepped = tuple[rows.RolloutTally, tuple[Struct, ...]]  # effects and follow-up facts


def step(
    tally: rows.RolloutTally | None, event: transitions.RolloutEvent, now: datetime
) -> Stepped:
    """Return the rollout after ``event``, with the effects and follow-up facts.

    Raises:
        IllegalTransition: the table has no such pair, or the rollout is halted or paused.
        RolloutInvariant: the counts would contradict the hosts. RollbackRunning.
    """
    if tally is None:
        if not isinstance(event, facts.RolloutOpened):
            raise IllegalTransition("rollout", "absent", type(event).__name__)
        return _open(event)
    targets = transitions.TABLE[tally.state].get(type(event))
    if targets is None:
        raise IllegalTransition("rollout", tally.state, type(event).__name__)
    after, effects = _STEPS[type(event)](tally, event, now)
    assert after.state in targets, f"{tally.state} by {type(event).__name__} to {after.state}"
    return after, effects


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


def _open(event: facts.RolloutOpened) -> Stepped:
    tally = rows.RolloutTally(
        rollout_id=event.rollout_id,
        channel=event.channel,
        target_ref=event.target_ref,
        target_closure=event.target_closure,
        on_failure=event.on_failure,
        opened_at=event.at,
        retention_seconds=event.retention_seconds,
        plan_digest=event.plan_digest,
        waves=tuple(
            rows.WaveTally(
                name=wave.name,
                hosts=wave.hosts,
                soak_seconds=wave.soak_seconds,
                failures_max=wave.failures_max,
                converged_min=wave.converged_min,
                success_percent=wave.success_percent,
                delay_seconds=wave.delay_seconds,
                manual=wave.manual,
            )
            for wave in event.waves
        ),
        offline_grace_seconds=event.offline_grace_seconds,
        edges=event.edges,
        incarnation=event.incarnation,
        rollback_of=event.rollback_of,
        emergency=event.emergency,
        start_at=event.start_at,
        auto_rollback=event.auto_rollback,
    )
    if any(wave.hosts < 1 for wave in event.waves):
        raise tallies.broken(tally, "a wave without hosts is dropped when the plan is frozen")
    if event.waves:
        return tally, ()
    terminal = facts.RolloutTerminal(rollout_id=tally.rollout_id, at=event.at, reason="empty_plan")
    return tally, (terminal,)


def _open_again(tally: rows.RolloutTally, event: facts.RolloutOpened, now: datetime) -> Stepped:
    """Ignore a repeated opening. An id is never opened again with other content."""
    first, _ = _open(event)
    for name in ("target_ref", "target_closure", "plan_digest", "opened_at"):
        if getattr(first, name) != getattr(tally, name):
            raise tallies.broken(tally, f"it was opened with another {name}")
    return tally, ()


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def _join(tally: rows.RolloutTally, event: host_facts.HostJoined, now: datetime) -> Stepped:
    if event.late:
        if tally.terminal_at is None:
            raise tallies.broken(
                tally, f"{event.host_id} is late for a rollout that is not through"
            )
        return tallies.joined_late(tally), ()
    if tally.state not in states.DISPATCHABLE:
        raise IllegalTransition("rollout", tally.state, "HostJoined, unless late")
    _demand_going(tally, event)
    _demand_retried(tally, event)
    if event.wave > tally.current_wave:
        raise tallies.broken(
            tally, f"{event.host_id} is of wave {event.wave}, which may not go yet"
        )
    # A cancelled order is repeated under a later attempt. The next resume must use a higher one.
    tally = structs.replace(tally, attempt=max(tally.attempt, event.attempt))
    return _enter(tallies.joined(tally, event.wave), states.RolloutState.ACTIVE, now)


def _demand_unhalted(tally: rows.RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: a host failed, and no operator has cleared the rollout."""
    if tally.halted_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, halted", type(event).__name__)


def _demand_retried(
    tally: rows.RolloutTally, event: host_facts.HostJoined | host_facts.HostStateChanged
) -> None:
    """Raises: IllegalTransition: only other hosts are retried."""
    if not tallies.may_go(tally, event.host_id):
        raise IllegalTransition(
            "rollout", f"{tally.state}, halted for others", type(event).__name__
        )


def _demand_going(tally: rows.RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: the rollout is halted or paused."""
    _demand_unhalted(tally, event)
    if tally.paused_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, paused", type(event).__name__)


def _change(tally: rows.RolloutTally, event: host_facts.HostStateChanged, now: datetime) -> Stepped:
    if event.freed:
        tally = tallies.freed(tally)
    if event.retaken:
        tally = structs.replace(tally, busy=tally.busy + 1)
    if event.late:
        return _change_late(tally, event)
    if event.to is host_states.HostState.FAILED and event.from_ is not host_states.HostState.FAILED:
        tally = structs.replace(tally, failures=tally.failures + 1)
    if event.left:
        return tally, ()
    if tally.state is states.RolloutState.TERMINAL:
        # Converged hosts do not change any more. An ended rollout is never reopened.
        return structs.replace(tally, degraded=True), ()
    tally = _count(tally, event)
    if tally.state is states.RolloutState.SUPERSEDED:
        return tally, _quarantine(tally, event)
    if tally.state is states.RolloutState.REVERTED and not _has_rolled_back(tally):
        raise tallies.broken(tally, f"{event.host_id} must not go on before it is cleared")
    if event.to is host_states.HostState.FAILED and event.from_ is not host_states.HostState.FAILED:
        return _fail_host(tally, event, now)
    halted: tuple[Struct, ...] = ()
    if event.to is host_states.HostState.FAILED and event.rollback_failed:
        tally, halted = _halt(tally, event.host_id, now)
    elif event.to in host_states.SETTLED:
        tally, halted = _end_retry(tally, event.host_id, now)
    return _settle(tally, now, *_quarantine(tally, event), *halted)


def _change_late(tally: rows.RolloutTally, event: host_facts.HostStateChanged) -> Stepped:
    if not event.left:
        tally = tallies.moved_late(tally, event.from_, event.to)
    if event.to in (host_states.HostState.FAILED, host_states.HostState.REVERTED):
        tally = structs.replace(tally, degraded=True)
    return tally, _quarantine(tally, event)


def _count(tally: rows.RolloutTally, event: host_facts.HostStateChanged) -> rows.RolloutTally:
    """Count the host under its new state. Raises: IllegalTransition, RolloutInvariant."""
    again = event.to is host_states.HostState.PENDING and event.from_ in (
        host_states.HostState.FAILED,
        host_states.HostState.REVERTED,
    )
    if again or event.to is host_states.HostState.ACTIVATING:
        _demand_unhalted(tally, event)
        _demand_retried(tally, event)
    tally = tallies.moved(tally, event.wave, event.from_, event.to)
    if event.rollback_failed:
        entering = event.to is host_states.HostState.FAILED
        tally = structs.replace(
            tally, rollback_failed=tally.rollback_failed + (1 if entering else -1)
        )
    _demand_sound(tally)
    return tally


def _demand_sound(tally: rows.RolloutTally) -> None:
    lost = tally.rollback_failed
    if lost and not 0 < lost <= tallies.total(tally, host_states.HostState.FAILED):
        raise tallies.broken(tally, "more failed rollbacks than failed hosts")


def _quarantine(tally: rows.RolloutTally, event: host_facts.HostStateChanged) -> tuple[Struct, ...]:
    """Quarantine the closure after a host rolled back or failed to roll back."""
    could_not = event.to is host_states.HostState.FAILED and event.rollback_failed
    if event.to is host_states.HostState.REVERTED or (
        could_not and event.from_ is host_states.HostState.FAILED
    ):
        return (rollout_effects.InsertQuarantineFromRollout(tally.channel, tally.target_closure),)
    return ()


def _fail_host(
    tally: rows.RolloutTally, event: host_facts.HostStateChanged, now: datetime
) -> Stepped:
    """Tolerate the failure, or halt the rollout until the host has rolled back."""
    wave = tallies.wave_of(tally, event.wave)
    if tally.halted_at is None and wave.tolerated < wave.failures_max:
        if event.rollback_failed:  # the host is skipped, so it no longer counts
            tally = structs.replace(tally, rollback_failed=tally.rollback_failed - 1)
        skipped = host_facts.HostSkipped(
            rollout_id=tally.rollout_id,
            host_id=event.host_id,
            at=now,
            wave=event.wave,
            state=host_states.HostState.FAILED,
            reason=TOLERATED,
        )
        return _settle(tally, now, skipped)
    tally, halted = _halt(tally, event.host_id, now)
    return _settle(tally, now, *halted)


def _end_retry(tally: rows.RolloutTally, host_id: str, at: datetime) -> Stepped:
    """Remove a host that has finished its retry. After the last one the rollout halts again, if
    other failed hosts were not retried.
    """
    if host_id not in tally.retried:
        return tally, ()
    tally = structs.replace(tally, retried=tuple(id for id in tally.retried if id != host_id))
    if tally.retried or not tallies.troubled(tally):
        return tally, ()
    return _halt(tally, tally.halted_by or host_id, at, "a host that failed was not tried again")


def _halt(
    tally: rows.RolloutTally, host_id: str, at: datetime, reason: str = "the host failed"
) -> Stepped:
    """Halt the rollout because of this host, and record it. It never halts without the fact."""
    if tally.halted_at is not None:
        return tally, ()
    halted = facts.RolloutHalted(rollout_id=tally.rollout_id, at=at, host_id=host_id, reason=reason)
    return _mark_halted(tally, host_id, at), (halted,)


def _mark_halted(tally: rows.RolloutTally, host_id: str, at: datetime) -> rows.RolloutTally:
    if tally.halted_at is not None:
        return tally
    return structs.replace(tally, halted_at=at, halted_by=host_id, retried=(), due_at=None)


def _record_halt(tally: rows.RolloutTally, event: facts.RolloutHalted, now: datetime) -> Stepped:
    return _mark_halted(tally, event.host_id, now), ()


def _regress(tally: rows.RolloutTally, event: host_facts.HostRegressed, now: datetime) -> Stepped:
    return structs.replace(tally, degraded=True), ()


def _skip(tally: rows.RolloutTally, event: host_facts.HostSkipped, now: datetime) -> Stepped:
    if event.reason == orders.WAIVED:
        return tally, ()  # the clearance that waived it has counted it
    if event.late:
        return tallies.left_late(tally, event.state), ()
    if tally.state is states.RolloutState.TERMINAL:
        raise IllegalTransition("rollout", tally.state, "HostSkipped, unless late")
    if event.state is host_states.HostState.CONVERGED:
        raise tallies.broken(tally, f"{event.host_id} converged, so it is not skipped")
    tolerated = event.reason == TOLERATED
    ended = event.state in (host_states.HostState.FAILED, host_states.HostState.REVERTED)
    if ended and not tolerated and tally.halted_at is not None:
        raise tallies.broken(tally, f"{event.host_id} is {event.state}: it is waived, not skipped")
    if event.wave > tally.current_wave and not event.operator:
        raise tallies.broken(
            tally, f"{event.host_id} is of wave {event.wave}, which may not go yet"
        )
    tally = tallies.left(tally, event.wave, event.state, tolerated=tolerated)
    tally = structs.replace(tally, rollback_failed=tally.rollback_failed - event.rollback_failed)
    _demand_sound(tally)
    if tally.state not in states.OPEN:
        return tally, ()
    tally, halted = _end_retry(tally, event.host_id, now)
    return _settle(tally, now, *halted)


# ── what the counts call for ──────────────────────────────────────────────────────────────────────


def state_of_counts(tally: rows.RolloutTally) -> states.RolloutState:
    """Return the state of an open rollout as a function of its tally.

    It is this state after every fact. After a host failed and did not roll back, the rollout stays
    Failed until an operator clears it, even if the host rolls back later.
    """
    if tally.state is states.RolloutState.FAILED and tally.halted_at is not None:
        return states.RolloutState.FAILED
    return _state_after_clearance(tally)


def _state_after_clearance(tally: rows.RolloutTally) -> states.RolloutState:
    if tally.halted_at is not None:
        if tallies.stuck(tally):
            return states.RolloutState.FAILED
        if _has_rolled_back(tally):
            return states.RolloutState.REVERTED
    if tally.waves and (tallies.due_are_settled(tally) or tallies.all_converged(tally)):
        return states.RolloutState.CONVERGING
    if tally.state is states.RolloutState.OPENING:
        return states.RolloutState.OPENING  # its first host has not joined yet
    return states.RolloutState.ACTIVE


def _has_rolled_back(tally: rows.RolloutTally) -> bool:
    """Whether some host rolled back and none is on the target any more: the seed's Reverted."""
    return tallies.total(tally, host_states.HostState.REVERTED) > 0 and not tallies.on_target(tally)


def _settle(tally: rows.RolloutTally, at: datetime, *caused: Struct) -> Stepped:
    """Enter the state that follows from the counts; add ``caused`` and what follows from both."""
    return _enter_and_follow(tally, state_of_counts(tally), at, *caused)


def _enter_and_follow(
    tally: rows.RolloutTally, state: states.RolloutState, at: datetime, *caused: Struct
) -> Stepped:
    tally, effects = _enter(tally, state, at)
    tally = tallies.timed(tally, at)
    return tally, (*effects, *caused, *_follow_up(tally, at))


def _enter(tally: rows.RolloutTally, state: states.RolloutState, at: datetime) -> Stepped:
    if state is tally.state:
        return tally, ()
    record = rollout_effects.RecordRolloutTransition(tally.rollout_id, tally.state, state, at)
    return structs.replace(tally, state=state), (record,)


def _follow_up(tally: rows.RolloutTally, at: datetime) -> tuple[Struct, ...]:
    """Return the fact that ends the rollout or starts the next wave, if nothing prevents it."""
    if tally.halted_at is not None:
        return ()
    if tally.state is states.RolloutState.CONVERGING and tallies.all_converged(tally):
        return (facts.RolloutTerminal(rollout_id=tally.rollout_id, at=at),)
    if not tallies.may_advance(tally, at):
        return ()
    wave = tally.current_wave
    return (
        facts.WaveAdvanced(rollout_id=tally.rollout_id, at=at, from_wave=wave, to_wave=wave + 1),
    )


def _advance(tally: rows.RolloutTally, event: facts.WaveAdvanced, now: datetime) -> Stepped:
    if tally.state not in states.DISPATCHABLE or event.to_wave <= tally.current_wave:
        return tally, ()  # it has already advanced
    _demand_unhalted(tally, event) if event.forced else _demand_going(tally, event)
    if (event.from_wave, event.to_wave) != (tally.current_wave, tally.current_wave + 1):
        raise tallies.broken(
            tally, f"wave {event.to_wave} does not follow wave {tally.current_wave}"
        )
    tallies.wave_of(tally, event.to_wave)
    if event.forced:
        for wave in range(event.from_wave + 1):
            tally = tallies.marked(tally, wave, forced=True)
    elif not tallies.may_advance(tally, now):
        raise tallies.broken(tally, f"wave {event.to_wave} may not go yet")
    tally = structs.replace(tally, current_wave=event.to_wave, done_at=None)
    return _settle(tally, now, rollout_effects.UpdateCurrentWave(tally.rollout_id, event.to_wave))


def _continue(tally: rows.RolloutTally, event: facts.WaveContinued, now: datetime) -> Stepped:
    _demand_unhalted(tally, event)
    return _settle(tallies.marked(tally, event.wave, continued=True), now)


def _skip_wave(tally: rows.RolloutTally, event: facts.WaveSkipped, now: datetime) -> Stepped:
    _demand_unhalted(tally, event)
    if event.wave < tally.current_wave:
        raise tallies.broken(tally, f"wave {event.wave} went already")
    return _settle(tallies.skipped(tally, event.wave), now)


def _end(before: rows.RolloutTally, event: facts.RolloutTerminal, now: datetime) -> Stepped:
    if before.state not in states.DISPATCHABLE:
        return before, ()
    if not tallies.all_converged(before):
        raise tallies.broken(before, "not every host is Converged, waived or skipped")
    tally, effects = _enter(before, states.RolloutState.TERMINAL, now)
    tally = structs.replace(tally, terminal_at=now, paused_at=None, paused_by=None)
    tally, conclusion = _conclude(before, event, tally, now)
    return tally, (*effects, _schedule_pruning(tally), *conclusion)


def _pause(tally: rows.RolloutTally, event: facts.RolloutPaused, now: datetime) -> Stepped:
    if tally.paused_at is not None:
        return tally, ()
    return structs.replace(tally, paused_at=now, paused_by=event.operator, due_at=None), ()


def _override(tally: rows.RolloutTally, event: facts.GateOverridden, now: datetime) -> Stepped:
    """Add an override. It replaces an earlier one of the same gate."""
    override = rows.GateOverride(
        gate=event.gate,
        operator=event.operator,
        reason=event.reason,
        at=event.at,
        until=event.until,
    )
    others = tuple(item for item in tally.overrides if item.gate is not event.gate)
    return structs.replace(tally, overrides=(*others, override)), ()


def _resume(tally: rows.RolloutTally, event: facts.RolloutResumed, now: datetime) -> Stepped:
    tally = structs.replace(tally, paused_at=None, paused_by=None)
    if tally.state in states.DISPATCHABLE:
        return _settle(tally, now)
    return tally, ()


# ── the end of it ─────────────────────────────────────────────────────────────────────────────────


def _supersede(before: rows.RolloutTally, event: transitions.RolloutEvent, at: datetime) -> Stepped:
    if before.state is states.RolloutState.SUPERSEDED:
        return before, ()
    tally, effects = _enter(before, states.RolloutState.SUPERSEDED, at)
    tally = structs.replace(tally, superseded_at=at, paused_at=None, paused_by=None)
    tally, conclusion = _conclude(before, event, tally, at)
    return tally, (*effects, _schedule_pruning(tally), *conclusion)


def _conclude(
    before: rows.RolloutTally,
    event: transitions.RolloutEvent,
    tally: rows.RolloutTally,
    at: datetime,
) -> Stepped:
    """Set the outcome and return the fact that records it, unless the rollout already has one."""
    outcome = outcomes.outcome_of(before, event, tally)
    if before.outcome is not None or outcome is None:
        return tally, ()
    conclusion = outcomes.conclude(tally, outcome, event, at)
    tally = structs.replace(
        tally, outcome=outcome, outcome_at=at, cause=conclusion.cause, cause_id=conclusion.cause_id
    )
    return tally, (conclusion,)


def _schedule_pruning(tally: rows.RolloutTally) -> rollout_effects.SchedulePruning:
    return rollout_effects.SchedulePruning(
        tally.rollout_id, timedelta(seconds=tally.retention_seconds)
    )


def _expire(tally: rows.RolloutTally, event: facts.RetentionExpired, now: datetime) -> Stepped:
    if tally.due_at is None or now < tally.due_at:
        raise tallies.broken(tally, "its retention is not over")
    if hosts := tallies.under_way(tally):
        raise tallies.broken(
            tally, f"{hosts} hosts are still under way, and could not report any more"
        )
    return _enter(structs.replace(tally, due_at=None), states.RolloutState.PRUNED, now)


def _abort(tally: rows.RolloutTally, event: facts.RolloutAborted, now: datetime) -> Stepped:
    _demand_reason(event)
    return _supersede(tally, event, now)


def _check_conclusion(
    tally: rows.RolloutTally, event: facts.RolloutConcluded, now: datetime
) -> Stepped:
    if event.outcome is not tally.outcome:
        raise tallies.broken(tally, f"its outcome is {tally.outcome}, not {event.outcome}")
    return tally, ()


def _demand_reason(event: facts.OperatorClearance | facts.RolloutAborted) -> None:
    if not (event.operator.strip() and event.reason.strip()):
        raise InvalidInput("name who clears or aborts the rollout, and give a reason")


def _clear(tally: rows.RolloutTally, event: facts.OperatorClearance, now: datetime) -> Stepped:
    _demand_reason(event)
    match event.mode:
        case states.Clearance.RESUME:
            if hosts := tallies.rolling_back(tally):
                raise refusals.RollbackRunning(tally.rollout_id, hosts)
            return _settle(_retry(tally, event), now)
        case states.Clearance.WAIVE:
            return _waive(tally, event, now)
        case states.Clearance.ABANDON:
            return _supersede(tally, event, now)


def _retry(tally: rows.RolloutTally, event: facts.OperatorClearance) -> rows.RolloutTally:
    named = tuple(host.host_id for host in event.hosts)
    by = tally.halted_by if named and tally.halted_by not in named else None
    return structs.replace(
        tally, attempt=tally.attempt + 1, halted_at=None, halted_by=by, retried=named
    )


def _waive(tally: rows.RolloutTally, event: facts.OperatorClearance, now: datetime) -> Stepped:
    """Remove the hosts from the counts. The rollout stays halted while other failed hosts count."""
    if not event.hosts:
        raise InvalidInput("a waiver names the hosts that leave", field="hosts")
    skipped = []
    for host in event.hosts:
        tally = tallies.left(tally, host.wave, host.state)
        lost = tally.rollback_failed - host.rollback_failed
        tally = structs.replace(tally, rollback_failed=lost, waived=tally.waived + 1)
        skip = host_facts.HostSkipped(
            rollout_id=tally.rollout_id,
            host_id=host.host_id,
            at=now,
            wave=host.wave,
            state=host.state,
            reason=orders.WAIVED,
        )
        skipped.append(skip)
    _demand_sound(tally)
    if not tallies.troubled(tally):
        tally = structs.replace(tally, halted_at=None, halted_by=None)
    return _enter_and_follow(tally, _state_after_clearance(tally), now, *skipped)


_STEPS: Final[Mapping[type[Struct], Callable[[rows.RolloutTally, Any, datetime], Stepped]]] = {
    facts.RolloutOpened: _open_again,
    host_facts.HostJoined: _join,
    host_facts.HostStateChanged: _change,
    host_facts.HostSkipped: _skip,
    host_facts.HostRegressed: _regress,
    facts.WaveAdvanced: _advance,
    facts.WaveContinued: _continue,
    facts.WaveSkipped: _skip_wave,
    facts.RolloutTerminal: _end,
    facts.RolloutHalted: _record_halt,
    facts.RolloutPaused: _pause,
    facts.RolloutResumed: _resume,
    facts.SuccessorOpened: _supersede,
    facts.RetentionExpired: _expire,
    facts.OperatorClearance: _clear,
    facts.RolloutAborted: _abort,
    facts.RolloutConcluded: _check_conclusion,
    facts.GateOverridden: _override,
}
