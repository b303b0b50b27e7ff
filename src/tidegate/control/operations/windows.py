"""Create, edit and delete maintenance windows, and list their occurrences."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs

from tidegate.clock import Clock
from tidegate.control.operations import freezes, protection
from tidegate.control.operations.execute import Execute
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet import refusals as fleet_refusals, rows as fleet_rows
from tidegate.domain.windows import (
    checks,
    evaluation,
    facts,
    refusals as window_refusals,
    rows as window_rows,
    sentences,
    slices as window_slices,
)
from tidegate.errors import StaleVersion
from tidegate.kernel import model, slices as kernel_slices

OCCURRENCES_MAX = 100


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """One occurrence of a window."""

    starts_at: datetime
    ends_at: datetime
    starts: str  # in the local time of the zone
    ends: str
    zone: str


class WindowOperations:
    """The verbs of a window. The caller needs the permission on every channel that it covers.

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

    def create(
        self, caller: callers.Caller, window: facts.WindowSpec, reason: str
    ) -> model.Position:
        """Create a window that allows or denies orders at some times; return the log position.

        Raises:
            MalformedWindow, ChannelNotFound, WindowExists, LimitExceeded.
        """
        for scope in freezes.list_scopes(window.channels):
            caller.demand(steps.CREATE_WINDOW, scope)
        command = window_slices.CreateWindow(window=window, operator=caller.id, reason=reason)
        arguments = {"window": msgspec.to_builtins(window), "reason": reason}
        return self._run(
            caller,
            steps.CREATE_WINDOW,
            window_slices.create_window,
            command,
            arguments,
            self._widened(window),
        )

    def edit(
        self, caller: callers.Caller, window_id: str, changes: dict[str, Any], reason: str
    ) -> model.Position:
        """Change some members of a window; return the log position.

        Raises:
            MalformedWindow, ChannelNotFound, WindowNotFound, StaleVersion.
        """
        found = self._reads.find(window_rows.window_key(window_id), window_rows.Window)
        scopes = [roles.EVERYWHERE] if found is None else freezes.list_scopes(found.row.channels)
        scopes += freezes.list_scopes(changes["channels"]) if "channels" in changes else []
        for scope in scopes:
            caller.demand(steps.EDIT_WINDOW, scope)
        if found is None:
            raise window_refusals.WindowNotFound(window_id)
        before = window_slices.spec_of(found.row)
        window = msgspec.structs.replace(before, **changes)
        command = window_slices.EditWindow(
            window=window,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        covered = self._widened(window)
        if window_slices.loosens(before, window):
            covered |= self._covered(before)
        arguments = {"window": msgspec.to_builtins(window), "reason": reason}
        return self._run(
            caller,
            steps.EDIT_WINDOW,
            window_slices.edit_window,
            command,
            arguments,
            covered,
            lambda: self._demand_seen(caller, window_id),
        )

    def replace(
        self, caller: callers.Caller, window: facts.WindowSpec, reason: str
    ) -> model.Position:
        """Replace all members of a window; return the log position. Raises: as ``edit``."""
        members = {name: getattr(window, name) for name in facts.WindowSpec.__struct_fields__}
        return self.edit(caller, members.pop("window_id"), members, reason)

    def delete(self, caller: callers.Caller, window_id: str, reason: str) -> model.Position:
        """Delete a window; return the log position.

        Raises:
            WindowNotFound, StaleVersion.
        """
        found = self._reads.find(window_rows.window_key(window_id), window_rows.Window)
        for scope in (
            [roles.EVERYWHERE] if found is None else freezes.list_scopes(found.row.channels)
        ):
            caller.demand(steps.DELETE_WINDOW, scope)
        if found is None:
            raise window_refusals.WindowNotFound(window_id)
        command = window_slices.DeleteWindow(
            window_id=window_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(
            caller,
            steps.DELETE_WINDOW,
            window_slices.delete_window,
            command,
            {"window_id": window_id, "reason": reason},
            self._covered(window_slices.spec_of(found.row)),
            lambda: self._demand_seen(caller, window_id),
            # An edit may have moved the window to other channels.
            seen=found.version if caller.expected_version is None else caller.expected_version,
        )

    # ── protected channels ──

    def _run(
        self,
        caller: callers.Caller,
        step: steps.Step,
        item: kernel_slices.Slice,
        command: window_slices.CreateWindow | window_slices.EditWindow | window_slices.DeleteWindow,
        arguments: dict[str, Any],
        channels: set[str],
        check: Callable[[], object] = lambda: None,
        seen: model.Position | None = None,
    ) -> model.Position:
        """Execute the command; through the guard if it loosens something on these channels.
        ``seen``: the version of the window from which they were read.
        """
        pinned = command if seen is None else structs.replace(command, expected_version=seen)

        def run(by: callers.Caller) -> CommandOutcome:
            return self._execute(item, pinned, by, asked=command)

        if not channels:
            return run(caller).position
        verb = protection.GuardedVerb(
            step=step,
            channels=tuple(sorted(channels)),
            arguments=arguments,
            reason=command.reason,
            check=check,
            rehearse=lambda: self._execute.rehearse(item, pinned),
        )
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position

    def _covered(self, window: facts.WindowSpec) -> set[str]:
        """Return the channels that a window covers, or would cover if they had hosts."""
        fleet = self._reads.find(fleet_rows.fleet_key(), fleet_rows.Fleet)
        return {
            scope.channel
            for scope in (() if fleet is None else fleet.row.channels)
            if evaluation.covers_channel(window, scope.channel, scope.package)
        }

    def _widened(self, window: facts.WindowSpec) -> set[str]:
        """Return the channels that get more time by this window: it allows orders, and another
        window does, too. The first allow window of a channel reduces its time.
        """
        if window.kind is not facts.WindowKind.ALLOW:
            return set()
        others: set[str] = set()
        for item in self._reads.range(window_rows.WINDOWS, limit=window_slices.WINDOWS_MAX):
            if item.row.kind is facts.WindowKind.ALLOW and item.row.window_id != window.window_id:
                others |= self._covered(window_slices.spec_of(item.row))
        return others & self._covered(window)

    def _demand_seen(self, caller: callers.Caller, window_id: str) -> None:
        """Raises: StaleVersion, WindowNotFound."""
        found = self._reads.demand(
            window_rows.window_key(window_id),
            window_rows.Window,
            window_refusals.WindowNotFound(window_id),
        )
        if caller.expected_version not in (None, found.version):
            raise StaleVersion(caller.expected_version, found.version)

    # ── looking ahead ──

    def lasts_now(self, window: facts.WindowSpec) -> bool | None:
        """Whether an occurrence of the window lasts now; None: hosts have zones of their own."""
        if window.zone.startswith(facts.LABEL):
            return None
        now = self._clock()
        found = evaluation.next_occurrences(window, window.zone, now, 1)
        return any(start <= now for start, _ in found)

    def list_next(
        self, window_id: str, count: int, host_id: str | None = None
    ) -> tuple[Occurrence, ...]:
        """List the current and next occurrences of a window; for a host, in its time zone.

        Raises:
            WindowNotFound, HostNotFound.
        """
        found = self._reads.demand(
            window_rows.window_key(window_id),
            window_rows.Window,
            window_refusals.WindowNotFound(window_id),
        )
        labels: dict[str, str] = {}
        if host_id is not None:
            host = self._reads.demand(
                fleet_rows.host_key(host_id), fleet_rows.Host, fleet_refusals.HostNotFound(host_id)
            )
            labels = host.row.labels
        return self._list_next(found.row, labels, count)

    def check(
        self, caller: callers.Caller, window: facts.WindowSpec, count: int
    ) -> tuple[Occurrence, ...]:
        """List the occurrences that a window would have, without storing it. Only a caller who may
        read a channel learns whether it exists.

        Raises:
            MalformedWindow, ChannelNotFound.
        """
        checks.check_window(window)
        for name in window.channels:
            if caller.principal.may(roles.Verb.READ, *freezes.list_scopes((name,))):
                freezes.demand_channels(self._reads, (name,))
        return self._list_next(window, {}, count)

    def _list_next(
        self, window: facts.WindowSpec, labels: dict[str, str], count: int
    ) -> tuple[Occurrence, ...]:
        zone = evaluation.zone_of(window, labels) or "UTC"  # without a host: in UTC
        return tuple(
            Occurrence(
                starts_at=start,
                ends_at=end,
                starts=sentences.local_text(start, zone),
                ends=sentences.local_text(end, zone),
                zone=zone,
            )
            for start, end in evaluation.next_occurrences(window, zone, self._clock(), count)
        )
