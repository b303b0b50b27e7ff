"""Find what makes an open request void: its channel, or a thing that it names, has changed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from tidegate.domain.access import steps
from tidegate.domain.channels import rows as channel_rows
from tidegate.domain.releases.rows import Actual
from tidegate.domain.requests import facts, refusals, rows as request_rows, subjects
from tidegate.kernel import codec

# Requests about what stops a channel. A change of the channel's pin does not void them.
ABOUT_STOPS: Final = frozenset(
    step.name
    for step in (
        steps.UNHOLD_CHANNEL,
        steps.END_FREEZE,
        steps.CREATE_WINDOW,
        steps.EDIT_WINDOW,
        steps.DELETE_WINDOW,
        steps.SET_BUDGET,
        steps.REMOVE_BUDGET,
        steps.LABEL_HOST,
    )
)


def see_channel(channel: channel_rows.Channel, pin: Actual | None) -> facts.SeenChannel:
    """Describe the channel as a new request remembers it. Raises: NotProtected."""
    if channel.protection is None:
        raise refusals.NotProtected(channel.channel)
    return facts.SeenChannel(
        created_at=channel.created_at,
        rollout=channel.newest_rollout_id,
        pin=None if pin is None else pin.pinned_release_id,
        policy_digest=sha256(codec.encode(channel.policy)).hexdigest(),
        selector=channel.selector,
        protection=channel.protection,
    )


def find_change(
    row: request_rows.ChannelRequest,
    channel: channel_rows.Channel | None,
    pin: Actual | None,
    named: Sequence[Any],
) -> str:
    """Describe what changed since the request was made; empty if nothing relevant did.

    ``named`` are the rows of the things that it names, in the order of ``subjects.list_parts``.
    """
    parts = subjects.list_parts(row.kind, row.channel, row.command)
    seen = row.seen
    assert seen is not None, "an open request has seen its channel"
    if channel is None or channel.protection is None:
        return f"{row.channel} is not protected any more"
    found = see_channel(channel, pin)
    if found.protection != seen.protection:
        return f"the protection of {row.channel} was changed"
    if found.created_at != seen.created_at:
        return f"{row.channel} was deleted and created again"
    if row.kind not in ABOUT_STOPS:
        changed = _find_channel_change(row, channel, seen, found)
        if changed:
            return changed
    return subjects.find_changed_part(parts, named, seen.subject)


def _find_channel_change(
    row: request_rows.ChannelRequest,
    channel: channel_rows.Channel,
    seen: facts.SeenChannel,
    found: facts.SeenChannel,
) -> str:
    if found.pin != seen.pin:
        return f"{row.channel} moved from {seen.pin or 'no release'} to {found.pin or 'none'}"
    if found.rollout != seen.rollout:  # the pin moved and came back
        return f"{row.channel} opened the rollout {found.rollout}"
    is_back = row.kind == steps.ROLL_BACK.name and row.command.get("to") == found.pin
    if is_back and channel.terminal_rollout_id == found.rollout:
        return f"{row.channel} completed its rollback to {found.pin}"
    if found.selector != seen.selector:
        return f"the hosts of {row.channel} were changed"
    if found.policy_digest != seen.policy_digest:
        return f"the policy of {row.channel} was changed"
    return ""


def has_moved(seen: int | None, found: int | None) -> bool:
    """Whether the number of hosts in a plan changed by more than a tenth."""
    return seen is not None and found is not None and abs(found - seen) * 10 > seen
