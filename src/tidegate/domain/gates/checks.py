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


def _cite_tally(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.cite_tally()


def _cite_channel(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.cite_channel(look.tally.channel)


def _cite_edge(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    return next((found.evidence for found in rollout_checks.list_edge_verdicts(look)), None)


def _describe_edges(look: context.GateContext, host_id: str) -> str:
    return "; ".join(found.reason for found in rollout_checks.list_edge_verdicts(look))


def _cite_earlier_host(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    before = look.rollout.chart.before.get(host_id, ())
    return look.cite_record(before[-1]) if before else None


def _describe_idle_edges(look: context.GateContext, host_id: str) -> str:
    """Describe the edges that the plan omits because one of the two hosts has left."""
    idle = look.rollout.chart.plan.idle_edges
    shown = [edge for edge in idle if not host_id or edge.after == host_id]
    if not shown:
        return ""
    first = f"the edge {shown[0].before} → {shown[0].after} has no effect, {shown[0].reason}"
    return first if len(shown) == 1 else f"{first}; so have {len(shown) - 1} more"


def _cite_budget(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    for slot in look.slots_of(host_id):
        if (found := look.state.budgets.get(slot.budget_id)) is not None:
            return inputs.GateEvidence(fleet_rows.BUDGETS.name, slot.budget_id, found.version)
    return None


# ── all gates ─────────────────────────────────────────────────────────────────────────────────────


GATES = (
    Gate("halted", rollout_checks.check_halt, "no failure halts the rollout", cite=_cite_tally),
    Gate(
        "dispatchable",
        rollout_checks.check_state,
        "the rollout gives out orders",
        True,
        _cite_tally,
    ),
    Gate("paused", rollout_checks.check_pause, "not paused", cite=_cite_tally),
    overrides.make_overridable(
        OverridableGate.FREEZE,
        Gate("freeze", rollout_checks.check_freeze, "no freeze holds the rollout back"),
    ),
    overrides.make_overridable(
        OverridableGate.HOLD,
        Gate(
            "hold", rollout_checks.check_hold, "no hold holds the rollout back", cite=_cite_channel
        ),
    ),
    Gate("quarantine", rollout_checks.check_quarantine, "the release is not quarantined here"),
    overrides.make_overridable(
        OverridableGate.EDGES,
        Gate(
            "channel-edges",
            rollout_checks.check_edges,
            "no channel edge is shut",
            cite=_cite_edge,
            add=_describe_edges,
        ),
    ),
    overrides.make_overridable(
        OverridableGate.START_AT,
        Gate("start-at", rollout_checks.check_start, "the rollout has started", cite=_cite_tally),
    ),
    overrides.make_overridable(
        OverridableGate.WINDOW,
        Gate(
            "window", host_checks.check_window, "no maintenance window is shut for the host", True
        ),
    ),
    Gate("wave-promotion", host_checks.check_wave, "the host's wave has come", True, _cite_tally),
    Gate(
        "host-edge",
        host_checks.check_host_edges,
        "no host before it is under way",
        True,
        _cite_earlier_host,
        _describe_idle_edges,
    ),
    Gate(
        "disruption-budget",
        host_checks.check_budgets,
        "its budgets have a slot",
        True,
        _cite_budget,
    ),
    Gate("probe-failures", host_checks.check_probes, "no probe fails in an earlier wave", True),
    overrides.make_overridable(
        OverridableGate.FRESHNESS,
        Gate(
            "freshness",
            rollout_checks.check_freshness,
            "the pin's evidence is fresh enough",
            cite=rollout_checks.cite_pin,
        ),
    ),
    Gate("host-busy", host_checks.check_busy, "the host has no other order", True),
    Gate("host-silent", host_checks.check_silence, "the host reports", True, host_checks.cite_host),
)
