"""Commands on a whole rollout: pause, resume, abort, override, prune, record gates.

Each reads the tally and runs in the lane that is named after the rollout. ``promotion`` opens
rollouts and ``clearance`` clears them: both touch more than the rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import REASON_BYTES_MAX, check_operator
from tidegate.domain.hosts.refusals import RolloutUnknown
from tidegate.domain.rollouts import facts, preconditions, rows as rollout_rows, states, tallies
from tidegate.domain.rollouts.names import check_rollout_id
from tidegate.domain.rollouts.refusals import refuse_verb
from tidegate.errors import InvalidInput
from tidegate.kernel import model, slices

GATES_MAX = 32  # gates in one command
GATE_BYTES_MAX = 64


class PauseRollout(Struct, frozen=True, kw_only=True):
    """Allow no order, acknowledgement or wave until the rollout is resumed."""

    rollout_id: str
    operator: str
    reason: str
    expected_version: int | None = None  # of its row: the last transition that the operator saw


class ResumeRollout(Struct, frozen=True, kw_only=True):
    """Resume a paused rollout. One that a host's failure halted is cleared instead."""

    rollout_id: str
    operator: str
    reason: str
    expected_version: int | None = None


class AbortRollout(Struct, frozen=True, kw_only=True):
    """End a rollout without a successor. The hosts keep what they run."""

    rollout_id: str
    operator: str
    reason: str
    expected_version: int | None = None


class OverrideGate(Struct, frozen=True, kw_only=True):
    """Let a rollout pass one gate."""

    rollout_id: str
    gate: states.OverridableGate
    operator: str
    reason: str
    until: datetime | None = None  # None: until the rollout ends
    expected_version: int | None = None


class ExpireRetention(Struct, frozen=True, kw_only=True):
    """The worker found that the time in the tally's ``due_at`` has come."""

    rollout_id: str
    due_at: datetime


class GateFinding(Struct, frozen=True):
    """What a pass over a rollout found at one gate."""

    gate: str
    blocked: bool
    reason: str = ""


class ChangeGates(Struct, frozen=True, kw_only=True):
    """What a pass found at all gates. Only changes become facts."""

    rollout_id: str
    findings: tuple[GateFinding, ...]


Steering = PauseRollout | ResumeRollout | AbortRollout | OverrideGate


# ── pause, resume, abort ──────────────────────────────────────────────────────────────────────────

Seen = tuple[rollout_rows.RolloutTally | None, rollout_rows.Rollout | None]


def rows_of_steering(command: Steering) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_rollout_id(command.rollout_id)
    check_operator(command.operator, command.reason)
    return rollout_rows.tally_key(command.rollout_id), rollout_rows.rollout_key(command.rollout_id)


def decide_pause(rows: Seen, command: PauseRollout, now: datetime) -> Sequence[Struct]:
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state not in states.DISPATCHABLE:
        raise refuse_verb(tally, "pause")
    if tally.paused_at is not None:
        return ()
    paused = facts.RolloutPaused(
        rollout_id=command.rollout_id, at=now, operator=command.operator, reason=command.reason
    )
    return (paused,)


def decide_resume(rows: Seen, command: ResumeRollout, now: datetime) -> Sequence[Struct]:
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state not in states.OPEN:
        raise refuse_verb(tally, "resume")
    if tally.paused_at is None:
        return ()
    resumed = facts.RolloutResumed(
        rollout_id=command.rollout_id, at=now, operator=command.operator, reason=command.reason
    )
    return (resumed,)


def decide_abort(rows: Seen, command: AbortRollout, now: datetime) -> Sequence[Struct]:
    """Abort an open rollout. One that stopped is abandoned by a clearance instead."""
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state in states.DISPATCHABLE:
        aborted = facts.RolloutAborted(
            rollout_id=command.rollout_id, at=now, operator=command.operator, reason=command.reason
        )
        return (aborted,)
    if tally.state in states.CLEARABLE:
        given_up = facts.OperatorClearance(
            rollout_id=command.rollout_id,
            at=now,
            operator=command.operator,
            reason=command.reason,
            mode=states.Clearance.ABANDON,
        )
        return (given_up,)
    raise refuse_verb(tally, "abort")


def decide_override(rows: Seen, command: OverrideGate, now: datetime) -> Sequence[Struct]:
    """Raises: IllegalTransition: the rollout has ended. InvalidInput: the time has passed."""
    tally = preconditions.demand_tally(rows[0], command.rollout_id)
    if tally.state not in states.OPEN:
        raise refuse_verb(tally, "override", "override a gate of it")
    if command.until is not None and command.until <= now:
        raise InvalidInput(f"an override until {command.until} is over already", field="until")
    known = tallies.override_of(tally, command.gate, now)
    if known is not None and known.until == command.until:
        return ()
    overridden = facts.GateOverridden(
        rollout_id=command.rollout_id,
        at=now,
        gate=command.gate,
        operator=command.operator,
        reason=command.reason,
        until=command.until,
    )
    return (overridden,)


