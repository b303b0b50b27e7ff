"""The gates that an order passes, each a question of its own, in the order in which they are asked.

    halted            a host of the rollout failed; nothing goes out until somebody clears it
    dispatchable      the rollout is over, or was superseded
    paused            an operator paused the rollout
    freeze            nothing goes out on this channel for a while
    hold              the channel is held
    quarantine        some host rolled back from this release
    channel-edges     the release has not succeeded on a channel that comes first
    start-at          the time has not come at which the rollout starts
    window            a maintenance window keeps orders from the host now
    wave-promotion    a wave before the host's is not done; its delay runs; somebody must continue
                      it; or no wave takes the host
    host-edge         a host that comes first is not settled
    disruption-budget every slot of a budget is taken
    probe-failures    an enforced probe fails on a host of an earlier wave
    freshness         the evidence of the pin is too old
    host-busy         the host is busy with another order
    host-silent       nothing is heard of the host, or it has left the fleet

A question is answered from the frozen plan and the rows alone. What looks only at the rollout is
asked once per pass; the rest once per host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from tidegate.domain import provenance, times
from tidegate.domain.channels import ladder, rows as channel_rows
from tidegate.domain.fleet import budgets, rows as fleet_rows
from tidegate.domain.gates import edges, inputs
from tidegate.domain.hosts import facts, rows as host_rows, states as host_states
from tidegate.domain.releases.rows import ACTUAL, actual_key
from tidegate.domain.rollouts import (
    progress,
    rows as rollout_rows,
    states as rollout_states,
    tallies,
)
from tidegate.domain.windows import demands, evaluation, rows as window_rows, sentences

UNSTAGED = "wave-promotion-host-unstaged"


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


# ── the rollout ───────────────────────────────────────────────────────────────────────────────────


def halted(look: GateContext, host_id: str) -> Block | None:
    tally = look.tally
    if tally.halted_at is None:
        return None
    by = tally.halted_by
    if by is None:
        return Block("the rollout is halted", look.tallied())
    return Block(f"{by} failed", look.recorded(by) or look.tallied())


def dispatchable(look: GateContext, host_id: str) -> Block | None:
    tally = look.tally
    if host_id not in look.late:
        if not tallies.may_go(tally, host_id):
            tried = ", ".join(tally.retried)
            return Block(f"only hosts that failed are tried again now: {tried}", look.tallied())
        if tally.state in rollout_states.DISPATCHABLE:
            return None
        return Block(
            f"the rollout {rollout_states.describe_rollout_state(tally.state)}", look.tallied()
        )
    if tallies.late_failures(tally):
        return Block("a host that came late failed; it must be skipped first", look.tallied())
    return _late_blocked(look)


def _late_blocked(look: GateContext) -> Block | None:
    """Why no late host may join now."""
    tally = look.tally
    joins = look.state.channels.get(tally.channel)
    targets = () if joins is None else ladder.list_late_targets(joins.row)
    ids = [item if isinstance(item, str) else item.rollout_id for item in targets]
    if tally.rollout_id not in ids:
        newest = ids[0] if ids else "none yet"
        return Block(
            f"a late host joins the channel's newest success, {newest}",
            look.channelled(tally.channel),
        )
    if tally.outcome in rollout_states.BAD:
        return Block("the rollout failed, a late host waits for a success", look.tallied())
    if tally.terminal_at is None or tally.state not in rollout_states.ORDERED:
        return Block(
            f"the rollout {rollout_states.describe_rollout_state(tally.state)}, "
            "a late host waits for its end",
            look.tallied(),
        )
    if tallies.is_unproved(tally) and (look.late_given or tallies.late_under_way(tally)):
        return Block(
            f"no host ran {tally.target_ref} here yet; late hosts go one at a time until one "
            f"converged. To record a success: tidegate channel promote {tally.channel} "
            f"{tally.target_ref}",
            look.tallied(),
        )
    return None


def paused(look: GateContext, host_id: str) -> Block | None:
    if look.tally.paused_at is None:
        return None
    return Block(f"paused by {look.tally.paused_by or 'an operator'}", look.tallied())


def frozen(look: GateContext, host_id: str) -> Block | None:
    for seen in look.state.freezes:
        freeze = seen.row
        if _covers(freeze, look):
            return Block(
                f"freeze {freeze.freeze_id}{times.describe_end(freeze.until)}: {freeze.reason}",
                inputs.GateEvidence(channel_rows.FREEZES.name, freeze.freeze_id, seen.version),
            )
    return None


def _covers(freeze: channel_rows.Freeze, look: GateContext) -> bool:
    ours = not freeze.channels or look.tally.channel in freeze.channels
    return ours and (freeze.until is None or look.state.at < freeze.until)


def held(look: GateContext, host_id: str) -> Block | None:
    found = look.state.channels.get(look.tally.channel)
    if found is None or found.row.held_at is None:
        return None
    return Block(
        f"channel {found.row.channel} is held by {found.row.held_by}: {found.row.held_reason}",
        look.channelled(found.row.channel),
    )


def quarantined(look: GateContext, host_id: str) -> Block | None:
    found = look.sight.quarantined
    if found is None:
        return None
    row = found.row
    return Block(
        f"{look.tally.target_ref} is quarantined on {row.channel}: {row.reason} on {row.host_id}",
        inputs.GateEvidence(
            channel_rows.QUARANTINE.name,
            channel_rows.quarantine_key(row.channel, row.closure_hash).id,
            found.version,
        ),
    )


def channel_edges(look: GateContext, host_id: str) -> Block | None:
    """Every edge must be open; the first that is shut answers."""
    found = find_shut_edge(look)
    return None if found is None else Block(found.reason, found.evidence, until=found.until)


def find_shut_edge(look: GateContext) -> edges.EdgeVerdict | None:
    """What the first edge says that is shut; None: all are open."""
    return next((found for found in _edge_verdicts(look) if not found.passed), None)


def _edge_verdicts(look: GateContext) -> Iterator[edges.EdgeVerdict]:
    waits = edges.WaitingRelease(look.tally.channel, look.tally.target_ref)
    for edge in look.tally.edges:
        yield edges.judge_edge(edge, waits, look.sight.edges[edge.channel], look.state.at)


def not_started(look: GateContext, host_id: str) -> Block | None:
    """Late hosts wait too: a rollout may be over before its start, if all its waves were skipped
    or a person overrode this gate for it.
    """
    tally = look.tally
    if tally.start_at is None or look.state.at >= tally.start_at:
        return None
    return Block(
        f"starts at {times.describe_time(tally.start_at)}", look.tallied(), until=tally.start_at
    )


def window(look: GateContext, host_id: str) -> Block | None:
    """Allow and deny windows, in the host's own zone.

    Hosts of one class share their verdict and what is said of it. A sentence that names a host
    names the first of its class; ``list_blocked`` says it of each host.
    """
    if not look.windows:
        return None
    verdict = look.window_verdict(host_id)
    if verdict.is_open:
        return None
    known = look.window_blocks.get(id(verdict))
    if known is None:
        known = look.window_blocks[id(verdict)] = window_block(look, host_id, verdict)
    return known


def window_block(
    look: GateContext, host_id: str, verdict: evaluation.WindowVerdict, scope: str = ""
) -> Block:
    """What is said of a host whose windows are shut; with ``scope`` of all hosts like it."""
    assert verdict.by is not None
    id = verdict.by.window.window_id
    seen = next(item for item in look.state.windows if item.row.window_id == id)
    said = sentences.shut_text(
        verdict,
        look.state.at,
        look.tally.channel,
        host_id,
        scope=scope,
        need=look.need(host_id),
        reason=seen.row.reason,
    )
    return Block(
        said, inputs.GateEvidence(window_rows.WINDOWS.name, id, seen.version), until=verdict.until
    )


def stale(look: GateContext, host_id: str) -> Block | None:
    seconds = look.sight.chart.plan.policy.freshness_seconds
    if seconds is None:
        return None
    pin = look.sight.pin
    if pin is None or pin.row.pinned_release_id != look.tally.target_ref:
        return Block(
            f"nothing confirms that {look.tally.target_ref} is pinned on {look.tally.channel}",
            _pinned(look, host_id),
        )
    observed_at = pin.row.provenance.observed_at
    if look.state.at - provenance.moment(observed_at) <= timedelta(seconds=seconds):
        return None
    return Block(
        f"the pin's evidence was observed at {observed_at}, more than {seconds} s ago. Renew it: "
        f"tidegate channel promote {look.tally.channel} {look.tally.target_ref} --refresh",
        _pinned(look, host_id),
    )


def _pinned(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    pin = look.sight.pin
    if pin is None:
        return None
    return inputs.GateEvidence(ACTUAL.name, actual_key(pin.row.scope).id, pin.version)


# ── the host ──────────────────────────────────────────────────────────────────────────────────────


def wave_promotion(look: GateContext, host_id: str) -> Block | None:
    number = look.sight.chart.waves.get(host_id)
    if number is None:
        if host_id in look.late:
            return None
        return Block("no wave of the plan takes the host", look.tallied(), UNSTAGED)
    if host_id in look.late:
        return None
    if has_left_with_wave(look, host_id, number):
        name = progress.name_wave(look.tally, number)
        return Block(f"wave {name} was skipped, the host gets no order", look.tallied())
    if number <= look.reached:
        return None
    until = None
    own = progress.name_wave(look.tally, number)
    reason = f"wave {own} waits for wave {progress.name_wave(look.tally, max(look.reached, 0))}"
    if (going := next_to_go(look)) is not None:
        is_manual = tallies.waits_for_person(look.tally.waves[going])
        until = None if is_manual else tallies.next_wave_at(look.tally)
        hold = describe_hold(look, going)
        before = progress.name_wave(look.tally, going)
        reason = hold if number == going else f"wave {own} waits for wave {before}: {hold}"
    return Block(reason, look.tallied(), until=until)


def has_left_with_wave(look: GateContext, host_id: str, number: int) -> bool:
    """Whether an operator skipped the host's wave, and it has no order and is not tried again."""
    if not look.tally.waves[number].skipped:
        return False
    found = look.sight.standings.get(host_id)
    if found is None:
        return True
    return found.row.state is host_states.HostState.PENDING and not found.row.busy


