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
    """Why a gate is shut, and the row that says so."""

    reason: str
    evidence: inputs.GateEvidence | None = None
    gate: str = ""  # where it is told apart from the gate's own name
    until: datetime | None = None  # when it opens by itself


@dataclass(slots=True)
class GateContext:
    """One pass's view of a rollout, and what it has handed out so far."""

    state: inputs.FleetState
    sight: inputs.GateInput
    tally: rollout_rows.RolloutTally = field(init=False)
    reached: int = field(init=False)  # the last wave that gets orders
    late: dict[str, tuple[facts.BudgetSlot, ...]] = field(init=False)  # latecomer → its budgets
    failing: inputs.Versioned[host_rows.ProbeFailure] | None = field(
        init=False
    )  # of the earliest wave
    windows: evaluation.WindowView = field(
        init=False
    )  # of the channel; none if the rollout passes them
    window_blocks: dict[int, Block] = field(default_factory=dict)  # by the id of a verdict
    needs: dict[int, timedelta] = field(default_factory=dict)  # by wave
    late_given: int = 0  # orders for late hosts, of this pass
    slots: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)  # budget → hosts back from a reboot
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tally = self.sight.tally.row
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
            self.sight.chart.plan.package,
            self.state.at,
        )
        self.late = {host.host_id: host.budgets for host in self.sight.latecomers}
        counted = [found for found in self.sight.failures if not self._left(found.row.host_id)]
        self.failing = min(
            counted, key=lambda found: (found.row.wave, found.row.host_id), default=None
        )

    def wave(self, host_id: str) -> int | None:
        """The host's wave; None: no wave takes it."""
        return self.sight.chart.waves.get(host_id)

    def need(self, host_id: str) -> timedelta | None:
        """How long the host's windows must stay open; None: it need not fit into them."""
        plan = self.sight.chart.plan
        if not plan.policy.must_fit:
            return None
        wave = self.sight.chart.waves.get(host_id, max(len(plan.waves) - 1, 0))
        known = self.needs.get(wave)
        if known is None:
            known = demands.need_of(plan.host_policy(wave)) or timedelta()
            self.needs[wave] = known
        return known

    def window_verdict(self, host_id: str) -> evaluation.WindowVerdict:
        """What the maintenance windows say of the host."""
        found = self.state.hosts.get(host_id)
        labels = {} if found is None else found.row.labels
        return self.windows.judge(host_id, labels, self.need(host_id))

    def slots_of(self, host_id: str) -> tuple[facts.BudgetSlot, ...]:
        """The budgets that an order for this host takes a slot of."""
        late = self.late.get(host_id)
        return self.sight.chart.slots_of(host_id) if late is None else late

    def tallied(self) -> inputs.GateEvidence:
        return inputs.GateEvidence(
            rollout_rows.TALLIES.name, self.tally.rollout_id, self.sight.tally.version
        )

    def recorded(self, host_id: str) -> inputs.GateEvidence | None:
        found = self.sight.standings.get(host_id)
        if found is None:
            return None
        return inputs.GateEvidence(
            host_rows.HOST_RECORDS.name,
            host_rows.record_id(self.tally.rollout_id, host_id),
            found.version,
        )

    def channelled(self, channel: str) -> inputs.GateEvidence | None:
        found = self.state.channels.get(channel)
        return (
            None
            if found is None
            else inputs.GateEvidence(channel_rows.CHANNELS.name, channel, found.version)
        )

    def _left(self, host_id: str) -> bool:
        found = self.sight.standings.get(host_id)
        return found is not None and found.row.left is not None


Blocks = Callable[[GateContext, str], Block | None]
StandsOn = Callable[[GateContext, str], inputs.GateEvidence | None]
Adds = Callable[[GateContext, str], str]


@dataclass(frozen=True, slots=True)
class Gate:
    """A question, whether its answer is the same for all hosts, and what to say when it is open."""

    name: str
    blocks: Blocks
    open: str
    per_host: bool = False
    stands_on: StandsOn = lambda look, host_id: None
    adds: Adds = lambda look, host_id: ""  # to what it says; of no host: of all
