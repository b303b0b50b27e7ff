"""Bugs to plant in the control plane, so that the simulation can show that it finds them.

``TIDEGATE_PLANTED_BUG`` names one; it is planted for the length of a ``with planted()``. Each is a
mistake that could really be made, and is complete: every check that would also have caught it is
removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as with_members
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tidegate.control import lanes
from tidegate.control.fleet import dispatch, reader
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.channels.facts import ChannelEdge, EdgeRequires
from tidegate.domain.fleet import folds as fleet
from tidegate.domain.fleet.rows import Budget
from tidegate.domain.gates import checks, context, dispatch_pass, explain, rollout_checks
from tidegate.domain.gates.edges import judge_edge
from tidegate.domain.hosts import activation, machine as hosts
from tidegate.domain.hosts.facts import DispatchAck, DispatchReserved, HostJoined
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import HostState
from tidegate.domain.hosts.transition_steps import due_in
from tidegate.domain.rollouts import (
    counted_state,
    host_steps,
    machine as rollouts,
    order_slices,
    preconditions,
    report_slices,
)
from tidegate.domain.rollouts.rows import ROLLOUTS, RolloutTally
from tidegate.kernel.model import Commit, Put, Receipt
from tidegate.simulate import control_plane

SWITCH = "TIDEGATE_PLANTED_BUG"

Patches = Sequence[tuple[object, str, Any]]


@contextmanager
def planted(name: str = "") -> Iterator[None]:
    """Plant this bug, or the one that the environment names; without either, change nothing.

    Raises:

        KeyError: there is no such bug.
    """
    name = name or os.environ.get(SWITCH, "")
    patches = BUGS[name]() if name else ()
    with ExitStack() as applied:
        for owner, attribute, value in patches:
            applied.enter_context(patch.object(owner, attribute, value))
        yield


def _for(owner: ModuleType, module: str, **changed: Any) -> tuple[object, str, Any]:
    """Replace some names of another module, for one module that uses them."""
    return owner, module, SimpleNamespace(**{**vars(getattr(owner, module)), **changed})


def view_in_a_second_transaction() -> Patches:
    """Write facts and records first, and the rows that operators read in a later transaction."""

    def land(self: lanes.Lanes, pack: Any) -> Receipt | None:
        pack.builder.demand_current(pack.doubtful)
        if not pack.builder.facts:
            return None
        whole = pack.builder.commit(Commit(pack.at, pack.meta))
        late = tuple(item for item in whole.writes if item.key.collection == ROLLOUTS.name)
        first = tuple(item for item in whole.writes if item not in late)
        receipt: Receipt = self._submit(replace(whole, writes=first)).result()
        if late:
            unstamped = tuple(replace(item, fact=None, born=None) for item in late)
            self._submit(Commit(pack.at, pack.meta, writes=unstamped)).result()
        return receipt

    return [(lanes.Lanes, "_land", land)]


def follow_ups_in_a_second_transaction() -> Patches:
    """Write a host's report first, and what the rollout derives from it in a later transaction."""

    def land(self: lanes.Lanes, pack: Any) -> Receipt | None:
        pack.builder.demand_current(pack.doubtful)
        if not pack.builder.facts:
            return None
        whole = pack.builder.commit(Commit(pack.at, pack.meta))
        late = tuple(item for item in whole.writes if getattr(item, "fact", 0) > 0)
        first = tuple(item for item in whole.writes if item not in late)
        late = tuple(replace(item, born=None) if isinstance(item, Put) else item for item in late)
        receipt: Receipt = self._submit(
            replace(whole, facts=whole.facts[:1], writes=first)
        ).result()
        if whole.facts[1:]:
            moved = tuple(replace(item, fact=item.fact - 1) for item in late)
            self._submit(replace(whole, facts=whole.facts[1:], writes=moved)).result()
        return receipt

    return [(lanes.Lanes, "_land", land)]


def acknowledge_before_commit() -> Patches:
    """Answer the agent that its report was accepted before it is written."""
    land = lanes.Lanes._land

    def answered_first(self: lanes.Lanes, pack: Any) -> Receipt | None:
        for report in pack.reports:
            if report.error is None:
                report.future.set_result(CommandOutcome(report.facts, None, report.answer))
        return land(self, pack)

    def said_already(self: lanes.Lanes, lane: Any, pack: Any, receipt: Receipt | None) -> None:
        lane.known.clear()
        for report in pack.reports:
            if report.error is not None:
                report.future.set_exception(report.error)

    return [(lanes.Lanes, "_land", answered_first), (lanes.Lanes, "_answer", said_already)]