def next_to_go(look: GateContext) -> int | None:
    """The wave that only time or a person keeps from going; None: hosts are waited for."""
    tally = look.tally
    if look.reached < 0:
        return 0
    if (
        tallies.next_wave(tally) is None
        or tally.done_at is None
        or look.reached < tally.current_wave
    ):
        return None
    return tally.current_wave + 1


def describe_hold(look: GateContext, number: int) -> str:
    """Why a wave does not go though those before it are done."""
    wave, name = look.tally.waves[number], progress.name_wave(look.tally, number)
    if tallies.waits_for_person(wave):
        return f"wave {name} waits for an operator to continue it"
    at = tallies.next_wave_at(look.tally)
    if at is None:
        return f"wave {name} waits until the rollout resumes"
    before = progress.name_wave(look.tally, look.tally.current_wave)
    after = sentences.span_text(timedelta(seconds=wave.delay_seconds))
    return f"wave {name} starts at {times.describe_time(at)}, {after} after wave {before} was done"


def host_edge(look: GateContext, host_id: str) -> Block | None:
    for before in look.sight.chart.before.get(host_id, ()):
        found = look.sight.standings.get(before)
        if found is None:
            return Block(f"waits for {before}, which has no order yet", look.tallied())
        # One that was waived or skipped left by an event: nobody waits for it any more.
        if found.row.state not in host_states.SETTLED and found.row.left is None:
            return Block(
                f"waits for {before}, which {host_states.describe_host_state(found.row.state)}",
                look.recorded(before),
            )
    return None


