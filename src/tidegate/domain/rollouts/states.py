"""The words of a rollout: its states and outcomes, and how an operator clears a halted one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RolloutState(StrEnum):
    """Where a rollout stands."""

    OPENING = "Opening"  # no host has its order yet
    ACTIVE = "Active"  # some host of the waves so far is not settled
    CONVERGING = "Converging"  # all of them are; later waves remain, or some reboot
    TERMINAL = "Terminal"  # every host converged
    REVERTED = "Reverted"  # a host rolled back, none is in flight on the target
    FAILED = "Failed"  # a host failed and did not go back
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
    """A state as people say it in a sentence: ``the rollout …``."""
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
ORDERED: Final = frozenset({RolloutState.TERMINAL, RolloutState.SUPERSEDED})  # releases edges


class Outcome(StrEnum):
    """How a rollout ended. It has none while it is open, and keeps the one it got."""

    SUCCEEDED = "succeeded"  # a planned host converged
    EMPTY = "empty"  # no host ran it, and none failed
    FAILED = "failed"  # it ended halted, or every host that tried gave up
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
    """What was last said of a release on a channel."""

    GOOD = "good"
    BAD = "bad"


class Clearance(StrEnum):
    """What an operator decides about a halted rollout."""

    RESUME = "resume"  # failed and reverted hosts are tried again
    WAIVE = "waive"  # the named hosts leave the count
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
