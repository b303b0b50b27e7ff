"""What an operator does to an intent of the outbox: try it again, or give it up."""

from __future__ import annotations

from tidegate.control.operations.execute import Execute
from tidegate.control.queries.documents import OutboxReader
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import CANCEL_INTENT, REDRIVE_INTENT, Step
from tidegate.domain.outbox.names import scope_of_intent
from tidegate.domain.outbox.slices import CancelIntent, RedriveIntent, cancel_intent, redrive_intent
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice


class OutboxOperations:
    """The verbs of an intent. Each returns the log position at which it was done.

    Raises:
        MissingPermission, NotFound, IllegalTransition, NewerIntent.
    """

    def __init__(self, execute: Execute, outbox: OutboxReader) -> None:
        self._execute = execute
        self._outbox = outbox

    def redrive(self, caller: Caller, intent_id: str, reason: str) -> Position:
        """Try a dead intent again, under the same idempotency key."""
        command = RedriveIntent(
            scope=scope_of_intent(intent_id), intent_id=intent_id, by=caller.id, reason=reason
        )
        return self._run(REDRIVE_INTENT, caller, redrive_intent, command)

    def cancel(self, caller: Caller, intent_id: str, reason: str) -> Position:
        """Give up an intent that is pending or dead."""
        command = CancelIntent(
            scope=scope_of_intent(intent_id), intent_id=intent_id, by=caller.id, reason=reason
        )
        return self._run(CANCEL_INTENT, caller, cancel_intent, command)

    def _run(
        self, step: Step, caller: Caller, item: Slice, command: RedriveIntent | CancelIntent
    ) -> Position:
        caller.demand(step, channel_scope(command.scope))
        outcome = self._execute(item, command, caller)
        return outcome.position or self._outbox.find(command.intent_id).version
