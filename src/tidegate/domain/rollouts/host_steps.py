"""What the events of its hosts do to a rollout: they join, change state, fail and are skipped."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tidegate.domain.hosts import facts as host_facts, orders, states as host_states
from tidegate.domain.rollouts import counted_state, effects, facts, rows, states, tallies
from tidegate.domain.rollouts.counted_state import Stepped
from tidegate.errors import IllegalTransition

TOLERATED: Final = "tolerated failure"  # the reason for skipping a host


def join(tally: rows.RolloutTally, event: host_facts.HostJoined, now: datetime) -> Stepped:
    if event.late:
        if tally.terminal_at is None:
            detail = f"{event.host_id} is late for a rollout that has not completed"
            raise tallies.broken(tally, detail)
        return tallies.joined_late(tally), ()
    if tally.state not in states.DISPATCHABLE:
        raise IllegalTransition("rollout", tally.state, "HostJoined, unless late")
    counted_state.demand_going(tally, event)
    counted_state.demand_retried(tally, event)
    if event.wave > tally.current_wave:
        raise tallies.broken(
            tally, f"{event.host_id} is of wave {event.wave}, which may not start yet"
        )
    # A cancelled order is repeated under a later attempt. The next resume must use a higher one.
    tally = structs.replace(tally, attempt=max(tally.attempt, event.attempt))
    return counted_state.enter(tallies.joined(tally, event.wave), states.RolloutState.ACTIVE, now)


def change(tally: rows.RolloutTally, event: host_facts.HostStateChanged, now: datetime) -> Stepped:
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
    if tally.state is states.RolloutState.REVERTED and not counted_state.has_rolled_back(tally):
        raise tallies.broken(tally, f"{event.host_id} must wait until the rollout is cleared")
    if event.to is host_states.HostState.FAILED and event.from_ is not host_states.HostState.FAILED:
        return _fail_host(tally, event, now)
    halted: tuple[Struct, ...] = ()
    if event.to is host_states.HostState.FAILED and event.rollback_failed:
        tally, halted = _halt(tally, event.host_id, now)
    elif event.to is host_states.HostState.CONVERGED:
        tally, halted = _end_retry(tally, event.host_id, now)
    elif event.to is host_states.HostState.DEFERRED and not tallies.troubled(tally):
        # While another host is failed, the retry lasts until the reboot, or until its deadline: a
        # halt would cancel the order.
        tally = structs.replace(tally, retried=())
    return counted_state.settle(tally, now, *_quarantine(tally, event), *halted)


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
        counted_state.demand_unhalted(tally, event)
        counted_state.demand_retried(tally, event)
    tally = tallies.moved(tally, event.wave, event.from_, event.to)
    if event.rollback_failed:
        entering = event.to is host_states.HostState.FAILED
        tally = structs.replace(
            tally, rollback_failed=tally.rollback_failed + (1 if entering else -1)
        )
    counted_state.demand_sound(tally)
    return tally


def _quarantine(tally: rows.RolloutTally, event: host_facts.HostStateChanged) -> tuple[Struct, ...]:
    """Quarantine the closure after a host rolled back or failed to roll back."""
    could_not = event.to is host_states.HostState.FAILED and event.rollback_failed
    if event.to is host_states.HostState.REVERTED or (
        could_not and event.from_ is host_states.HostState.FAILED
    ):
        return (effects.InsertQuarantineFromRollout(tally.channel, tally.target_closure),)
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
        # The step of the skip starts the next wave or ends the rollout. Here it would do so twice.
        tally, entered = counted_state.enter(tally, counted_state.state_of_counts(tally), now)
        return tallies.timed(tally, now), (*entered, skipped)
    tally, halted = _halt(tally, event.host_id, now)
    return counted_state.settle(tally, now, *halted)


def _end_retry(tally: rows.RolloutTally, host_id: str, at: datetime) -> Stepped:
    """Remove a host that has finished its retry. After the last one the rollout halts again, if
    other failed hosts were not retried. If no failed host remains, the retry is over for all.
    """
    if not tallies.troubled(tally):
        return structs.replace(tally, retried=()), ()
    if host_id not in tally.retried:
        return tally, ()
    tally = structs.replace(tally, retried=tuple(id for id in tally.retried if id != host_id))
    if tally.retried:
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


def record_halt(tally: rows.RolloutTally, event: facts.RolloutHalted, now: datetime) -> Stepped:
    return _mark_halted(tally, event.host_id, now), ()


def regress(tally: rows.RolloutTally, event: host_facts.HostRegressed, now: datetime) -> Stepped:
    return structs.replace(tally, degraded=True), ()


def skip(tally: rows.RolloutTally, event: host_facts.HostSkipped, now: datetime) -> Stepped:
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
            tally, f"{event.host_id} is of wave {event.wave}, which may not start yet"
        )
    tally = tallies.left(tally, event.wave, event.state, tolerated=tolerated)
    tally = structs.replace(tally, rollback_failed=tally.rollback_failed - event.rollback_failed)
    counted_state.demand_sound(tally)
    if tally.state not in states.OPEN:
        return tally, ()
    tally, halted = _end_retry(tally, event.host_id, now)
    return counted_state.settle(tally, now, *halted)
