"""What an operator does to a host: enroll, re-enroll, label, revoke, retire.

What changes the fleet's row runs in the lane of the fleet. A command there may wait for the lane of
a rollout; nothing that runs in one may wait for the lane of the fleet.
"""

from __future__ import annotations

from tidegate.control.fleet.enrollment import Enrollment, MadeToken
from tidegate.control.lanes import LaneBusy, Lanes
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.steps import (
    ENROLL_HOST,
    LABEL_HOST,
    RE_ENROLL_HOST,
    RETIRE_HOST,
    REVOKE_HOST,
    Step,
)
from tidegate.domain.fleet.claims import list_left
from tidegate.domain.fleet.refusals import HostNotFound
from tidegate.domain.fleet.rows import FLEET, Fleet, Host, fleet_key, host_key
from tidegate.domain.fleet.slices import (
    LabelHost,
    RetireHost,
    RevokeHost,
    label_host,
    retire_host,
    revoke_host,
)
from tidegate.errors import StaleVersion, Unavailable
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice


class _KeyEndUnrecorded(LaneBusy):
    """Other commands kept the fleet busy. The key is refused, but the log has no end of it yet."""

    def __init__(self, host_id: str, busy: LaneBusy) -> None:
        Unavailable.__init__(
            self,
            f"the key of {host_id} is refused from now on, but the fleet was busy and the log does "
            "not record it yet; try again",
            **busy.facts,
        )


class HostOperations:
    """The verbs of a host. Those that change it return the log position at which it was done.

    Raises:
        MissingPermission.
        LaneBusy: other commands kept the fleet busy; the log does not have this one. A key that
            was to end is refused nevertheless.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        enrollment: Enrollment,
        guard: ProtectionGuard,
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._enrollment = enrollment
        self._guard = guard

    def enroll(self, caller: Caller, host_id: str, labels: dict[str, str] | None) -> MadeToken:
        """Make a one-time token with which the agent of a host enrolls itself. ``labels`` of None:
        those that the host had before.

        Raises:
            HostGone, InvalidLabel, HostLeavesProtected, IdempotencyMismatch.
        """
        caller.demand(ENROLL_HOST, EVERYWHERE)
        token_id = make_id(caller, ENROLL_HOST, "token")
        return self._enrollment.make_token(token_id, host_id, labels, caller.meta)

    def re_enroll(
        self, caller: Caller, host_id: str, labels: dict[str, str] | None, reason: str = ""
    ) -> MadeToken:
        """Make a one-time token with which a known host enrolls again with a new key. Its use
        revokes the old key in the same commit, and brings a retired host back.

        Raises:
            HostNotFound, InvalidLabel, HostLeavesProtected, InvalidInput, IdempotencyMismatch.
        """
        caller.demand(RE_ENROLL_HOST, EVERYWHERE)
        token_id = make_id(caller, RE_ENROLL_HOST, "token")
        return self._enrollment.make_replacing_token(
            token_id, host_id, labels, reason.strip(), caller.meta
        )

    def label(self, caller: Caller, host_id: str, labels: dict[str, str]) -> Position:
        """Give a host these labels in place of those that it has. To take it out of a protected
        channel takes a second person.

        Raises:
            HostNotFound, HostGone, InvalidLabel, SelectorOverlap, StaleVersion.
        """
        caller.demand(LABEL_HOST, EVERYWHERE)
        command = LabelHost(
            host_id=host_id,
            labels=labels,
            operator=caller.id,
            expected_version=caller.expected_version,
        )

        def run(by: Caller) -> CommandOutcome:
            return self._lanes.run(FLEET, lambda: self._execute(label_host, command, by))

        left = self._list_left(host_id, labels)
        if not left:
            return self._position(host_id, run(caller))
        verb = GuardedVerb(
            step=LABEL_HOST,
            channels=left,
            arguments={"host_id": host_id, "labels": labels},
            check=lambda: self._demand_seen(caller, host_id),
        )
        earlier = lambda: self._execute.earlier(label_host, command, caller)  # noqa: E731
        return self._position(host_id, self._guard.run(caller, verb, run, earlier))

    def _list_left(self, host_id: str, labels: dict[str, str]) -> tuple[str, ...]:
        """The channels that the host would leave."""
        host = self._reads.find(host_key(host_id), Host)
        fleet = self._reads.find(fleet_key(), Fleet)
        if host is None or fleet is None:
            return ()
        return list_left(fleet.row.channels, host.row, labels)

    def _demand_seen(self, caller: Caller, host_id: str) -> None:
        """Raises: StaleVersion, HostNotFound."""
        found = self._reads.demand(host_key(host_id), Host, HostNotFound(host_id))
        if caller.expected_version not in (None, found.version):
            raise StaleVersion(caller.expected_version, found.version)

    def revoke(self, caller: Caller, host_id: str, reason: str) -> Position:
        """Refuse the key of a host's agent from now on; the agent may enroll with another key.

        Raises:
            HostNotFound, HostGone.
        """
        command = RevokeHost(host_id=host_id, operator=caller.id, reason=reason)
        return self._end_key(REVOKE_HOST, caller, revoke_host, command)

    def retire(self, caller: Caller, host_id: str, reason: str) -> Position:
        """Take a host out of the fleet, and refuse its key. Raises: HostNotFound."""
        command = RetireHost(host_id=host_id, operator=caller.id, reason=reason)
        return self._end_key(RETIRE_HOST, caller, retire_host, command)

    def _end_key(
        self, step: Step, caller: Caller, item: Slice, command: RevokeHost | RetireHost
    ) -> Position:
        """All ends of keys are here: servers must hear of each.

        The key is refused before the command has its turn, whatever becomes of the command.
        """
        caller.demand(step, EVERYWHERE)
        with self._enrollment.end_key(command.host_id, command.reason, caller.meta):
            run = lambda: self._execute(item, command, caller)  # noqa: E731
            try:
                outcome = self._lanes.run(FLEET, run)
            except LaneBusy as busy:
                raise _KeyEndUnrecorded(command.host_id, busy) from None
        return self._position(command.host_id, outcome)

    def _position(self, host_id: str, outcome: CommandOutcome) -> Position:
        if outcome.position:
            return outcome.position
        return self._reads.demand(host_key(host_id), Host, HostNotFound(host_id)).version
