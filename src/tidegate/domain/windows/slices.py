"""What operators do to windows: create, edit and delete them.

A window takes effect with its commit: its times enter the ``channel_stops`` rows, which must not
change before a reservation or an acknowledgement commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast

from msgspec import Struct, structs

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels import refusals as channel_refusals, stops
from tidegate.domain.windows import checks, facts, refusals, rows as window_rows
from tidegate.errors import LimitExceeded
from tidegate.kernel import model, slices


class CreateWindow(Struct, frozen=True, kw_only=True):
    """Allow orders only at some times, or deny them."""

    window: facts.WindowSpec
    operator: str
    reason: str


class EditWindow(Struct, frozen=True, kw_only=True):
    """Replace all members of a window."""

    window: facts.WindowSpec
    operator: str
    reason: str
    expected_version: int | None = None  # of its row, as the operator saw it


class DeleteWindow(Struct, frozen=True, kw_only=True):
    """Remove a window."""

    window_id: str
    operator: str
    reason: str
    expected_version: int | None = None


WINDOWS_MAX: Final = 64  # of an installation

Rows = tuple[window_rows.Window | stops.ChannelStops | None, ...]
NewRows = tuple[window_rows.WindowNames | window_rows.Window | stops.ChannelStops | None, ...]


def rows_of_creation(command: CreateWindow) -> tuple[model.Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    return window_rows.window_names_key(), *rows_of_window(command)


def rows_of_window(command: CreateWindow | EditWindow) -> tuple[model.Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    check_operator(command.operator, command.reason)
    checks.check_window(command.window)
    return window_rows.window_key(command.window.window_id), *map(
        stops.own_stops_key, command.window.channels
    )


def rows_of_deletion(command: DeleteWindow) -> tuple[model.Key, ...]:
    """Raises: MalformedWindow, InvalidInput, LimitExceeded."""
    check_operator(command.operator, command.reason)
    if not checks.WINDOW.fullmatch(command.window_id):
        raise refusals.MalformedWindow([f"window_id is {command.window_id[:80]!r}"])
    return (window_rows.window_key(command.window_id),)


def _expect_window(command: EditWindow) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {window_rows.window_key(command.window.window_id): command.expected_version}


def _expect_deleted_window(command: DeleteWindow) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {window_rows.window_key(command.window_id): command.expected_version}


def decide_creation(rows: NewRows, command: CreateWindow, now: datetime) -> Sequence[Struct]:
    """Raises: ChannelNotFound, WindowExists, LimitExceeded."""
    names, *own = rows
    found = _demand_channels(cast(Rows, tuple(own)), command.window)
    if found is None:
        _demand_room(names.window_ids if isinstance(names, window_rows.WindowNames) else ())
        return (_make_set(command, now),)
    if spec_of(found) == command.window:
        return ()
    raise refusals.WindowExists(command.window.window_id)


def _demand_room(window_ids: tuple[str, ...]) -> None:
    """Raises: LimitExceeded: the installation has the maximum number of windows."""
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
        raise refusals.WindowNotFound(command.window.window_id)
    if spec_of(found) == command.window and found.reason == command.reason:
        return ()
    return (_make_set(command, now, found),)


def decide_deletion(
    rows: tuple[window_rows.Window | None], command: DeleteWindow, now: datetime
) -> Sequence[Struct]:
    """Raises: WindowNotFound."""
    if rows[0] is None:
        raise refusals.WindowNotFound(command.window_id)
    deleted = facts.WindowDeleted(
        window_id=command.window_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        channels=rows[0].channels,
    )
    return (deleted,)


def spec_of(row: window_rows.Window) -> facts.WindowSpec:
    """Return the window without who set it, to compare and evaluate it."""
    return facts.WindowSpec(
        **{name: getattr(row, name) for name in facts.WindowSpec.__struct_fields__}
    )


def loosens(before: facts.WindowSpec, after: facts.WindowSpec) -> bool:
    """Whether an edit may allow orders at times or to hosts that the window excluded.

    Only a longer deny window, or a shorter allow window, surely does not.
    """
    if structs.replace(after, duration_seconds=before.duration_seconds) != before:
        return True
    if before.kind is facts.WindowKind.DENY:
        return after.duration_seconds < before.duration_seconds
    return after.duration_seconds > before.duration_seconds


def _demand_channels(rows: Rows, window: facts.WindowSpec) -> window_rows.Window | None:
    """Require that the channels exist. Raises: ChannelNotFound."""
    found, *channels = rows
    for name, channel in zip(window.channels, channels, strict=True):
        if channel is None:
            raise channel_refusals.ChannelNotFound(name)
    assert found is None or isinstance(found, window_rows.Window)
    return found


def _make_set(
    command: CreateWindow | EditWindow, now: datetime, before: window_rows.Window | None = None
) -> facts.WindowSet:
    window = command.window
    left = () if before is None else before.channels
    return facts.WindowSet(
        window_id=window.window_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        window=window,
        left_channels=tuple(name for name in left if name not in window.channels),
        left_all=before is not None and not before.channels and bool(window.channels),
    )


create_window = slices.Slice(
    name="create-window",
    command=CreateWindow,
    writes=(facts.WindowSet,),
    rows=rows_of_creation,
    decide=decide_creation,
)
edit_window = slices.Slice(
    name="edit-window",
    command=EditWindow,
    writes=(facts.WindowSet,),
    rows=rows_of_window,
    expects=_expect_window,
    decide=decide_edit,
)
delete_window = slices.Slice(
    name="delete-window",
    command=DeleteWindow,
    writes=(facts.WindowDeleted,),
    rows=rows_of_deletion,
    expects=_expect_deleted_window,
    decide=decide_deletion,
)
SLICES = (create_window, edit_window, delete_window)
