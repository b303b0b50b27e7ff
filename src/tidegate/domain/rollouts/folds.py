"""How facts become the rows of rollouts.

    HostStateChanged, …  ──▶ tally machine ──▶ RolloutTransitioned ──▶ the table rollouts
                                           ──▶ WaveAdvanced, RolloutTerminal, RolloutHalted, …
                                           ──▶ RolloutConcluded ──▶ release_standings

Only openings and transitions change a row of ``rollouts``. So its version is the position of the
last transition, and ``born`` that of the opening.
"""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec import Struct, structs

from tidegate.domain.rollouts import (
    effects as rollout_effects,
    facts,
    machine,
    names,
    rows,
    states,
    transitions,
)
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold, Machine

_TELLING = states.CLEARABLE | {states.RolloutState.SUPERSEDED}


def step_tally(
    tally: rows.RolloutTally | None, event: transitions.RolloutEvent, now: datetime
) -> tuple[rows.RolloutTally, tuple[Struct, ...]]:
    """Step the machine and apply its effects. Raises: as ``step``."""
    stepped, effects = machine.step(tally, event, now)
    return rollout_effects.apply_effects(stepped, effects, event, now)


def _tally_ids(event: transitions.RolloutEvent) -> tuple[str, ...]:
    if isinstance(event, facts.SuccessorOpened):
        return (event.superseded_rollout_id,)
    return (event.rollout_id,)


# ── the table rollouts ────────────────────────────────────────────────────────────────────────────


def step_rollout(
    row: rows.Rollout | None, fact: facts.RolloutOpened | facts.RolloutTransitioned, now: datetime
) -> rows.Rollout:
    """Raises: IllegalTransition: the fact does not follow from the row's state."""
    match row, fact:
        case None, facts.RolloutOpened():
            return rows.Rollout(
                rollout_id=fact.rollout_id,
                channel=fact.channel,
                target_ref=fact.target_ref,
                state=states.RolloutState.OPENING,
                opened_at=fact.at,
                plan_digest=fact.plan_digest,
                target_closure=fact.target_closure,
                current_wave=0,
                in_flight=states.RolloutState.OPENING,
                incarnation=fact.incarnation,
                display_name=fact.display_name,
                previous_ref=fact.previous_ref,
                opened_by=fact.operator,
                opened_reason=fact.reason,
                automatic=fact.automatic,
            )
        case rows.Rollout(), facts.RolloutOpened():
            return row  # a repeated opening; the machine refuses a different one
        case rows.Rollout(), facts.RolloutTransitioned() if row.state is fact.from_:
            return _transitioned(row, fact)
        case _:
            state = "absent" if row is None else row.state
            raise IllegalTransition("rollout", state, type(fact).__name__)


def _transitioned(row: rows.Rollout, fact: facts.RolloutTransitioned) -> rows.Rollout:
    row = structs.replace(
        row,
        state=fact.to,
        in_flight=fact.to if fact.to in states.OPEN else None,
        current_wave=fact.current_wave,
        reason=fact.reason,
    )
    match fact.to:
        case states.RolloutState.TERMINAL:
            return structs.replace(row, terminal_at=fact.at)
        case states.RolloutState.REVERTED:
            return structs.replace(row, reverted_at=fact.at)
        case states.RolloutState.FAILED:
            return structs.replace(row, failed_at=fact.at)
        case states.RolloutState.SUPERSEDED:
            return structs.replace(
                row, superseded_at=fact.at, superseded_by=fact.successor_rollout_id
            )
        case states.RolloutState.PRUNED:
            return structs.replace(row, pruned_at=fact.at)
        case _:
            return row


# ── gates ─────────────────────────────────────────────────────────────────────────────────────────


def step_gates(
    row: rows.RolloutGates, fact: facts.GateChanged | facts.RolloutTransitioned, now: datetime
) -> rows.RolloutGates | None:
    """Return the gates that hold the rollout back now; none: no row. A rollout that is over has
    none.
    """
    if isinstance(fact, facts.RolloutTransitioned):
        return None
    others = tuple(gate for gate in row.blocked if gate.gate != fact.gate)
    blocked = (
        (*others, rows.GateStatus(fact.gate, fact.reason, fact.at)) if fact.blocked else others
    )
    ordered = tuple(sorted(blocked, key=lambda gate: gate.gate))
    return structs.replace(row, blocked=ordered) if ordered else None


def _gate_ids(fact: facts.GateChanged | facts.RolloutTransitioned) -> tuple[str, ...]:
    if isinstance(fact, facts.RolloutTransitioned) and fact.to in states.DISPATCHABLE:
        return ()
    return (fact.rollout_id,)


# ── the last verdict on a release ─────────────────────────────────────────────────────────────────

Said = (
    facts.RolloutOpened | facts.RolloutHalted | facts.RolloutTransitioned | facts.RolloutConcluded
)