def disruption_budget(look: GateContext, host_id: str) -> Block | None:
    for slot in look.slots_of(host_id):
        found = look.state.budgets.get(slot.budget_id)
        assert found is not None, f"the state lacks budget {slot.budget_id}"
        allowed = budgets.current_bound(found.row, slot.slots)
        taken = found.row.in_flight + look.slots.get(slot.budget_id, 0)
        claimed = look.claims.get(slot.budget_id, 0)
        if allowed is not None and taken + claimed >= allowed:
            back = f"; {claimed} back from a reboot wait for a slot" if claimed else ""
            return Block(
                f"budget {slot.budget_id}: {taken} of {allowed} in flight{back}",
                inputs.GateEvidence(fleet_rows.BUDGETS.name, slot.budget_id, found.version),
            )
    return None


def probe_failures(look: GateContext, host_id: str) -> Block | None:
    found = look.failing
    if found is None or host_id in look.late:
        return None
    number = look.wave(host_id)
    if number is None or found.row.wave >= number:
        return None
    row = found.row
    return Block(
        f"probe {row.probe_name} fails on {row.host_id}, "
        f"of wave {progress.name_wave(look.tally, row.wave)}",
        inputs.GateEvidence(
            host_rows.PROBE_FAILURES.name,
            host_rows.probe_failure_id(row.rollout_id, row.host_id, row.probe_name),
            found.version,
        ),
    )


def busy(look: GateContext, host_id: str) -> Block | None:
    if host_id in look.hosts:
        return Block("the host gets another order in this very pass")
    back = look.state.rebooted.get(host_id)
    if back is not None:
        return Block(f"the host was rebooted into the target of {back.rollout_id}")
    found = look.state.orders.get(host_id)
    if found is None:
        return None
    return Block(
        f"the host is busy with {found.row.rollout_id}",
        inputs.GateEvidence(host_rows.HOST_ORDERS.name, host_id, found.version),
    )


def silent(look: GateContext, host_id: str) -> Block | None:
    found = look.state.hosts.get(host_id)
    if found is None:
        return Block("the fleet does not know the host")
    if found.row.status != fleet_rows.ENROLLED:
        return Block(f"the host is {found.row.status}", _enlisted(look, host_id))
    if found.row.silent_since is None:
        return None
    since = times.describe_time(found.row.silent_since)
    return Block(f"the host has not reported since {since}", _enlisted(look, host_id))


