"""What agents report into a rollout, and the orders that go out: decided on record and tally.

    report_event       an agent's report; a repeat is nothing, a gap is told the expected number
    reserve_dispatch   an order for one host
    observe_host       what a heartbeat says is running
    skip_host          a host that nobody hears of leaves

All of them run in the rollout's lane. A report is recorded whatever the rollout's state, but for an
acknowledgement: it starts a switch, so it needs a rollout that goes on, on a channel that nothing
stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from msgspec import Struct, structs

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels import (
    refusals as channel_refusals,
    rows as channel_rows,
    stops as channel_stops,
)
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.hosts import (
    facts,
    orders,
    refusals as host_refusals,
    report_json,
    rows as host_rows,
    states as host_states,
)
from tidegate.domain.rollouts import (
    names,
    progress,
    rows as rollout_rows,
    states as rollout_states,
    tallies,
)
from tidegate.domain.times import describe_time
from tidegate.domain.windows.demands import demand_window
from tidegate.errors import IllegalTransition, InvalidInput
from tidegate.kernel import model, slices

REASON_BYTES_MAX = 512
EDGES = "channel-edges"  # the gate
PREEMPTED = "replaced by an emergency rollback"
RECOVERABLE = frozenset({host_states.HostState.ACTIVATING, host_states.HostState.DEFERRED})
SKIPPABLE = frozenset({host_states.HostState.PENDING, host_states.HostState.DEFERRED})
RETRIED = frozenset(
    {host_states.HostState.FAILED, host_states.HostState.REVERTED}
)  # after a resume

Report = tuple[rollout_rows.RolloutTally | None, host_rows.HostRecord | None]
Acknowledged = tuple[
    rollout_rows.RolloutTally | None,
    host_rows.HostRecord | None,
    channel_rows.Quarantined | None,
    rollout_rows.RolloutGates | None,
    Host | None,
    channel_stops.ChannelStops | None,
    channel_stops.ChannelStops | None,
]
Reserved = tuple[
    rollout_rows.RolloutTally | None,
    host_rows.HostRecord | None,
    host_rows.HostOrder | None,
    channel_rows.Quarantined | None,
    Host | None,
    channel_stops.ChannelStops | None,
    channel_stops.ChannelStops | None,
]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class ReportEvent(Struct, frozen=True, kw_only=True):
    """What the agent of a host says. ``domain.hosts.report_json`` reads the event from JSON."""

    rollout_id: str
    host_id: str
    event: facts.AgentEvent


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


class ObserveHost(Struct, frozen=True, kw_only=True):
    """A heartbeat says what runs on the host."""

    rollout_id: str
    host_id: str
    current_closure: str


class SkipHost(Struct, frozen=True, kw_only=True):
    """Go on without this host: nobody hears of it."""

    rollout_id: str
    host_id: str
    wave: int
    reason: str


class ReleaseSoakingHost(Struct, frozen=True, kw_only=True):
    """Free a host that soaks in a rollout which an emergency rollback replaced."""

    rollout_id: str
    host_id: str


class SkipHostByHand(Struct, frozen=True, kw_only=True):
    """Go on without this host, because an operator says so."""

    rollout_id: str
    host_id: str
    wave: int
    operator: str
    reason: str
    expected_version: int | None = None  # of the rollout's row


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


def rows_of_report(command: ReportEvent) -> tuple[model.Key, ...]:
    rows = (
        rollout_rows.tally_key(command.rollout_id),
        host_rows.record_key(command.rollout_id, command.host_id),
    )
    match command.event:
        case facts.DispatchAck(target_closure=target):
            channel = names.channel_of(command.rollout_id)
            gates = rollout_rows.gates_key(command.rollout_id)
            host = host_key(command.host_id)  # its labels choose its windows
            return (
                *rows,
                channel_rows.quarantine_key(channel, target),
                gates,
                host,
                *channel_stops.stops_keys(channel),
            )
        case facts.Converged() | facts.ActivationCompleted():
            # It goes, or comes again after a reboot: read with the others, not alone.
            return (*rows, host_rows.order_key(command.host_id))
        case _:
            return rows


def decide_report(
    rows: Acknowledged
    | tuple[
        rollout_rows.RolloutTally | None, host_rows.HostRecord | None, host_rows.HostOrder | None
    ]
    | Report,
    command: ReportEvent,
    now: datetime,
) -> Sequence[Struct]:
    """The report itself, or nothing if it is a repeat. What it does is the machine's to say.

    Raises:
        RolloutUnknown, HostNotInRollout, RolloutIsPruned: nobody to report to.
        RolloutIsSuperseded, RolloutIsHalted, …: an acknowledgement that comes too late.
        ChannelFrozen, ChannelOnHold: an acknowledgement on a channel that is stopped.
        WindowClosed: an acknowledgement outside of the host's maintenance windows.
        InvalidInput, LimitExceeded: no report, or of another host.
    """
    event = command.event
    report_json.check_event(event)
    if event.host_id != command.host_id:
        raise host_refusals.WrongHost(command.host_id, event.host_id)
    if event.rollout_id != command.rollout_id:
        raise InvalidInput(
            f"{command.host_id} of {command.rollout_id} reports of "
            f"{event.host_id} of {event.rollout_id}",
            field="host_id",
        )
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is None:
        raise host_refusals.HostNotInRollout(command.rollout_id, command.host_id)
    if event.seq <= record.last_event_seq:
        return ()
    if not isinstance(event, facts.DispatchAck):
        _demand_order(tally, record)
        if (
            isinstance(event, facts.ActivationCompleted)
            and record.state is host_states.HostState.DEFERRED
        ):
            _demand_free(tally, rows[-1])
    else:
        _demand_under_way(tally, record.wave, now, late=record.late)
        _demand_retried(tally, record.host_id)
        assert len(rows) == 7, "what rows_of_report names for an acknowledgement"
        _, _, quarantined, gates, host, *stops = rows
        passed = tallies.list_passed(tally, now)
        channel_stops.demand_unstopped(tally.channel, stops, now, passed)
        if rollout_states.OverridableGate.WINDOW not in passed:
            demand_window(tally.channel, stops, host, record.policy, now)
        if (reason := shut_edge(gates, passed)) is not None:
            raise channel_refusals.EdgeClosed(tally.channel, reason)
        _demand_unquarantined(quarantined)
    return (_completed(event, record),)


def _demand_order(tally: rollout_rows.RolloutTally, record: host_rows.HostRecord) -> None:
    """That the host may report on its order still. A halted rollout takes the orders of hosts back
    that wait for a reboot; until that is done, their reports wait.
    """
    if record.cancelled_at is not None:
        raise host_refusals.OrderCancelled(record.rollout_id, record.host_id)
    if _is_taken_back(tally, record):
        raise host_refusals.RolloutIsHalted(
            f"{tally.rollout_id} is halted; the order of {record.host_id} is taken back",
            rollout_id=tally.rollout_id,
            state=record.state.value,
        )


def _demand_free(tally: rollout_rows.RolloutTally, order: object) -> None:
    """That a host which is back from its reboot can take its order again. A rollout that was
    replaced gives way to the host's newer order; otherwise the report waits.
    """
    if not isinstance(order, host_rows.HostOrder):
        return
    if tally.state is rollout_states.RolloutState.SUPERSEDED:
        raise host_refusals.RolloutIsSuperseded(
            f"{tally.rollout_id} is superseded",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    raise host_refusals.HostBusy(order.host_id, order.rollout_id)


def _is_taken_back(tally: rollout_rows.RolloutTally, record: host_rows.HostRecord) -> bool:
    """Whether the dispatcher will take its order back."""
    is_halted = tally.halted_at is not None and tally.state in rollout_states.OPEN
    counts = record.left is None and not record.late
    return is_halted and counts and record.state is host_states.HostState.DEFERRED


def shut_edge(
    gates: rollout_rows.RolloutGates | None,
    passed: frozenset[rollout_states.OverridableGate] = rollout_states.NONE_PASSED,
) -> str | None:
    """Why an edge is shut, as the last pass found it; None: it is not, or does not count."""
    if rollout_states.OverridableGate.EDGES in passed:
        return None
    blocked = () if gates is None else gates.blocked
    return next((gate.reason for gate in blocked if gate.gate == EDGES), None)


def demand_tally(
    tally: rollout_rows.RolloutTally | None, rollout_id: str
) -> rollout_rows.RolloutTally:
    """Raises: RolloutUnknown, RolloutIsPruned."""
    if tally is None:
        raise host_refusals.RolloutUnknown(rollout_id)
    if tally.state is rollout_states.RolloutState.PRUNED:
        raise host_refusals.RolloutIsPruned(
            f"{rollout_id} is past its retention", rollout_id=rollout_id
        )
    return tally


def _demand_under_way(
    tally: rollout_rows.RolloutTally, wave: int, now: datetime, *, late: bool
) -> None:
    """That a switch may start now. A late host follows the rollout that it joined, to its end."""
    said = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state is rollout_states.RolloutState.SUPERSEDED and not late:
        raise host_refusals.RolloutIsSuperseded(f"{tally.rollout_id} is superseded", **said)
    if tally.halted_at is not None:
        detail = f"{tally.rollout_id} is halted since {describe_time(tally.halted_at)}"
        raise host_refusals.RolloutIsHalted(detail, **said)
    if tally.paused_at is not None:
        detail = f"{tally.rollout_id} is paused since {describe_time(tally.paused_at)}"
        raise host_refusals.RolloutIsPaused(detail, **said)
    if late:
        _demand_over(tally)
    else:
        _demand_dispatchable(tally, wave)
    _demand_started(tally, now)


def _demand_started(tally: rollout_rows.RolloutTally, now: datetime) -> None:
    """That the rollout may start, or a person with the permission emergency says so."""
    if not tallies.is_started(tally, now):
        assert tally.start_at is not None
        raise host_refusals.WaveNotReached(
            f"{tally.rollout_id} starts at {describe_time(tally.start_at)}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_retried(tally: rollout_rows.RolloutTally, host_id: str) -> None:
    """That the host is among those that an operator has tried again, if there are such."""
    if not tallies.may_go(tally, host_id):
        raise host_refusals.RolloutIsHalted(
            f"{tally.rollout_id} is halted; only {', '.join(tally.retried)} may be tried again",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_dispatchable(tally: rollout_rows.RolloutTally, wave: int) -> None:
    _demand_open(tally, wave, rollout_states.DISPATCHABLE)


def _demand_open(
    tally: rollout_rows.RolloutTally,
    wave: int,
    states: frozenset[rollout_states.RolloutState] = rollout_states.OPEN,
) -> None:
    """That the rollout is in one of these states, and has reached the wave."""
    said = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state not in states:
        raise host_refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {rollout_states.describe_rollout_state(tally.state)}", **said
        )
    if wave > tally.current_wave:
        current, own = (
            progress.name_wave(tally, tally.current_wave),
            progress.name_wave(tally, wave),
        )
        detail = f"{tally.rollout_id} is at wave {current}, the host goes with wave {own}"
        raise host_refusals.WaveNotReached(detail, **said)


def _demand_turn(tally: rollout_rows.RolloutTally, wave: int) -> None:
    """That no host of an earlier wave is unsettled, though the cursor has passed it. Only orders
    wait for that: one that is out holds slots of budgets, which the earlier host may need.
    """
    reached = tallies.reached(tally)
    if wave > reached:
        raise host_refusals.WaveNotReached(
            f"wave {progress.name_wave(tally, max(reached, 0))} of {tally.rollout_id} is not done; "
            f"the host belongs to wave {progress.name_wave(tally, wave)}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_proved(tally: rollout_rows.RolloutTally) -> None:
    """That late hosts get what a host converged on; else they go one at a time."""
    if tallies.is_unproved(tally) and tallies.late_under_way(tally):
        raise host_refusals.RolloutNotDispatchable(
            f"no host ran {tally.target_ref} in {tally.rollout_id} yet; late hosts go one at a "
            "time until one converged",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_unskipped(
    tally: rollout_rows.RolloutTally, record: host_rows.HostRecord | None, wave: int
) -> None:
    """That the host did not leave with its wave. One that failed before is tried again."""
    if _left_with_wave(tally, record, wave):
        raise host_refusals.WaveNotReached(
            f"wave {progress.name_wave(tally, wave)} of {tally.rollout_id} was skipped",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _left_with_wave(
    tally: rollout_rows.RolloutTally, record: host_rows.HostRecord | None, wave: int
) -> bool:
    """Whether an operator skipped the host's wave while it had no order, or its order was taken
    back since.
    """
    if wave >= len(tally.waves) or not tally.waves[wave].skipped:
        return False
    return record is None or (
        record.state is host_states.HostState.PENDING
        and record.cancelled_at is not None
        and not record.late
    )


def _demand_over(tally: rollout_rows.RolloutTally) -> None:
    """A host that came after the plan joins when the plan is through, and while no other such host
    failed: nothing else protects them, there are no waves.
    """
    if tallies.late_failures(tally):
        raise host_refusals.LateHostFailed(
            f"a host that came late failed in {tally.rollout_id}; skip it, or promote a fix",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.outcome in rollout_states.BAD:
        raise host_refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} failed; hosts outside its plan get no release that failed",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.terminal_at is None or tally.state not in rollout_states.ORDERED:
        raise host_refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {rollout_states.describe_rollout_state(tally.state)}; "
            "hosts outside its plan wait until it is done",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_unquarantined(row: channel_rows.Quarantined | None) -> None:
    if row is not None:
        raise host_refusals.ClosureQuarantined(
            f"{row.closure_hash} is quarantined on {row.channel} since "
            f"{describe_time(row.quarantined_at)}",
            channel=row.channel,
            closure_hash=row.closure_hash,
            rollout_id=row.rollout_id,
        )


def _completed(event: facts.AgentEvent, record: host_rows.HostRecord) -> facts.AgentEvent:
    """The report with what only the control plane can say; a host that left says it of nobody."""
    match event:
        case facts.RollbackComplete() | facts.RollbackFailed():
            counts = record.left is None
            channel = record.channel if counts else ""
            target = record.target_closure if counts else ""
            return structs.replace(event, channel=channel, target_closure=target)
        case facts.ProbeResult():
            return structs.replace(event, wave=record.wave)
        case _:
            return event


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def rows_of_reservation(command: ReserveDispatch) -> tuple[model.Key, ...]:
    channel = names.channel_of(command.rollout_id)
    return (
        rollout_rows.tally_key(command.rollout_id),
        host_rows.record_key(command.rollout_id, command.host_id),
        host_rows.order_key(command.host_id),
        channel_rows.quarantine_key(channel, command.target_closure),
        host_key(command.host_id),
        *channel_stops.stops_keys(channel),
    )


def decide_reservation(rows: Reserved, command: ReserveDispatch, now: datetime) -> Sequence[Struct]:
    """The order, or nothing if the host has that of this attempt or a later one.

    Raises:
        RolloutUnknown, RolloutIsPruned, RolloutIsSuperseded, RolloutNotDispatchable,
            RolloutIsHalted, RolloutIsPaused, WaveNotReached, ClosureQuarantined, WrongClosure:
            the rollout orders nobody now. ChannelFrozen, ChannelOnHold: nor does its channel.
        WindowClosed: a maintenance window keeps orders from the host.
        HostBusy: the host has another order.
    """
    tally = demand_tally(rows[0], command.rollout_id)
    _, record, order, quarantined, host, *stops = rows
    if record is not None and command.attempt <= record.attempt:
        return ()
    late = command.late or (record is not None and (record.late or record.left is not None))
    _demand_under_way(tally, command.wave, now, late=late)
    _demand_retried(tally, command.host_id)
    if late:
        _demand_proved(tally)
    else:
        _demand_turn(tally, command.wave)
        _demand_unskipped(tally, record, command.wave)
    if command.target_closure != tally.target_closure:
        raise host_refusals.WrongClosure(
            host_states.HostState.PENDING, command.target_closure, tally.target_closure
        )
    passed = tallies.list_passed(tally, now)
    channel_stops.demand_unstopped(tally.channel, stops, now, passed)
    if rollout_states.OverridableGate.WINDOW not in passed:
        demand_window(tally.channel, stops, host, command.policy, now)
    _demand_unquarantined(quarantined)
    if order is not None:
        raise host_refusals.HostBusy(order.host_id, order.rollout_id)
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


# ── what is seen without a report ─────────────────────────────────────────────────────────────────


def decide_observation(rows: Report, command: ObserveHost, now: datetime) -> Sequence[Struct]:
    """What a heartbeat means, if it means something. Raises: RolloutUnknown, RolloutIsPruned.

    It never converges a host: an activation that was not heard of soaks from here. A host that
    converged and runs something else regressed, unless its channel went on.
    """
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is None:
        return ()
    on_target = command.current_closure == record.target_closure
    if on_target and record.state in RECOVERABLE and not _is_taken_back(tally, record):
        return (
            facts.RecoveryActivationAssumed(
                rollout_id=command.rollout_id,
                host_id=command.host_id,
                at=now,
                observed_current_closure=command.current_closure,
            ),
        )
    drifted = record.state is host_states.HostState.CONVERGED and not on_target
    if (
        drifted
        and record.regressed_at is None
        and tally.state is not rollout_states.RolloutState.SUPERSEDED
    ):
        return (
            facts.HostRegressed(
                rollout_id=command.rollout_id,
                host_id=command.host_id,
                at=now,
                reason="drift",
                observed_current_closure=command.current_closure,
            ),
        )
    return ()


def decide_skip(rows: Report, command: SkipHost, now: datetime) -> Sequence[Struct]:
    """Raises: RolloutUnknown, RolloutIsPruned, WaveNotReached, InvalidInput.

    IllegalTransition: the host is under way, so its deadlines run, or failed, so it is waived
        unless it waits to be tried again.
    """
    model.check_text("a reason", command.reason, REASON_BYTES_MAX)
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is not None and record.left is not None:
        return ()
    if record is not None and not _is_waiting(record, tally):
        raise _unskippable(record)
    wave = command.wave if record is None else record.wave
    _demand_open(tally, wave)
    if _left_with_wave(tally, record, wave):
        return ()
    return (
        facts.HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=wave,
            state=None if record is None else orders.counted_as(record),
            reason=command.reason,
            channel=tally.channel,
            target_closure=tally.target_closure,
            rollback_failed=record is not None and record.rollback_failed,
        ),
    )


def decide_release(rows: Report, command: ReleaseSoakingHost, now: datetime) -> Sequence[Struct]:
    """No facts where the host moved on since somebody looked. Raises: RolloutUnknown,
    RolloutIsPruned, RolloutNotDispatchable: the rollout was not replaced.
    """
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if tally.state is not rollout_states.RolloutState.SUPERSEDED:
        raise host_refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {rollout_states.describe_rollout_state(tally.state)}; "
            "its hosts finish their soak",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if record is None or record.left is not None or not record.busy:
        return ()
    if record.state is not host_states.HostState.SOAKING:
        return ()
    return (
        facts.HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=record.wave,
            state=host_states.HostState.SOAKING,
            reason=PREEMPTED,
            channel=tally.channel,
            target_closure=tally.target_closure,
            late=record.late,
        ),
    )


def rows_of_skip_by_hand(command: SkipHostByHand) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    names.check_rollout_id(command.rollout_id)
    check_operator(command.operator, command.reason)
    return (
        rollout_rows.tally_key(command.rollout_id),
        host_rows.record_key(command.rollout_id, command.host_id),
        rollout_rows.rollout_key(command.rollout_id),
    )


def decide_skip_by_hand(
    rows: tuple[
        rollout_rows.RolloutTally | None, host_rows.HostRecord | None, rollout_rows.Rollout | None
    ],
    command: SkipHostByHand,
    now: datetime,
) -> Sequence[Struct]:
    """As ``decide_skip``, also of a host whose wave has not come, and of a late one that failed.

    Raises:
        RolloutUnknown, RolloutIsPruned, RolloutNotDispatchable: the rollout is over.
        HostUnderWay: the host runs its order. IllegalTransition: it converged, or failed and is
            cleared instead.
    """
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is not None and record.left is not None:
        return ()
    if record is not None:
        _demand_skippable(record, tally)
    late = record is not None and record.late
    if not late:
        _demand_open(tally, 0)
    if _left_with_wave(tally, record, command.wave if record is None else record.wave):
        return ()
    return (
        facts.HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=command.wave if record is None else record.wave,
            state=None if record is None else orders.counted_as(record),
            reason=command.reason,
            channel=tally.channel,
            target_closure=tally.target_closure,
            rollback_failed=record is not None and record.rollback_failed,
            operator=command.operator,
            late=late,
        ),
    )


def _demand_skippable(record: host_rows.HostRecord, tally: rollout_rows.RolloutTally) -> None:
    rolls_back = record.state is host_states.HostState.FAILED and record.due_at is not None
    if record.state in _DOING or rolls_back:
        doing = _DOING.get(record.state, "rolling back")
        raise host_refusals.HostUnderWay(record.host_id, doing, record.due_at)
    skippable = record.state in RETRIED if record.late else _is_waiting(record, tally)
    if not skippable:
        raise _unskippable(record)


def _unskippable(record: host_rows.HostRecord) -> IllegalTransition:
    how = f"{record.host_id} {host_states.describe_host_state(record.state)}"
    says = f"{how} in {record.rollout_id}, so there is nothing to skip"
    if record.state in RETRIED:
        says = f"{how} in {record.rollout_id}: waive it, or retry it"
    return IllegalTransition("host", record.state, "a skip", says)


_DOING = {host_states.HostState.ACTIVATING: "switching", host_states.HostState.SOAKING: "soaking"}


def _is_waiting(record: host_rows.HostRecord, tally: rollout_rows.RolloutTally) -> bool:
    """Whether nothing runs on the host, nor is anybody asked to clear it. One that failed in this
    very attempt halts the rollout.
    """
    going = tally.halted_at is None and tallies.may_go(tally, record.host_id)
    retried = record.attempt < tally.attempt and going
    return record.state in SKIPPABLE or (record.state in RETRIED and retried)


def _tally_and_record(
    command: ObserveHost | SkipHost | ReleaseSoakingHost,
) -> tuple[model.Key, ...]:
    return rollout_rows.tally_key(command.rollout_id), host_rows.record_key(
        command.rollout_id, command.host_id
    )


report_event = slices.Slice(
    name="report-event",
    command=ReportEvent,
    writes=get_args(facts.AgentEvent),
    rows=rows_of_report,
    decide=decide_report,
)
reserve_dispatch = slices.Slice(
    name="reserve-dispatch",
    command=ReserveDispatch,
    writes=(facts.DispatchReserved,),
    rows=rows_of_reservation,
    decide=decide_reservation,
)
observe_host = slices.Slice(
    name="observe-host",
    command=ObserveHost,
    writes=(facts.RecoveryActivationAssumed, facts.HostRegressed),
    rows=_tally_and_record,
    decide=decide_observation,
)
release_soaking_host = slices.Slice(
    name="release-soaking-host",
    command=ReleaseSoakingHost,
    writes=(facts.HostSkipped,),
    rows=_tally_and_record,
    decide=decide_release,
)
skip_host_by_hand = slices.Slice(
    name="skip-host-by-hand",
    command=SkipHostByHand,
    writes=(facts.HostSkipped,),
    rows=rows_of_skip_by_hand,
    expects=lambda command: (
        {}
        if command.expected_version is None
        else {rollout_rows.rollout_key(command.rollout_id): command.expected_version}
    ),
    decide=decide_skip_by_hand,
)
skip_host = slices.Slice(
    name="skip-host",
    command=SkipHost,
    writes=(facts.HostSkipped,),
    rows=_tally_and_record,
    decide=decide_skip,
)
SLICES = (
    report_event,
    reserve_dispatch,
    observe_host,
    skip_host,
    skip_host_by_hand,
    release_soaking_host,
)
