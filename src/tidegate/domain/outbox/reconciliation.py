"""Reconciliation: compare an observed external state with what was requested.

An observation never moves a pin or lowers its confidence. It completes an intent whose success was
not reported, requests a repetition where that is safe, and refuses to decide if it conflicts with
the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from tidegate.domain.outbox import facts, names, redaction, rows as outbox_rows, slices, states
from tidegate.kernel import codec, model, slices as kernel_slices

RECONCILER = "reconciler"  # as the actor who redrives an intent


class Observation(msgspec.Struct, frozen=True):
    """The state that an external system reports for one operation of a scope. Never authority."""

    idempotency_key: str = ""  # of the effect that it applied last; "": none
    state: dict[str, str] = msgspec.field(default_factory=dict)  # fields of a requested state

    @property
    def signature(self) -> str:
        """The hash by which a repeated observation is recognised."""
        return sha256(codec.encode(self)).hexdigest()[:32]


def redact_observation(observation: Observation) -> dict[str, Any]:
    """The part of an observation that may be stored: fields of a requested state, no secrets."""
    state = {
        name: observation.state[name]
        for name in sorted(redaction.MEMBERS & observation.state.keys())
    }
    return {
        "idempotencyKey": _plain(observation.idempotency_key),
        "state": {name: _plain(value) for name, value in state.items()},
    }


def _plain(text: str) -> str:
    """Replace a text from outside that an outbox may not store."""
    printable = (
        text.isprintable() and len(text.encode(errors="replace")) <= redaction.VALUE_BYTES_MAX
    )
    return text if printable and not redaction.is_secret(text) else redaction.REDACTED


def judge(intent: outbox_rows.Intent, observation: Observation) -> states.ReconciliationFinding:
    """Compare an observation with the newest intent of its operation."""
    wanted = msgspec.to_builtins(intent.requested_state)
    differs = any(wanted.get(name, value) != value for name, value in observation.state.items())
    seen = observation.idempotency_key
    if seen == intent.idempotency_key or (not seen and observation.state):
        return (
            states.ReconciliationFinding.CONFLICTING
            if differs
            else states.ReconciliationFinding.CONFIRMED
        )
    if not seen:
        return states.ReconciliationFinding.MISSING
    key = names.parse_key(seen)
    ours = key is not None and (key.scope, key.operation) == (intent.scope, intent.operation)
    if key is None or not ours or key.version >= intent.version:
        return states.ReconciliationFinding.CONFLICTING
    return states.ReconciliationFinding.BEHIND


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class ReconcileEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Record an observation of the newest intent's effect."""

    scope: str
    operation: str
    intent_id: str
    finding: states.ReconciliationFinding
    signature: str
    repairable: bool  # the registry's row matches its history and the intent


class ReconcileActual(msgspec.Struct, frozen=True, kw_only=True):
    """Record whether the registry's row of a scope matches its history."""

    scope: str
    differs: bool
    signature: str


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────

EffectRows = tuple[outbox_rows.Drift | None, outbox_rows.Queue | None, outbox_rows.Delivery | None]


def decide_effect(
    rows: EffectRows, command: ReconcileEffect, now: datetime
) -> Sequence[msgspec.Struct]:
    """Raises: NotFound."""
    drift, queue, delivery = rows
    delivery = slices.demand_delivery(delivery, command.scope, command.intent_id)
    if not slices.is_newest(queue, command.operation, command.intent_id):
        return ()  # a newer intent was requested since; the next observation is about that
    if delivery.state is states.IntentState.CANCELLED:
        return ()  # nothing is requested, so nothing can differ
    match command.finding, delivery.state:
        case states.ReconciliationFinding.CONFIRMED, _:
            return (*_completed(delivery, command), *_repaired(drift, command))
        case (
            (states.ReconciliationFinding.CONFLICTING | states.ReconciliationFinding.ROW_DIFFERS),
            _,
        ):
            return _said(drift, command, facts.ReconciliationRefused)
        case _, states.IntentState.DONE:
            detected = _said(drift, command, facts.DriftDetected)
            if detected and command.repairable:
                return (*detected, _redriven(command, now))
            return detected
        case _:
            return ()  # pending: the worker tries it; dead: shown as a dead letter


def _completed(
    delivery: outbox_rows.Delivery, command: ReconcileEffect
) -> tuple[msgspec.Struct, ...]:
    if delivery.state not in (states.IntentState.PENDING, states.IntentState.DEAD):
        return ()
    succeeded = facts.AttemptSucceeded(
        scope=command.scope, intent_id=command.intent_id, attempt=delivery.attempts, observed=True
    )
    return (succeeded,)


def _redriven(command: ReconcileEffect, now: datetime) -> facts.IntentRedriven:
    return facts.IntentRedriven(
        scope=command.scope,
        intent_id=command.intent_id,
        by=RECONCILER,
        reason=command.finding,
        next_attempt_at=now,
    )


def decide_actual(
    rows: tuple[outbox_rows.Drift | None], command: ReconcileActual, now: datetime
) -> Sequence[msgspec.Struct]:
    """Raises: InvalidInput, LimitExceeded."""
    names.check_name("scope", command.scope)
    (drift,) = rows
    if not command.differs:
        return _closed(drift, command.scope, outbox_rows.ACTUAL, command.signature)
    if drift is not None and drift.is_open_with(command.signature):
        return ()
    return (
        facts.ReconciliationRefused(
            scope=command.scope,
            subject=outbox_rows.ACTUAL,
            finding=states.ReconciliationFinding.ROW_DIFFERS,
            signature=command.signature,
        ),
    )


def _said(
    drift: outbox_rows.Drift | None, command: ReconcileEffect, kind: Any
) -> tuple[msgspec.Struct, ...]:
    if drift is not None and drift.is_open_with(command.signature):
        return ()
    fact: msgspec.Struct = kind(
        scope=command.scope,
        subject=command.operation,
        finding=command.finding,
        signature=command.signature,
    )
    return (fact,)


def _repaired(
    drift: outbox_rows.Drift | None, command: ReconcileEffect
) -> tuple[msgspec.Struct, ...]:
    return _closed(drift, command.scope, command.operation, command.signature)


def _closed(
    drift: outbox_rows.Drift | None, scope: str, subject: str, signature: str
) -> tuple[facts.DriftRepaired, ...]:
    if drift is None or drift.state is states.DriftState.REPAIRED:
        return ()
    repaired = facts.DriftRepaired(
        scope=scope,
        subject=subject,
        finding=states.ReconciliationFinding.CONFIRMED,
        signature=signature,
    )
    return (repaired,)


def rows_of_effect(command: ReconcileEffect) -> tuple[model.Key, ...]:
    return (
        outbox_rows.drift_key(command.scope, command.operation),
        outbox_rows.queue_key(command.scope),
        outbox_rows.delivery_key(command.intent_id),
    )


reconcile_effect = kernel_slices.Slice(
    name="reconcile-effect",
    command=ReconcileEffect,
    writes=(
        facts.AttemptSucceeded,
        facts.DriftDetected,
        facts.DriftRepaired,
        facts.ReconciliationRefused,
        facts.IntentRedriven,
    ),
    rows=rows_of_effect,
    decide=decide_effect,
)
reconcile_actual = kernel_slices.Slice(
    name="reconcile-actual",
    command=ReconcileActual,
    writes=(facts.DriftRepaired, facts.ReconciliationRefused),
    rows=lambda command: (outbox_rows.drift_key(command.scope, outbox_rows.ACTUAL),),
    decide=decide_actual,
)
SLICES = (reconcile_effect, reconcile_actual)
