"""How facts become the rows of rollouts.

    HostStateChanged, …  ──▶ tally machine ──▶ RolloutTransitioned ──▶ rollouts, the seed's table
                                           ──▶ WaveAdvanced, RolloutTerminal, RolloutHalted, …

``rollouts`` hears of openings and transitions only: so its version is the position of the last
transition, and ``born`` that of the opening.
"""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.rollouts.effects import interpreted
from tidegate.domain.rollouts.facts import (
    GateChanged,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.rows import (
    GATES,
    ROLLOUTS,
    TALLIES,
    Gate,
    Rollout,
    RolloutGates,
    RolloutTally,
)
from tidegate.domain.rollouts.states import DISPATCHABLE, OPEN, RolloutState
from tidegate.domain.rollouts.table import RolloutEvent
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold, Machine


def step_tally(
    tally: RolloutTally | None, event: RolloutEvent, now: datetime
) -> tuple[RolloutTally, tuple[Struct, ...]]:
    """The machine's step, with its effects as what they come to. Raises: as ``step``."""
    stepped, effects = step(tally, event, now)
    return interpreted(stepped, effects, event, now)


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
    blocked = (*others, Gate(fact.gate, fact.reason, fact.at)) if fact.blocked else others
    ordered = tuple(sorted(blocked, key=lambda gate: gate.gate))
    return replace(row, blocked=ordered) if ordered else None


def _gate_ids(fact: GateChanged | RolloutTransitioned) -> tuple[str, ...]:
    if isinstance(fact, RolloutTransitioned) and fact.to in DISPATCHABLE:
        return ()
    return (fact.rollout_id,)


rollout_tallies = Machine(
    collection=TALLIES,
    number=2,
    reads=get_args(RolloutEvent),
    ids=_tally_ids,
    start=lambda id, fact: None,
    step=step_tally,
)
rollouts = Fold(
    collection=ROLLOUTS,
    number=2,
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

FOLDS = (rollout_tallies, rollouts, rollout_gates)
