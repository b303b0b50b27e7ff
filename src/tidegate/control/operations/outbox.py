"""Redrive and cancel intents of the outbox."""

from __future__ import annotations

from tidegate.control.operations.execute import Execute
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.outbox import names, slices as outbox_slices
from tidegate.kernel import model, slices as kernel_slices


class OutboxOperations:
    """The verbs of an intent. Each returns the log position of the change.

    Raises:
        MissingPermission, NotFound, IllegalTransition, NewerIntent.
    """

    def __init__(self, execute: Execute, outbox: OutboxReader) -> None:
        self._execute = execute
        self._outbox = outbox

    def redrive(self, caller: callers.Caller, intent_id: str, reason: str) -> model.Position:
        """Retry a dead letter, with the same idempotency key."""
        command = outbox_slices.RedriveIntent(
            scope=names.scope_of_intent(intent_id), intent_id=intent_id, by=caller.id, reason=reason
        )
        return self._run(steps.REDRIVE_INTENT, caller, outbox_slices.redrive_intent, command)

    def cancel(self, caller: callers.Caller, intent_id: str, reason: str) -> model.Position:
        """Cancel an intent that is pending or a dead letter."""
        command = outbox_slices.CancelIntent(
            scope=names.scope_of_intent(intent_id), intent_id=intent_id, by=caller.id, reason=reason
        )
        return self._run(steps.CANCEL_INTENT, caller, outbox_slices.cancel_intent, command)

    def _run(
        self,
        step: steps.Step,
        caller: callers.Caller,
        item: kernel_slices.Slice,
        command: outbox_slices.RedriveIntent | outbox_slices.CancelIntent,
    ) -> model.Position:
        caller.demand(step, scopes.channel_scope(command.scope))
        outcome = self._execute(item, command, caller)
        return outcome.position or self._outbox.find(command.intent_id).version
