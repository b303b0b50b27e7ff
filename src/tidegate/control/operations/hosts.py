"""Enroll, re-enroll, label, revoke and retire hosts.

Commands that change the fleet's row run in the lane of the fleet. They may wait for the lane of a
rollout. A command in the lane of a rollout must never wait for the lane of the fleet.
"""

from __future__ import annotations

from tidegate.control.fleet.enrollment import Enrollment, MadeToken
from tidegate.control.lanes import LaneBusy, Lanes
from tidegate.control.operations import ids, protection
from tidegate.control.operations.execute import Execute
from tidegate.control.queries import host_limits
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet import refusals, rows, slices as fleet_slices
from tidegate.errors import StaleVersion, Unavailable
from tidegate.kernel import model, slices as kernel_slices


class _KeyEndUnrecorded(LaneBusy):
    """Other commands kept the fleet busy. The key is refused, but the log does not say so yet."""

    def __init__(self, host_id: str, busy: LaneBusy) -> None:
        Unavailable.__init__(
            self,
            f"the key of {host_id} is refused from now on, but the fleet was busy and the log does "
            "not record it yet; try again",
            **busy.facts,
        )


class HostOperations:
    """The verbs of a host. Those that change it return the log position of the change.

    Raises:
        MissingPermission.
            LaneBusy: other commands kept the fleet busy, so nothing was committed. A key that was
                to end is refused nevertheless.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        enrollment: Enrollment,
        guard: protection.ProtectionGuard,
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._enrollment = enrollment
        self._guard = guard

    def enroll(
        self, caller: callers.Caller, host_id: str, labels: dict[str, str] | None
    ) -> MadeToken:
        """Make a one-time token with which the agent of a host enrolls. If ``labels`` is None, the
        host keeps its labels.

        Raises:
            HostGone, InvalidLabel, HostLeavesProtected, IdempotencyMismatch.
        """
        caller.demand(steps.ENROLL_HOST, roles.EVERYWHERE)
        token_id = ids.make_id(caller, steps.ENROLL_HOST, "token")
        return self._enrollment.make_token(token_id, host_id, labels, caller.meta)

    def re_enroll(
        self, caller: callers.Caller, host_id: str, labels: dict[str, str] | None, reason: str = ""
    ) -> MadeToken:
        """Make a one-time token with which a known host enrolls again with a new key. The
        enrollment revokes the old key in the same commit, and brings back a retired host.

        Raises:
            HostNotFound, InvalidLabel, HostLeavesProtected, InvalidInput, IdempotencyMismatch.
        """
        caller.demand(steps.RE_ENROLL_HOST, roles.EVERYWHERE)
        token_id = ids.make_id(caller, steps.RE_ENROLL_HOST, "token")
        return self._enrollment.make_replacing_token(
            token_id, host_id, labels, reason.strip(), caller.meta
        )

    def label(self, caller: callers.Caller, host_id: str, labels: dict[str, str]) -> model.Position:
        """Replace the labels of a host. If it leaves a protected channel, or a window or budget
        holds it less there, this takes a second person.

        Raises:
            HostNotFound, HostGone, InvalidLabel, SelectorOverlap, StaleVersion.
        """
        caller.demand(steps.LABEL_HOST, roles.EVERYWHERE)
        command = fleet_slices.LabelHost(
            host_id=host_id,
            labels=labels,
            operator=caller.id,
            expected_version=caller.expected_version,
        )

        def run(by: callers.Caller) -> CommandOutcome:
            return self._lanes.run(
                rows.FLEET, lambda: self._execute(fleet_slices.label_host, command, by)
            )

        loosened = host_limits.list_loosened(self._reads, host_id, labels)
        if not loosened:
            return self._position(host_id, run(caller))
        verb = protection.GuardedVerb(
            step=steps.LABEL_HOST,
            channels=loosened,
            arguments={"host_id": host_id, "labels": labels},
            check=lambda: self._demand_seen(caller, host_id),
            rehearse=lambda: self._execute.rehearse(fleet_slices.label_host, command),
        )
        earlier = lambda: self._execute.earlier(fleet_slices.label_host, command, caller)  # noqa: E731
        return self._position(host_id, self._guard.run(caller, verb, run, earlier))

    def _demand_seen(self, caller: callers.Caller, host_id: str) -> None:
        """Raises: StaleVersion, HostNotFound."""
        found = self._reads.demand(
            rows.host_key(host_id), rows.Host, refusals.HostNotFound(host_id)
        )
        if caller.expected_version not in (None, found.version):
            raise StaleVersion(caller.expected_version, found.version)

    def revoke(self, caller: callers.Caller, host_id: str, reason: str) -> model.Position:
        """Refuse the key of a host's agent from now on; the agent may enroll with a new key.

        Raises:
            HostNotFound, HostGone.
        """
        command = fleet_slices.RevokeHost(host_id=host_id, operator=caller.id, reason=reason)
        return self._end_key(steps.REVOKE_HOST, caller, fleet_slices.revoke_host, command)

    def retire(self, caller: callers.Caller, host_id: str, reason: str) -> model.Position:
        """Take a host out of the fleet, and refuse its key. Raises: HostNotFound."""
        command = fleet_slices.RetireHost(host_id=host_id, operator=caller.id, reason=reason)
        return self._end_key(steps.RETIRE_HOST, caller, fleet_slices.retire_host, command)

    def _end_key(
        self,
        step: steps.Step,
        caller: callers.Caller,
        item: kernel_slices.Slice,
        command: fleet_slices.RevokeHost | fleet_slices.RetireHost,
    ) -> model.Position:
        """Execute a command that ends a host's key, and notify the servers.

        The key is refused before the command runs, and stays refused if the command fails.
        """
        caller.demand(step, roles.EVERYWHERE)
        if caller.dry_run:
            self._execute(item, command, caller)  # this raises, before any key is refused
        with self._enrollment.end_key(command.host_id, command.reason, caller.meta):
            run = lambda: self._execute(item, command, caller)  # noqa: E731
            try:
                outcome = self._lanes.run(rows.FLEET, run)
            except LaneBusy as busy:
                raise _KeyEndUnrecorded(command.host_id, busy) from None
        return self._position(command.host_id, outcome)

    def _position(self, host_id: str, outcome: CommandOutcome) -> model.Position:
        if outcome.position:
            return outcome.position
        return self._reads.demand(
            rows.host_key(host_id), rows.Host, refusals.HostNotFound(host_id)
        ).version
