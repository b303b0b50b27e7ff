"""The vocabulary of rollouts: states, outcomes, and how an operator clears a halted one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RolloutState(StrEnum):
    """The state of a rollout."""

    OPENING = "Opening"  # no host has its order yet
    ACTIVE = "Active"  # some host of the waves so far is not done
    CONVERGING = "Converging"  # all of them are; later waves or reboots remain
    TERMINAL = "Terminal"  # every host converged
    REVERTED = "Reverted"  # a host rolled back, none is on the target any more
    FAILED = "Failed"  # a host failed and did not roll back
    SUPERSEDED = "Superseded"  # a newer one opened on the channel
    PRUNED = "Pruned"  # past its retention; the row stays readable


_PREDICATES: Final = {
    RolloutState.TERMINAL: "is over",
    RolloutState.REVERTED: "has rolled back",
    RolloutState.FAILED: "has failed",
    RolloutState.SUPERSEDED: "was replaced",
    RolloutState.PRUNED: "is past its retention",
}


def describe_rollout_state(state: RolloutState | str) -> str:
    """Phrase the state for a sentence: ``the rollout …``."""
    return _PREDICATES.get(RolloutState(state), f"is {str(state).lower()}")


OPEN: Final = frozenset(
    {
        RolloutState.OPENING,
        RolloutState.ACTIVE,
        RolloutState.CONVERGING,
        RolloutState.REVERTED,
        RolloutState.FAILED,
    }
)  # "in flight" in lists
DISPATCHABLE: Final = frozenset(
    {RolloutState.OPENING, RolloutState.ACTIVE, RolloutState.CONVERGING}
)
CLEARABLE: Final = frozenset({RolloutState.REVERTED, RolloutState.FAILED})
ORDERED: Final = frozenset({RolloutState.TERMINAL, RolloutState.SUPERSEDED})  # opens "idle" edges


class Outcome(StrEnum):
    """How a rollout ended. An open rollout has none; once set, it stays."""

    SUCCEEDED = "succeeded"  # a planned host converged
    EMPTY = "empty"  # no host ran it, none failed
    FAILED = "failed"  # it ended halted, or all hosts that got it failed
    ROLLED_BACK = "rolled_back"  # it ended Reverted
    ABORTED = "aborted"  # by an operator, while nothing was wrong with it
    REPLACED = "replaced"  # by another rollout of the channel, while nothing was wrong with it


BAD: Final = frozenset({Outcome.FAILED, Outcome.ROLLED_BACK})


class Cause(StrEnum):
    """What made a rollout end as it did."""

    HOST = "host"  # that failed
    OPERATOR = "operator"  # who aborted it
    SUCCESSOR = "successor"  # the rollout that replaced it
    PLAN = "plan"  # it was carried out


class PolicyAction(StrEnum):
    """The member of a channel's policy by which the worker opened a rollout."""

    AUTO_PROMOTE = "auto_promote"
    AUTO_ROLLBACK = "auto_rollback"


class Word(StrEnum):
    """The last verdict on a release on a channel."""

    GOOD = "good"
    BAD = "bad"


class Clearance(StrEnum):
    """What an operator decides about a halted rollout."""

    RESUME = "resume"  # retry failed and reverted hosts
    WAIVE = "waive"  # the named hosts no longer count
    ABANDON = "abandon"  # superseded, without a successor


class OverridableGate(StrEnum):
    """A gate that a person with the permission ``emergency`` can override, for one rollout."""

    EDGES = "edges"
    """What other channels must show first (`channel-edges`)."""
    FREEZE = "freeze"
    """The freezes that cover the channel."""
    HOLD = "hold"
    """The hold on the channel."""
    WINDOW = "window"
    """The maintenance windows that cover the channel."""
    START_AT = "start-at"
    """The time at which the rollout may start."""
    FRESHNESS = "freshness"
    """How old the evidence of the pin may be."""


NONE_PASSED: Final = frozenset[OverridableGate]()
ALL_PASSED: Final = frozenset(OverridableGate)
