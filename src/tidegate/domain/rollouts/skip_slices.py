"""Continue a rollout without a host.

skip_host              the dispatcher skips a host that is silent
skip_host_by_hand      an operator skips a host
release_soaking_host   free a host for the emergency rollback that replaced its rollout
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.hosts import facts, orders, refusals, rows as host_rows, states as host_states
from tidegate.domain.rollouts import names, preconditions, rows as rollout_rows, states, tallies
from tidegate.errors import IllegalTransition
from tidegate.kernel import model, slices

REASON_BYTES_MAX = 512
PREEMPTED = "replaced by an emergency rollback"
SKIPPABLE = frozenset({host_states.HostState.PENDING, host_states.HostState.DEFERRED})
RETRIED = frozenset(
    {host_states.HostState.FAILED, host_states.HostState.REVERTED}
)  # retried after a resume


SkippedRows = tuple[rollout_rows.RolloutTally | None, host_rows.HostRecord | None]


class SkipHost(Struct, frozen=True, kw_only=True):
    """Continue without a host that is silent or was retired."""

    rollout_id: str
    host_id: str
    wave: int
    reason: str


class ReleaseSoakingHost(Struct, frozen=True, kw_only=True):
    """Free a host that soaks in a rollout that an emergency rollback replaced."""

    rollout_id: str
    host_id: str


class SkipHostByHand(Struct, frozen=True, kw_only=True):
    """Continue without a host, on an operator's command."""

    rollout_id: str
    host_id: str
    wave: int
    operator: str
    reason: str
    expected_version: int | None = None  # of the rollout's row


def rows_of_skip(command: SkipHost | ReleaseSoakingHost) -> tuple[model.Key, ...]:
    return rollout_rows.tally_key(command.rollout_id), host_rows.record_key(
        command.rollout_id, command.host_id
    )


def decide_skip(rows: SkippedRows, command: SkipHost, now: datetime) -> Sequence[Struct]:
    """Raises: RolloutUnknown, RolloutIsPruned, WaveNotReached, InvalidInput.

    IllegalTransition: the host is under way, so its deadlines apply; or it failed and is not
    retried, so it is waived instead.
    """
    model.check_text("a reason", command.reason, REASON_BYTES_MAX)
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is not None and record.left is not None:
        return ()
    if record is not None and not _is_waiting(record, tally):
        raise _refuse_skip(record)
    wave = command.wave if record is None else record.wave
    preconditions.demand_open(tally, wave)
    if preconditions.has_left_with_wave(tally, record, wave):
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


def decide_release(
    rows: SkippedRows, command: ReleaseSoakingHost, now: datetime
) -> Sequence[Struct]:
    """Free the host, or do nothing if it is no longer soaking.

    Raises: RolloutUnknown, RolloutIsPruned, RolloutNotDispatchable: the rollout was not replaced.
    """
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if tally.state is not states.RolloutState.SUPERSEDED:
        raise refusals.RolloutNotDispatchable(
            f"{tally.rollout_id} {states.describe_rollout_state(tally.state)}; "
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
    """Like ``decide_skip``, but also for hosts of later waves and for late hosts that failed.

    Raises:
        RolloutUnknown, RolloutIsPruned, RolloutNotDispatchable: the rollout is over.
        HostUnderWay: the host is carrying out its order. IllegalTransition: it converged, or it
            failed and is cleared instead.
    """
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    record = rows[1]
    if record is not None and record.left is not None:
        return ()
    if record is not None:
        _demand_skippable(record, tally)
    late = record is not None and record.late
    if not late:
        preconditions.demand_open(tally, 0)
    wave = command.wave if record is None else record.wave
    if preconditions.has_left_with_wave(tally, record, wave):
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
            operator=command.operator,
            late=late,
        ),
    )


def _demand_skippable(record: host_rows.HostRecord, tally: rollout_rows.RolloutTally) -> None:
    rolls_back = record.state is host_states.HostState.FAILED and record.due_at is not None
    if record.state in _DOING or rolls_back:
        doing = _DOING.get(record.state, "rolling back")
        raise refusals.HostUnderWay(record.host_id, doing, record.due_at)
    skippable = record.state in RETRIED if record.late else _is_waiting(record, tally)
    if not skippable:
        raise _refuse_skip(record)


def _refuse_skip(record: host_rows.HostRecord) -> IllegalTransition:
    how = f"{record.host_id} {host_states.describe_host_state(record.state)}"
    detail = f"{how} in {record.rollout_id}, so there is nothing to skip"
    if record.state in RETRIED:
        detail = f"{how} in {record.rollout_id}: waive it, or retry it"
    return IllegalTransition("host", record.state, "a skip", detail)


_DOING = {host_states.HostState.ACTIVATING: "switching", host_states.HostState.SOAKING: "soaking"}


def _is_waiting(record: host_rows.HostRecord, tally: rollout_rows.RolloutTally) -> bool:
    """Whether the host is idle and needs no clearance. A host that failed in the current attempt
    halts the rollout, so it does need one.
    """
    going = tally.halted_at is None and tallies.may_go(tally, record.host_id)
    retried = record.attempt < tally.attempt and going
    return record.state in SKIPPABLE or (record.state in RETRIED and retried)


skip_host = slices.Slice(
    name="skip-host",
    command=SkipHost,
    writes=(facts.HostSkipped,),
    rows=rows_of_skip,
    decide=decide_skip,
)
skip_host_by_hand = slices.Slice(
    name="skip-host-by-hand",
    command=SkipHostByHand,
    writes=(facts.HostSkipped,),
    rows=rows_of_skip_by_hand,
    expects=preconditions.expect_version,
    decide=decide_skip_by_hand,
)
release_soaking_host = slices.Slice(
    name="release-soaking-host",
    command=ReleaseSoakingHost,
    writes=(facts.HostSkipped,),
    rows=rows_of_skip,
    decide=decide_release,
)
SLICES = (skip_host, skip_host_by_hand, release_soaking_host)
