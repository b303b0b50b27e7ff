"""Targets: external systems that perform effects, and that can be observed afterwards.

webhook.py     a signed POST to an address that was checked
command.py     a program, started without a shell
file.py        a file, replaced as a whole
fake.py        records its calls; for tests and simulations

A target may receive the same effect several times, always with the same key, and must perform it
only once. The calling process may die at any moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from tidegate import decoders, errors
from tidegate.domain.outbox import reconciliation, rows, states


class Effect(msgspec.Struct, frozen=True, rename="camel"):
    """What a target is asked to do. Every attempt sends the same bytes."""

    scope: str
    operation: str
    release_id: str
    requested_state: states.RequestedState
    sequence: int  # grows within a scope: an effect with a lower one than the last is outdated
    requested_at: datetime


class TargetDone(msgspec.Struct, frozen=True):
    """The effect was performed."""

    detail: str = ""


class TargetFailed(msgspec.Struct, frozen=True):
    """The target did not perform the effect. ``retryable``: the same request may work later."""

    reason: str
    retryable: bool = True


class Unobservable(errors.Unavailable):
    """The external system did not report its state; look again later."""

    code = "unobservable"


class Target(Protocol):
    """An external system that performs effects."""

    @property
    def name(self) -> str: ...

    @property
    def timeout_seconds(self) -> float:
        """How long ``perform`` takes at most. A lease must be longer."""
        ...

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        """Perform the effect, once per key however often this is called."""
        ...

    def observe(self, scope: str, operation: str) -> reconciliation.Observation | None:
        """Return the state of the external system; None: this kind of target cannot be observed.

        Raises:
            Unobservable: not now.
        """
        ...


def effect_of(intent: rows.Intent) -> Effect:
    """Return the effect that an intent asks for."""
    return Effect(
        intent.scope,
        intent.operation,
        intent.release_id,
        intent.requested_state,
        intent.version,
        intent.created_at,
    )


def observation_of(content: bytes) -> reconciliation.Observation:
    """Parse an observation from a JSON object ``{"idempotencyKey": …, "state": {…}}``.

    Raises:
        Unobservable: it is something else.
    """
    try:
        seen = _seen.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unobservable("the external system answered something else than its state") from error
    return reconciliation.Observation(seen.idempotency_key, seen.state)


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    idempotency_key: str = ""
    state: dict[str, str] = msgspec.field(default_factory=dict)


_seen = decoders.build(_Seen)