def duplicate_check_removed() -> Patches:
    """Accept a repeated report a second time."""
    return [*repeat_refused(), (hosts, "_demand_next", lambda record, event: None)]


def repeat_refused() -> Patches:
    """Refuse a repeat of an accepted report, so that its agent can never continue."""

    def decide(rows: Any, command: report_slices.ReportEvent, now: datetime) -> Sequence[Any]:
        tally, record, *others = rows
        forgetful = None if record is None else replace(record, last_event_seq=0)
        return report_slices.decide_report((tally, forgetful, *others), command, now)

    forgetful = with_members(report_slices.report_event, decide=decide)
    return [_for(control_plane, "report_slices", report_event=forgetful)]


def cursor_moved_by_joins() -> Patches:
    """Advance to the next wave when all hosts of a wave have their order."""
    join = host_steps.join

    def moving(tally: RolloutTally, event: Any, now: datetime) -> Any:
        after, effects = join(tally, event, now)
        wave = after.waves[after.current_wave]
        last = len(after.waves) - 1
        if not event.late and wave.joined + wave.left >= wave.hosts:
            after = replace(after, current_wave=min(after.current_wave + 1, last))
        return after, effects

    return [(rollouts, "_STEPS", {**rollouts._STEPS, HostJoined: moving})]


def wave_passed_for_good() -> Patches:
    """Never check a wave again that the cursor has passed: a host that waited for its reboot then
    may fail, and be retried together with later waves.
    """
    return [
        _for(context, "tallies", reached=lambda tally: tally.current_wave),
        (preconditions, "demand_turn", lambda tally, wave: None),
    ]


def soak_from_open() -> Patches:
    """Measure the soak from the order, not from the time at which the target runs."""
    activated = activation._activate

    def early(record: HostRecord, at: datetime, now: datetime, *, assumed: bool) -> Any:
        after, effects = activated(record, at, now, assumed=assumed)
        due_at = due_in(record.dispatched_at, record.policy.soak_seconds)
        return replace(after, soak_due_at=due_at), effects

    return [(activation, "_activate", early)]


def quarantine_not_loaded() -> Patches:
    """Write rows of quarantine and never read them."""
    sight = reader.FleetReader._gate_input

    def blind(self: reader.FleetReader, rollout_id: str, *, hosts: bool) -> Any:
        return with_members(sight(self, rollout_id, hosts=hosts), quarantined=None)

    return [
        (reader.FleetReader, "_gate_input", blind),
        (preconditions, "demand_unquarantined", lambda row: None),
    ]


def halted_still_dispatching() -> Patches:
    """Send orders after a host failed, as if nothing had happened."""
    under_way = preconditions.demand_under_way

    def unhalted(tally: RolloutTally, wave: int, now: datetime, *, late: bool) -> None:
        under_way(replace(tally, halted_at=None), wave, now, late=late)

    def wanting(tally: RolloutTally) -> bool:
        return wants_orders(replace(tally, halted_at=None))

    wants_orders = dispatch.wants_orders
    open_gates = tuple(gate for gate in checks.GATES if gate.name != "halted")
    return [
        _for(dispatch_pass, "checks", GATES=open_gates),
        (dispatch, "wants_orders", wanting),
        (preconditions, "demand_under_way", unhalted),
        (counted_state, "demand_unhalted", lambda tally, event: None),
    ]


def budget_without_reservations() -> Patches:
    """Count a slot as taken when its order is acknowledged; until then others may take it too."""

    def reserved(budget: Budget, fact: DispatchReserved) -> Budget:
        return replace(budget, in_flight=budget.in_flight + 1)

    def counting(look: context.GateContext, host_id: str) -> context.Block | None:
        standings = (seen.row for seen in look.rollout.standings.values())
        reserved = sum(row.busy and row.state is HostState.PENDING for row in standings)
        for slot in look.slots_of(host_id):
            taken = look.state.budgets[slot.budget_id].row.in_flight - reserved
            if taken >= slot.slots:
                return context.Block(f"budget {slot.budget_id}: {taken} in flight")
        return None

    gates = tuple(
        with_members(gate, blocks=counting) if gate.name == "disruption-budget" else gate
        for gate in checks.GATES
    )
    return [(fleet, "_reserved", reserved), _for(dispatch_pass, "checks", GATES=gates)]


# ── one layer of several ──────────────────────────────────────────────────────────────────────────

