"""What agents report into a rollout: decided on the host's record and the rollout's tally.

    report_event   record an agent's report; ignore a repeat
    observe_host   record what a heartbeat shows to be running

Both run in the rollout's lane. A report is recorded in every state of the rollout. An
acknowledgement is the exception: it starts a switch, so the rollout must be under way, and nothing
may stop its channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from msgspec import Struct, structs

from tidegate.domain.channels import (
    refusals as channel_refusals,
    rows as channel_rows,
    stops as channel_stops,
)
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.hosts import (
    facts,
    refusals,
    rows as host_rows,
    states as host_states,
    transition_steps,
)
from tidegate.domain.hosts.report_json import check_event
from tidegate.domain.rollouts import names, preconditions, rows as rollout_rows, states, tallies
from tidegate.domain.windows.demands import demand_window
from tidegate.errors import InvalidInput
from tidegate.kernel import model, slices

RECOVERABLE = frozenset({host_states.HostState.ACTIVATING, host_states.HostState.DEFERRED})
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


class ReportEvent(Struct, frozen=True, kw_only=True):
    """An agent's report. ``domain.hosts.report_json`` reads the event from JSON."""

    rollout_id: str
    host_id: str
    event: facts.AgentEvent


class ObserveHost(Struct, frozen=True, kw_only=True):
    """A heartbeat shows what runs on the host."""

    rollout_id: str
    host_id: str
    current_closure: str


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
            host = host_key(command.host_id)  # its labels select its windows
            return (
                *rows,
                channel_rows.quarantine_key(channel, target),
                gates,
                host,
                *channel_stops.stops_keys(channel),
            )
        case facts.Converged() | facts.ActivationCompleted():
            # The report removes or restores the order. Read it together with the rest.
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
    """Record the report, or nothing if it is a repeat. The machine decides what follows from it.

    Raises:
        RolloutUnknown, HostNotInRollout, RolloutIsPruned: the report belongs to no known rollout.
        RolloutIsSuperseded, RolloutIsHalted, …: an acknowledgement that is too late.
        ChannelFrozen, ChannelOnHold: an acknowledgement on a channel that is stopped.
        WindowClosed: an acknowledgement outside of the host's maintenance windows.
        InvalidInput, LimitExceeded: the report is invalid, or of another host.
    """
    event = command.event
    check_event(event)
    if event.host_id != command.host_id:
        raise refusals.WrongHost(command.host_id, event.host_id)
    if event.rollout_id != command.rollout_id:
        raise InvalidInput(
            f"{command.host_id} of {command.rollout_id} reports of "
            f"{event.host_id} of {event.rollout_id}",
            field="host_id",
        )
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is None:
        raise refusals.HostNotInRollout(command.rollout_id, command.host_id)
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
        preconditions.demand_under_way(tally, record.wave, now, late=record.late)
        preconditions.demand_current(tally, record)
        preconditions.demand_retried(tally, record.host_id)
        assert len(rows) == 7, "what rows_of_report names for an acknowledgement"
        _, _, quarantined, gates, host, *stops = rows
        passed = tallies.list_passed(tally, now)
        channel_stops.demand_unstopped(tally.channel, stops, now, passed)
        if states.OverridableGate.WINDOW not in passed:
            demand_window(tally.channel, stops, host, record.policy, now)
        if (reason := preconditions.shut_edge(gates, passed)) is not None:
            raise channel_refusals.EdgeClosed(tally.channel, reason)
        preconditions.demand_unquarantined(quarantined)
    return (_complete(event, record),)


def _demand_order(tally: rollout_rows.RolloutTally, record: host_rows.HostRecord) -> None:
    """Require that the host's order is still valid.

    A halted rollout cancels the orders of hosts that wait for a reboot. Until that is done, their
    reports wait.
    """
    if record.cancelled_at is not None:
        raise refusals.OrderCancelled(record.rollout_id, record.host_id)
    if _will_be_cancelled(tally, record):
        raise refusals.RolloutIsHalted(
            f"{tally.rollout_id} is halted; the order of {record.host_id} is taken back",
            rollout_id=tally.rollout_id,
            state=record.state.value,
        )


def _demand_free(tally: rollout_rows.RolloutTally, order: object) -> None:
    """Require that a host that was rebooted can take its order again.

    A replaced rollout yields to the host's newer order; otherwise the report waits.
    """
    if not isinstance(order, host_rows.HostOrder):
        return
    if tally.state is states.RolloutState.SUPERSEDED:
        raise refusals.RolloutIsSuperseded(
            f"{tally.rollout_id} is superseded",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    raise refusals.HostBusy(order.host_id, order.rollout_id)


def _will_be_cancelled(tally: rollout_rows.RolloutTally, record: host_rows.HostRecord) -> bool:
    """Whether the dispatcher will cancel the host's order."""
    is_halted = tally.halted_at is not None and tally.state in states.OPEN
    counts = record.left is None and not record.late
    return is_halted and counts and record.state is host_states.HostState.DEFERRED


def _complete(event: facts.AgentEvent, record: host_rows.HostRecord) -> facts.AgentEvent:
    """Add what only the control plane knows; a host that proves nothing gets empty values."""
    match event:
        case facts.RollbackComplete() | facts.RollbackFailed():
            counts = transition_steps.is_evidence(record)
            channel = record.channel if counts else ""
            target = record.target_closure if counts else ""
            return structs.replace(event, channel=channel, target_closure=target)
        case facts.ProbeResult():
            return structs.replace(event, wave=record.wave)
        case _:
            return event


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


def rows_of_observation(command: ObserveHost) -> tuple[model.Key, ...]:
    return rollout_rows.tally_key(command.rollout_id), host_rows.record_key(
        command.rollout_id, command.host_id
    )


def decide_observation(rows: Report, command: ObserveHost, now: datetime) -> Sequence[Struct]:
    """Record what a heartbeat shows, if it changes something.

    An observation never makes a host converged. A host that runs the target without having reported
    the switch starts to soak. A converged host that runs something else has regressed, unless its
    rollout was replaced. Raises: RolloutUnknown, RolloutIsPruned.
    """
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is None:
        return ()
    on_target = command.current_closure == record.target_closure
    if on_target and record.state in RECOVERABLE and not _will_be_cancelled(tally, record):
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
        and tally.state is not states.RolloutState.SUPERSEDED
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


report_event = slices.Slice(
    name="report-event",
    command=ReportEvent,
    writes=get_args(facts.AgentEvent),
    rows=rows_of_report,
    decide=decide_report,
)
observe_host = slices.Slice(
    name="observe-host",
    command=ObserveHost,
    writes=(facts.RecoveryActivationAssumed, facts.HostRegressed),
    rows=rows_of_observation,
    decide=decide_observation,
)
SLICES = (report_event, observe_host)
