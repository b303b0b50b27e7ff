"""The dispatcher: checks the gates of every open rollout and reserves the orders that may go.

    open rollouts ──▶ FleetState ──▶ survey ──▶ reserve_dispatch, in packs through the lane
                 └──▶ where no host waits: glance ──▶ change_gates
                                        ├────▶ skip_host       a host that need not be waited for
                                        ├────▶ change_gates    recorded only on change
                                        └────▶ cancel_dispatch orders that cannot be used

A pass only proposes orders. Each order is decided again on the current rows, in its rollout's lane.
So the orders of a second dispatcher, or of one that read stale rows, are refused. A rollout whose
own plan or rows are damaged is skipped and reported; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.fleet.reader import OWN, FleetReader, to_gate_fault
from tidegate.control.lanes import Lanes
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.channels import rows as channel_rows, stops
from tidegate.domain.gates import dispatch_pass, inputs
from tidegate.domain.hosts import rows as host_rows, slices as host_slices, states as host_states
from tidegate.domain.rollouts import (
    facts,
    names,
    order_slices,
    preconditions,
    rows as rollout_rows,
    skip_slices,
    slices as rollout_slices,
    states as rollout_states,
    tallies,
)
from tidegate.errors import Conflict, Gone, NotFound, Refused
from tidegate.kernel import model, slices as kernel_slices

ACTOR = model.Meta(actor="dispatcher")
ORDERS_MAX = 10_000  # of one rollout in one pass
AT_ONCE = 64  # in one commit, so that reports and polls of agents need not wait long

# The errors of a race with an agent, an operator or another dispatcher: the next pass retries.
LOST = (Refused, Conflict, NotFound, Gone)


class DispatchResult(Struct, frozen=True):
    """What one pass did."""

    rollouts: int = 0
    ordered: int = 0
    skipped: int = 0
    cancelled: int = 0
    lost: int = 0  # decisions that were refused because rows had changed
    faults: tuple[inputs.GateFault, ...] = ()  # rollouts that were skipped, or stopped halfway


class Dispatcher:
    """Makes passes over open rollouts. ``wake`` is called with every host that now has an order, or
    may now use the one that it has.
    """

    def __init__(
        self,
        lanes: Lanes,
        reader: FleetReader,
        clock: Clock,
        wake: Callable[[Sequence[str]], None] = lambda hosts: None,
    ) -> None:
        self._lanes = lanes
        self._reader = reader
        self._clock = clock
        self._wake = wake

    def run_pass(self, *, thorough: bool = False) -> DispatchResult:
        """Dispatch orders of the rollouts that wait for some, and check the gates of the other open
        ones. A thorough pass covers all rollouts, silent and late hosts, and orders that cannot be
        used.
        """
        ids = [row.rollout_id for row in self._reader.open_rollouts()]
        done = DispatchResult()
        if thorough:
            ids += self._terminal_rollouts(ids)
        else:
            ids, idle, done = self._wanting(ids)
            self._glance(idle)
        if not ids and not thorough:
            return done
        done = _summed(done, self._preempt(ids))
        state = self._reader.state(ids, self._clock(), late=thorough)
        done = _summed(done, DispatchResult(rollouts=len(ids), faults=tuple(state.faults.values())))
        if thorough:
            done = _summed(done, self._cancel(state))
        given = inputs.HandedOut()
        for rollout_id in ids:
            if rollout_id in state.faults:
                continue
            found = dispatch_pass.survey(state, rollout_id, given, ORDERS_MAX)
            given = found.given
            did = self._spared(rollout_id, partial(self._act, state, found, thorough))
            done = _summed(done, did)
        return done

    def _wanting(self, ids: Sequence[str]) -> tuple[list[str], list[str], DispatchResult]:
        """Split rollouts into those that wait for orders, the other active ones, and the faults of
        the rest.
        """
        wanting: list[str] = []
        idle: list[str] = []
        done = DispatchResult()

        def look(rollout_id: str) -> DispatchResult:
            tally = self._reader.tally(rollout_id).row
            if wants_orders(tally):
                wanting.append(rollout_id)
            elif tally.state in rollout_states.DISPATCHABLE:
                idle.append(rollout_id)
            return DispatchResult()

        for rollout_id in ids:
            done = _summed(done, self._spared(rollout_id, partial(look, rollout_id)))
        return wanting, idle, done

    def _glance(self, ids: Sequence[str]) -> None:
        """Record which gates of these rollouts closed or opened, though no host waits for an order.
        The next thorough pass finds what is wrong with any of them.
        """
        if not ids:
            return
        state = self._reader.glance(ids, self._clock())

        def look(rollout_id: str) -> DispatchResult:
            self._say_changes(dispatch_pass.survey_shared_gates(state, rollout_id), state)
            return DispatchResult()

        for rollout_id in state.rollouts:
            self._spared(rollout_id, partial(look, rollout_id))

    def _act(
        self, state: inputs.FleetState, found: inputs.Survey, thorough: bool
    ) -> DispatchResult:
        rollout_id = found.rollout_id
        done = self._order(rollout_id, found.orders)
        self._say_changes(found, state)
        if thorough:
            done = _summed(
                done, self._skip(rollout_id, dispatch_pass.next_skips(state, rollout_id))
            )
        return done

    def _spared(self, rollout_id: str, work: Callable[[], DispatchResult]) -> DispatchResult:
        """Run one rollout's part of a pass; its errors do not stop the others.

        Raises:
            Unavailable, Unknown: the store.
        """
        try:
            return work()
        except OWN as error:
            return DispatchResult(faults=(to_gate_fault(rollout_id, error),))

    def _terminal_rollouts(self, known: Iterable[str]) -> list[str]:
        """List the rollouts that late hosts join, and each channel's last completed one, which late
        hosts may still be joining.
        """
        channels = [seen.row for seen in self._reader.channels()]
        through = [
            *(row.terminal_rollout_id for row in channels),
            *(self._reader.late_target(row) for row in channels),
        ]
        return sorted({id for id in through if id is not None} - set(known))

    def _gates(self, rollout_id: str) -> rollout_rows.RolloutGates | None:
        found = self._reader.row(rollout_rows.gates_key(rollout_id), rollout_rows.RolloutGates)
        return None if found is None else found.row

    # ── decisions ──

    def _order(self, rollout_id: str, orders: Sequence[inputs.DueOrder]) -> DispatchResult:
        reports = [(order_slices.reserve_dispatch, _reservation(order)) for order in orders]
        landed, lost = self._record(rollout_id, reports)
        self._wake(
            [
                report.host_id
                for report in landed
                if isinstance(report, order_slices.ReserveDispatch)
            ]
        )
        return DispatchResult(ordered=len(landed), lost=lost)

    def _skip(self, rollout_id: str, skips: Sequence[inputs.Skip]) -> DispatchResult:
        reports = [
            (
                skip_slices.skip_host,
                skip_slices.SkipHost(
                    rollout_id=rollout_id, host_id=skip.host_id, wave=skip.wave, reason=skip.reason
                ),
            )
            for skip in skips
        ]
        landed, lost = self._record(rollout_id, reports)
        return DispatchResult(skipped=len(landed), lost=lost)

    def _cancel(self, state: inputs.FleetState) -> DispatchResult:
        """Cancel orders that cannot be used, which frees their hosts and budgets.

        These are unacknowledged orders of rollouts that stopped, of late hosts that cannot report
        or whose rollout was replaced, of hosts whose window is closed, and of hosts that rebooted
        into another target. For a halted rollout, also cancel orders that wait for a reboot.
        """
        orders: dict[str, list[str]] = {}
        for host_id, seen in state.orders.items():
            orders.setdefault(seen.row.rollout_id, []).append(host_id)
        for rollout_id, gate_input in state.rollouts.items():
            if gate_input.tally.row.halted_at is not None:
                orders.setdefault(rollout_id, []).extend(dispatch_pass.list_staged(gate_input))
        done = self._make_room(state)
        for rollout_id, hosts in orders.items():
            took = self._spared(rollout_id, partial(self._take_back, rollout_id, hosts))
            done = _summed(done, took)
        for rollout_id, hosts in list_unreachable(state).items():
            took = self._spared(rollout_id, partial(self._withdraw_late, rollout_id, hosts))
            done = _summed(done, took)
        for rollout_id in state.rollouts:
            hosts = dispatch_pass.list_outside_windows(state, rollout_id)
            took = self._spared(
                rollout_id, partial(self._withdraw, rollout_id, hosts, "its window is closed")
            )
            done = _summed(done, took)
        return done

    def _withdraw_late(self, rollout_id: str, hosts: Sequence[str]) -> DispatchResult:
        """Cancel the orders that late hosts among these have not acknowledged.

        No wave waits for a late host, so it is never skipped by itself. Its order would hold its
        budgets until the host comes back, which a retired one never does.
        """
        late = [row.host_id for row in self._late_orders(rollout_id, hosts)]
        return self._withdraw(rollout_id, late, "the host does not report")

    def _late_orders(self, rollout_id: str, hosts: Sequence[str]) -> list[inputs.HostStanding]:
        """Read the late hosts among these that have not acknowledged their order."""
        pending = host_states.HostState.PENDING
        late: list[inputs.HostStanding] = []
        for start in range(0, len(hosts), AT_ONCE):
            part = hosts[start : start + AT_ONCE]
            wanted = [(host_rows.record_key(rollout_id, id), inputs.HostStanding) for id in part]
            seen = [item.row for item in self._reader.many(*wanted) if item is not None]
            late += [row for row in seen if row.late and row.state is pending]
        return late

    def _preempt(self, ids: Sequence[str]) -> DispatchResult:
        """Free hosts for emergency rollbacks: hosts of the replaced rollouts that have not
        acknowledged their order, or only soak. A host that is switching finishes first.
        """
        urgent: dict[str, str] = {}
        for rollout_id in ids:
            tally = self._reader.tally(rollout_id).row
            if tally.emergency and wants_orders(tally):
                urgent[tally.channel] = rollout_id
        done = DispatchResult()
        if not urgent:
            return done
        held: dict[str, list[str]] = {}
        for seen in self._reader.rows(host_rows.HOST_ORDERS, host_rows.HostOrder):
            old = seen.row.rollout_id
            if urgent.get(names.channel_of(old), old) != old:
                held.setdefault(old, []).append(seen.row.host_id)
        for old, hosts in held.items():
            done = _summed(done, self._spared(old, partial(self._free, old, hosts)))
        return done

    def _free(self, rollout_id: str, hosts: Sequence[str]) -> DispatchResult:
        states: dict[host_states.HostState, list[str]] = {}
        for host_id in hosts:
            found = self._reader.row(
                host_rows.record_key(rollout_id, host_id), host_rows.HostRecord
            )
            if found is not None:
                states.setdefault(found.row.state, []).append(host_id)
        done = self._withdraw(
            rollout_id,
            states.get(host_states.HostState.PENDING, ()),
            "replaced by an emergency rollback",
        )
        reports = [
            (
                skip_slices.release_soaking_host,
                skip_slices.ReleaseSoakingHost(rollout_id=rollout_id, host_id=host_id),
            )
            for host_id in states.get(host_states.HostState.SOAKING, ())
        ]
        landed, lost = self._record(rollout_id, reports)
        return _summed(done, DispatchResult(skipped=len(landed), lost=lost))

    def _make_room(self, state: inputs.FleetState) -> DispatchResult:
        """Cancel orders that a host cannot accept, because it rebooted into another target."""
        done = DispatchResult()
        for host_id, back in state.rebooted.items():
            order = state.orders.get(host_id)
            if order is not None and order.row.rollout_id != back.rollout_id:
                reason = f"the host was rebooted into the target of {back.rollout_id}"
                did = self._withdraw(order.row.rollout_id, [host_id], reason)
                done = _summed(done, did)
        return done

    def _take_back(self, rollout_id: str, hosts: Sequence[str]) -> DispatchResult:
        tally = self._reader.tally(rollout_id).row
        reason = self._void(tally)
        if reason is None and tally.superseded_at is not None:
            reason = "the rollout was replaced"
            hosts = [
                row.host_id
                for row in self._late_orders(rollout_id, hosts)
                if tallies.is_late_order_void(tally, late=True, dispatched_at=row.dispatched_at)
            ]
        return DispatchResult() if reason is None else self._withdraw(rollout_id, hosts, reason)

    def _withdraw(self, rollout_id: str, hosts: Sequence[str], reason: str) -> DispatchResult:
        reports = [
            (
                host_slices.cancel_dispatch,
                host_slices.CancelDispatch(rollout_id=rollout_id, host_id=host_id, reason=reason),
            )
            for host_id in hosts
        ]
        landed, lost = self._record(rollout_id, reports)
        return DispatchResult(cancelled=len(landed), lost=lost)

    def _void(self, tally: rollout_rows.RolloutTally) -> str | None:
        """Return why acknowledgements of the rollout's orders are refused; None: they are accepted.

        A late host may find that its artifact was quarantined after the rollout completed.
        """
        if has_stopped(tally):
            return (
                "the rollout is halted"
                if tally.halted_at
                else f"the rollout {rollout_states.describe_rollout_state(tally.state)}"
            )
        if tally.terminal_at is not None and tallies.late_failures(tally):
            return "a host that came late failed"
        rows = [
            self._reader.row(key, stops.ChannelStops) for key in stops.stops_keys(tally.channel)
        ]
        now = self._clock()
        if not tallies.is_started(tally, now):
            return "the start was overridden, and the override is over"
        passed = tallies.list_passed(tally, now)
        if stops.is_stopped([None if seen is None else seen.row for seen in rows], now, passed):
            return "the channel is frozen or held"
        gates = self._gates(tally.rollout_id)
        if preconditions.shut_edge(gates, passed) is not None:
            return "a channel edge is shut"
        key = channel_rows.quarantine_key(tally.channel, tally.target_closure)
        if self._reader.row(key, channel_rows.Quarantined) is not None:
            return "its closure is quarantined"
        return None

    def _say_changes(self, found: inputs.Survey, state: inputs.FleetState) -> None:
        rollout_id = found.rollout_id
        changes = dispatch_pass.gate_changes(self._gates(rollout_id), found, state.at)
        self._say(rollout_id, changes)
        if any(item.gate in dispatch_pass.ASKED_AGAIN and not item.blocked for item in changes):
            orders = self._reader.rows(host_rows.HOST_ORDERS, host_rows.HostOrder)
            self._wake([item.row.host_id for item in orders if item.row.rollout_id == rollout_id])

    def _say(self, rollout_id: str, changes: Sequence[facts.GateChanged]) -> None:
        findings = tuple(
            rollout_slices.GateFinding(item.gate, item.blocked, item.reason) for item in changes
        )
        if findings:
            command = rollout_slices.ChangeGates(rollout_id=rollout_id, findings=findings)
            self._record(rollout_id, [(rollout_slices.change_gates, command)])

    def _record(
        self, rollout_id: str, reports: Sequence[tuple[kernel_slices.Slice, Struct]]
    ) -> tuple[list[Struct], int]:
        """Return the reports that led to facts, and how many were refused.

        Raises:
            Unavailable, Unknown: the store failed; the next pass reads the rows again.
        """
        landed: list[Struct] = []
        lost = 0
        for start in range(0, len(reports), AT_ONCE):
            pack = reports[start : start + AT_ONCE]
            futures = self._lanes.record_all(rollout_id, [(*report, ACTOR) for report in pack])
            for (_, report), future in zip(pack, futures, strict=True):
                outcome = _outcome(future)
                if outcome is None:
                    lost += 1
                elif outcome.facts:
                    landed.append(report)
        return landed, lost


def wants_orders(tally: rollout_rows.RolloutTally) -> bool:
    """Whether a due host has no order. This uses counters, so an idle rollout costs one read."""
    if tally.state not in rollout_states.DISPATCHABLE or tally.halted_at or tally.paused_at:
        return False
    due = tally.waves[: tally.current_wave + 1]
    return tally.attempt > 1 or any(wave.hosts > wave.joined + wave.left for wave in due)


def list_unreachable(state: inputs.FleetState) -> dict[str, list[str]]:
    """List the hosts that have an order and were retired or revoked, or are silent, by rollout."""
    found: dict[str, list[str]] = {}
    for host_id, order in state.orders.items():
        host = state.hosts.get(host_id)
        if host is None or not host.row.is_reachable:
            found.setdefault(order.row.rollout_id, []).append(host_id)
    return found


def has_stopped(tally: rollout_rows.RolloutTally) -> bool:
    """Whether the rollout's orders are void. A completed rollout still serves late hosts."""
    if tally.halted_at is not None:
        return True
    return tally.state not in rollout_states.DISPATCHABLE and tally.terminal_at is None


def _reservation(order: inputs.DueOrder) -> order_slices.ReserveDispatch:
    return order_slices.ReserveDispatch(
        rollout_id=order.rollout_id,
        host_id=order.host_id,
        target_closure=order.target_closure,
        wave=order.wave,
        policy=order.policy,
        attempt=order.attempt,
        budgets=order.budgets,
        late=order.late,
    )


def _outcome(future: Future[CommandOutcome]) -> CommandOutcome | None:
    try:
        return future.result()
    except LOST:
        return None


def _summed(one: DispatchResult, other: DispatchResult) -> DispatchResult:
    return DispatchResult(
        *(getattr(one, name) + getattr(other, name) for name in DispatchResult.__struct_fields__)
    )
