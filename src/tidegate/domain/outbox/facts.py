"""The facts of the outbox. All facts of a scope are in its partition, in order."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.outbox import names, redaction, states
from tidegate.kernel import model, tags, vocabulary


class OutboxFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The common field: the scope."""

    scope: Annotated[str, tags.Partition()]


class IntentRequested(OutboxFact, frozen=True, kw_only=True):
    """An effect outside was requested. This does not say whether it happened.

    Only ``request_intent`` makes it, because that keeps secrets out.
    """

    operation: str
    release_id: Annotated[str, tags.Untagged()]
    command_id: Annotated[str, tags.Untagged()]
    idempotency_key: str
    requested_state: states.RequestedState
    version: int  # of the registry's row; it grows with each intent of a scope
    created_at: datetime

    @property
    def intent_id(self) -> str:
        return names.intent_id(self.scope, self.operation, self.release_id, self.command_id)


class IntentFact(OutboxFact, frozen=True, kw_only=True):
    """The common fields of facts about one intent."""

    intent_id: Annotated[str, tags.Untagged()]


class IntentSuperseded(IntentFact, frozen=True, kw_only=True):
    """A newer intent of the same operation was requested before this one was done."""

    by_intent_id: Annotated[str, tags.Untagged()]


class AttemptSucceeded(IntentFact, frozen=True, kw_only=True):
    """The effect happened: the target confirmed it, or it was observed there."""

    attempt: int
    detail: str = ""  # redacted
    observed: bool = False  # found by the reconciler, not reported by an attempt


class AttemptFailed(IntentFact, frozen=True, kw_only=True):
    """An attempt failed. It may have had its effect nevertheless."""

    attempt: int
    error: str  # redacted
    next_attempt_at: datetime | None = None  # None: there is no further attempt


class IntentDied(IntentFact, frozen=True, kw_only=True):
    """The intent is a dead letter: it is not attempted again until an operator redrives it."""

    attempts: int
    reason: str


class IntentRedriven(IntentFact, frozen=True, kw_only=True):
    """A dead letter is attempted again with the same idempotency key."""

    by: str
    reason: str
    next_attempt_at: datetime


class IntentCancelled(IntentFact, frozen=True, kw_only=True):
    """An operator cancelled the intent: it is not attempted again, and the next one is due.

    Effects of earlier attempts are not undone.
    """

    by: str
    reason: str


class ReconciliationFact(OutboxFact, frozen=True, kw_only=True):
    """A result of the reconciler. None of them changes a pin or its confidence."""

    subject: str  # an operation, or ACTUAL: the registry's own row
    finding: states.ReconciliationFinding
    signature: str  # of the observation; the same observation is recorded once


class DriftDetected(ReconciliationFact, frozen=True, kw_only=True):
    """The external state differs from what was applied there."""


class DriftRepaired(ReconciliationFact, frozen=True, kw_only=True):
    """The external state is as requested again."""


class ReconciliationRefused(ReconciliationFact, frozen=True, kw_only=True):
    """The observation conflicts with the log. Nothing is repaired until an operator decides."""


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
    """Build the intent to have ``operation`` done outside, for the commit of a change.

    ``version`` is that of the registry's row after the change. The slice that decides the change
    adds this fact to its own. An older intent is superseded in the same commit.

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
