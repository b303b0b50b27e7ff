"""Clear a rollout that a host's failure stopped: retry, waive hosts, or abandon it.

resume     QuarantineLifted, if the closure is quarantined, then OperatorClearance: failed and
           reverted hosts get another attempt; if hosts are named, only these
waive      the named hosts no longer count; once no failed host counts, the rollout resumes
abandon    superseded, without a successor
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels import facts as channel_facts, rows as channel_rows
from tidegate.domain.hosts import refusals, rows as host_rows, states as host_states
from tidegate.domain.rollouts import facts, names, preconditions, rows as rollout_rows, states
from tidegate.domain.rollouts.refusals import refuse_verb
from tidegate.errors import InvalidInput
from tidegate.kernel import model, slices

WAIVED_MAX = 10  # at once: a host's record and its order are up to seven storage items
HOST_BYTES_MAX = 256
TROUBLED = frozenset({host_states.HostState.FAILED, host_states.HostState.REVERTED})


class ClearRollout(Struct, frozen=True, kw_only=True):
    """Clear a Reverted or Failed rollout."""

    rollout_id: str
    operator: str
    reason: str
    mode: states.Clearance
    closure_hash: str = ""  # of its target: a resume lifts its quarantine
    host_ids: tuple[str, ...] = ()  # hosts to waive, or the only ones to retry
    expected_version: int | None = None  # of its row: the last transition that the operator saw


def rows_of_clearance(command: ClearRollout) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    names.check_rollout_id(command.rollout_id)
    check_operator(command.operator, command.reason)
    rows = (
        rollout_rows.tally_key(command.rollout_id),
        rollout_rows.rollout_key(command.rollout_id),
    )
    match command.mode:
        case states.Clearance.RESUME:
            model.check_text("closure_hash", command.closure_hash, HOST_BYTES_MAX)
            channel = names.channel_of(command.rollout_id)
            if command.host_ids:
                _check_hosts(command.host_ids)
            return (
                *rows,
                *_record_keys(command),
                channel_rows.quarantine_key(channel, command.closure_hash),
            )
        case states.Clearance.WAIVE:
            _check_hosts(command.host_ids)
            return (*rows, *_record_keys(command))
        case states.Clearance.ABANDON:
            return rows


def _record_keys(command: ClearRollout) -> tuple[model.Key, ...]:
    return tuple(host_rows.record_key(command.rollout_id, host) for host in command.host_ids)


def _check_hosts(host_ids: tuple[str, ...]) -> None:
    if not host_ids or len(set(host_ids)) != len(host_ids):
        raise InvalidInput("a clearance names hosts, each once", field="host_ids")
    model.at_most("hosts of a clearance", len(host_ids), WAIVED_MAX)
    for host_id in host_ids:
        model.check_text("a host id", host_id, HOST_BYTES_MAX)


def decide_clearance(
    rows: tuple[Any, ...], command: ClearRollout, now: datetime
) -> Sequence[Struct]:
    """Raises: RolloutUnknown, IllegalTransition, HostNotInRollout, InvalidInput."""
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state not in states.CLEARABLE:
        raise refuse_verb(tally, f"clearance ({command.mode})", "clear or retry it")
    lifted: tuple[channel_facts.QuarantineLifted, ...] = ()
    hosts: tuple[facts.ClearedHost, ...] = ()
    if command.mode is states.Clearance.RESUME:
        *records, quarantined = rows[2:]
        lifted = _lift_quarantine(tally, quarantined, command, now)
        hosts = tuple(map(_describe_retried, records, command.host_ids, [tally] * len(records)))
    if command.mode is states.Clearance.WAIVE:
        hosts = tuple(
            map(_describe_waived, rows[2:], command.host_ids, [tally] * len(command.host_ids))
        )
    clearance = facts.OperatorClearance(
        rollout_id=command.rollout_id,
        at=now,
        operator=command.operator,
        reason=command.reason,
        mode=command.mode,
        hosts=hosts,
    )
    return (*lifted, clearance)


def _lift_quarantine(
    tally: rollout_rows.RolloutTally, quarantined: object, command: ClearRollout, now: datetime
) -> tuple[channel_facts.QuarantineLifted, ...]:
    if tally.target_closure != command.closure_hash:
        raise InvalidInput(
            f"{tally.rollout_id} is of {tally.target_closure}, not of {command.closure_hash}",
            field="closure_hash",
        )
    if quarantined is None:
        return ()
    lifted = channel_facts.QuarantineLifted(
        channel=tally.channel,
        operator=command.operator,
        at=now,
        closure_hash=tally.target_closure,
        reason=command.reason,
    )
    return (lifted,)


def _describe_waived(
    record: host_rows.HostRecord | None, host_id: str, tally: rollout_rows.RolloutTally
) -> facts.ClearedHost:
    """Describe a host that a waiver names."""
    if record is None:
        raise refusals.HostNotInRollout(tally.rollout_id, host_id)
    if record.left is not None or record.late or record.state is host_states.HostState.CONVERGED:
        what = record.left or ("late" if record.late else record.state)
        raise InvalidInput(f"{host_id} is {what}: it holds nothing back", field="host_ids")
    state = None if record.cancelled_at is not None else record.state
    return facts.ClearedHost(host_id, record.wave, state, record.rollback_failed)


def _describe_retried(
    record: host_rows.HostRecord | None, host_id: str, tally: rollout_rows.RolloutTally
) -> facts.ClearedHost:
    """Describe a host that a resume names."""
    if record is None or record.left is not None or record.late or record.state not in TROUBLED:
        raise InvalidInput(
            f"{host_id} neither failed nor rolled back in {tally.rollout_id}, so it is not tried "
            "again",
            field="host_ids",
        )
    return facts.ClearedHost(host_id, record.wave, record.state, record.rollback_failed)


clear_rollout = slices.Slice(
    name="clear-rollout",
    command=ClearRollout,
    writes=(channel_facts.QuarantineLifted, facts.OperatorClearance),
    rows=rows_of_clearance,
    expects=preconditions.expect_version,
    decide=decide_clearance,
)
SLICES = (clear_rollout,)
