"""The state that follows from a rollout's counts, and what a new state leads to.

``settle`` ends most steps: it enters that state and returns the facts that follow from it.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, structs

from tidegate.domain.hosts import facts as host_facts, states as host_states
from tidegate.domain.rollouts import effects as rollout_effects, facts, rows, states, tallies
from tidegate.errors import IllegalTransition

Stepped = tuple[rows.RolloutTally, tuple[Struct, ...]]  # effects and follow-up facts


def state_of_counts(tally: rows.RolloutTally) -> states.RolloutState:
    """Return the state of an open rollout as a function of its tally.

    It is this state after every fact. After a host failed and did not roll back, the rollout stays
    Failed until an operator clears it, even if the host rolls back later.
    """
    if tally.state is states.RolloutState.FAILED and tally.halted_at is not None:
        return states.RolloutState.FAILED
    return state_after_clearance(tally)


def state_after_clearance(tally: rows.RolloutTally) -> states.RolloutState:
    if tally.halted_at is not None:
        if tallies.stuck(tally):
            return states.RolloutState.FAILED
        if has_rolled_back(tally):
            return states.RolloutState.REVERTED
    if tally.waves and (tallies.due_are_settled(tally) or tallies.all_converged(tally)):
        return states.RolloutState.CONVERGING
    if tally.state is states.RolloutState.OPENING:
        return states.RolloutState.OPENING  # its first host has not joined yet
    return states.RolloutState.ACTIVE


def has_rolled_back(tally: rows.RolloutTally) -> bool:
    """Whether some host rolled back and none is on the target any more: the seed's Reverted."""
    return tallies.total(tally, host_states.HostState.REVERTED) > 0 and not tallies.on_target(tally)


def settle(tally: rows.RolloutTally, at: datetime, *caused: Struct) -> Stepped:
    """Enter the state that follows from the counts; add ``caused`` and what follows from both."""
    return enter_and_follow(tally, state_of_counts(tally), at, *caused)


def enter_and_follow(
    tally: rows.RolloutTally, state: states.RolloutState, at: datetime, *caused: Struct
) -> Stepped:
    tally, effects = enter(tally, state, at)
    tally = tallies.timed(tally, at)
    return tally, (*effects, *caused, *_follow_up(tally, at))


def enter(tally: rows.RolloutTally, state: states.RolloutState, at: datetime) -> Stepped:
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


# ── checks of a step ──────────────────────────────────────────────────────────────────────────────


def demand_unhalted(tally: rows.RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: a host failed, and no operator has cleared the rollout."""
    if tally.halted_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, halted", type(event).__name__)


def demand_retried(
    tally: rows.RolloutTally, event: host_facts.HostJoined | host_facts.HostStateChanged
) -> None:
    """Raises: IllegalTransition: only other hosts are retried."""
    if not tallies.may_go(tally, event.host_id):
        raise IllegalTransition(
            "rollout", f"{tally.state}, halted for others", type(event).__name__
        )


def demand_going(tally: rows.RolloutTally, event: Struct) -> None:
    """Raises: IllegalTransition: the rollout is halted or paused."""
    demand_unhalted(tally, event)
    if tally.paused_at is not None:
        raise IllegalTransition("rollout", f"{tally.state}, paused", type(event).__name__)


def demand_sound(tally: rows.RolloutTally) -> None:
    lost = tally.rollback_failed
    if lost and not 0 < lost <= tallies.total(tally, host_states.HostState.FAILED):
        raise tallies.broken(tally, "more failed rollbacks than failed hosts")