def _standing_ids(fact: Said) -> tuple[str, ...]:
    """Return the rollout's release; for an opening, also the release that the channel leaves."""
    match fact:
        case facts.RolloutOpened(channel=channel, target_ref=target, previous_ref=previous):
            ids = {rows.standing_key(channel, target).id: None}
            if previous is not None:
                ids[rows.standing_key(channel, previous).id] = None
            return tuple(ids)
        case facts.RolloutTransitioned(to=to) if to not in _TELLING:
            return ()
        case _:
            return (
                rows.standing_key(
                    names.channel_of(fact.rollout_id), names.ref_of(fact.rollout_id)
                ).id,
            )


def _start_standing(id: str, fact: Said) -> rows.ReleaseStanding:
    channel, _, release_id = id.partition("/")
    return rows.ReleaseStanding(channel=channel, release_id=release_id)


def step_standing(row: rows.ReleaseStanding, fact: Said, now: datetime) -> rows.ReleaseStanding:
    """Update the verdict on a release: a success is good.

    A halt, a bad outcome or a deliberate rollback is bad. Nothing else changes the verdict.
    """
    match fact:
        case facts.RolloutOpened() if fact.target_ref == row.release_id:
            if fact.rollout_id == row.rollout_id:
                return row  # a repeated opening
            return structs.replace(
                row, rollout_id=fact.rollout_id, outcome=None, outcome_at=None, followed_by=None
            )
        case facts.RolloutOpened():
            row = _left(row, fact.at, fact.target_ref)
            if fact.rollback_of != row.release_id:
                return row
            row = _bad(row, fact.rollout_id, fact.at)
            by_itself = fact.automatic is states.PolicyAction.AUTO_ROLLBACK
            return structs.replace(
                row,
                host_id=None,
                operator=fact.automatic or fact.operator,
                reason=fact.reason,
                auto_rolled_back=row.auto_rolled_back or by_itself,
            )
        case facts.RolloutHalted():
            return structs.replace(_bad(row, fact.rollout_id, fact.at), host_id=fact.host_id)
        case facts.RolloutTransitioned(to=states.RolloutState.SUPERSEDED):
            if fact.rollout_id != row.succeeded_in or fact.successor_rollout_id is None:
                return row
            successor = names.ref_of(fact.successor_rollout_id)
            if successor == row.release_id:
                return row  # promoted again for some hosts; the others keep running it
            return _left(row, fact.at, successor)
        case facts.RolloutTransitioned():
            return _bad(row, fact.rollout_id, fact.at)
        case facts.RolloutConcluded():
            return _ended(row, fact)


def _ended(row: rows.ReleaseStanding, fact: facts.RolloutConcluded) -> rows.ReleaseStanding:
    if fact.rollout_id == row.rollout_id:
        row = structs.replace(row, outcome=fact.outcome, outcome_at=fact.at)
    if fact.outcome in states.BAD:
        return _bad(row, fact.rollout_id, fact.at)
    if fact.outcome is not states.Outcome.SUCCEEDED:
        return row
    if row.word is not states.Word.GOOD:
        row = structs.replace(
            row, word=states.Word.GOOD, said_at=fact.at, host_id=None, operator=None, reason=""
        )
    since = row.running_since or fact.at
    return structs.replace(
        row, said_in=fact.rollout_id, succeeded_in=fact.rollout_id, running_since=since
    )


def _bad(row: rows.ReleaseStanding, rollout_id: str, at: datetime) -> rows.ReleaseStanding:
    """Mark the release as bad. A rollout has one bad verdict; later ones repeat it."""
    if row.word is states.Word.BAD and row.said_in == rollout_id:
        return row
    return structs.replace(
        row,
        word=states.Word.BAD,
        said_at=at,
        said_in=rollout_id,
        host_id=None,
        operator=None,
        reason="",
        succeeded_in=None,
        running_since=None,
        soaked_seconds=0,
    )


def _left(row: rows.ReleaseStanding, at: datetime, release_id: str) -> rows.ReleaseStanding:
    """Record that the channel moved on, and how long this release was its newest success."""
    row = structs.replace(row, followed_by=release_id)
    if row.running_since is None:
        return row
    ran = int((at - row.running_since).total_seconds())
    return structs.replace(row, running_since=None, soaked_seconds=max(row.soaked_seconds, ran))


rollout_tallies = Machine(
    collection=rows.TALLIES,
    number=6,
    reads=get_args(transitions.RolloutEvent),
    ids=_tally_ids,
    start=lambda id, fact: None,
    step=step_tally,
)
rollouts = Fold(
    collection=rows.ROLLOUTS,
    number=3,
    reads=(facts.RolloutOpened, facts.RolloutTransitioned),
    ids=lambda fact: (fact.rollout_id,),
    start=lambda id, fact: None,
    step=step_rollout,
)
rollout_gates = Fold(
    collection=rows.GATES,
    number=1,
    reads=(facts.GateChanged, facts.RolloutTransitioned),
    ids=_gate_ids,
    start=lambda id, fact: rows.RolloutGates(id),
    step=step_gates,
)
release_standings = Fold(
    collection=rows.STANDINGS,
    number=2,
    reads=(
        facts.RolloutOpened,
        facts.RolloutHalted,
        facts.RolloutTransitioned,
        facts.RolloutConcluded,
    ),
    ids=_standing_ids,
    start=_start_standing,
    step=step_standing,
)

FOLDS = (rollout_tallies, rollouts, rollout_gates, release_standings)
