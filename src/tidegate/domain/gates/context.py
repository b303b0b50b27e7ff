"""What a gate looks at, and what it answers.

A ``GateContext`` is one pass's view of a rollout. A ``Gate`` asks one question of it and returns
a ``Block`` if it is shut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from tidegate.domain.channels import rows as channel_rows
from tidegate.domain.gates import inputs
from tidegate.domain.hosts import facts, rows as host_rows
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states, tallies
from tidegate.domain.windows import demands, evaluation


class Block(NamedTuple):
    """Why a gate is shut, and the row that decides it."""

    reason: str
    evidence: inputs.GateEvidence | None = None
    gate: str = ""  # a more specific name; empty: the gate's own name
    until: datetime | None = None  # when it opens by itself


@dataclass(slots=True)
class GateContext:
    """One pass's view of a rollout, and what the pass has handed out so far."""

    state: inputs.FleetState
    rollout: inputs.GateInput
    tally: rollout_rows.RolloutTally = field(init=False)
    reached: int = field(init=False)  # the last wave that gets orders
    late: dict[str, tuple[facts.BudgetSlot, ...]] = field(init=False)  # late host → its budgets
    failing: inputs.Versioned[host_rows.ProbeFailure] | None = field(
        init=False
    )  # the open one of the earliest wave
    windows: evaluation.WindowView = field(
        init=False
    )  # of the channel; none if they are overridden
    window_blocks: dict[int, Block] = field(default_factory=dict)  # by the id of a verdict object
    needs: dict[int, timedelta] = field(default_factory=dict)  # by wave
    late_given: int = 0  # orders of this pass for late hosts
    slots: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)  # budget → hosts back from a reboot
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tally = self.rollout.tally.row
        self.reached = tallies.reached(self.tally)
        for host in self.state.rebooted.values():
            for slot in host.budgets:
                self.claims[slot.budget_id] = self.claims.get(slot.budget_id, 0) + 1
        passes = rollout_states.OverridableGate.WINDOW in tallies.list_passed(
            self.tally, self.state.at
        )
        self.windows = evaluation.WindowView(
            [] if passes else [seen.row for seen in self.state.windows],
            self.tally.channel,
            self.rollout.chart.plan.package,
            self.state.at,
        )
        self.late = {host.host_id: host.budgets for host in self.rollout.latecomers}
        counted = [
            found for found in self.rollout.failures if not self._has_left(found.row.host_id)
        ]
        self.failing = min(
            counted, key=lambda found: (found.row.wave, found.row.host_id), default=None
        )

    def wave(self, host_id: str) -> int | None:
        """Return the host's wave; None: the host is in no wave."""
        return self.rollout.chart.waves.get(host_id)

    def need(self, host_id: str) -> timedelta | None:
        """Return how long the host's windows must stay open; None: the update need not fit."""
        plan = self.rollout.chart.plan
        if not plan.policy.must_fit:
            return None
        wave = self.rollout.chart.waves.get(host_id, max(len(plan.waves) - 1, 0))
        known = self.needs.get(wave)
        if known is None:
            known = demands.need_of(plan.host_policy(wave)) or timedelta()
            self.needs[wave] = known
        return known

    def window_verdict(self, host_id: str) -> evaluation.WindowVerdict:
        """Judge the host's maintenance windows."""
        found = self.state.hosts.get(host_id)
        labels = {} if found is None else found.row.labels
        return self.windows.judge(host_id, labels, self.need(host_id))

    def slots_of(self, host_id: str) -> tuple[facts.BudgetSlot, ...]:
        """Return the budgets of which an order for this host takes a slot."""
        late = self.late.get(host_id)
        return self.rollout.chart.slots_of(host_id) if late is None else late

    def cite_tally(self) -> inputs.GateEvidence:
        return inputs.GateEvidence(
            rollout_rows.TALLIES.name, self.tally.rollout_id, self.rollout.tally.version
        )

    def cite_record(self, host_id: str) -> inputs.GateEvidence | None:
        found = self.rollout.standings.get(host_id)
        if found is None:
            return None
        return inputs.GateEvidence(
            host_rows.HOST_RECORDS.name,
            host_rows.record_id(self.tally.rollout_id, host_id),
            found.version,
        )

    def cite_channel(self, channel: str) -> inputs.GateEvidence | None:
        found = self.state.channels.get(channel)
        return (
            None
            if found is None
            else inputs.GateEvidence(channel_rows.CHANNELS.name, channel, found.version)
        )

    def _has_left(self, host_id: str) -> bool:
        found = self.rollout.standings.get(host_id)
        return found is not None and found.row.left is not None


Blocks = Callable[[GateContext, str], Block | None]
Cite = Callable[[GateContext, str], inputs.GateEvidence | None]
Add = Callable[[GateContext, str], str]


@dataclass(frozen=True, slots=True)
class Gate:
    """One question about an order.

    ``per_host`` is false where the answer is the same for all hosts. ``open`` and ``add`` make the
    sentence of an open gate, and ``cite`` returns its evidence.
    """

    name: str
    blocks: Blocks
    open: str
    per_host: bool = False
    cite: Cite = lambda look, host_id: None
    add: Add = lambda look, host_id: ""  # appended to ``open``; no host id: for all hosts
