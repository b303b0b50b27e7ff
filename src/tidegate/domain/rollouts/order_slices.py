"""The order for one host: decided in the rollout's lane, on every row that could forbid it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.channels import rows as channel_rows, stops as channel_stops
from tidegate.domain.fleet.rows import host_key
from tidegate.domain.hosts import facts, refusals, rows as host_rows, states as host_states
from tidegate.domain.rollouts import names, preconditions, rows as rollout_rows, states, tallies
from tidegate.domain.windows.demands import demand_window
from tidegate.kernel import model, slices


class ReserveDispatch(Struct, frozen=True, kw_only=True):
    """Order one host of the plan to run the target."""

    rollout_id: str
    host_id: str
    target_closure: str
    wave: int
    policy: host_states.HostPolicy
    attempt: int = 1
    budgets: tuple[facts.BudgetSlot, ...] = ()
    late: bool = False


def rows_of_reservation(command: ReserveDispatch) -> tuple[model.Key, ...]:
    channel = names.channel_of(command.rollout_id)
    return (
        rollout_rows.tally_key(command.rollout_id),
        host_rows.record_key(command.rollout_id, command.host_id),
        host_rows.order_key(command.host_id),
        channel_rows.quarantine_key(channel, command.target_closure),
        host_key(command.host_id),
        *channel_stops.stops_keys(channel),
        *((channel_rows.channel_key(channel),) if command.late else ()),
    )


def decide_reservation(
    rows: tuple[Any, ...], command: ReserveDispatch, now: datetime
) -> Sequence[Struct]:
    """Order the host, or do nothing if it already has the order of this attempt or a later one.

    Raises:
        RolloutUnknown, RolloutIsPruned, RolloutIsSuperseded, RolloutNotDispatchable,
            RolloutIsHalted, RolloutIsPaused, WaveNotReached, ClosureQuarantined, WrongClosure:
            the rollout gives no orders now. ChannelFrozen, ChannelOnHold: nor does its channel.
        WindowClosed: a maintenance window keeps orders from the host.
        HostBusy: the host has another order.
    """
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record, order, quarantined, host, *stops = rows[1:7]
    if record is not None and command.attempt <= record.attempt:
        return ()
    late = command.late or (record is not None and (record.late or record.left is not None))
    preconditions.demand_under_way(tally, command.wave, now, late=late)
    preconditions.demand_retried(tally, command.host_id)
    if late:
        preconditions.demand_late_target(tally, rows[7] if command.late else None)
        preconditions.demand_proved(tally)
    else:
        preconditions.demand_turn(tally, command.wave)
        preconditions.demand_unskipped(tally, record, command.wave)
    if command.target_closure != tally.target_closure:
        raise refusals.WrongClosure(
            host_states.HostState.PENDING, command.target_closure, tally.target_closure
        )
    passed = tallies.list_passed(tally, now)
    channel_stops.demand_unstopped(tally.channel, stops, now, passed)
    if states.OverridableGate.WINDOW not in passed:
        demand_window(tally.channel, stops, host, command.policy, now)
    preconditions.demand_unquarantined(quarantined)
    if order is not None:
        raise refusals.HostBusy(order.host_id, order.rollout_id)
    return (
        facts.DispatchReserved(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            channel=tally.channel,
            target_closure=tally.target_closure,
            wave=command.wave,
            policy=command.policy,
            attempt=command.attempt,
            budgets=command.budgets,
            late=late,
        ),
    )


reserve_dispatch = slices.Slice(
    name="reserve-dispatch",
    command=ReserveDispatch,
    writes=(facts.DispatchReserved,),
    rows=rows_of_reservation,
    decide=decide_reservation,
)
SLICES = (reserve_dispatch,)
