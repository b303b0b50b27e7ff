"""A rollout as a pure function of what happened to it and to its hosts.

    Opening ──▶ Active ◀──▶ Converging ──▶ Terminal ──┐
                   └─── halted ───┘                   ├──▶ Superseded ──▶ Pruned
                    ▼            ▼                    │
                Reverted ──▶ Failed ──────────────────┘

Active, Converging, Reverted and Failed follow from the counts (``state_of_counts``), so equal
tallies are in one state however they arose; only a clearance leaves Failed. Terminal is entered by
``RolloutTerminal``, which this machine itself calls for, once. What enters Terminal or Superseded
gets its outcome there, and ``RolloutConcluded`` follows. The pairs are in ``TABLE``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.hosts.facts import HostJoined, HostRegressed, HostSkipped, HostStateChanged
from tidegate.domain.hosts.orders import WAIVED
from tidegate.domain.hosts.states import SETTLED, HostState
from tidegate.domain.rollouts import tallies
from tidegate.domain.rollouts.effects import (
    InsertQuarantineFromRollout,
    RecordRolloutTransition,
    SchedulePruning,
    UpdateCurrentWave,
)
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
from tidegate.domain.rollouts.outcomes import conclude, outcome_of
from tidegate.domain.rollouts.refusals import RollbackRunning
from tidegate.domain.rollouts.rows import GateOverride, RolloutTally, WaveTally
from tidegate.domain.rollouts.states import DISPATCHABLE, OPEN, Clearance, RolloutState
from tidegate.domain.rollouts.tallies import broken
from tidegate.domain.rollouts.transitions import TABLE, RolloutEvent
from tidegate.errors import IllegalTransition, InvalidInput

TOLERATED: Final = "tolerated failure"  # why this machine lets a host leave

Stepped = tuple[RolloutTally, tuple[Struct, ...]]  # effects, and facts that follow


def step(tally: RolloutTally | None, event: RolloutEvent, now: datetime) -> Stepped:
    """The rollout after ``event``, and what must be done about it.

    Raises:
        IllegalTransition: the table has no such pair, or the rollout is halted or paused.
        RolloutInvariant: it would say what is not true of its hosts. RollbackRunning.
    """
    if tally is None:
        if not isinstance(event, RolloutOpened):
            raise IllegalTransition("rollout", "absent", type(event).__name__)
        return _open(event)
    targets = TABLE[tally.state].get(type(event))
    if targets is None:
        raise IllegalTransition("rollout", tally.state, type(event).__name__)
    after, effects = _STEPS[type(event)](tally, event, now)
    assert after.state in targets, f"{tally.state} by {type(event).__name__} to {after.state}"
    return after, effects


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


def _open(event: RolloutOpened) -> Stepped:
    tally = RolloutTally(
        rollout_id=event.rollout_id,
        channel=event.channel,
        target_ref=event.target_ref,
        target_closure=event.target_closure,
        on_failure=event.on_failure,
        opened_at=event.at,
        retention_seconds=event.retention_seconds,
        plan_digest=event.plan_digest,
        waves=tuple(
            WaveTally(
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
        raise broken(tally, "a wave without hosts is dropped when the plan is frozen")
    if event.waves:
        return tally, ()
    terminal = RolloutTerminal(rollout_id=tally.rollout_id, at=event.at, reason="empty_plan")
    return tally, (terminal,)


def _open_again(tally: RolloutTally, event: RolloutOpened, now: datetime) -> Stepped:
    """The same opening once more is none; an id never opens a second time for something else."""
    first, _ = _open(event)
    for name in ("target_ref", "target_closure", "plan_digest", "opened_at"):
        if getattr(first, name) != getattr(tally, name):
            raise broken(tally, f"it was opened with another {name}")
    return tally, ()


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def _join(tally: RolloutTally, event: HostJoined, now: datetime) -> Stepped:
    if event.late:
        if tally.terminal_at is None:
            raise broken(tally, f"{event.host_id} is late for a rollout that is not through")
        return tallies.joined_late(tally), ()
    if tally.state not in DISPATCHABLE:
        raise IllegalTransition("rollout", tally.state, "HostJoined, unless late")
    _demand_going(tally, event)
    _demand_retried(tally, event)
    if event.wave > tally.current_wave:
        raise broken(tally, f"{event.host_id} is of wave {event.wave}, which may not go yet")
    # An order that was taken back comes again under a later attempt; a resume must pass it.
    tally = replace(tally, attempt=max(tally.attempt, event.attempt))
    return _enter(tallies.joined(tally, event.wave), RolloutState.ACTIVE, now)


def _demand_unhalted(tally: RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: a host failed, and nobody cleared it."""
    if tally.halted_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, halted", type(event).__name__)


