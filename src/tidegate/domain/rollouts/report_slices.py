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

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels.refusals import EdgeClosed
from tidegate.domain.channels.rows import Quarantined, quarantine_key
from tidegate.domain.channels.stops import ChannelStops, demand_unstopped, stops_keys
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    AgentEvent,
    BudgetSlot,
    Converged,
    DispatchAck,
    DispatchReserved,
    HostRegressed,
    HostSkipped,
    ProbeResult,
    RecoveryActivationAssumed,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.domain.hosts.orders import counted_as
from tidegate.domain.hosts.refusals import (
    ClosureQuarantined,
    HostBusy,
    HostNotInRollout,
    HostUnderWay,
    LateHostFailed,
    OrderCancelled,
    RolloutIsHalted,
    RolloutIsPaused,
    RolloutIsPruned,
    RolloutIsSuperseded,
    RolloutNotDispatchable,
    RolloutUnknown,
    WaveNotReached,
    WrongClosure,
    WrongHost,
)
from tidegate.domain.hosts.report_json import check_event
from tidegate.domain.hosts.rows import HostOrder, HostRecord, order_key, record_key
from tidegate.domain.hosts.states import HostPolicy, HostState, describe_host_state
from tidegate.domain.rollouts import tallies
from tidegate.domain.rollouts.names import channel_of, check_rollout_id
from tidegate.domain.rollouts.progress import name_wave
from tidegate.domain.rollouts.rows import (
    Rollout,
    RolloutGates,
    RolloutTally,
    gates_key,
    rollout_key,
    tally_key,
)
from tidegate.domain.rollouts.states import (
    BAD,
    DISPATCHABLE,
    NONE_PASSED,
    OPEN,
    ORDERED,
    OverridableGate,
    RolloutState,
    describe_rollout_state,
)
from tidegate.domain.windows.demands import demand_window
from tidegate.errors import IllegalTransition, InvalidInput
from tidegate.kernel.model import Key, check_text
from tidegate.kernel.slices import Slice

REASON_BYTES_MAX = 512
EDGES = "channel-edges"  # the gate
PREEMPTED = "replaced by an emergency rollback"
RECOVERABLE = frozenset({HostState.ACTIVATING, HostState.DEFERRED})
SKIPPABLE = frozenset({HostState.PENDING, HostState.DEFERRED})
RETRIED = frozenset({HostState.FAILED, HostState.REVERTED})  # after a resume

Report = tuple[RolloutTally | None, HostRecord | None]
Acknowledged = tuple[
    RolloutTally | None,
    HostRecord | None,
    Quarantined | None,
    RolloutGates | None,
    Host | None,
    ChannelStops | None,
    ChannelStops | None,
]
Reserved = tuple[
    RolloutTally | None,
    HostRecord | None,
    HostOrder | None,
    Quarantined | None,
    Host | None,
    ChannelStops | None,
    ChannelStops | None,
]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class ReportEvent(Struct, frozen=True, kw_only=True):
    """What the agent of a host says. ``domain.hosts.report_json`` reads the event from JSON."""

    rollout_id: str
    host_id: str
    event: AgentEvent


class ReserveDispatch(Struct, frozen=True, kw_only=True):
    """Order one host of the plan to run the target."""

    rollout_id: str
    host_id: str
    target_closure: str
    wave: int
    policy: HostPolicy
    attempt: int = 1
    budgets: tuple[BudgetSlot, ...] = ()
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


def rows_of_report(command: ReportEvent) -> tuple[Key, ...]:
    rows = (
        tally_key(command.rollout_id),
        record_key(command.rollout_id, command.host_id),
    )
    match command.event:
        case DispatchAck(target_closure=target):
            channel = channel_of(command.rollout_id)
            gates = gates_key(command.rollout_id)
            host = host_key(command.host_id)  # its labels choose its windows
            return (*rows, quarantine_key(channel, target), gates, host, *stops_keys(channel))
        case Converged() | ActivationCompleted():
            # It goes, or comes again after a reboot: read with the others, not alone.
            return (*rows, order_key(command.host_id))
        case _:
            return rows


