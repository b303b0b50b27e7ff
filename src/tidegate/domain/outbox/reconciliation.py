"""What a look at the world means: confirmed, adrift, or in conflict with what we know.

A look moves no pin and lowers no confidence. It completes an intent whose success was never
heard of, has one repeated where that is safe, and refuses to choose where the evidence conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, field

from tidegate.domain.outbox.facts import (
    AttemptSucceeded,
    DriftDetected,
    DriftRepaired,
    IntentRedriven,
    ReconciliationRefused,
)
from tidegate.domain.outbox.names import check_name, parse_key
from tidegate.domain.outbox.redaction import MEMBERS, REDACTED, VALUE_BYTES_MAX, is_secret
from tidegate.domain.outbox.rows import (
    ACTUAL,
    Delivery,
    Drift,
    Intent,
    Queue,
    delivery_key,
    drift_key,
    queue_key,
)
from tidegate.domain.outbox.slices import demand_delivery, is_newest
from tidegate.domain.outbox.states import DriftState, IntentState, ReconciliationFinding
from tidegate.kernel import codec
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice

RECONCILER = "reconciler"  # as the one who has an intent repeated


class Observation(Struct, frozen=True):
    """What the external system says about one operation of a scope. Data, never authority."""

    idempotency_key: str = ""  # of the effect that it applied last; "": it knows of none
    state: dict[str, str] = field(default_factory=dict)  # in the words of a requested state

    @property
    def signature(self) -> str:
        """By which a second look at the same thing is known."""
        return sha256(codec.encode(self)).hexdigest()[:32]


def redact_observation(observation: Observation) -> dict[str, Any]:
    """What of an observation may be kept: the members of a requested state, and no secret."""
    state = {name: observation.state[name] for name in sorted(MEMBERS & observation.state.keys())}
    return {
        "idempotencyKey": _plain(observation.idempotency_key),
        "state": {name: _plain(value) for name, value in state.items()},
    }


def _plain(text: str) -> str:
    """It came from outside, so it is held to what an outbox may hold."""
    printable = text.isprintable() and len(text.encode(errors="replace")) <= VALUE_BYTES_MAX
    return text if printable and not is_secret(text) else REDACTED


def judge(intent: Intent, observation: Observation) -> ReconciliationFinding:
    """How what was seen relates to the newest intent of its operation."""
    wanted = msgspec.to_builtins(intent.requested_state)
    differs = any(wanted.get(name, value) != value for name, value in observation.state.items())
    seen = observation.idempotency_key
    if seen == intent.idempotency_key or (not seen and observation.state):
        return ReconciliationFinding.CONFLICTING if differs else ReconciliationFinding.CONFIRMED
    if not seen:
        return ReconciliationFinding.MISSING
    key = parse_key(seen)
    ours = key is not None and (key.scope, key.operation) == (intent.scope, intent.operation)
    if key is None or not ours or key.version >= intent.version:
        return ReconciliationFinding.CONFLICTING
    return ReconciliationFinding.BEHIND


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class ReconcileEffect(Struct, frozen=True, kw_only=True):
    """Say what a look at the newest intent of an operation found."""

    scope: str
    operation: str
    intent_id: str
    finding: ReconciliationFinding
    signature: str
    repairable: bool  # the registry stands as its history says, and wants what the intent wants


class ReconcileActual(Struct, frozen=True, kw_only=True):
    """Say whether the registry's row of a scope is what its history says."""

    scope: str
    differs: bool
    signature: str


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────

EffectRows = tuple[Drift | None, Queue | None, Delivery | None]


def decide_effect(rows: EffectRows, command: ReconcileEffect, now: datetime) -> Sequence[Struct]:
    """Raises: NotFound."""
    drift, queue, delivery = rows
    delivery = demand_delivery(delivery, command.scope, command.intent_id)
    if not is_newest(queue, command.operation, command.intent_id):
        return ()  # something newer was asked for since the look: the next look is at that
    if delivery.state is IntentState.CANCELLED:
        return ()  # nothing is wanted, so nothing that is there differs from it
    match command.finding, delivery.state:
        case ReconciliationFinding.CONFIRMED, _:
            return (*_completed(delivery, command), *_repaired(drift, command))
        case ((ReconciliationFinding.CONFLICTING | ReconciliationFinding.ROW_DIFFERS), _):
            return _said(drift, command, ReconciliationRefused)
        case _, IntentState.DONE:
            detected = _said(drift, command, DriftDetected)
            if detected and command.repairable:
                return (*detected, _redriven(command, now))
            return detected
        case _:
            return ()  # pending: the worker is at it; dead: it is shown as such


def _completed(delivery: Delivery, command: ReconcileEffect) -> tuple[Struct, ...]:
    if delivery.state not in (IntentState.PENDING, IntentState.DEAD):
        return ()
    succeeded = AttemptSucceeded(
        scope=command.scope,
        intent_id=command.intent_id,
        attempt=delivery.attempts,
        observed=True,
    )
    return (succeeded,)


def _redriven(command: ReconcileEffect, now: datetime) -> IntentRedriven:
    return IntentRedriven(
        scope=command.scope,
        intent_id=command.intent_id,
        by=RECONCILER,
        reason=command.finding,
        next_attempt_at=now,
    )


def decide_actual(
    rows: tuple[Drift | None], command: ReconcileActual, now: datetime
) -> Sequence[Struct]:
    """Raises: InvalidInput, LimitExceeded."""
    check_name("scope", command.scope)
    (drift,) = rows
    if not command.differs:
        return _closed(drift, command.scope, ACTUAL, command.signature)
    if drift is not None and drift.says(command.signature):
        return ()
    return (
        ReconciliationRefused(
            scope=command.scope,
            subject=ACTUAL,
            finding=ReconciliationFinding.ROW_DIFFERS,
            signature=command.signature,
        ),
    )


def _said(drift: Drift | None, command: ReconcileEffect, kind: Any) -> tuple[Struct, ...]:
    if drift is not None and drift.says(command.signature):
        return ()
    said: Struct = kind(
        scope=command.scope,
        subject=command.operation,
        finding=command.finding,
        signature=command.signature,
    )
    return (said,)


def _repaired(drift: Drift | None, command: ReconcileEffect) -> tuple[Struct, ...]:
    return _closed(drift, command.scope, command.operation, command.signature)


def _closed(
    drift: Drift | None, scope: str, subject: str, signature: str
) -> tuple[DriftRepaired, ...]:
    if drift is None or drift.state is DriftState.REPAIRED:
        return ()
    repaired = DriftRepaired(
        scope=scope, subject=subject, finding=ReconciliationFinding.CONFIRMED, signature=signature
    )
    return (repaired,)


def rows_of_effect(command: ReconcileEffect) -> tuple[Key, ...]:
    return (
        drift_key(command.scope, command.operation),
        queue_key(command.scope),
        delivery_key(command.intent_id),
    )


reconcile_effect = Slice(
    name="reconcile-effect",
    command=ReconcileEffect,
    writes=(AttemptSucceeded, DriftDetected, DriftRepaired, ReconciliationRefused, IntentRedriven),
    rows=rows_of_effect,
    decide=decide_effect,
)
reconcile_actual = Slice(
    name="reconcile-actual",
    command=ReconcileActual,
    writes=(DriftRepaired, ReconciliationRefused),
    rows=lambda command: (drift_key(command.scope, ACTUAL),),
    decide=decide_actual,
)
SLICES = (reconcile_effect, reconcile_actual)