# ── what open gates stand on ──────────────────────────────────────────────────────────────────────


def _tallied(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.tallied()


def _channelled(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    return look.channelled(look.tally.channel)


def _edged(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    return next((found.evidence for found in _edge_verdicts(look)), None)


def _succeeded(look: GateContext, host_id: str) -> str:
    return "; ".join(found.reason for found in _edge_verdicts(look))


def _preceded(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    before = look.sight.chart.before.get(host_id, ())
    return look.recorded(before[-1]) if before else None


def _idle(look: GateContext, host_id: str) -> str:
    """The edges that the plan left out, because one of the two hosts has left."""
    idle = look.sight.chart.plan.idle_edges
    told = [edge for edge in idle if not host_id or edge.after == host_id]
    if not told:
        return ""
    first = f"the edge {told[0].before} → {told[0].after} has no effect, {told[0].reason}"
    return first if len(told) == 1 else f"{first}; so have {len(told) - 1} more"


def _budgeted(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    for slot in look.slots_of(host_id):
        if (found := look.state.budgets.get(slot.budget_id)) is not None:
            return inputs.GateEvidence(fleet_rows.BUDGETS.name, slot.budget_id, found.version)
    return None


def _enlisted(look: GateContext, host_id: str) -> inputs.GateEvidence | None:
    found = look.state.hosts.get(host_id)
    return (
        None
        if found is None
        else inputs.GateEvidence(fleet_rows.HOSTS.name, host_id, found.version)
    )


def _overridable(name: rollout_states.OverridableGate, gate: Gate) -> Gate:
    """The gate, open for a rollout that passes it; it then says who says so."""

    def blocks(look: GateContext, host_id: str) -> Block | None:
        if name in tallies.list_passed(look.tally, look.state.at):
            return None
        return gate.blocks(look, host_id)

    def adds(look: GateContext, host_id: str) -> str:
        if name not in tallies.list_passed(look.tally, look.state.at):
            return gate.adds(look, host_id)
        item = tallies.override_of(look.tally, name, look.state.at)
        return "an emergency rollback passes it" if item is None else describe_override(item)

    return replace(gate, blocks=blocks, adds=adds)


def describe_override(item: rollout_rows.GateOverride) -> str:
    return (
        f"overridden by {item.operator} at {times.describe_time(item.at)} {_override_end(item)}: "
        f"{item.reason}"
    )


def _override_end(item: rollout_rows.GateOverride) -> str:
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
    """Each override by which the rollout passes a gate now: a sentence, and when it ends."""
    found = [tallies.override_of(tally, gate, now) for gate in rollout_states.OverridableGate]
    return tuple((_sentence(tally, item), item.until) for item in found if item is not None)


def _sentence(tally: rollout_rows.RolloutTally, item: rollout_rows.GateOverride) -> str:
    what = f"{item.operator} overrode {_OVERRIDDEN[item.gate]} for {tally.target_ref}"
    return f"{what} {_override_end(item)}: {item.reason}"


GATES = (
    Gate("halted", halted, "no failure halts the rollout", stands_on=_tallied),
    Gate("dispatchable", dispatchable, "the rollout gives out orders", True, _tallied),
    Gate("paused", paused, "not paused", stands_on=_tallied),
    _overridable(
        rollout_states.OverridableGate.FREEZE,
        Gate("freeze", frozen, "no freeze holds the rollout back"),
    ),
    _overridable(
        rollout_states.OverridableGate.HOLD,
        Gate("hold", held, "no hold holds the rollout back", stands_on=_channelled),
    ),
    Gate("quarantine", quarantined, "the release is not quarantined here"),
    _overridable(
        rollout_states.OverridableGate.EDGES,
        Gate(
            "channel-edges",
            channel_edges,
            "no channel edge is shut",
            stands_on=_edged,
            adds=_succeeded,
        ),
    ),
    _overridable(
        rollout_states.OverridableGate.START_AT,
        Gate("start-at", not_started, "the rollout has started", stands_on=_tallied),
    ),
    _overridable(
        rollout_states.OverridableGate.WINDOW,
        Gate("window", window, "no maintenance window is shut for the host", True),
    ),
    Gate("wave-promotion", wave_promotion, "the host's wave has come", True, _tallied),
    Gate("host-edge", host_edge, "no host before it is under way", True, _preceded, _idle),
    Gate("disruption-budget", disruption_budget, "its budgets have a slot", True, _budgeted),
    Gate("probe-failures", probe_failures, "no probe fails in an earlier wave", True),
    _overridable(
        rollout_states.OverridableGate.FRESHNESS,
        Gate("freshness", stale, "the pin's evidence is fresh enough", stands_on=_pinned),
    ),
    Gate("host-busy", busy, "the host has no other order", True),
    Gate("host-silent", silent, "the host reports", True, _enlisted),
)
