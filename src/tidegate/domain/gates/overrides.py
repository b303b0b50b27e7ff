"""Gates that a rollout passes because a person overrode them, or as an emergency rollback."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tidegate.domain import times
from tidegate.domain.gates import context
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states, tallies


def make_overridable(name: rollout_states.OverridableGate, gate: context.Gate) -> context.Gate:
    """Return the gate so that it opens for a rollout that overrides it, and says who did."""

    def blocks(look: context.GateContext, host_id: str) -> context.Block | None:
        if name in tallies.list_passed(look.tally, look.state.at):
            return None
        return gate.blocks(look, host_id)

    def add(look: context.GateContext, host_id: str) -> str:
        if name not in tallies.list_passed(look.tally, look.state.at):
            return gate.add(look, host_id)
        item = tallies.override_of(look.tally, name, look.state.at)
        return "an emergency rollback passes it" if item is None else describe_override(item)

    return replace(gate, blocks=blocks, add=add)


def describe_override(item: rollout_rows.GateOverride) -> str:
    return (
        f"overridden by {item.operator} at {times.describe_time(item.at)} {_describe_end(item)}: "
        f"{item.reason}"
    )


def _describe_end(item: rollout_rows.GateOverride) -> str:
    if item.until is None:
        return "until the rollout ends"
    return f"until {times.describe_time(item.until)}"


_OVERRIDDEN = {
    rollout_states.OverridableGate.EDGES: "its edges",
    rollout_states.OverridableGate.FREEZE: "freezes",
    rollout_states.OverridableGate.HOLD: "the hold",
    rollout_states.OverridableGate.WINDOW: "maintenance windows",
    rollout_states.OverridableGate.START_AT: "its start time",
    rollout_states.OverridableGate.FRESHNESS: "the age of its evidence",
}


def list_overrides(
    tally: rollout_rows.RolloutTally, now: datetime
) -> tuple[tuple[str, datetime | None], ...]:
    """Return a sentence for each override that is in force, and when it ends."""
    found = [tallies.override_of(tally, gate, now) for gate in rollout_states.OverridableGate]
    return tuple(
        (_describe_for_rollout(tally, item), item.until) for item in found if item is not None
    )


def _describe_for_rollout(tally: rollout_rows.RolloutTally, item: rollout_rows.GateOverride) -> str:
    what = f"{item.operator} overrode {_OVERRIDDEN[item.gate]} for {tally.target_ref}"
    return f"{what} {_describe_end(item)}: {item.reason}"
