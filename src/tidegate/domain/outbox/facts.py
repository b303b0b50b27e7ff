"""What happens in an outbox. All facts of a scope stand in its partition, in their order."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.outbox import names, redaction, states
from tidegate.kernel import model, tags, vocabulary


class OutboxFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them say: in which scope."""

    scope: Annotated[str, tags.Partition()]


class IntentRequested(OutboxFact, frozen=True, kw_only=True):
    """An effect outside was asked for. It says nothing about whether it happened.

    Made by ``request_intent`` alone, which keeps secrets out.
    """

    operation: str
    release_id: Annotated[str, tags.Untagged()]
    command_id: Annotated[str, tags.Untagged()]
    idempotency_key: str
    requested_state: states.RequestedState
    version: int  # of the registry's row: later intents of a scope have a higher one
    created_at: datetime

    @property
    def intent_id(self) -> str:
        return names.intent_id(self.scope, self.operation, self.release_id, self.command_id)


class IntentFact(OutboxFact, frozen=True, kw_only=True):
    """Something became of an intent."""

    intent_id: Annotated[str, tags.Untagged()]


class IntentSuperseded(IntentFact, frozen=True, kw_only=True):
    """A newer intent of the same operation came before this one was done."""

    by_intent_id: Annotated[str, tags.Untagged()]


class AttemptSucceeded(IntentFact, frozen=True, kw_only=True):
    """The effect stands: the target said so, or it was observed there."""

    attempt: int
    detail: str = ""  # redacted
    observed: bool = False  # found there by the reconciler, not reported by an attempt


class AttemptFailed(IntentFact, frozen=True, kw_only=True):
    """An attempt did not succeed; it may have had its effect all the same."""

    attempt: int
    error: str  # redacted
    next_attempt_at: datetime | None = None  # None: there will be none


class IntentDied(IntentFact, frozen=True, kw_only=True):
    """Nobody will attempt it again until an operator says so."""

    attempts: int
    reason: str


class IntentRedriven(IntentFact, frozen=True, kw_only=True):
    """It is to be attempted again, under the same key."""

    by: str
    reason: str
    next_attempt_at: datetime


class IntentCancelled(IntentFact, frozen=True, kw_only=True):
    """An operator wants it no more: it is not attempted again, and what waits behind it goes on.

    What an attempt did before that stands outside; nothing is undone.
    """

    by: str
    reason: str


class ReconciliationFact(OutboxFact, frozen=True, kw_only=True):
    """The world was looked at. None of these moves a pin or its confidence."""

    subject: str  # an operation, or ACTUAL: the registry's own row
    finding: states.ReconciliationFinding
    signature: str  # of what was seen: a second look at the same thing says nothing new


class DriftDetected(ReconciliationFact, frozen=True, kw_only=True):
    """What is outside is not what was done there."""


class DriftRepaired(ReconciliationFact, frozen=True, kw_only=True):
    """What is outside is again what was asked for."""


class ReconciliationRefused(ReconciliationFact, frozen=True, kw_only=True):
    """The evidence conflicts with ours: nothing is done about it until an operator looks."""


Outcome = AttemptSucceeded | AttemptFailed | IntentDied
Progress = IntentSuperseded | Outcome | IntentRedriven | IntentCancelled
Reconciliation = DriftDetected | DriftRepaired | ReconciliationRefused


def request_intent(
    *,
    scope: str,
    operation: str,
    release_id: str,
    version: int,
    command_id: str,
    state: states.RequestedState | dict[str, Any],
    now: datetime,
) -> IntentRequested:
    """The intent to have ``operation`` done outside, for the commit of the change that owes it.

    ``version`` is that of the registry's row after the change. Whoever decides the change adds the
    fact to its own; that an older intent is superseded follows in the same commit.

    Raises:
        SecretRefused, InvalidInput, LimitExceeded.
    """
    names.check_name("command_id", command_id)
    model.check_time("the time of an intent", now)
    key = names.idempotency_key(scope, release_id, operation, version)
    return IntentRequested(
        scope=scope,
        operation=operation,
        release_id=release_id,
        command_id=command_id,
        idempotency_key=str(key),
        requested_state=redaction.check_requested_state(state),
        version=version,
        created_at=now,
    )


FACTS = (
    *vocabulary.facts("outbox", IntentRequested, IntentSuperseded, IntentRedriven, IntentCancelled),
    *vocabulary.facts("outbox", DriftDetected, DriftRepaired, ReconciliationRefused),
    *vocabulary.facts("effect", AttemptSucceeded, AttemptFailed, IntentDied),
)
