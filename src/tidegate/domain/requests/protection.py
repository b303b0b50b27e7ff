"""Check, in the commit of a command, that one person may act without a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.channels import rows as channel_rows
from tidegate.domain.requests import refusals
from tidegate.kernel import model, slices as kernel_slices


class ActAlone(Struct, frozen=True, kw_only=True):
    """Check that none of these channels is protected, or that the hold or freeze is the person's
    own. Without ``channels``, no channel at all may be protected.

    It is committed together with a command that one person carries out.
    """

    by: str
    channels: tuple[str, ...] = ()
    own_hold: str = ""  # a channel
    own_freeze: str = ""


def rows_of_acting(command: ActAlone) -> tuple[model.Key, ...]:
    return (
        channel_rows.protected_channels_key(),
        *((channel_rows.channel_key(command.own_hold),) if command.own_hold else ()),
        *((channel_rows.freeze_key(command.own_freeze),) if command.own_freeze else ()),
    )


def list_protected(
    row: channel_rows.ProtectedChannels | None, channels: Collection[str]
) -> tuple[str, ...]:
    """The protected channels among these; if none are given, among all."""
    found = () if row is None else row.channels
    return tuple(name for name in found if not channels or name in channels)


def decide_acting(rows: tuple[Any, ...], command: ActAlone, now: datetime) -> Sequence[Struct]:
    """Raises: ProtectionChanged."""
    covered = list_protected(rows[0], command.channels)
    for row in rows[1:]:
        if isinstance(row, channel_rows.Channel) and row.held_by in (None, command.by):
            return ()
        if isinstance(row, channel_rows.Freeze) and row.operator == command.by:
            return ()
    if covered:
        raise refusals.ProtectionChanged(covered)
    return ()


act_alone = kernel_slices.Slice(
    name="act-alone",
    command=ActAlone,
    writes=(),
    rows=rows_of_acting,
    decide=decide_acting,
)
SLICES = (act_alone,)
