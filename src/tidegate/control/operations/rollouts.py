"""What an operator does to a rollout: pause, resume, clear, retry, skip a host, override a gate,
pass waves, abort.

Each runs alone in the rollout's lane, before the reports that wait there.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from tidegate import decoders
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import (
    ABORT_ROLLOUT,
    CLEAR_ROLLOUT,
    CONTINUE_ROLLOUT,
    OVERRIDE_GATE,
    PAUSE_ROLLOUT,
    PROMOTE_ALL,
    RESUME_ROLLOUT,
    RETRY_ROLLOUT,
    SKIP_HOST,
    SKIP_WAVE,
    Step,
)
from tidegate.domain.hosts.refusals import HostNotInRollout, RolloutUnknown
from tidegate.domain.hosts.rows import HostRecord, record_key
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.names import channel_of
from tidegate.domain.rollouts.report_slices import SkipHostByHand, skip_host_by_hand
from tidegate.domain.rollouts.rows import Rollout, rollout_key
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    OverrideGate,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    override_gate,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Clearance, OverridableGate
from tidegate.domain.rollouts.wave_slices import (
    ContinueRollout,
    PromoteAll,
    SkipWave,
    continue_rollout,
    promote_all,
    skip_wave,
)
from tidegate.errors import StaleVersion
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice

# What bypasses something: on a protected channel it needs a second person.
GUARDED: Final = (RETRY_ROLLOUT, OVERRIDE_GATE, SKIP_WAVE, PROMOTE_ALL)
MAY_WAIT: Final = (*GUARDED, CLEAR_ROLLOUT)


def _bypasses(command: ClearRollout) -> bool:
    """Giving a rollout up stops it, which takes one person."""
    return command.mode is not Clearance.ABANDON


_OF_KIND: Final[dict[str, tuple[Step, Slice]]] = {
    RETRY_ROLLOUT.name: (RETRY_ROLLOUT, clear_rollout),
    CLEAR_ROLLOUT.name: (CLEAR_ROLLOUT, clear_rollout),
    OVERRIDE_GATE.name: (OVERRIDE_GATE, override_gate),
    SKIP_WAVE.name: (SKIP_WAVE, skip_wave),
    PROMOTE_ALL.name: (PROMOTE_ALL, promote_all),
}
for _, _item in _OF_KIND.values():
    decoders.build(_item.command)


class RolloutOperations:
    """The verbs of a rollout. Each returns the log position at which it was done.

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

    def pause(self, caller: Caller, rollout_id: str, reason: str) -> Position:
        """Send no order and start no wave until it is resumed."""
        command = PauseRollout(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(PAUSE_ROLLOUT, caller, rollout_id, pause_rollout, command)

    def resume(self, caller: Caller, rollout_id: str, reason: str) -> Position:
        """Continue a paused rollout; a halted one is cleared instead."""
        command = ResumeRollout(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(RESUME_ROLLOUT, caller, rollout_id, resume_rollout, command)

    def abort(self, caller: Caller, rollout_id: str, reason: str) -> Position:
        """End it where it is: nothing more is dispatched."""
        command = AbortRollout(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(ABORT_ROLLOUT, caller, rollout_id, abort_rollout, command)

    def clear(
        self,
        caller: Caller,
        rollout_id: str,
        mode: Clearance,
        reason: str,
        host_ids: tuple[str, ...] = (),
    ) -> Position:
        """Decide about a rollout that stopped: try again, waive hosts, or give it up.

        Raises:
            RollbackRunning, HostNotInRollout.
        """
        return self._clear(CLEAR_ROLLOUT, caller, rollout_id, mode, reason, host_ids)

    def retry(
        self, caller: Caller, rollout_id: str, reason: str, host_ids: tuple[str, ...] = ()
    ) -> Position:
        """Try the failed and reverted hosts of a rollout that stopped again: all, or these.

        Raises:
            RollbackRunning.
        """
        return self._clear(RETRY_ROLLOUT, caller, rollout_id, Clearance.RESUME, reason, host_ids)

    def skip(self, caller: Caller, rollout_id: str, host_id: str, reason: str) -> Position:
        """Continue without a host that has no order, has not taken it, or waits for a reboot; or
        let other late hosts go after a late one failed.

        Raises:
            HostNotInRollout, HostUnderWay.
        """
        caller.demand(SKIP_HOST, channel_scope(channel_of(rollout_id)))
        digest = self._demand(rollout_id).row.plan_digest
        wave = self._fleet_reader.chart(digest).waves.get(host_id)
        known = self._reads.find(record_key(rollout_id, host_id), HostRecord)
        if wave is None and known is None:
            raise HostNotInRollout(rollout_id, host_id)
        command = SkipHostByHand(
            rollout_id=rollout_id,
            host_id=host_id,
            wave=wave or 0,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(SKIP_HOST, caller, rollout_id, skip_host_by_hand, command)

    def override(
        self,
        caller: Caller,
        rollout_id: str,
        gate: OverridableGate,
        reason: str,
        until: datetime | None = None,
    ) -> Position:
        """Let the rollout pass a gate, until a time or to its end."""
        command = OverrideGate(
            rollout_id=rollout_id,
            gate=gate,
            operator=caller.id,
            reason=reason,
            until=until,
            expected_version=caller.expected_version,
        )
        return self._run(OVERRIDE_GATE, caller, rollout_id, override_gate, command)

    def continue_wave(self, caller: Caller, rollout_id: str, reason: str = "") -> Position:
        """Let the next wave go, which waits for a person.

        Raises:
            NothingToContinue.
        """
        command = ContinueRollout(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(CONTINUE_ROLLOUT, caller, rollout_id, continue_rollout, command)

    def skip_wave(self, caller: Caller, rollout_id: str, wave: str, reason: str) -> Position:
        """Continue without a wave, which is named, or numbered from 1. Its hosts without an order
        get none of this rollout.

        Raises:
            WaveNotFound, WavePassed.
        """
        command = SkipWave(
            rollout_id=rollout_id,
            wave=wave,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(SKIP_WAVE, caller, rollout_id, skip_wave, command)

    def promote_all(self, caller: Caller, rollout_id: str, reason: str) -> Position:
        """Let every wave go now. Gates, budgets and soaks stay."""
        command = PromoteAll(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(PROMOTE_ALL, caller, rollout_id, promote_all, command)

    def run_again(self, caller: Caller, kind: str, arguments: dict[str, Any]) -> Position:
        """Carry out what a request of this kind asked for."""
        step, item = _OF_KIND[kind]
        command = decoders.convert(arguments, item.command)
        return self._run(step, caller, arguments["rollout_id"], item, command)

    def _clear(
        self,
        step: Step,
        caller: Caller,
        rollout_id: str,
        mode: Clearance,
        reason: str,
        host_ids: tuple[str, ...],
    ) -> Position:
        target = self._demand(rollout_id).row.target_closure
        command = ClearRollout(
            rollout_id=rollout_id,
            operator=caller.id,
            reason=reason,
            mode=mode,
            closure_hash=target if mode is Clearance.RESUME else "",
            host_ids=host_ids,
            expected_version=caller.expected_version,
        )
        return self._run(step, caller, rollout_id, clear_rollout, command)

    def _run(
        self, step: Step, caller: Caller, rollout_id: str, item: Slice, command: Struct
    ) -> Position:
        channel = channel_of(rollout_id)
        caller.demand(step, channel_scope(channel))
        before = self._demand(rollout_id).version  # an unknown rollout is refused before it waits

        def run(by: Caller) -> CommandOutcome:
            return self._lanes.run(rollout_id, lambda: self._execute(item, command, by))

        if step not in GUARDED and not (isinstance(command, ClearRollout) and _bypasses(command)):
            return run(caller).position or before
        arguments = msgspec.to_builtins(command)
        arguments.pop("expected_version")
        verb = GuardedVerb(
            step=step,
            channels=(channel,),
            arguments=arguments,
            reason=arguments["reason"],
            emergency=Verb.EMERGENCY in step.verbs,
            check=lambda: self._demand_seen(caller, rollout_id),
        )
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position or before

    def _demand_seen(self, caller: Caller, rollout_id: str) -> None:
        """Raises: StaleVersion."""
        found, seen = self._demand(rollout_id), caller.expected_version
        if seen not in (None, found.version):
            raise StaleVersion(seen, found.version)

    def _demand(self, rollout_id: str) -> Found[Rollout]:
        return self._reads.demand(rollout_key(rollout_id), Rollout, RolloutUnknown(rollout_id))
