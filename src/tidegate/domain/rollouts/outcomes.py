"""How a rollout ended: a function of its state before, the event, and its state after.

    Terminal    ──▶ succeeded | empty | failed      by its hosts
    Superseded  ──▶ rolled_back | failed            it was halted: that counts, whatever ended it
                └─▶ aborted | replaced              nothing was wrong with it

Reverted and Failed are not the end: a clearance may still lead from there to success.
"""

from __future__ import annotations

from datetime import datetime

from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import facts, rows, states, tallies, transitions

_ENDED = (states.RolloutState.TERMINAL, states.RolloutState.SUPERSEDED)


def outcome_of(
    before: rows.RolloutTally, event: transitions.RolloutEvent, after: rows.RolloutTally
) -> states.Outcome | None:
    """Return the outcome after ``event``. Once set, it stays."""
    if before.outcome is not None or after.state not in _ENDED:
        return before.outcome
    if after.state is states.RolloutState.TERMINAL:
        # Only planned hosts count. An emergency rollback does not halt, so its failed hosts count.
        failed = after.gave_up if after.emergency else 0
        if tallies.total(after, HostState.CONVERGED) > failed:
            return states.Outcome.SUCCEEDED
        return states.Outcome.FAILED if after.gave_up else states.Outcome.EMPTY
    if before.state is states.RolloutState.REVERTED:
        return states.Outcome.ROLLED_BACK
    if before.state is states.RolloutState.FAILED or before.halted_at is not None:
        return states.Outcome.FAILED  # halted, and not every host has rolled back
    return (
        states.Outcome.ABORTED
        if isinstance(event, facts.RolloutAborted)
        else states.Outcome.REPLACED
    )


def _cause(
    tally: rows.RolloutTally, outcome: states.Outcome, event: transitions.RolloutEvent
) -> tuple[states.Cause, str]:
    if outcome in states.BAD and tally.halted_by is not None:
        return states.Cause.HOST, tally.halted_by
    match event:
        case facts.RolloutAborted(operator=operator) | facts.OperatorClearance(operator=operator):
            return states.Cause.OPERATOR, operator
        case facts.SuccessorOpened(successor_rollout_id=successor):
            return states.Cause.SUCCESSOR, successor
        case _:
            return states.Cause.PLAN, tally.plan_digest


def conclude(
    tally: rows.RolloutTally, outcome: states.Outcome, event: transitions.RolloutEvent, at: datetime
) -> facts.RolloutConcluded:
    """Build the fact that records how the rollout ended, and why."""
    cause, cause_id = _cause(tally, outcome, event)
    return facts.RolloutConcluded(
        rollout_id=tally.rollout_id,
        at=at,
        channel=tally.channel,
        outcome=outcome,
        target_ref=tally.target_ref,
        target_closure=tally.target_closure,
        cause=cause,
        cause_id=cause_id,
        counts=counts_of(tally),
        opened_at=tally.opened_at,
        incarnation=tally.incarnation,
        rollback_of=tally.rollback_of,
    )


def counts_of(tally: rows.RolloutTally) -> facts.HostCounts:
    """Return the counts of the planned hosts."""
    return facts.HostCounts(
        hosts=sum(wave.hosts for wave in tally.waves),
        converged=tallies.total(tally, HostState.CONVERGED),
        failed=tallies.total(tally, HostState.FAILED),
        reverted=tallies.total(tally, HostState.REVERTED),
        tolerated=sum(wave.tolerated for wave in tally.waves),
        skipped=tallies.count_skipped(tally),
        waived=tally.waived,
    )