# Before an order is sent, the gates are checked and then the rows. With one of the two removed the
# other still holds, so nothing bad happens: these bugs are found by comparing the two.


def _without(name: str) -> Patches:
    """Remove a gate."""
    left = tuple(gate for gate in checks.GATES if gate.name != name)
    return [_for(room, "checks", GATES=left) for room in (dispatch_pass, explain)]


def quarantine_not_seen_by_gates() -> Patches:
    """The gates read an empty set; the rows are right."""
    blind, _ = quarantine_not_loaded()
    return [blind]


def quarantine_not_seen_by_rows() -> Patches:
    """Only the gates check quarantines."""
    _, unchecked = quarantine_not_loaded()
    return [unchecked]


def halt_not_seen_by_gates() -> Patches:
    """The gates pass orders of a halted rollout."""
    return _without("halted")


def halt_not_seen_by_rows() -> Patches:
    """A dispatcher that read before the failure sends orders after it."""
    return list(halted_still_dispatching()[2:])


def budget_not_seen_by_gates() -> Patches:
    """The gates pass more orders than a budget allows."""
    return _without("disruption-budget")


def budget_not_seen_by_rows() -> Patches:
    """Two dispatchers take the same slot."""
    reserved, _ = budget_without_reservations()
    return [reserved]


def freeze_not_seen_by_gates() -> Patches:
    """The gates pass orders of a frozen channel."""
    return _without("freeze")


def stops_not_seen_by_rows() -> Patches:
    """A dispatcher that read before a freeze or a hold sends orders after it."""
    return [
        _for(room, "channel_stops", demand_unstopped=lambda *given: None)
        for room in (report_slices, order_slices)
    ]


def stops_not_seen_at_the_acknowledgement() -> Patches:
    """An order that was handed out before a freeze or a hold is used during it."""

    def blind(rows: Any, command: report_slices.ReportEvent, now: datetime) -> Any:
        acknowledged = isinstance(command.event, DispatchAck)
        seen = (*rows[:5], None, None) if acknowledged else rows
        return report_slices.decide_report(seen, command, now)

    unseeing = with_members(report_slices.report_event, decide=blind)
    return [_for(control_plane, "report_slices", report_event=unseeing)]


def wave_not_seen_by_gates() -> Patches:
    """The gates pass hosts of every wave."""
    return _without("wave-promotion")


def wave_not_seen_by_rows() -> Patches:
    """A host gets its order although the command names the wrong wave."""
    dispatchable = preconditions._demand_dispatchable

    def anyway(tally: RolloutTally, wave: int) -> None:
        dispatchable(tally, min(wave, tally.current_wave))

    return [
        (preconditions, "_demand_dispatchable", anyway),
        (preconditions, "demand_turn", lambda tally, wave: None),
        *_joins_anyway(),
    ]


def _joins_anyway() -> Patches:
    join = host_steps.join

    def anyway(tally: RolloutTally, event: Any, now: datetime) -> Any:
        return join(tally, replace(event, wave=min(event.wave, tally.current_wave)), now)

    return [(rollouts, "_STEPS", {**rollouts._STEPS, HostJoined: anyway})]


def edge_opened_by_an_idle_channel() -> Patches:
    """An earlier channel passes every release as soon as nothing is under way there."""

    def idle(edge: ChannelEdge, *looks_at: Any) -> Any:
        return judge_edge(replace(edge, require=EdgeRequires.IDLE), *looks_at)

    return [_for(rollout_checks, "edges", judge_edge=idle)]


BUGS: Mapping[str, Callable[[], Patches]] = {
    bug.__name__: bug
    for bug in (
        view_in_a_second_transaction,
        follow_ups_in_a_second_transaction,
        acknowledge_before_commit,
        duplicate_check_removed,
        repeat_refused,
        cursor_moved_by_joins,
        wave_passed_for_good,
        soak_from_open,
        quarantine_not_loaded,
        halted_still_dispatching,
        budget_without_reservations,
        quarantine_not_seen_by_gates,
        quarantine_not_seen_by_rows,
        halt_not_seen_by_gates,
        halt_not_seen_by_rows,
        budget_not_seen_by_gates,
        budget_not_seen_by_rows,
        freeze_not_seen_by_gates,
        stops_not_seen_by_rows,
        stops_not_seen_at_the_acknowledgement,
        wave_not_seen_by_gates,
        wave_not_seen_by_rows,
        edge_opened_by_an_idle_channel,
    )
}
