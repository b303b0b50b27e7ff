"""What operators do to windows: create, edit and delete them.

A window takes effect with its commit: its times enter the ``channel_stops`` rows that every
reservation and every acknowledgement demands unmoved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.stops import ChannelStops, own_stops_key
from tidegate.domain.windows.checks import WINDOW, check_window
from tidegate.domain.windows.facts import WindowDeleted, WindowKind, WindowSet, WindowSpec
from tidegate.domain.windows.refusals import (
    MalformedWindow,
    WindowExists,
    WindowNotFound,
)
from tidegate.domain.windows.rows import Window, WindowNames, window_key, window_names_key
from tidegate.errors import LimitExceeded
from tidegate.kernel.model import Key, Position
from tidegate.kernel.slices import Slice


class CreateWindow(Struct, frozen=True, kw_only=True):
    """Allow orders only at some times, or deny them."""

    window: WindowSpec
    operator: str
    reason: str


class EditWindow(Struct, frozen=True, kw_only=True):
    """Replace all members of a window."""

    window: WindowSpec
    operator: str
    reason: str
    expected_version: int | None = None  # of its row: what the operator changes


class DeleteWindow(Struct, frozen=True, kw_only=True):
    """Remove a window."""

    window_id: str
    operator: str
    reason: str
    expected_version: int | None = None


WINDOWS_MAX: Final = 64  # of an installation

Rows = tuple[Window | ChannelStops | None, ...]
NewRows = tuple[WindowNames | Window | ChannelStops | None, ...]


def rows_of_creation(command: CreateWindow) -> tuple[Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    return window_names_key(), *rows_of_window(command)


def rows_of_window(command: CreateWindow | EditWindow) -> tuple[Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    check_operator(command.operator, command.reason)
    check_window(command.window)
    return window_key(command.window.window_id), *map(own_stops_key, command.window.channels)


def rows_of_deletion(command: DeleteWindow) -> tuple[Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    check_operator(command.operator, command.reason)
    if not WINDOW.fullmatch(command.window_id):
        raise MalformedWindow([f"window_id is {command.window_id[:80]!r}"])
    return (window_key(command.window_id),)


def _window_seen(command: EditWindow) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {window_key(command.window.window_id): command.expected_version}


def _deletion_seen(command: DeleteWindow) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {window_key(command.window_id): command.expected_version}


def decide_creation(rows: NewRows, command: CreateWindow, now: datetime) -> Sequence[Struct]:
    """Raises: ChannelNotFound, WindowExists, LimitExceeded."""
    names, *own = rows
    found = _demand_channels(cast(Rows, tuple(own)), command.window)
    if found is None:
        _demand_room(names.window_ids if isinstance(names, WindowNames) else ())
        return (_set(command, now),)
    if spec_of(found) == command.window:
        return ()
    raise WindowExists(command.window.window_id)


def _demand_room(window_ids: tuple[str, ...]) -> None:
    """Raises: LimitExceeded: as many windows exist as an installation can have."""
    if len(window_ids) >= WINDOWS_MAX:
        raise LimitExceeded(
            "windows",
            len(window_ids) + 1,
            WINDOWS_MAX,
            f"there are {len(window_ids)} maintenance windows already, and an installation can "
            f"have {WINDOWS_MAX}. Delete one that is no longer needed: tidegate window list",
        )


def decide_edit(rows: Rows, command: EditWindow, now: datetime) -> Sequence[Struct]:
    """Raises: ChannelNotFound, WindowNotFound."""
    found = _demand_channels(rows, command.window)
    if found is None:
        raise WindowNotFound(command.window.window_id)
    if spec_of(found) == command.window and found.reason == command.reason:
        return ()
    return (_set(command, now, found),)


def decide_deletion(
    rows: tuple[Window | None], command: DeleteWindow, now: datetime
) -> Sequence[Struct]:
    """Raises: WindowNotFound."""
    if rows[0] is None:
        raise WindowNotFound(command.window_id)
    deleted = WindowDeleted(
        window_id=command.window_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        channels=rows[0].channels,
    )
    return (deleted,)


def spec_of(row: Window) -> WindowSpec:
    """The window without who set it: what it is compared and evaluated by."""
    return WindowSpec(**{name: getattr(row, name) for name in WindowSpec.__struct_fields__})


def loosens(before: WindowSpec, after: WindowSpec) -> bool:
    """Whether an edit may let orders go out at times or to hosts that the window kept from them.
    Only a longer deny window, or a shorter allow window, surely does not.
    """
    if replace(after, duration_seconds=before.duration_seconds) != before:
        return True
    if before.kind is WindowKind.DENY:
        return after.duration_seconds < before.duration_seconds
    return after.duration_seconds > before.duration_seconds


def _demand_channels(rows: Rows, window: WindowSpec) -> Window | None:
    """The window's row. Raises: ChannelNotFound: it names a channel that does not exist."""
    found, *channels = rows
    for name, channel in zip(window.channels, channels, strict=True):
        if channel is None:
            raise ChannelNotFound(name)
    assert found is None or isinstance(found, Window)
    return found


def _set(
    command: CreateWindow | EditWindow, now: datetime, before: Window | None = None
) -> WindowSet:
    window = command.window
    left = () if before is None else before.channels
    return WindowSet(
        window_id=window.window_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        window=window,
        left_channels=tuple(name for name in left if name not in window.channels),
        left_all=before is not None and not before.channels and bool(window.channels),
    )


create_window = Slice(
    name="create-window",
    command=CreateWindow,
    writes=(WindowSet,),
    rows=rows_of_creation,
    decide=decide_creation,
)
edit_window = Slice(
    name="edit-window",
    command=EditWindow,
    writes=(WindowSet,),
    rows=rows_of_window,
    expects=_window_seen,
    decide=decide_edit,
)
delete_window = Slice(
    name="delete-window",
    command=DeleteWindow,
    writes=(WindowDeleted,),
    rows=rows_of_deletion,
    expects=_deletion_seen,
    decide=decide_deletion,
)
SLICES = (create_window, edit_window, delete_window)
