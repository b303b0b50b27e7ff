"""What an operator does to a quarantine: lift it."""

from __future__ import annotations

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import LIFT_QUARANTINE
from tidegate.domain.channels.slices import LiftQuarantine, lift_quarantine
from tidegate.kernel.model import Position


class QuarantineOperations:
    """The verbs of a quarantine."""

    def __init__(self, execute: Execute, guard: ProtectionGuard) -> None:
        self._execute = execute
        self._guard = guard

    def lift(self, caller: Caller, channel: str, closure_hash: str, reason: str) -> Position:
        """Allow an artifact to be dispatched on the channel again.

        Raises:
            MissingPermission, QuarantineNotFound.
        """
        caller.demand(LIFT_QUARANTINE, channel_scope(channel))
        command = LiftQuarantine(
            channel=channel, closure_hash=closure_hash, operator=caller.id, reason=reason
        )
        verb = GuardedVerb(
            step=LIFT_QUARANTINE,
            channels=(channel,),
            arguments={"closure_hash": closure_hash, "reason": reason},
            reason=reason,
        )
        return self._guard.run(
            caller,
            verb,
            lambda by: self._execute(lift_quarantine, command, by),
            lambda: self._execute.earlier(lift_quarantine, command, caller),
        ).position
