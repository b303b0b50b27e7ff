"""Start and end freezes."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, structs

from tidegate.clock import Clock
from tidegate.control.operations import ids, protection
from tidegate.control.operations.execute import Execute
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, scopes, steps
from tidegate.domain.channels import refusals, rows, slices
from tidegate.kernel.model import Position


class StartedFreeze(Struct, frozen=True, kw_only=True):
    """A freeze, and the log position of its start."""

    freeze: rows.Freeze
    version: Position
    position: Position


class FreezeOperations:
    """The verbs of a freeze. The caller needs the permission on each channel that it names.

    Raises:
        MissingPermission.
    """

    def __init__(
        self, execute: Execute, reads: Reads, clock: Clock, guard: protection.ProtectionGuard
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._clock = clock
        self._guard = guard

    def start(
        self,
        caller: callers.Caller,
        reason: str,
        *,
        channels: tuple[str, ...] = (),
        until: datetime | None = None,
        freeze_id: str | None = None,
    ) -> StartedFreeze:
        """Stop dispatching orders on these channels; with no names, on all channels.

        Raises:
            ChannelNotFound, FreezeExists.
        """
        for scope in list_scopes(channels):
            caller.demand(steps.START_FREEZE, scope)
        command = slices.StartFreeze(
            freeze_id=freeze_id or f"freeze-{ids.make_id(caller, steps.START_FREEZE, 'freeze')}",
            operator=caller.id,
            reason=reason,
            channels=channels,
            until=until,
        )
        outcome = self._execute(slices.start_freeze, command, caller)
        found = self._reads.find(rows.freeze_key(command.freeze_id), rows.Freeze)
        if found is not None:
            position = outcome.position or found.version
            return StartedFreeze(freeze=found.row, version=found.version, position=position)
        over = rows.Freeze(  # it has ended since: return it as it started
            freeze_id=command.freeze_id,
            operator=caller.id,
            reason=reason,
            started_at=self._clock() if outcome.receipt is None else outcome.receipt.at,
            channels=channels,
            until=until,
        )
        return StartedFreeze(freeze=over, version=outcome.position, position=outcome.position)

    def end(self, caller: callers.Caller, freeze_id: str, reason: str) -> Position:
        """End a freeze and return the log position. If it covers a protected channel, this takes a
        second person, unless the caller started it.

        For a freeze that is over, the caller needs the permission everywhere, because its channels
        are no longer known.

        Raises:
            FreezeNotFound. StaleVersion: another freeze got this name meanwhile.
        """
        found = self._reads.find(rows.freeze_key(freeze_id), rows.Freeze)
        for scope in [roles.EVERYWHERE] if found is None else list_scopes(found.row.channels):
            caller.demand(steps.END_FREEZE, scope)
        asked = slices.EndFreeze(freeze_id=freeze_id, operator=caller.id, reason=reason)
        # Another freeze of this name may cover other channels.
        seen = None if found is None else found.version
        command = structs.replace(asked, expected_version=seen)

        def run(by: callers.Caller) -> CommandOutcome:
            return self._execute(slices.end_freeze, command, by, asked=asked)

        if found is None or (found.row.until is not None and found.row.until <= self._clock()):
            return run(caller).position  # it no longer has any effect
        verb = protection.GuardedVerb(
            step=steps.END_FREEZE,
            channels=found.row.channels,
            arguments={"freeze_id": freeze_id, "reason": reason},
            reason=reason,
            own_freeze=freeze_id,
            rehearse=lambda: self._execute.rehearse(slices.end_freeze, command),
        )
        earlier = lambda: self._execute.earlier(slices.end_freeze, asked, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position


def demand_channels(reads: Reads, channels: tuple[str, ...]) -> None:
    """Check that the channels exist. Raises: ChannelNotFound."""
    for name in channels:
        reads.demand(rows.channel_key(name), rows.Channel, refusals.ChannelNotFound(name))


def list_scopes(channels: tuple[str, ...]) -> list[str]:
    """List the scopes of a freeze: its channels, or everywhere."""
    return [scopes.channel_scope(name) for name in channels] or [roles.EVERYWHERE]
