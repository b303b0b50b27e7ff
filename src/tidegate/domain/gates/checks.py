"""All gates of an order, in the order in which they are asked.

    halted            a host of the rollout failed; no order goes out until an operator clears it
    dispatchable      the rollout is over, or was superseded
    paused            an operator paused the rollout
    freeze            a freeze covers this channel
    hold              the channel is held
    quarantine        a host rolled back from this release
    channel-edges     the release has not succeeded on a channel that comes first
    start-at          the rollout's start time has not come
    window            a maintenance window keeps orders from the host now
    wave-promotion    an earlier wave is not done; its delay is running; an operator must continue
                      the wave; or the host is in no wave
    host-edge         a host that comes first is not done
    disruption-budget every slot of a budget is taken
    probe-failures    an enforced probe fails on a host of an earlier wave
    freshness         the evidence of the pin is too old
    host-busy         the host is busy with another order
    host-silent       the host has not reported for a while, or has left the fleet

The frozen plan and the rows alone decide. A gate that depends only on the rollout is asked once per
pass, the others once per host.
"""

from __future__ import annotations

from tidegate.domain.fleet import rows as fleet_rows
from tidegate.domain.gates import context, host_checks, inputs, overrides, rollout_checks
from tidegate.domain.gates.context import Gate
from tidegate.domain.rollouts.states import OverridableGate

# ── the evidence for open gates ───────────────────────────────────────────────────────────────────


def _tallied(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.tallied()


def _channelled(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.channelled(look.tally.channel)


def _edged(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return next((found.evidence for found in rollout_checks.list_edge_verdicts(look)), None)


def _succeeded(look: context.GateContext, host_id: str) -> str:
    return "; ".join(found.reason for found in rollout_checks.list_edge_verdicts(look))


def _preceded(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    before = look.sight.chart.before.get(host_id, ())
    return look.recorded(before[-1]) if before else None


def _idle(look: context.GateContext, host_id: str) -> str:
    """Describe the edges that the plan omits because one of the two hosts has left."""
    idle = look.sight.chart.plan.idle_edges
    told = [edge for edge in idle if not host_id or edge.after == host_id]
    if not told:
        return ""
    first = f"the edge {told[0].before} → {told[0].after} has no effect, {told[0].reason}"
    return first if len(told) == 1 else f"{first}; so have {len(told) - 1} more"


def _budgeted(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    for slot in look.slots_of(host_id):
        if (found := look.state.budgets.get(slot.budget_id)) is not None:
            return inputs.GateEvidence(fleet_rows.BUDGETS.name, slot.budget_id, found.version)
    return None


# ── all gates ─────────────────────────────────────────────────────────────────────────────────────


GATES = (
    Gate("halted", rollout_checks.halted, "no failure halts the rollout", stands_on=_tallied),
    Gate(
        "dispatchable", rollout_checks.dispatchable, "the rollout gives out orders", True, _tallied
    ),
    Gate("paused", rollout_checks.paused, "not paused", stands_on=_tallied),
    overrides.make_overridable(
        OverridableGate.FREEZE,
        Gate("freeze", rollout_checks.frozen, "no freeze holds the rollout back"),
    ),
    overrides.make_overridable(
        OverridableGate.HOLD,
        Gate("hold", rollout_checks.held, "no hold holds the rollout back", stands_on=_channelled),
    ),
    Gate("quarantine", rollout_checks.quarantined, "the release is not quarantined here"),
    overrides.make_overridable(
        OverridableGate.EDGES,
        Gate(
            "channel-edges",
            rollout_checks.channel_edges,
            "no channel edge is shut",
            stands_on=_edged,
            adds=_succeeded,
        ),
    ),
    overrides.make_overridable(
        OverridableGate.START_AT,
        Gate("start-at", rollout_checks.not_started, "the rollout has started", stands_on=_tallied),
    ),
    overrides.make_overridable(
        OverridableGate.WINDOW,
        Gate("window", host_checks.window, "no maintenance window is shut for the host", True),
    ),
    Gate("wave-promotion", host_checks.wave_promotion, "the host's wave has come", True, _tallied),
    Gate(
        "host-edge", host_checks.host_edge, "no host before it is under way", True, _preceded, _idle
    ),
    Gate(
        "disruption-budget",
        host_checks.disruption_budget,
        "its budgets have a slot",
        True,
        _budgeted,
    ),
    Gate("probe-failures", host_checks.probe_failures, "no probe fails in an earlier wave", True),
    overrides.make_overridable(
        OverridableGate.FRESHNESS,
        Gate(
            "freshness",
            rollout_checks.stale,
            "the pin's evidence is fresh enough",
            stands_on=rollout_checks.find_pin_evidence,
        ),
    ),
    Gate("host-busy", host_checks.busy, "the host has no other order", True),
    Gate(
        "host-silent", host_checks.silent, "the host reports", True, host_checks.find_host_evidence
    ),
)
