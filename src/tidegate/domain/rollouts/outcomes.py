"""How a rollout ended, as a function of where it was, what ended it, and where it is now.

    Terminal    ──▶ succeeded | empty | failed      by its hosts
    Superseded  ──▶ rolled_back | failed            it was halted: that counts, whoever ended it
                └─▶ aborted | replaced              nothing was wrong with it

Reverted and Failed are no ends: a clearance may still lead from there to success.
"""

from __future__ import annotations

from datetime import datetime

from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import tallies
from tidegate.domain.rollouts.facts import (
    HostCounts,
    OperatorClearance,
    RolloutAborted,
    RolloutConcluded,
    SuccessorOpened,
)
from tidegate.domain.rollouts.rows import RolloutTally
from tidegate.domain.rollouts.states import BAD, Cause, Outcome, RolloutState
from tidegate.domain.rollouts.transitions import RolloutEvent

_ENDED = (RolloutState.TERMINAL, RolloutState.SUPERSEDED)


def outcome_of(before: RolloutTally, event: RolloutEvent, after: RolloutTally) -> Outcome | None:
    """The outcome after ``event``. Once there is one, it stays."""
    if before.outcome is not None or after.state not in _ENDED:
        return before.outcome
    if after.state is RolloutState.TERMINAL:
        # Planned hosts; late ones come later. An emergency does not halt, so it counts who failed.
        failed = after.gave_up if after.emergency else 0
        if tallies.total(after, HostState.CONVERGED) > failed:
            return Outcome.SUCCEEDED
        return Outcome.FAILED if after.gave_up else Outcome.EMPTY
    if before.state is RolloutState.REVERTED:
        return Outcome.ROLLED_BACK
    if before.state is RolloutState.FAILED or before.halted_at is not None:
        return Outcome.FAILED  # halted, and not every host is back: the careful word
    return Outcome.ABORTED if isinstance(event, RolloutAborted) else Outcome.REPLACED


def _cause(tally: RolloutTally, outcome: Outcome, event: RolloutEvent) -> tuple[Cause, str]:
    if outcome in BAD and tally.halted_by is not None:
        return Cause.HOST, tally.halted_by
    match event:
        case RolloutAborted(operator=operator) | OperatorClearance(operator=operator):
            return Cause.OPERATOR, operator
        case SuccessorOpened(successor_rollout_id=successor):
            return Cause.SUCCESSOR, successor
        case _:
            return Cause.PLAN, tally.plan_digest


def conclude(
    tally: RolloutTally, outcome: Outcome, event: RolloutEvent, at: datetime
) -> RolloutConcluded:
    """The fact that says how the rollout ended, and by what."""
    cause, cause_id = _cause(tally, outcome, event)
    return RolloutConcluded(
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


def counts_of(tally: RolloutTally) -> HostCounts:
    """The planned hosts in numbers."""
    tolerated = sum(wave.tolerated for wave in tally.waves)
    left = sum(wave.left for wave in tally.waves)
    return HostCounts(
        hosts=sum(wave.hosts for wave in tally.waves),
        converged=tallies.total(tally, HostState.CONVERGED),
        failed=tallies.total(tally, HostState.FAILED),
        reverted=tallies.total(tally, HostState.REVERTED),
        tolerated=tolerated,
        skipped=left - tolerated - tally.waived,
        waived=tally.waived,
    )
