"""How facts become the rows of rollouts.

    HostStateChanged, …  ──▶ tally machine ──▶ RolloutTransitioned ──▶ the table rollouts
                                           ──▶ WaveAdvanced, RolloutTerminal, RolloutHalted, …
                                           ──▶ RolloutConcluded ──▶ release_standings

``rollouts`` hears of openings and transitions only: so its version is the position of the last
transition, and ``born`` that of the opening.
"""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.rollouts.effects import apply_effects
from tidegate.domain.rollouts.facts import (
    GateChanged,
    RolloutConcluded,
    RolloutHalted,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.names import channel_of, ref_of
from tidegate.domain.rollouts.rows import (
    GATES,
    ROLLOUTS,
    STANDINGS,
    TALLIES,
    GateStatus,
    ReleaseStanding,
    Rollout,
    RolloutGates,
    RolloutTally,
    standing_key,
)
from tidegate.domain.rollouts.states import (
    BAD,
    CLEARABLE,
    DISPATCHABLE,
    OPEN,
    Outcome,
    PolicyAction,
    RolloutState,
    Word,
)
from tidegate.domain.rollouts.transitions import RolloutEvent
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold, Machine

_TELLING = CLEARABLE | {RolloutState.SUPERSEDED}


def step_tally(
    tally: RolloutTally | None, event: RolloutEvent, now: datetime
) -> tuple[RolloutTally, tuple[Struct, ...]]:
    """The machine's step, with its effects as what they come to. Raises: as ``step``."""
    stepped, effects = step(tally, event, now)
    return apply_effects(stepped, effects, event, now)


def _tally_ids(event: RolloutEvent) -> tuple[str, ...]:
    if isinstance(event, SuccessorOpened):
        return (event.superseded_rollout_id,)
    return (event.rollout_id,)


# ── as operators see it ───────────────────────────────────────────────────────────────────────────


def step_rollout(
    row: Rollout | None, fact: RolloutOpened | RolloutTransitioned, now: datetime
) -> Rollout:
    """Raises: IllegalTransition: the fact does not follow from where the row stands."""
    match row, fact:
        case None, RolloutOpened():
            return Rollout(
                rollout_id=fact.rollout_id,
                channel=fact.channel,
                target_ref=fact.target_ref,
                state=RolloutState.OPENING,
                opened_at=fact.at,
                plan_digest=fact.plan_digest,
                target_closure=fact.target_closure,
                current_wave=0,
                in_flight=RolloutState.OPENING,
                incarnation=fact.incarnation,
                display_name=fact.display_name,
                previous_ref=fact.previous_ref,
                opened_by=fact.operator,
                opened_reason=fact.reason,
                automatic=fact.automatic,
            )
        case Rollout(), RolloutOpened():
            return row  # the same opening once more; another one was refused by the machine
        case Rollout(), RolloutTransitioned() if row.state is fact.from_:
            return _transitioned(row, fact)
        case _:
            state = "absent" if row is None else row.state
            raise IllegalTransition("rollout", state, type(fact).__name__)


def _transitioned(row: Rollout, fact: RolloutTransitioned) -> Rollout:
    row = replace(
        row,
        state=fact.to,
        in_flight=fact.to if fact.to in OPEN else None,
        current_wave=fact.current_wave,
        reason=fact.reason,
    )
    match fact.to:
        case RolloutState.TERMINAL:
            return replace(row, terminal_at=fact.at)
        case RolloutState.REVERTED:
            return replace(row, reverted_at=fact.at)
        case RolloutState.FAILED:
            return replace(row, failed_at=fact.at)
        case RolloutState.SUPERSEDED:
            return replace(row, superseded_at=fact.at, superseded_by=fact.successor_rollout_id)
        case RolloutState.PRUNED:
            return replace(row, pruned_at=fact.at)
        case _:
            return row


# ── what holds it back ────────────────────────────────────────────────────────────────────────────


def step_gates(
    row: RolloutGates, fact: GateChanged | RolloutTransitioned, now: datetime
) -> RolloutGates | None:
    """The gates that hold it back now; none: no row. Nothing holds back what is over."""
    if isinstance(fact, RolloutTransitioned):
        return None
    others = tuple(gate for gate in row.blocked if gate.gate != fact.gate)
    blocked = (*others, GateStatus(fact.gate, fact.reason, fact.at)) if fact.blocked else others
    ordered = tuple(sorted(blocked, key=lambda gate: gate.gate))
    return replace(row, blocked=ordered) if ordered else None


def _gate_ids(fact: GateChanged | RolloutTransitioned) -> tuple[str, ...]:
    if isinstance(fact, RolloutTransitioned) and fact.to in DISPATCHABLE:
        return ()
    return (fact.rollout_id,)


# ── what was last said of a release ───────────────────────────────────────────────────────────────

Said = RolloutOpened | RolloutHalted | RolloutTransitioned | RolloutConcluded


def _standing_ids(fact: Said) -> tuple[str, ...]:
    """The release of the rollout; with an opening, also the one that the channel leaves for it."""
    match fact:
        case RolloutOpened(channel=channel, target_ref=target, previous_ref=previous):
            ids = {standing_key(channel, target).id: None}
            if previous is not None:
                ids[standing_key(channel, previous).id] = None
            return tuple(ids)
        case RolloutTransitioned(to=to) if to not in _TELLING:
            return ()
        case _:
            return (standing_key(channel_of(fact.rollout_id), ref_of(fact.rollout_id)).id,)


def _start_standing(id: str, fact: Said) -> ReleaseStanding:
    channel, _, release_id = id.partition("/")
    return ReleaseStanding(channel=channel, release_id=release_id)


def step_standing(row: ReleaseStanding, fact: Said, now: datetime) -> ReleaseStanding:
    """Success says good; a halt, a bad outcome or a deliberate rollback says bad; nothing else
    says anything.
    """
    match fact:
        case RolloutOpened() if fact.target_ref == row.release_id:
            if fact.rollout_id == row.rollout_id:
                return row  # the same opening once more
            return replace(
                row, rollout_id=fact.rollout_id, outcome=None, outcome_at=None, followed_by=None
            )
        case RolloutOpened():
            row = _left(row, fact.at, fact.target_ref)
            if fact.rollback_of != row.release_id:
                return row
            row = _bad(row, fact.rollout_id, fact.at)
            by_itself = fact.automatic is PolicyAction.AUTO_ROLLBACK
            return replace(
                row,
                host_id=None,
                operator=fact.automatic or fact.operator,
                reason=fact.reason,
                auto_rolled_back=row.auto_rolled_back or by_itself,
            )
        case RolloutHalted():
            return replace(_bad(row, fact.rollout_id, fact.at), host_id=fact.host_id)
        case RolloutTransitioned(to=RolloutState.SUPERSEDED):
            if fact.rollout_id != row.succeeded_in or fact.successor_rollout_id is None:
                return row
            return _left(row, fact.at, ref_of(fact.successor_rollout_id))
        case RolloutTransitioned():
            return _bad(row, fact.rollout_id, fact.at)
        case RolloutConcluded():
            return _ended(row, fact)


def _ended(row: ReleaseStanding, fact: RolloutConcluded) -> ReleaseStanding:
    if fact.rollout_id == row.rollout_id:
        row = replace(row, outcome=fact.outcome, outcome_at=fact.at)
    if fact.outcome in BAD:
        return _bad(row, fact.rollout_id, fact.at)
    if fact.outcome is not Outcome.SUCCEEDED:
        return row
    if row.word is not Word.GOOD:
        row = replace(row, word=Word.GOOD, said_at=fact.at, host_id=None, operator=None, reason="")
    since = row.running_since or fact.at
    return replace(row, said_in=fact.rollout_id, succeeded_in=fact.rollout_id, running_since=since)


def _bad(row: ReleaseStanding, rollout_id: str, at: datetime) -> ReleaseStanding:
    """What a rollout says after its first bad word is the same word."""
    if row.word is Word.BAD and row.said_in == rollout_id:
        return row
    return replace(
        row,
        word=Word.BAD,
        said_at=at,
        said_in=rollout_id,
        host_id=None,
        operator=None,
        reason="",
        succeeded_in=None,
        running_since=None,
        soaked_seconds=0,
    )


def _left(row: ReleaseStanding, at: datetime, release_id: str) -> ReleaseStanding:
    """The channel goes on to another release: how long this one was its newest success, stays."""
    row = replace(row, followed_by=release_id)
    if row.running_since is None:
        return row
    ran = int((at - row.running_since).total_seconds())
    return replace(row, running_since=None, soaked_seconds=max(row.soaked_seconds, ran))


rollout_tallies = Machine(
    collection=TALLIES,
    number=5,
    reads=get_args(RolloutEvent),
    ids=_tally_ids,
    start=lambda id, fact: None,
    step=step_tally,
)
rollouts = Fold(
    collection=ROLLOUTS,
    number=3,
    reads=(RolloutOpened, RolloutTransitioned),
    ids=lambda fact: (fact.rollout_id,),
    start=lambda id, fact: None,
    step=step_rollout,
)
rollout_gates = Fold(
    collection=GATES,
    number=1,
    reads=(GateChanged, RolloutTransitioned),
    ids=_gate_ids,
    start=lambda id, fact: RolloutGates(id),
    step=step_gates,
)
release_standings = Fold(
    collection=STANDINGS,
    number=2,
    reads=(RolloutOpened, RolloutHalted, RolloutTransitioned, RolloutConcluded),
    ids=_standing_ids,
    start=_start_standing,
    step=step_standing,
)

FOLDS = (rollout_tallies, rollouts, rollout_gates, release_standings)