# ── retention ─────────────────────────────────────────────────────────────────────────────────────


def decide_retention(
    rows: tuple[rollout_rows.RolloutTally | None], command: ExpireRetention, now: datetime
) -> Sequence[Struct]:
    """Prune the rollout, or do nothing if it changed since the worker looked.

    While hosts are still under way nothing happens either: their deadlines bound the wait.
    """
    (tally,) = rows
    if tally is None:
        raise RolloutUnknown(command.rollout_id)
    if tally.due_at is None or tally.due_at != command.due_at or now < tally.due_at:
        return ()
    if tally.state in states.OPEN or tallies.under_way(tally):
        return ()
    assert tally.state in (states.RolloutState.TERMINAL, states.RolloutState.SUPERSEDED)
    return (facts.RetentionExpired(rollout_id=command.rollout_id, at=now),)


# ── gates ─────────────────────────────────────────────────────────────────────────────────────────


def rows_of_gates(command: ChangeGates) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_rollout_id(command.rollout_id)
    model.at_most("gates of a rollout", len(command.findings), GATES_MAX)
    names = [finding.gate for finding in command.findings]
    if len(set(names)) != len(names):
        raise InvalidInput(f"each gate is found once, found {sorted(names)}", field="findings")
    for finding in command.findings:
        model.check_text("gate", finding.gate, GATE_BYTES_MAX)
        if finding.reason:
            model.check_text("reason", finding.reason, REASON_BYTES_MAX)
    return rollout_rows.tally_key(command.rollout_id), rollout_rows.gates_key(command.rollout_id)


def decide_gates(
    rows: tuple[rollout_rows.RolloutTally | None, rollout_rows.RolloutGates | None],
    command: ChangeGates,
    now: datetime,
) -> Sequence[Struct]:
    tally, gates = rows
    tally = preconditions.demand_tally(tally, command.rollout_id)
    findings = command.findings
    if tally.state not in states.DISPATCHABLE:
        # It is over or halted. The edges of an ended rollout still hold its late hosts back.
        is_over = tally.terminal_at is not None and tally.state in states.ORDERED
        findings = tuple(item for item in findings if is_over and item.gate == preconditions.EDGES)
    known = {} if gates is None else {gate.gate: gate.reason for gate in gates.blocked}
    return tuple(
        facts.GateChanged(
            rollout_id=command.rollout_id,
            at=now,
            gate=finding.gate,
            blocked=finding.blocked,
            reason=finding.reason,
        )
        for finding in findings
        if _is_changed(finding, known)
    )


def _is_changed(finding: GateFinding, known: dict[str, str]) -> bool:
    if not finding.blocked:
        return finding.gate in known
    return known.get(finding.gate) != finding.reason


pause_rollout = slices.Slice(
    name="pause-rollout",
    command=PauseRollout,
    writes=(facts.RolloutPaused,),
    rows=rows_of_steering,
    expects=preconditions.expect_version,
    decide=decide_pause,
)
resume_rollout = slices.Slice(
    name="resume-rollout",
    command=ResumeRollout,
    writes=(facts.RolloutResumed,),
    rows=rows_of_steering,
    expects=preconditions.expect_version,
    decide=decide_resume,
)
abort_rollout = slices.Slice(
    name="abort-rollout",
    command=AbortRollout,
    writes=(facts.RolloutAborted, facts.OperatorClearance),
    rows=rows_of_steering,
    expects=preconditions.expect_version,
    decide=decide_abort,
)
override_gate = slices.Slice(
    name="override-gate",
    command=OverrideGate,
    writes=(facts.GateOverridden,),
    rows=rows_of_steering,
    expects=preconditions.expect_version,
    decide=decide_override,
)
expire_retention = slices.Slice(
    name="expire-retention",
    command=ExpireRetention,
    writes=(facts.RetentionExpired,),
    rows=lambda command: (rollout_rows.tally_key(command.rollout_id),),
    decide=decide_retention,
)
change_gates = slices.Slice(
    name="change-gates",
    command=ChangeGates,
    writes=(facts.GateChanged,),
    rows=rows_of_gates,
    decide=decide_gates,
)
SLICES = (
    pause_rollout,
    resume_rollout,
    abort_rollout,
    override_gate,
    expire_retention,
    change_gates,
)
