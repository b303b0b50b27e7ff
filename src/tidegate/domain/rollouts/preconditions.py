"""What must hold before a report, an order or a skip is recorded.

The slices of this package share these checks and decide them on the rows that they have read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tidegate.domain.channels import ladder, rows as channel_rows
from tidegate.domain.hosts import refusals, rows as host_rows, states as host_states
from tidegate.domain.rollouts import progress, rows as rollout_rows, states, tallies
from tidegate.domain.times import describe_time
from tidegate.kernel import model

EDGES = "channel-edges"  # name of the gate


class VersionedCommand(Protocol):
    """A command on a rollout, with the version of the rollout's row that its sender saw."""

    @property
    def rollout_id(self) -> str: ...
    @property
    def expected_version(self) -> model.Position | None: ...


def expect_version(command: VersionedCommand) -> dict[model.Key, model.Position]:
    """Expect the version that the sender saw; nothing, if the command names none."""
    if command.expected_version is None:
        return {}
    return {rollout_rows.rollout_key(command.rollout_id): command.expected_version}


def demand_tally(
    tally: rollout_rows.RolloutTally | None, rollout_id: str
) -> rollout_rows.RolloutTally:
    """Raises: RolloutUnknown, RolloutIsPruned."""
    if tally is None:
        raise refusals.RolloutUnknown(rollout_id)
    if tally.state is states.RolloutState.PRUNED:
        raise refusals.RolloutIsPruned(f"{rollout_id} is past its retention", rollout_id=rollout_id)
    return tally


def demand_under_way(
    tally: rollout_rows.RolloutTally, wave: int, now: datetime, *, late: bool
) -> None:
    """Require that a switch may start now. A late host needs the rollout's end, not its waves."""
    members = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state is states.RolloutState.SUPERSEDED and not late:
        raise refusals.RolloutIsSuperseded(f"{tally.rollout_id} is superseded", **members)
    if tally.halted_at is not None:
        detail = f"{tally.rollout_id} is halted since {describe_time(tally.halted_at)}"
        raise refusals.RolloutIsHalted(detail, **members)
    if tally.paused_at is not None:
        detail = f"{tally.rollout_id} is paused since {describe_time(tally.paused_at)}"
        raise refusals.RolloutIsPaused(detail, **members)
    if late:
        _demand_over(tally)
    else:
        _demand_dispatchable(tally, wave)
    _demand_started(tally, now)


