"""What stops a channel: its hold, and the freezes and windows that cover it.

    channel_stops/<channel>   the channel's hold, and the freezes and windows that name it
    channel_stops/*<n>        freezes and windows of all channels, in ``COPIES`` equal copies

A reservation and an acknowledgement read two of these rows: the channel's own, and the copy that
the channel's name selects. Their commit requires that neither row has changed. So a stop that was
committed before them always wins. The copies keep the channels of a busy fleet apart: on DynamoDB
two transactions that check the same item conflict (ADR-0015). Channels fold the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from zlib import crc32

from msgspec import Struct

from tidegate.domain.channels.refusals import ChannelFrozen, ChannelOnHold
from tidegate.domain.rollouts.states import NONE_PASSED, OverridableGate
from tidegate.domain.windows.facts import WindowSpec
from tidegate.kernel import collections as kernel_collections, model

COPIES: Final = 64  # a freeze of all channels writes every copy, in one commit of at most 100 rows


class FreezeSpan(Struct, frozen=True, omit_defaults=True):
    """The members of a freeze that decide whether it covers a channel now."""

    freeze_id: str
    until: datetime | None = None


class ChannelStops(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What stops one channel, or, in a copy, every channel."""

    scope: str  # a channel, or the id of a copy
    freezes: tuple[FreezeSpan, ...] = ()
    held_by: str | None = None
    held_reason: str | None = None
    package: str = ""  # the channel's package: windows may cover a repository
    windows: tuple[WindowSpec, ...] = ()  # by name


CHANNEL_STOPS = kernel_collections.Collection(
    "channel_stops",
    ChannelStops,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("scope",),
)
EVERYWHERE: Final = tuple(f"*{number:02}" for number in range(COPIES))


def own_stops_key(channel: str) -> model.Key:
    """Return the key of the channel's own stops. The row exists as long as the channel."""
    return model.Key(CHANNEL_STOPS.name, channel)


def stops_keys(channel: str) -> tuple[model.Key, model.Key]:
    """Return the keys of the rows that decide whether the channel is stopped."""
    copy = EVERYWHERE[crc32(channel.encode()) % COPIES]
    return own_stops_key(channel), model.Key(CHANNEL_STOPS.name, copy)


def windows_over(rows: Sequence[ChannelStops | None]) -> tuple[WindowSpec, ...]:
    """Return the windows that name the channel or cover all channels."""
    return tuple(window for row in rows if row is not None for window in row.windows)


def freeze_over(rows: Sequence[ChannelStops | None], now: datetime) -> FreezeSpan | None:
    """Return a freeze that covers the channel now; one whose time is over does not."""
    return next(freezes_over(rows, now), None)


def freezes_over(rows: Sequence[ChannelStops | None], now: datetime) -> Iterator[FreezeSpan]:
    """Yield each freeze that covers the channel now."""
    for row in rows:
        for freeze in () if row is None else row.freezes:
            if freeze.until is None or now < freeze.until:
                yield freeze


def is_stopped(
    rows: Sequence[ChannelStops | None],
    now: datetime,
    passed: frozenset[OverridableGate] = NONE_PASSED,
) -> bool:
    """Whether no order may go out on the channel. Gates in ``passed`` do not count."""
    held = any(row is not None and row.held_by is not None for row in rows)
    if held and OverridableGate.HOLD not in passed:
        return True
    return OverridableGate.FREEZE not in passed and freeze_over(rows, now) is not None


def demand_unstopped(
    channel: str,
    rows: Sequence[ChannelStops | None],
    now: datetime,
    passed: frozenset[OverridableGate] = NONE_PASSED,
) -> None:
    """Raises: ChannelFrozen, ChannelOnHold."""
    freeze = freeze_over(rows, now)
    if freeze is not None and OverridableGate.FREEZE not in passed:
        raise ChannelFrozen(channel, freeze.freeze_id, freeze.until)
    for row in () if OverridableGate.HOLD in passed else rows:
        if row is not None and row.held_by is not None:
            raise ChannelOnHold(channel, row.held_by, row.held_reason)
