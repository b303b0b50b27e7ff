"""What an operator does to a maintenance window: create, edit and delete it, and look ahead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidegate.clock import Clock
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.freezes import list_scopes
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.steps import CREATE_WINDOW, DELETE_WINDOW, EDIT_WINDOW, Step
from tidegate.domain.fleet.refusals import HostNotFound
from tidegate.domain.fleet.rows import Fleet, Host, fleet_key, host_key
from tidegate.domain.windows.checks import check_window
from tidegate.domain.windows.evaluation import covers_channel, next_occurrences, zone_of
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.refusals import WindowNotFound
from tidegate.domain.windows.rows import WINDOWS, Window, window_key
from tidegate.domain.windows.sentences import local_text
from tidegate.domain.windows.slices import (
    WINDOWS_MAX,
    CreateWindow,
    DeleteWindow,
    EditWindow,
    create_window,
    delete_window,
    edit_window,
    loosens,
    spec_of,
)
from tidegate.errors import StaleVersion
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice

OCCURRENCES_MAX = 100


class Occurrence(Struct, frozen=True, kw_only=True):
    """One occurrence of a window."""

    starts_at: datetime
    ends_at: datetime
    starts: str  # as people in the zone say it
    ends: str
    zone: str


class WindowOperations:
    """The verbs of a window. The caller needs the permission on every channel that it covers.

    Raises:
        MissingPermission.
    """

    def __init__(
        self, execute: Execute, reads: Reads, clock: Clock, guard: ProtectionGuard
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._clock = clock
        self._guard = guard

    def create(self, caller: Caller, window: WindowSpec, reason: str) -> Position:
        """Allow orders only at some times, or deny them; returns the log position.

        Raises:
            MalformedWindow, ChannelNotFound, WindowExists, LimitExceeded.
        """
        for scope in list_scopes(window.channels):
            caller.demand(CREATE_WINDOW, scope)
        command = CreateWindow(window=window, operator=caller.id, reason=reason)
        arguments = {"window": msgspec.to_builtins(window), "reason": reason}
        return self._run(
            caller, CREATE_WINDOW, create_window, command, arguments, self._widened(window)
        )

    def edit(
        self, caller: Caller, window_id: str, changes: dict[str, Any], reason: str
    ) -> Position:
        """Change some members of a window; returns the log position.

        Raises:
            MalformedWindow, ChannelNotFound, WindowNotFound, StaleVersion.
        """
        found = self._reads.find(window_key(window_id), Window)
        scopes = [EVERYWHERE] if found is None else list_scopes(found.row.channels)
        scopes += list_scopes(changes["channels"]) if "channels" in changes else []
        for scope in scopes:
            caller.demand(EDIT_WINDOW, scope)
        if found is None:
            raise WindowNotFound(window_id)
        before = spec_of(found.row)
        window = replace(before, **changes)
        command = EditWindow(
            window=window,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        covered = self._widened(window)
        if loosens(before, window):
            covered |= self._covered(before)
        arguments = {"window": msgspec.to_builtins(window), "reason": reason}
        return self._run(
            caller,
            EDIT_WINDOW,
            edit_window,
            command,
            arguments,
            covered,
            lambda: self._demand_seen(caller, window_id),
        )

    def replace(self, caller: Caller, window: WindowSpec, reason: str) -> Position:
        """Give a window all of these members; as ``edit``."""
        members = {name: getattr(window, name) for name in WindowSpec.__struct_fields__}
        return self.edit(caller, members.pop("window_id"), members, reason)

    def delete(self, caller: Caller, window_id: str, reason: str) -> Position:
        """Remove a window; returns the log position.

        Raises:
            WindowNotFound, StaleVersion.
        """
        found = self._reads.find(window_key(window_id), Window)
        for scope in [EVERYWHERE] if found is None else list_scopes(found.row.channels):
            caller.demand(DELETE_WINDOW, scope)
        if found is None:
            raise WindowNotFound(window_id)
        command = DeleteWindow(
            window_id=window_id,
            operator=caller.id,
            reason=reason,
            expected_version=caller.expected_version,
        )
        return self._run(
            caller,
            DELETE_WINDOW,
            delete_window,
            command,
            {"window_id": window_id, "reason": reason},
            self._covered(spec_of(found.row)),
            lambda: self._demand_seen(caller, window_id),
        )

    # ── protected channels ──

    def _run(
        self,
        caller: Caller,
        step: Step,
        item: Slice,
        command: CreateWindow | EditWindow | DeleteWindow,
        arguments: dict[str, Any],
        channels: set[str],
        check: Callable[[], object] = lambda: None,
    ) -> Position:
        """Decide the command; if it loosens something on these channels, as the guard allows."""

        def run(by: Caller) -> CommandOutcome:
            return self._execute(item, command, by)

        if not channels:
            return run(caller).position
        verb = GuardedVerb(
            step=step,
            channels=tuple(sorted(channels)),
            arguments=arguments,
            reason=command.reason,
            check=check,
        )
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position

    def _covered(self, window: WindowSpec) -> set[str]:
        """The channels that a window covers, or would if they had hosts."""
        fleet = self._reads.find(fleet_key(), Fleet)
        return {
            scope.channel
            for scope in (() if fleet is None else fleet.row.channels)
            if covers_channel(window, scope.channel, scope.package)
        }

    def _widened(self, window: WindowSpec) -> set[str]:
        """The channels to which a window gives more time: it allows orders, and so does another
        one. The first allow window of a channel takes time from it.
        """
        if window.kind is not WindowKind.ALLOW:
            return set()
        others: set[str] = set()
        for item in self._reads.range(WINDOWS, limit=WINDOWS_MAX):
            if item.row.kind is WindowKind.ALLOW and item.row.window_id != window.window_id:
                others |= self._covered(spec_of(item.row))
        return others & self._covered(window)

    def _demand_seen(self, caller: Caller, window_id: str) -> None:
        """Raises: StaleVersion, WindowNotFound."""
        found = self._reads.demand(window_key(window_id), Window, WindowNotFound(window_id))
        if caller.expected_version not in (None, found.version):
            raise StaleVersion(caller.expected_version, found.version)

    # ── looking ahead ──

    def list_next(
        self, window_id: str, count: int, host_id: str | None = None
    ) -> tuple[Occurrence, ...]:
        """The occurrences of a window that last now or come next; of a host: in its zone.

        Raises:
            WindowNotFound, HostNotFound.
        """
        found = self._reads.demand(window_key(window_id), Window, WindowNotFound(window_id))
        labels: dict[str, str] = {}
        if host_id is not None:
            host = self._reads.demand(host_key(host_id), Host, HostNotFound(host_id))
            labels = host.row.labels
        return self._list_next(found.row, labels, count)

    def check(self, window: WindowSpec, count: int) -> tuple[Occurrence, ...]:
        """The occurrences that a window would have, without writing it. Raises: MalformedWindow."""
        check_window(window)
        return self._list_next(window, {}, count)

    def _list_next(
        self, window: WindowSpec, labels: dict[str, str], count: int
    ) -> tuple[Occurrence, ...]:
        zone = zone_of(window, labels) or "UTC"  # of no host: as a host in UTC would have it
        return tuple(
            Occurrence(
                starts_at=start,
                ends_at=end,
                starts=local_text(start, zone),
                ends=local_text(end, zone),
                zone=zone,
            )
            for start, end in next_occurrences(window, zone, self._clock(), count)
        )
