"""Lift quarantines."""

from __future__ import annotations

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import rows, slices
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.kernel.model import Position


class QuarantineOperations:
    """The verbs of a quarantine."""

    def __init__(self, execute: Execute, reads: Reads, guard: ProtectionGuard) -> None:
        self._execute = execute
        self._reads = reads
        self._guard = guard

    def lift(self, caller: callers.Caller, channel: str, named: str, reason: str) -> Position:
        """Allow an artifact on the channel again. ``named`` is its digest, or a release that has
        it.

        Raises:
            MissingPermission, QuarantineNotFound.
        """
        caller.demand(steps.LIFT_QUARANTINE, scopes.channel_scope(channel))
        closure_hash = self._find_digest(channel, named)
        command = slices.LiftQuarantine(
            channel=channel, closure_hash=closure_hash, operator=caller.id, reason=reason
        )
        verb = GuardedVerb(
            step=steps.LIFT_QUARANTINE,
            channels=(channel,),
            arguments={"closure_hash": closure_hash, "reason": reason},
            reason=reason,
            rehearse=lambda: self._execute.rehearse(slices.lift_quarantine, command),
        )
        return self._guard.run(
            caller,
            verb,
            lambda by: self._execute(slices.lift_quarantine, command, by),
            lambda: self._execute.earlier(slices.lift_quarantine, command, caller),
        ).position

    def _find_digest(self, channel: str, named: str) -> str:
        """Return the digest of a release; any other text is returned as a digest."""
        if self._reads.find(rows.quarantine_key(channel, named), rows.Quarantined) is not None:
            return named
        known = self._reads.find(known_key(named), KnownRelease)
        return named if known is None else known.row.digest
