"""Pause, resume, clear, retry and abort rollouts, skip hosts and waves, override gates.

Each verb runs alone in the rollout's lane, ahead of the reports that wait there.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from tidegate import decoders, errors
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute, VerbResult
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, scopes, steps
from tidegate.domain.hosts import refusals, rows as host_rows
from tidegate.domain.rollouts import (
    clearance,
    names,
    rows as rollout_rows,
    skip_slices,
    slices as rollout_slices,
    states,
    wave_slices,
)
from tidegate.kernel import model, slices as kernel_slices

# Verbs that bypass a check: on a protected channel they need a second person.
GUARDED: Final = (steps.RETRY_ROLLOUT, steps.OVERRIDE_GATE, steps.SKIP_WAVE, steps.PROMOTE_ALL)
MAY_WAIT: Final = (*GUARDED, steps.CLEAR_ROLLOUT)


def _bypasses(command: clearance.ClearRollout) -> bool:
    """Whether a clearance bypasses a failure. Abandoning a rollout only stops it."""
    return command.mode is not states.Clearance.ABANDON


_OF_KIND: Final[dict[str, tuple[steps.Step, kernel_slices.Slice]]] = {
    steps.RETRY_ROLLOUT.name: (steps.RETRY_ROLLOUT, clearance.clear_rollout),
    steps.CLEAR_ROLLOUT.name: (steps.CLEAR_ROLLOUT, clearance.clear_rollout),
    steps.OVERRIDE_GATE.name: (steps.OVERRIDE_GATE, rollout_slices.override_gate),
    steps.SKIP_WAVE.name: (steps.SKIP_WAVE, wave_slices.skip_wave),
    steps.PROMOTE_ALL.name: (steps.PROMOTE_ALL, wave_slices.promote_all),
}
for _, _item in _OF_KIND.values():
    decoders.build(_item.command)


class RolloutOperations:
    """The verbs of a rollout. Each returns the log position of the change.

    Raises:
        MissingPermission, RolloutUnknown, RolloutIsPruned, IllegalTransition, StaleVersion.
        LaneBusy: other commands kept the rollout busy; nothing was changed.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        fleet_reader: FleetReader,
        guard: ProtectionGuard,
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._fleet_reader = fleet_reader
        self._guard = guard

    def pause(self, caller: callers.Caller, rollout_id: str, reason: str) -> model.Position:
        """Send no orders and start no wave until the rollout is resumed."""
        return self._send(
            steps.PAUSE_ROLLOUT, rollout_slices.pause_rollout, caller, rollout_id, reason
        )

    def resume(self, caller: callers.Caller, rollout_id: str, reason: str) -> model.Position:
        """Continue a paused rollout. A halted one needs ``clear``."""
        return self._send(
            steps.RESUME_ROLLOUT, rollout_slices.resume_rollout, caller, rollout_id, reason
        )

    def abort(self, caller: callers.Caller, rollout_id: str, reason: str) -> model.Position:
        """End a rollout; no more orders are sent."""
        return self._send(
            steps.ABORT_ROLLOUT, rollout_slices.abort_rollout, caller, rollout_id, reason
        )

    def clear(
        self,
        caller: callers.Caller,
        rollout_id: str,
        mode: states.Clearance,
        reason: str,
        host_ids: tuple[str, ...] = (),
    ) -> model.Position:
        """Clear a halted rollout: retry hosts, waive them, or abandon the rollout.

        Raises:
            RollbackRunning, HostNotInRollout.
        """
        return self._clear(steps.CLEAR_ROLLOUT, caller, rollout_id, mode, reason, host_ids)

    def retry(
        self, caller: callers.Caller, rollout_id: str, reason: str, host_ids: tuple[str, ...] = ()
    ) -> model.Position:
        """Retry the failed and reverted hosts of a halted rollout: all, or these.

        Raises:
            RollbackRunning.
        """
        return self._clear(
            steps.RETRY_ROLLOUT, caller, rollout_id, states.Clearance.RESUME, reason, host_ids
        )

    def skip(
        self, caller: callers.Caller, rollout_id: str, host_id: str, reason: str
    ) -> VerbResult:
        """Continue without a host that has no order, has not accepted it, or waits for a reboot. Or
        release the other late hosts after a late host failed.

        Raises:
            HostNotInRollout, HostUnderWay.
        """
        caller.demand(steps.SKIP_HOST, scopes.channel_scope(names.channel_of(rollout_id)))
        before = self._demand(rollout_id)
        digest = before.row.plan_digest
        wave = self._fleet_reader.chart(digest).waves.get(host_id)
        known = self._reads.find(host_rows.record_key(rollout_id, host_id), host_rows.HostRecord)
        if wave is None and known is None:
            raise refusals.HostNotInRollout(rollout_id, host_id)
        command = skip_slices.SkipHostByHand(
            rollout_id=rollout_id,
            host_id=host_id,
            wave=wave or 0,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        outcome = self._lanes.run(
            rollout_id, lambda: self._execute(skip_slices.skip_host_by_hand, command, caller)
        )
        if outcome.position:
            return VerbResult(outcome.position)
        warning = f"{host_id} was skipped in {rollout_id} already. Nothing was changed."
        return VerbResult(before.version, (warning,))

    def override(
        self,
        caller: callers.Caller,
        rollout_id: str,
        gate: states.OverridableGate,
        reason: str,
        until: datetime | None = None,
    ) -> model.Position:
        """Let the rollout pass a gate, until a time or until it ends."""
        return self._send(
            steps.OVERRIDE_GATE,
            rollout_slices.override_gate,
            caller,
            rollout_id,
            reason,
            gate=gate,
            until=until,
        )

    def continue_wave(
        self, caller: callers.Caller, rollout_id: str, reason: str = ""
    ) -> model.Position:
        """Start the next wave, which waits for a person.

        Raises:
            NothingToContinue.
        """
        return self._send(
            steps.CONTINUE_ROLLOUT, wave_slices.continue_rollout, caller, rollout_id, reason
        )

    def skip_wave(
        self, caller: callers.Caller, rollout_id: str, wave: str, reason: str
    ) -> model.Position:
        """Continue without a wave, given by name or by number from 1. Its hosts that have no order
        do not get one in this rollout.

        Raises:
            WaveNotFound, WavePassed.
        """
        return self._send(
            steps.SKIP_WAVE, wave_slices.skip_wave, caller, rollout_id, reason, wave=wave
        )

    def promote_all(self, caller: callers.Caller, rollout_id: str, reason: str) -> model.Position:
        """Start all waves now. Gates, budgets and soaks still apply."""
        return self._send(steps.PROMOTE_ALL, wave_slices.promote_all, caller, rollout_id, reason)

    def run_again(
        self, caller: callers.Caller, kind: str, arguments: dict[str, Any]
    ) -> model.Position:
        """Execute what a request of this kind asked for."""
        step, item = _OF_KIND[kind]
        command = decoders.convert(arguments, item.command)
        return self._run(step, item, caller, arguments["rollout_id"], command)

    def _clear(
        self,
        step: steps.Step,
        caller: callers.Caller,
        rollout_id: str,
        mode: states.Clearance,
        reason: str,
        host_ids: tuple[str, ...],
    ) -> model.Position:
        target = self._demand(rollout_id).row.target_closure
        return self._send(
            step,
            clearance.clear_rollout,
            caller,
            rollout_id,
            reason,
            mode=mode,
            closure_hash=target if mode is states.Clearance.RESUME else "",
            host_ids=host_ids,
        )

    def _send(
        self,
        step: steps.Step,
        item: kernel_slices.Slice,
        caller: callers.Caller,
        rollout_id: str,
        reason: str,
        **members: Any,
    ) -> model.Position:
        """Run a command by the caller, on the version that the caller saw."""
        make_command: Any = item.command
        command = make_command(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
            **members,
        )
        return self._run(step, item, caller, rollout_id, command)

    def _run(
        self,
        step: steps.Step,
        item: kernel_slices.Slice,
        caller: callers.Caller,
        rollout_id: str,
        command: msgspec.Struct,
    ) -> model.Position:
        channel = names.channel_of(rollout_id)
        caller.demand(step, scopes.channel_scope(channel))
        before = self._demand(rollout_id).version  # raises before waiting for the lane

        def run(by: callers.Caller) -> CommandOutcome:
            return self._lanes.run(rollout_id, lambda: self._execute(item, command, by))

        if step not in GUARDED and not (
            isinstance(command, clearance.ClearRollout) and _bypasses(command)
        ):
            return run(caller).position or before
        arguments = msgspec.to_builtins(command)
        arguments.pop("expected_version")
        verb = GuardedVerb(
            step=step,
            channels=(channel,),
            arguments=arguments,
            reason=arguments["reason"],
            emergency=roles.Verb.EMERGENCY in step.verbs,
            check=lambda: self._demand_seen(caller, rollout_id),
            rehearse=lambda: self._execute.rehearse(item, command),
        )
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position or before

    def _demand_seen(self, caller: callers.Caller, rollout_id: str) -> None:
        """Raises: StaleVersion."""
        found, seen = self._demand(rollout_id), caller.expected_version
        if seen not in (None, found.version):
            raise errors.StaleVersion(seen, found.version)

    def _demand(self, rollout_id: str) -> Found[rollout_rows.Rollout]:
        return self._reads.demand(
            rollout_rows.rollout_key(rollout_id),
            rollout_rows.Rollout,
            refusals.RolloutUnknown(rollout_id),
        )