def _demand_started(tally: rollout_rows.RolloutTally, now: datetime) -> None:
    """Require that the start time has come, or that the gate was overridden."""
    if not tallies.is_started(tally, now):
        assert tally.start_at is not None
        raise refusals.WaveNotReached(
            f"{tally.rollout_id} starts at {describe_time(tally.start_at)}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_current(tally: rollout_rows.RolloutTally, record: host_rows.HostRecord) -> None:
    """Require that no other rollout replaced this one after it ordered this late host."""
    if tallies.is_late_order_void(tally, late=record.late, dispatched_at=record.dispatched_at):
        raise refusals.RolloutIsSuperseded(
            f"{tally.rollout_id} is superseded",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_retried(tally: rollout_rows.RolloutTally, host_id: str) -> None:
    """Require that the host is one of those that an operator retries, if only some are retried."""
    if not tallies.may_go(tally, host_id):
        raise refusals.RolloutIsHalted(
            f"{tally.rollout_id} is halted; only {', '.join(tally.retried)} may be tried again",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def _demand_dispatchable(tally: rollout_rows.RolloutTally, wave: int) -> None:
    demand_open(tally, wave, states.DISPATCHABLE)


def demand_open(
    tally: rollout_rows.RolloutTally,
    wave: int,
    allowed: frozenset[states.RolloutState] = states.OPEN,
) -> None:
    """Require that the rollout is in one of the allowed states and has reached the wave."""
    members = {"rollout_id": tally.rollout_id, "state": tally.state.value}
    if tally.state not in allowed:
        raise refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {states.describe_rollout_state(tally.state)}", **members
        )
    if wave > tally.current_wave:
        current, own = (
            progress.name_wave(tally, tally.current_wave),
            progress.name_wave(tally, wave),
        )
        detail = f"{tally.rollout_id} is at wave {current}, the host goes with wave {own}"
        raise refusals.WaveNotReached(detail, **members)


def demand_turn(tally: rollout_rows.RolloutTally, wave: int) -> None:
    """Require that every earlier wave is done, even if the current wave is a later one.

    Only orders wait for this: an order that is already out holds slots of budgets, which hosts of
    the earlier wave may need.
    """
    reached = tallies.reached(tally)
    if wave > reached:
        raise refusals.WaveNotReached(
            f"wave {progress.name_wave(tally, max(reached, 0))} of {tally.rollout_id} is not done; "
            f"the host belongs to wave {progress.name_wave(tally, wave)}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_late_target(
    tally: rollout_rows.RolloutTally, channel: channel_rows.Channel | None
) -> None:
    """Require that late hosts of the channel may still join this rollout.

    A dispatcher may have chosen it before an operator rolled the channel back from its release.
    """
    if channel is None:
        return
    targets = ladder.list_late_targets(channel)
    ids = [item if isinstance(item, str) else item.rollout_id for item in targets]
    if tally.rollout_id not in ids:
        raise refusals.RolloutNotDispatchable(
            f"late hosts of {channel.channel} do not join {tally.rollout_id}",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_proved(tally: rollout_rows.RolloutTally) -> None:
    """Require that a host converged on the release; until then late hosts go one at a time."""
    if tallies.is_unproved(tally) and tallies.late_under_way(tally):
        raise refusals.RolloutNotDispatchable(
            f"no host ran {tally.target_ref} in {tally.rollout_id} yet; late hosts go one at a "
            "time until one converged",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_unskipped(
    tally: rollout_rows.RolloutTally, record: host_rows.HostRecord | None, wave: int
) -> None:
    """Require that the host was not skipped with its wave. A host that failed before is retried."""
    if has_left_with_wave(tally, record, wave):
        raise refusals.WaveNotReached(
            f"wave {progress.name_wave(tally, wave)} of {tally.rollout_id} was skipped",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def has_left_with_wave(
    tally: rollout_rows.RolloutTally, record: host_rows.HostRecord | None, wave: int
) -> bool:
    """Whether an operator skipped the host's wave while it had no order, or its order was cancelled
    since.
    """
    if wave >= len(tally.waves) or not tally.waves[wave].skipped:
        return False
    return record is None or (
        record.state is host_states.HostState.PENDING
        and record.cancelled_at is not None
        and not record.late
    )


def _demand_over(tally: rollout_rows.RolloutTally) -> None:
    """Require that the plan is completed and no other late host failed.

    There are no waves for late hosts, so nothing else protects them.
    """
    if tallies.late_failures(tally):
        raise refusals.LateHostFailed(
            f"a host that came late failed in {tally.rollout_id}; skip it, or promote a fix",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.outcome in states.BAD:
        raise refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} failed; hosts outside its plan get no release that failed",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )
    if tally.terminal_at is None or tally.state not in states.ORDERED:
        raise refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {states.describe_rollout_state(tally.state)}; "
            "hosts outside its plan wait until it is done",
            rollout_id=tally.rollout_id,
            state=tally.state.value,
        )


def demand_unquarantined(row: channel_rows.Quarantined | None) -> None:
    if row is not None:
        raise refusals.ClosureQuarantined(
            f"{row.closure_hash} is quarantined on {row.channel} since "
            f"{describe_time(row.quarantined_at)}",
            channel=row.channel,
            closure_hash=row.closure_hash,
            rollout_id=row.rollout_id,
        )


def shut_edge(
    gates: rollout_rows.RolloutGates | None,
    passed: frozenset[states.OverridableGate] = states.NONE_PASSED,
) -> str | None:
    """Return why an edge is shut, as the last pass recorded it; None: no edge is shut, or edges are
    overridden.
    """
    if states.OverridableGate.EDGES in passed:
        return None
    blocked = () if gates is None else gates.blocked
    return next((gate.reason for gate in blocked if gate.gate == EDGES), None)
