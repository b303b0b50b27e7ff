"""Delete a channel: its hosts are freed, its scope is retired, and the log keeps everything.

Nothing may still use the channel: it has no open rollout, no other channel waits for it, and no
freeze or window names it. The name of a channel that had a release is never used again: otherwise
its history would mix two channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels import (
    facts as channel_facts,
    refusals,
    rows as channel_rows,
    slices as channel_slices,
)
from tidegate.domain.channels.stops import ChannelStops, own_stops_key
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.releases import (
    facts as release_facts,
    rows as release_rows,
    slices as release_slices,
)
from tidegate.domain.rollouts.states import OPEN
from tidegate.kernel import model, slices as kernel_slices


class DeleteChannel(Struct, frozen=True, kw_only=True):
    """Remove a channel that nothing uses."""

    channel: str
    operator: str
    reason: str
    command_id: str
    waiting: tuple[str, ...] = ()  # open rollouts of other channels that wait for it


Rows = tuple[
    channel_rows.Channel | None,
    Fleet | None,
    ChannelStops | None,
    release_rows.Actual | None,
    release_rows.ExecutedCommand | None,
]


def rows_of_deletion(command: DeleteChannel) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    channel_slices.check_channel(command.channel)
    check_operator(command.operator, command.reason)
    return (
        channel_rows.channel_key(command.channel),
        fleet_key(),
        own_stops_key(command.channel),
        *release_slices.rows_of_retirement(_retirement(command, None)),
    )


def decide_deletion(rows: Rows, command: DeleteChannel, now: datetime) -> Sequence[Struct]:
    """Raises: ChannelNotFound, ChannelInUse."""
    row, fleet, stops, actual, executed = rows
    channel = channel_slices.demand_channel(row, command.channel)
    users = [*list_users(channel, fleet, stops, now), *(f"{id} (open)" for id in command.waiting)]
    if users:
        raise refusals.ChannelInUse(command.channel, users)
    retired: Sequence[Struct] = ()
    if actual is not None and actual.status is not release_facts.PinStatus.RETIRED:
        retired = release_slices.decide_retirement(
            (actual, executed), _retirement(command, actual), now
        )
    deleted = channel_facts.ChannelDeleted(
        channel=command.channel, operator=command.operator, at=now, reason=command.reason
    )
    return *retired, deleted


def list_users(
    channel: channel_rows.Channel, fleet: Fleet | None, stops: ChannelStops | None, now: datetime
) -> Iterator[str]:
    """List what still uses the channel, by name."""
    if channel.newest_rollout_id is not None and channel.newest_state in OPEN:
        yield f"{channel.newest_rollout_id} (open)"
    for scope in () if fleet is None else fleet.channels:
        if channel.channel in scope.edges:
            yield f"{scope.channel} (its policy)"
    if stops is None:
        return
    for freeze in stops.freezes:
        if freeze.until is None or now < freeze.until:
            yield f"freeze {freeze.freeze_id}"
    for window in stops.windows:
        yield f"window {window.window_id}"


def _retirement(
    command: DeleteChannel, actual: release_rows.Actual | None
) -> release_slices.RetireRelease:
    return release_slices.RetireRelease(
        scope=command.channel,
        reason=command.reason,
        command_id=command.command_id,
        by=command.operator,
        expected_version=None if actual is None else actual.version,
    )


delete_channel = kernel_slices.Slice(
    name="delete-channel",
    command=DeleteChannel,
    writes=(release_facts.ReleaseRetired, channel_facts.ChannelDeleted),
    rows=rows_of_deletion,
    decide=decide_deletion,
)
SLICES = (delete_channel,)
