"""The world outside: what can be asked to do something, and looked at afterwards.

webhook.py     a signed POST to an address that was checked
command.py     a program, started without a shell
file.py        a file, replaced as a whole
fake.py        remembers what it was asked; for tests and simulations

A target may be asked the same thing several times, always with the same key, and must have no
second effect then. It may be asked by a process that dies at any moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from tidegate import decoders
from tidegate.domain.outbox import reconciliation, rows, states
from tidegate.errors import Unavailable


class Effect(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked of a target. The same at every attempt, to the byte."""

    scope: str
    operation: str
    release_id: str
    requested_state: states.RequestedState
    sequence: int  # grows within a scope: an effect with a lower one than the last is out of date
    requested_at: datetime


class TargetDone(msgspec.Struct, frozen=True):
    """The effect stands."""

    detail: str = ""


class TargetFailed(msgspec.Struct, frozen=True):
    """It does not, as far as the target knows; ``retryable``: the same request may work later."""

    reason: str
    retryable: bool = True


class Unobservable(Unavailable):
    """The external system did not report its state; look again later."""

    code = "unobservable"


class Target(Protocol):
    """One way to have effects outside."""

    @property
    def name(self) -> str: ...

    @property
    def timeout_seconds(self) -> float:
        """How long ``perform`` takes at most. A lease must outlast it."""
        ...

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        """Have the effect, once per key however often it is called."""
        ...

    def observe(self, scope: str, operation: str) -> reconciliation.Observation | None:
        """How the external system stands; None: this kind of target cannot tell.

        Raises:
            Unobservable: it could, but not now.
        """
        ...


def effect_of(intent: rows.Intent) -> Effect:
    """What an intent asks for, in the words of a target."""
    return Effect(
        intent.scope,
        intent.operation,
        intent.release_id,
        intent.requested_state,
        intent.version,
        intent.created_at,
    )


def observation_of(content: bytes) -> reconciliation.Observation:
    """The observation in a JSON object ``{"idempotencyKey": …, "state": {…}}``.

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
