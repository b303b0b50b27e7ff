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

from tidegate.domain.hosts import facts as host_facts, orders
from tidegate.domain.rollouts import (
    counted_state,
    effects as rollout_effects,
    facts,
    host_steps,
    outcomes,
    refusals,
    rows,
    states,
    tallies,
    transitions,
)
from tidegate.domain.rollouts.counted_state import Stepped
from tidegate.errors import IllegalTransition, InvalidInput


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


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def _advance(tally: rows.RolloutTally, event: facts.WaveAdvanced, now: datetime) -> Stepped:
    if tally.state not in states.DISPATCHABLE or event.to_wave <= tally.current_wave:
        return tally, ()  # it has already advanced
    demand = counted_state.demand_unhalted if event.forced else counted_state.demand_going
    demand(tally, event)
    if (event.from_wave, event.to_wave) != (tally.current_wave, tally.current_wave + 1):
        raise tallies.broken(
            tally, f"wave {event.to_wave} does not follow wave {tally.current_wave}"
        )
    tallies.wave_of(tally, event.to_wave)
    if event.forced:
        for wave in range(event.from_wave + 1):
            tally = tallies.marked(tally, wave, forced=True)
    elif not tallies.may_advance(tally, now):
        raise tallies.broken(tally, f"wave {event.to_wave} may not start yet")
    tally = structs.replace(tally, current_wave=event.to_wave, done_at=None)
    return counted_state.settle(
        tally, now, rollout_effects.UpdateCurrentWave(tally.rollout_id, event.to_wave)
    )


def _continue(tally: rows.RolloutTally, event: facts.WaveContinued, now: datetime) -> Stepped:
    counted_state.demand_unhalted(tally, event)
    return counted_state.settle(tallies.marked(tally, event.wave, continued=True), now)


def _skip_wave(tally: rows.RolloutTally, event: facts.WaveSkipped, now: datetime) -> Stepped:
    counted_state.demand_unhalted(tally, event)
    if event.wave < tally.current_wave:
        raise tallies.broken(tally, f"wave {event.wave} has already started")
    return counted_state.settle(tallies.skipped(tally, event.wave), now)


_NOT_PAUSED: Final = {"paused_at": None, "paused_by": None, "paused_reason": ""}


def _pause(tally: rows.RolloutTally, event: facts.RolloutPaused, now: datetime) -> Stepped:
    if tally.paused_at is not None:
        return tally, ()
    paused = structs.replace(
        tally,
        paused_at=now,
        paused_by=event.operator,
        paused_reason=event.reason,
        due_at=None,
    )
    return paused, ()


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
    tally = structs.replace(tally, **_NOT_PAUSED)
    if tally.state in states.DISPATCHABLE:
        return counted_state.settle(tally, now)
    return tally, ()


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


def _end(before: rows.RolloutTally, event: facts.RolloutTerminal, now: datetime) -> Stepped:
    if before.state not in states.DISPATCHABLE:
        return before, ()
    if not tallies.all_converged(before):
        raise tallies.broken(before, "not every host is Converged, waived or skipped")
    tally, effects = counted_state.enter(before, states.RolloutState.TERMINAL, now)
    tally = structs.replace(tally, terminal_at=now, **_NOT_PAUSED)
    tally, conclusion = _conclude(before, event, tally, now)
    return tally, (*effects, _schedule_pruning(tally), *conclusion)


def _supersede(before: rows.RolloutTally, event: transitions.RolloutEvent, at: datetime) -> Stepped:
    if before.state is states.RolloutState.SUPERSEDED:
        return before, ()
    tally, effects = counted_state.enter(before, states.RolloutState.SUPERSEDED, at)
    tally = structs.replace(tally, superseded_at=at, **_NOT_PAUSED)
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
    return counted_state.enter(structs.replace(tally, due_at=None), states.RolloutState.PRUNED, now)


def _abort(tally: rows.RolloutTally, event: facts.RolloutAborted, now: datetime) -> Stepped:
    _demand_reason(event)
    return _supersede(tally, event, now)


def _check_conclusion(
    tally: rows.RolloutTally, event: facts.RolloutConcluded, now: datetime
) -> Stepped:
    if event.outcome is not tally.outcome:
        raise tallies.broken(tally, f"its outcome is {tally.outcome}, not {event.outcome}")
    return tally, ()


# ── clearances ────────────────────────────────────────────────────────────────────────────────────


def _demand_reason(event: facts.OperatorClearance | facts.RolloutAborted) -> None:
    if not (event.operator.strip() and event.reason.strip()):
        raise InvalidInput("name who clears or aborts the rollout, and give a reason")


def _clear(tally: rows.RolloutTally, event: facts.OperatorClearance, now: datetime) -> Stepped:
    _demand_reason(event)
    match event.mode:
        case states.Clearance.RESUME:
            if hosts := tallies.rolling_back(tally):
                raise refusals.RollbackRunning(tally.rollout_id, hosts)
            return counted_state.settle(_retry(tally, event), now)
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
    counted_state.demand_sound(tally)
    if not tallies.troubled(tally):
        tally = structs.replace(tally, halted_at=None, halted_by=None)
    return counted_state.enter_and_follow(
        tally, counted_state.state_after_clearance(tally), now, *skipped
    )


_STEPS: Final[Mapping[type[Struct], Callable[[rows.RolloutTally, Any, datetime], Stepped]]] = {
    facts.RolloutOpened: _open_again,
    host_facts.HostJoined: host_steps.join,
    host_facts.HostStateChanged: host_steps.change,
    host_facts.HostSkipped: host_steps.skip,
    host_facts.HostRegressed: host_steps.regress,
    facts.WaveAdvanced: _advance,
    facts.WaveContinued: _continue,
    facts.WaveSkipped: _skip_wave,
    facts.RolloutTerminal: _end,
    facts.RolloutHalted: host_steps.record_halt,
    facts.RolloutPaused: _pause,
    facts.RolloutResumed: _resume,
    facts.SuccessorOpened: _supersede,
    facts.RetentionExpired: _expire,
    facts.OperatorClearance: _clear,
    facts.RolloutAborted: _abort,
    facts.RolloutConcluded: _check_conclusion,
    facts.GateOverridden: _override,
}