def decide_report(
    rows: Acknowledged | tuple[RolloutTally | None, HostRecord | None, HostOrder | None] | Report,
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
    check_event(event)
    if event.host_id != command.host_id:
        raise WrongHost(command.host_id, event.host_id)
    if event.rollout_id != command.rollout_id:
        raise InvalidInput(
            f"{command.host_id} of {command.rollout_id} reports of "
            f"{event.host_id} of {event.rollout_id}",
            field="host_id",
        )
    tally = demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is None:
        raise HostNotInRollout(command.rollout_id, command.host_id)
    if event.seq <= record.last_event_seq:
        return ()
    if not isinstance(event, DispatchAck):
        _demand_order(tally, record)
        if isinstance(event, ActivationCompleted) and record.state is HostState.DEFERRED:
            _demand_free(tally, rows[-1])
    else:
        _demand_under_way(tally, record.wave, now, late=record.late)
        _demand_retried(tally, record.host_id)
        assert len(rows) == 7, "what rows_of_report names for an acknowledgement"
        _, _, quarantined, gates, host, *stops = rows
        passed = tallies.list_passed(tally, now)
        demand_unstopped(tally.channel, stops, now, passed)
        if OverridableGate.WINDOW not in passed:
            demand_window(tally.channel, stops, host, record.policy, now)
        if (reason := shut_edge(gates, passed)) is not None:
            raise EdgeClosed(tally.channel, reason)
        _demand_unquarantined(quarantined)
    return (_completed(event, record),)


def _demand_order(tally: RolloutTally, record: HostRecord) -> None:
    """That the host may report on its order still. A halted rollout takes the orders of hosts back
    that wait for a reboot; until that is done, their reports wait.
    """
    if record.cancelled_at is not None:
        raise OrderCancelled(record.rollout_id, record.host_id)
    if _is_taken_back(tally, record):
        raise RolloutIsHalted(
            f"{tally.rollout_id} is halted; the order of {record.host_id} is taken back",
            rollout_id=tally.rollout_id,
            state=record.state.value,
        )


def _demand_free(tally: RolloutTally, order: object) -> None:
    """That a host which is back from its reboot can take its order again. A rollout that was
    replaced gives way to the host's newer order; otherwise the report waits.
    """
    if not isinstance(order, HostOrder):
        return
    if tally.state is RolloutState.SUPERSEDED:
        raise RolloutIsSuperseded(
            f"{tally.rollout_id} is superseded",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    raise HostBusy(order.host_id, order.rollout_id)


def _is_taken_back(tally: RolloutTally, record: HostRecord) -> bool:
    """Whether the dispatcher will take its order back."""
    is_halted = tally.halted_at is not None and tally.state in OPEN
    counts = record.left is None and not record.late
    return is_halted and counts and record.state is HostState.DEFERRED


def shut_edge(
    gates: RolloutGates | None, passed: frozenset[OverridableGate] = NONE_PASSED
) -> str | None:
    """Why an edge is shut, as the last pass found it; None: it is not, or does not count."""
    if OverridableGate.EDGES in passed:
        return None
    blocked = () if gates is None else gates.blocked
    return next((gate.reason for gate in blocked if gate.gate == EDGES), None)


def demand_tally(tally: RolloutTally | None, rollout_id: str) -> RolloutTally:
    """Raises: RolloutUnknown, RolloutIsPruned."""
    if tally is None:
        raise RolloutUnknown(rollout_id)
    if tally.state is RolloutState.PRUNED:
        raise RolloutIsPruned(f"{rollout_id} is past its retention", rollout_id=rollout_id)
    return tally


def _demand_under_way(tally: RolloutTally, wave: int, now: datetime, *, late: bool) -> None:
    """That a switch may start now. A late host follows the rollout that it joined, to its end."""
    said = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state is RolloutState.SUPERSEDED and not late:
        raise RolloutIsSuperseded(f"{tally.rollout_id} is superseded", **said)
    if tally.halted_at is not None:
        detail = f"{tally.rollout_id} is halted since {tally.halted_at.isoformat()}"
        raise RolloutIsHalted(detail, **said)
    if tally.paused_at is not None:
        detail = f"{tally.rollout_id} is paused since {tally.paused_at.isoformat()}"
        raise RolloutIsPaused(detail, **said)
    if late:
        _demand_over(tally)
    else:
        _demand_dispatchable(tally, wave)
    _demand_started(tally, now)


def _demand_started(tally: RolloutTally, now: datetime) -> None:
    """That the rollout may start, or a person with the permission emergency says so."""
    if not tallies.is_started(tally, now):
        assert tally.start_at is not None
        raise WaveNotReached(
            f"{tally.rollout_id} starts at {tally.start_at.isoformat()}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_retried(tally: RolloutTally, host_id: str) -> None:
    """That the host is among those that an operator has tried again, if there are such."""
    if not tallies.may_go(tally, host_id):
        raise RolloutIsHalted(
            f"{tally.rollout_id} is halted; only {', '.join(tally.retried)} may be tried again",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_dispatchable(tally: RolloutTally, wave: int) -> None:
    _demand_open(tally, wave, DISPATCHABLE)


def _demand_open(tally: RolloutTally, wave: int, states: frozenset[RolloutState] = OPEN) -> None:
    """That the rollout is in one of these states, and has reached the wave."""
    said = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state not in states:
        raise RolloutNotDispatchable(
            f"{tally.rollout_id} {describe_rollout_state(tally.state)}", **said
        )
    if wave > tally.current_wave:
        current, own = name_wave(tally, tally.current_wave), name_wave(tally, wave)
        detail = f"{tally.rollout_id} is at wave {current}, the host goes with wave {own}"
        raise WaveNotReached(detail, **said)


def _demand_turn(tally: RolloutTally, wave: int) -> None:
    """That no host of an earlier wave is unsettled, though the cursor has passed it. Only orders
    wait for that: one that is out holds slots of budgets, which the earlier host may need.
    """
    reached = tallies.reached(tally)
    if wave > reached:
        raise WaveNotReached(
            f"wave {name_wave(tally, max(reached, 0))} of {tally.rollout_id} is not done; "
            f"the host belongs to wave {name_wave(tally, wave)}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_proved(tally: RolloutTally) -> None:
    """That late hosts get what a host converged on; else they go one at a time."""
    if tallies.is_unproved(tally) and tallies.late_under_way(tally):
        raise RolloutNotDispatchable(
            f"no host ran {tally.target_ref} in {tally.rollout_id} yet; late hosts go one at a "
            "time until one converged",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_unskipped(tally: RolloutTally, record: HostRecord | None, wave: int) -> None:
    """That the host did not leave with its wave. One that failed before is tried again."""
    if _left_with_wave(tally, record, wave):
        raise WaveNotReached(
            f"wave {name_wave(tally, wave)} of {tally.rollout_id} was skipped",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _left_with_wave(tally: RolloutTally, record: HostRecord | None, wave: int) -> bool:
    """Whether an operator skipped the host's wave while it had no order, or its order was taken
    back since.
    """
    if wave >= len(tally.waves) or not tally.waves[wave].skipped:
        return False
    return record is None or (
        record.state is HostState.PENDING and record.cancelled_at is not None and not record.late
    )


def _demand_over(tally: RolloutTally) -> None:
    """A host that came after the plan joins when the plan is through, and while no other such host
    failed: nothing else protects them, there are no waves.
    """
    if tallies.late_failures(tally):
        raise LateHostFailed(
            f"a host that came late failed in {tally.rollout_id}; skip it, or promote a fix",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.outcome in BAD:
        raise RolloutNotDispatchable(
            f"{tally.rollout_id} failed; hosts outside its plan get no release that failed",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.terminal_at is None or tally.state not in ORDERED:
        raise RolloutNotDispatchable(
            f"{tally.rollout_id} {describe_rollout_state(tally.state)}; hosts outside its plan "
            "wait until it is done",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_unquarantined(row: Quarantined | None) -> None:
    if row is not None:
        raise ClosureQuarantined(
            f"{row.closure_hash} is quarantined on {row.channel} since "
            f"{row.quarantined_at.isoformat()}",
            channel=row.channel,
            closure_hash=row.closure_hash,
            rollout_id=row.rollout_id,
        )


def _completed(event: AgentEvent, record: HostRecord) -> AgentEvent:
    """The report with what only the control plane can say; a host that left says it of nobody."""
    match event:
        case RollbackComplete() | RollbackFailed():
            counts = record.left is None
            channel = record.channel if counts else ""
            target = record.target_closure if counts else ""
            return replace(event, channel=channel, target_closure=target)
        case ProbeResult():
            return replace(event, wave=record.wave)
        case _:
            return event


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def rows_of_reservation(command: ReserveDispatch) -> tuple[Key, ...]:
    channel = channel_of(command.rollout_id)
    return (
        tally_key(command.rollout_id),
        record_key(command.rollout_id, command.host_id),
        order_key(command.host_id),
        quarantine_key(channel, command.target_closure),
        host_key(command.host_id),
        *stops_keys(channel),
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
        raise WrongClosure(HostState.PENDING, command.target_closure, tally.target_closure)
    passed = tallies.list_passed(tally, now)
    demand_unstopped(tally.channel, stops, now, passed)
    if OverridableGate.WINDOW not in passed:
        demand_window(tally.channel, stops, host, command.policy, now)
    _demand_unquarantined(quarantined)
    if order is not None:
        raise HostBusy(order.host_id, order.rollout_id)
    return (
        DispatchReserved(
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
            RecoveryActivationAssumed(
                rollout_id=command.rollout_id,
                host_id=command.host_id,
                at=now,
                observed_current_closure=command.current_closure,
            ),
        )
    drifted = record.state is HostState.CONVERGED and not on_target
    if drifted and record.regressed_at is None and tally.state is not RolloutState.SUPERSEDED:
        return (
            HostRegressed(
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
    check_text("a reason", command.reason, REASON_BYTES_MAX)
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
        HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=wave,
            state=None if record is None else counted_as(record),
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
    if tally.state is not RolloutState.SUPERSEDED:
        raise RolloutNotDispatchable(
            f"{tally.rollout_id} {describe_rollout_state(tally.state)}; "
            "its hosts finish their soak",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if record is None or record.left is not None or not record.busy:
        return ()
    if record.state is not HostState.SOAKING:
        return ()
    return (
        HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=record.wave,
            state=HostState.SOAKING,
            reason=PREEMPTED,
            channel=tally.channel,
            target_closure=tally.target_closure,
            late=record.late,
        ),
    )


def rows_of_skip_by_hand(command: SkipHostByHand) -> tuple[Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_rollout_id(command.rollout_id)
    check_operator(command.operator, command.reason)
    return (
        tally_key(command.rollout_id),
        record_key(command.rollout_id, command.host_id),
        rollout_key(command.rollout_id),
    )


def decide_skip_by_hand(
    rows: tuple[RolloutTally | None, HostRecord | None, Rollout | None],
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
        HostSkipped(
            rollout_id=command.rollout_id,
            host_id=command.host_id,
            at=now,
            wave=command.wave if record is None else record.wave,
            state=None if record is None else counted_as(record),
            reason=command.reason,
            channel=tally.channel,
            target_closure=tally.target_closure,
            rollback_failed=record is not None and record.rollback_failed,
            operator=command.operator,
            late=late,
        ),
    )


def _demand_skippable(record: HostRecord, tally: RolloutTally) -> None:
    rolls_back = record.state is HostState.FAILED and record.due_at is not None
    if record.state in _DOING or rolls_back:
        doing = _DOING.get(record.state, "rolling back")
        raise HostUnderWay(record.host_id, doing, record.due_at)
    skippable = record.state in RETRIED if record.late else _is_waiting(record, tally)
    if not skippable:
        raise _unskippable(record)


def _unskippable(record: HostRecord) -> IllegalTransition:
    how = f"{record.host_id} {describe_host_state(record.state)}"
    says = f"{how} in {record.rollout_id}, so there is nothing to skip"
    if record.state in RETRIED:
        says = f"{how} in {record.rollout_id}: waive it, or retry it"
    return IllegalTransition("host", record.state, "a skip", says)


_DOING = {HostState.ACTIVATING: "switching", HostState.SOAKING: "soaking"}


def _is_waiting(record: HostRecord, tally: RolloutTally) -> bool:
    """Whether nothing runs on the host, nor is anybody asked to clear it. One that failed in this
    very attempt halts the rollout.
    """
    going = tally.halted_at is None and tallies.may_go(tally, record.host_id)
    retried = record.attempt < tally.attempt and going
    return record.state in SKIPPABLE or (record.state in RETRIED and retried)


def _tally_and_record(command: ObserveHost | SkipHost | ReleaseSoakingHost) -> tuple[Key, ...]:
    return tally_key(command.rollout_id), record_key(command.rollout_id, command.host_id)


report_event = Slice(
    name="report-event",
    command=ReportEvent,
    writes=get_args(AgentEvent),
    rows=rows_of_report,
    decide=decide_report,
)
reserve_dispatch = Slice(
    name="reserve-dispatch",
    command=ReserveDispatch,
    writes=(DispatchReserved,),
    rows=rows_of_reservation,
    decide=decide_reservation,
)
observe_host = Slice(
    name="observe-host",
    command=ObserveHost,
    writes=(RecoveryActivationAssumed, HostRegressed),
    rows=_tally_and_record,
    decide=decide_observation,
)
release_soaking_host = Slice(
    name="release-soaking-host",
    command=ReleaseSoakingHost,
    writes=(HostSkipped,),
    rows=_tally_and_record,
    decide=decide_release,
)
skip_host_by_hand = Slice(
    name="skip-host-by-hand",
    command=SkipHostByHand,
    writes=(HostSkipped,),
    rows=rows_of_skip_by_hand,
    expects=lambda command: (
        {}
        if command.expected_version is None
        else {rollout_key(command.rollout_id): command.expected_version}
    ),
    decide=decide_skip_by_hand,
)
skip_host = Slice(
    name="skip-host",
    command=SkipHost,
    writes=(HostSkipped,),
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