def _demand_retried(tally: RolloutTally, event: HostJoined | HostStateChanged) -> None:
    """Raises: IllegalTransition: only other hosts are tried again."""
    if not tallies.may_go(tally, event.host_id):
        raise IllegalTransition(
            "rollout", f"{tally.state}, halted for others", type(event).__name__
        )


def _demand_going(tally: RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: it is halted, or somebody paused it."""
    _demand_unhalted(tally, event)
    if tally.paused_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, paused", type(event).__name__)


def _change(tally: RolloutTally, event: HostStateChanged, now: datetime) -> Stepped:
    if event.freed:
        tally = tallies.freed(tally)
    if event.retaken:
        tally = replace(tally, busy=tally.busy + 1)
    if event.late:
        return _change_late(tally, event)
    if event.to is HostState.FAILED and event.from_ is not HostState.FAILED:
        tally = replace(tally, failures=tally.failures + 1)
    if event.left:
        return tally, ()
    if tally.state is RolloutState.TERMINAL:
        # Converged hosts move no more; whatever this is, it reopens nothing.
        return replace(tally, degraded=True), ()
    tally = _count(tally, event)
    if tally.state is RolloutState.SUPERSEDED:
        return tally, _quarantine(tally, event)
    if tally.state is RolloutState.REVERTED and not _went_back(tally):
        raise broken(tally, f"{event.host_id} must not go on before it is cleared")
    if event.to is HostState.FAILED and event.from_ is not HostState.FAILED:
        return _host_failed(tally, event, now)
    halted: tuple[Struct, ...] = ()
    if event.to is HostState.FAILED and event.rollback_failed:
        tally, halted = _halt(tally, event.host_id, now)
    elif event.to in SETTLED:
        tally, halted = _end_retry(tally, event.host_id, now)
    return _settle(tally, now, *_quarantine(tally, event), *halted)


def _change_late(tally: RolloutTally, event: HostStateChanged) -> Stepped:
    if not event.left:
        tally = tallies.moved_late(tally, event.from_, event.to)
    if event.to in (HostState.FAILED, HostState.REVERTED):
        tally = replace(tally, degraded=True)
    return tally, _quarantine(tally, event)


def _count(tally: RolloutTally, event: HostStateChanged) -> RolloutTally:
    """The tally with the host in its new state. Raises: IllegalTransition, RolloutInvariant."""
    again = event.to is HostState.PENDING and event.from_ in (HostState.FAILED, HostState.REVERTED)
    if again or event.to is HostState.ACTIVATING:
        _demand_unhalted(tally, event)
        _demand_retried(tally, event)
    tally = tallies.moved(tally, event.wave, event.from_, event.to)
    if event.rollback_failed:
        entering = event.to is HostState.FAILED
        tally = replace(tally, rollback_failed=tally.rollback_failed + (1 if entering else -1))
    _demand_sound(tally)
    return tally


def _demand_sound(tally: RolloutTally) -> None:
    lost = tally.rollback_failed
    if lost and not 0 < lost <= tallies.total(tally, HostState.FAILED):
        raise broken(tally, "more failed rollbacks than failed hosts")


def _quarantine(tally: RolloutTally, event: HostStateChanged) -> tuple[Struct, ...]:
    """A host that rolled back, or could not, shows that the closure is bad."""
    could_not = event.to is HostState.FAILED and event.rollback_failed
    if event.to is HostState.REVERTED or (could_not and event.from_ is HostState.FAILED):
        return (InsertQuarantineFromRollout(tally.channel, tally.target_closure),)
    return ()


def _host_failed(tally: RolloutTally, event: HostStateChanged, now: datetime) -> Stepped:
    """A failure is allowed for, or ends the rollout, or halts it until the host rolled back."""
    wave = tallies.wave_of(tally, event.wave)
    if tally.halted_at is None and wave.tolerated < wave.failures_max:
        if event.rollback_failed:  # it leaves: what becomes of it does not count
            tally = replace(tally, rollback_failed=tally.rollback_failed - 1)
        skipped = HostSkipped(
            rollout_id=tally.rollout_id,
            host_id=event.host_id,
            at=now,
            wave=event.wave,
            state=HostState.FAILED,
            reason=TOLERATED,
        )
        return _settle(tally, now, skipped)
    tally, halted = _halt(tally, event.host_id, now)
    return _settle(tally, now, *halted)


def _end_retry(tally: RolloutTally, host_id: str, at: datetime) -> Stepped:
    """One host that was tried again is done. After the last of them the rollout stops again, if
    other hosts that failed were not tried.
    """
    if host_id not in tally.retried:
        return tally, ()
    tally = replace(tally, retried=tuple(id for id in tally.retried if id != host_id))
    if tally.retried or not tallies.troubled(tally):
        return tally, ()
    return _halt(tally, tally.halted_by or host_id, at, "a host that failed was not tried again")


def _halt(
    tally: RolloutTally, host_id: str, at: datetime, reason: str = "the host failed"
) -> Stepped:
    """The rollout halted by this host, and the fact that says so: nothing halts without it."""
    if tally.halted_at is not None:
        return tally, ()
    halted = RolloutHalted(rollout_id=tally.rollout_id, at=at, host_id=host_id, reason=reason)
    return _mark_halted(tally, host_id, at), (halted,)


def _mark_halted(tally: RolloutTally, host_id: str, at: datetime) -> RolloutTally:
    if tally.halted_at is not None:
        return tally
    return replace(tally, halted_at=at, halted_by=host_id, retried=(), due_at=None)


def _record_halt(tally: RolloutTally, event: RolloutHalted, now: datetime) -> Stepped:
    return _mark_halted(tally, event.host_id, now), ()


def _regress(tally: RolloutTally, event: HostRegressed, now: datetime) -> Stepped:
    return replace(tally, degraded=True), ()


def _skip(tally: RolloutTally, event: HostSkipped, now: datetime) -> Stepped:
    if event.reason == WAIVED:
        return tally, ()  # counted with the clearance that waived it
    if event.late:
        return tallies.left_late(tally, event.state), ()
    if tally.state is RolloutState.TERMINAL:
        raise IllegalTransition("rollout", tally.state, "HostSkipped, unless late")
    if event.state is HostState.CONVERGED:
        raise broken(tally, f"{event.host_id} converged, so it is not skipped")
    tolerated = event.reason == TOLERATED
    ended = event.state in (HostState.FAILED, HostState.REVERTED)
    if ended and not tolerated and tally.halted_at is not None:
        raise broken(tally, f"{event.host_id} is {event.state}: it is waived, not skipped")
    if event.wave > tally.current_wave and not event.operator:
        raise broken(tally, f"{event.host_id} is of wave {event.wave}, which may not go yet")
    tally = tallies.left(tally, event.wave, event.state, tolerated=tolerated)
    tally = replace(tally, rollback_failed=tally.rollback_failed - event.rollback_failed)
    _demand_sound(tally)
    if tally.state not in OPEN:
        return tally, ()
    tally, halted = _end_retry(tally, event.host_id, now)
    return _settle(tally, now, *halted)


# ── what the counts call for ──────────────────────────────────────────────────────────────────────


def state_of_counts(tally: RolloutTally) -> RolloutState:
    """The state of an open rollout, as a function of its tally: the one it is in, after every
    fact. Where a host failed and did not go back, somebody must look, even if it comes back later.
    """
    if tally.state is RolloutState.FAILED and tally.halted_at is not None:
        return RolloutState.FAILED
    return _state_once_cleared(tally)


def _state_once_cleared(tally: RolloutTally) -> RolloutState:
    if tally.halted_at is not None:
        if tallies.stuck(tally):
            return RolloutState.FAILED
        if _went_back(tally):
            return RolloutState.REVERTED
    if tally.waves and (tallies.due_are_settled(tally) or tallies.all_converged(tally)):
        return RolloutState.CONVERGING
    if tally.state is RolloutState.OPENING:
        return RolloutState.OPENING  # its first host has yet to join
    return RolloutState.ACTIVE


def _went_back(tally: RolloutTally) -> bool:
    """Whether some host rolled back, and none is on the target any more: the seed's Reverted."""
    return tallies.total(tally, HostState.REVERTED) > 0 and not tallies.on_target(tally)


def _settle(tally: RolloutTally, at: datetime, *caused: Struct) -> Stepped:
    """The rollout in the state that its counts call for; behind ``caused``, what that leads to."""
    return _lead(tally, state_of_counts(tally), at, *caused)


def _lead(tally: RolloutTally, state: RolloutState, at: datetime, *caused: Struct) -> Stepped:
    tally, effects = _enter(tally, state, at)
    tally = tallies.timed(tally, at)
    return tally, (*effects, *caused, *_onward(tally, at))


def _enter(tally: RolloutTally, state: RolloutState, at: datetime) -> Stepped:
    if state is tally.state:
        return tally, ()
    record = RecordRolloutTransition(tally.rollout_id, tally.state, state, at)
    return replace(tally, state=state), (record,)


def _onward(tally: RolloutTally, at: datetime) -> tuple[Struct, ...]:
    """The end or the next wave, if nothing stands in its way."""
    if tally.halted_at is not None:
        return ()
    if tally.state is RolloutState.CONVERGING and tallies.all_converged(tally):
        return (RolloutTerminal(rollout_id=tally.rollout_id, at=at),)
    if not tallies.may_advance(tally, at):
        return ()
    wave = tally.current_wave
    return (WaveAdvanced(rollout_id=tally.rollout_id, at=at, from_wave=wave, to_wave=wave + 1),)


def _advance(tally: RolloutTally, event: WaveAdvanced, now: datetime) -> Stepped:
    if tally.state not in DISPATCHABLE or event.to_wave <= tally.current_wave:
        return tally, ()  # it moved on already
    _demand_unhalted(tally, event) if event.forced else _demand_going(tally, event)
    if (event.from_wave, event.to_wave) != (tally.current_wave, tally.current_wave + 1):
        raise broken(tally, f"wave {event.to_wave} does not follow wave {tally.current_wave}")
    tallies.wave_of(tally, event.to_wave)
    if event.forced:
        for wave in range(event.from_wave + 1):
            tally = tallies.marked(tally, wave, forced=True)
    elif not tallies.may_advance(tally, now):
        raise broken(tally, f"wave {event.to_wave} may not go yet")
    tally = replace(tally, current_wave=event.to_wave, done_at=None)
    return _settle(tally, now, UpdateCurrentWave(tally.rollout_id, event.to_wave))


def _continue(tally: RolloutTally, event: WaveContinued, now: datetime) -> Stepped:
    _demand_unhalted(tally, event)
    return _settle(tallies.marked(tally, event.wave, continued=True), now)


def _skip_wave(tally: RolloutTally, event: WaveSkipped, now: datetime) -> Stepped:
    _demand_unhalted(tally, event)
    if event.wave < tally.current_wave:
        raise broken(tally, f"wave {event.wave} went already")
    return _settle(tallies.skipped(tally, event.wave), now)


def _end(before: RolloutTally, event: RolloutTerminal, now: datetime) -> Stepped:
    if before.state not in DISPATCHABLE:
        return before, ()
    if not tallies.all_converged(before):
        raise broken(before, "not every host is Converged, waived or skipped")
    tally, effects = _enter(before, RolloutState.TERMINAL, now)
    tally = replace(tally, terminal_at=now, paused_at=None, paused_by=None)
    tally, said = _conclude(before, event, tally, now)
    return tally, (*effects, _pruning(tally), *said)


def _pause(tally: RolloutTally, event: RolloutPaused, now: datetime) -> Stepped:
    if tally.paused_at is not None:
        return tally, ()
    return replace(tally, paused_at=now, paused_by=event.operator, due_at=None), ()


def _override(tally: RolloutTally, event: GateOverridden, now: datetime) -> Stepped:
    """A second override of a gate takes the place of the first."""
    override = GateOverride(
        gate=event.gate,
        operator=event.operator,
        reason=event.reason,
        at=event.at,
        until=event.until,
    )
    others = tuple(item for item in tally.overrides if item.gate is not event.gate)
    return replace(tally, overrides=(*others, override)), ()


def _resume(tally: RolloutTally, event: RolloutResumed, now: datetime) -> Stepped:
    tally = replace(tally, paused_at=None, paused_by=None)
    if tally.state in DISPATCHABLE:
        return _settle(tally, now)
    return tally, ()


# ── the end of it ─────────────────────────────────────────────────────────────────────────────────


def _supersede(before: RolloutTally, event: RolloutEvent, at: datetime) -> Stepped:
    if before.state is RolloutState.SUPERSEDED:
        return before, ()
    tally, effects = _enter(before, RolloutState.SUPERSEDED, at)
    tally = replace(tally, superseded_at=at, paused_at=None, paused_by=None)
    tally, said = _conclude(before, event, tally, at)
    return tally, (*effects, _pruning(tally), *said)


def _conclude(
    before: RolloutTally, event: RolloutEvent, tally: RolloutTally, at: datetime
) -> Stepped:
    """The rollout with its outcome, and the fact that says it: where it had none before."""
    outcome = outcome_of(before, event, tally)
    if before.outcome is not None or outcome is None:
        return tally, ()
    said = conclude(tally, outcome, event, at)
    tally = replace(tally, outcome=outcome, outcome_at=at, cause=said.cause, cause_id=said.cause_id)
    return tally, (said,)


def _pruning(tally: RolloutTally) -> SchedulePruning:
    return SchedulePruning(tally.rollout_id, timedelta(seconds=tally.retention_seconds))


def _expire(tally: RolloutTally, event: RetentionExpired, now: datetime) -> Stepped:
    if tally.due_at is None or now < tally.due_at:
        raise broken(tally, "its retention is not over")
    if hosts := tallies.under_way(tally):
        raise broken(tally, f"{hosts} hosts are still under way, and could not report any more")
    return _enter(replace(tally, due_at=None), RolloutState.PRUNED, now)


def _abort(tally: RolloutTally, event: RolloutAborted, now: datetime) -> Stepped:
    _demand_reason(event)
    return _supersede(tally, event, now)


def _check_conclusion(tally: RolloutTally, event: RolloutConcluded, now: datetime) -> Stepped:
    if event.outcome is not tally.outcome:
        raise broken(tally, f"its outcome is {tally.outcome}, not {event.outcome}")
    return tally, ()


def _demand_reason(event: OperatorClearance | RolloutAborted) -> None:
    if not (event.operator.strip() and event.reason.strip()):
        raise InvalidInput("name who clears or aborts the rollout, and give a reason")


def _clear(tally: RolloutTally, event: OperatorClearance, now: datetime) -> Stepped:
    _demand_reason(event)
    match event.mode:
        case Clearance.RESUME:
            if hosts := tallies.rolling_back(tally):
                raise RollbackRunning(tally.rollout_id, hosts)
            return _settle(_try_again(tally, event), now)
        case Clearance.WAIVE:
            return _waive(tally, event, now)
        case Clearance.ABANDON:
            return _supersede(tally, event, now)


def _try_again(tally: RolloutTally, event: OperatorClearance) -> RolloutTally:
    named = tuple(host.host_id for host in event.hosts)
    by = tally.halted_by if named and tally.halted_by not in named else None
    return replace(tally, attempt=tally.attempt + 1, halted_at=None, halted_by=by, retried=named)


def _waive(tally: RolloutTally, event: OperatorClearance, now: datetime) -> Stepped:
    """The hosts leave. While others that failed still count, the rollout stays halted."""
    if not event.hosts:
        raise InvalidInput("a waiver names the hosts that leave", field="hosts")
    skipped = []
    for host in event.hosts:
        tally = tallies.left(tally, host.wave, host.state)
        lost = tally.rollback_failed - host.rollback_failed
        tally = replace(tally, rollback_failed=lost, waived=tally.waived + 1)
        skip = HostSkipped(
            rollout_id=tally.rollout_id,
            host_id=host.host_id,
            at=now,
            wave=host.wave,
            state=host.state,
            reason=WAIVED,
        )
        skipped.append(skip)
    _demand_sound(tally)
    if not tallies.troubled(tally):
        tally = replace(tally, halted_at=None, halted_by=None)
    return _lead(tally, _state_once_cleared(tally), now, *skipped)


_STEPS: Final[Mapping[type[Struct], Callable[[RolloutTally, Any, datetime], Stepped]]] = {
    RolloutOpened: _open_again,
    HostJoined: _join,
    HostStateChanged: _change,
    HostSkipped: _skip,
    HostRegressed: _regress,
    WaveAdvanced: _advance,
    WaveContinued: _continue,
    WaveSkipped: _skip_wave,
    RolloutTerminal: _end,
    RolloutHalted: _record_halt,
    RolloutPaused: _pause,
    RolloutResumed: _resume,
    SuccessorOpened: _supersede,
    RetentionExpired: _expire,
    OperatorClearance: _clear,
    RolloutAborted: _abort,
    RolloutConcluded: _check_conclusion,
    GateOverridden: _override,
}
