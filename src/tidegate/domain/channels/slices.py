"""What operators do to channels: create, edit, hold, freeze, and lift a quarantine.

The sender of a command checks its claim against all hosts. The command names the version of the
fleet's row that it saw, so that a claim and a label cannot conflict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.channels import facts, refusals, rows as channel_rows, stops
from tidegate.domain.channels.policy import check_edges, check_policy
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.fleet.selectors import parse
from tidegate.errors import InvalidInput
from tidegate.kernel import model, slices

CHANNEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
FREEZE: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
PACKAGE_BYTES_MAX = 256
CLOSURE_BYTES_MAX = 256
APPROVALS_MAX = 5
REQUEST_SECONDS_MIN = 300
REQUEST_SECONDS_MAX = 604_800
FROZEN_MAX = 80  # channels of one freeze, each a row of its commit; none named: all


class CreateChannel(Struct, frozen=True, kw_only=True):
    """Carry a package to the hosts of a selector."""

    channel: str
    package: str
    selector: str
    operator: str
    policy: facts.ChannelPolicy = facts.ChannelPolicy()
    fleet_version: int = 0  # of the fleet's row when the claim was checked


class EditChannel(Struct, frozen=True, kw_only=True):
    """Change which hosts a channel claims or its policy; open rollouts keep their plan."""

    channel: str
    selector: str
    policy: facts.ChannelPolicy
    operator: str
    fleet_version: int = 0
    expected_version: int | None = None  # of its row, as the operator saw it


class HoldChannel(Struct, frozen=True, kw_only=True):
    """Allow no promotion and no order on this channel."""

    channel: str
    operator: str
    reason: str


class UnholdChannel(Struct, frozen=True, kw_only=True):
    """Release the hold."""

    channel: str
    operator: str
    reason: str


class ProtectChannel(Struct, frozen=True, kw_only=True):
    """Require a second person on this channel, change who that is, or stop requiring one."""

    channel: str
    operator: str
    reason: str
    protection: facts.ChannelProtection | None
    tightens: bool = False  # refuse a weaker protection than before


class LiftQuarantine(Struct, frozen=True, kw_only=True):
    """Allow a closure to be dispatched on the channel again."""

    channel: str
    closure_hash: str
    operator: str
    reason: str


class StartFreeze(Struct, frozen=True, kw_only=True):
    """Dispatch nothing on these channels (none named: on all) until a time, or until it is
    ended.
    """

    freeze_id: str
    operator: str
    reason: str
    channels: tuple[str, ...] = ()
    until: datetime | None = None


class EndFreeze(Struct, frozen=True, kw_only=True):
    """End a freeze."""

    freeze_id: str
    operator: str
    reason: str
    expected_version: int | None = None  # of its row, from which its channels were read


def check_channel(channel: str) -> None:
    """Raises: InvalidInput: this is not a valid channel name."""
    if not CHANNEL.fullmatch(channel):
        raise InvalidInput(
            f"a channel is called by {CHANNEL.pattern}, found {channel[:80]!r}", field="channel"
        )


def demand_channel(row: channel_rows.Channel | None, channel: str) -> channel_rows.Channel:
    """Raises: ChannelNotFound."""
    if row is None:
        raise refusals.ChannelNotFound(channel)
    return row


# ── creation ──────────────────────────────────────────────────────────────────────────────────────

Claim = tuple[channel_rows.Channel | None, Fleet | None]


def rows_of_claim(command: CreateChannel | EditChannel) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, InvalidSelector, MalformedPolicy, LimitExceeded."""
    check_channel(command.channel)
    check_operator(command.operator, "an operator's word")
    parse(command.selector)
    check_policy(command.channel, command.policy)
    if isinstance(command, CreateChannel):
        model.check_text("package", command.package, PACKAGE_BYTES_MAX)
    return channel_rows.channel_key(command.channel), fleet_key()


def _expect_claim(command: CreateChannel | EditChannel) -> dict[model.Key, model.Position]:
    seen = {fleet_key(): command.fleet_version}
    if isinstance(command, EditChannel) and command.expected_version is not None:
        seen[channel_rows.channel_key(command.channel)] = command.expected_version
    return seen


def decide_creation(rows: Claim, command: CreateChannel, now: datetime) -> Sequence[Struct]:
    row, fleet = rows
    scopes = () if fleet is None else fleet.channels
    check_edges(scopes, command.channel, command.package, command.policy.edges)
    created = facts.ChannelCreated(
        channel=command.channel,
        operator=command.operator,
        at=now,
        package=command.package,
        selector=command.selector,
        policy=command.policy,
    )
    if row is None:
        return (created,)
    if (row.package, row.selector, row.policy) == (
        command.package,
        command.selector,
        command.policy,
    ):
        return ()
    raise refusals.ChannelExists(command.channel)


def decide_edit(rows: Claim, command: EditChannel, now: datetime) -> Sequence[Struct]:
    row = demand_channel(rows[0], command.channel)
    fleet = rows[1]
    scopes = () if fleet is None else fleet.channels
    check_edges(scopes, command.channel, row.package, command.policy.edges)
    if (row.selector, row.policy) == (command.selector, command.policy):
        return ()
    edited = facts.ChannelEdited(
        channel=command.channel,
        operator=command.operator,
        at=now,
        selector=command.selector,
        policy=command.policy,
    )
    return (edited,)


# ── hold ──────────────────────────────────────────────────────────────────────────────────────────


def rows_of_hold(command: HoldChannel | UnholdChannel) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_channel(command.channel)
    check_operator(command.operator, command.reason)
    return (channel_rows.channel_key(command.channel),)


def decide_hold(
    rows: tuple[channel_rows.Channel | None], command: HoldChannel, now: datetime
) -> Sequence[Struct]:
    if demand_channel(rows[0], command.channel).held_at is not None:
        return ()
    held = facts.ChannelHeld(
        channel=command.channel, operator=command.operator, at=now, reason=command.reason
    )
    return (held,)


def decide_unhold(
    rows: tuple[channel_rows.Channel | None], command: UnholdChannel, now: datetime
) -> Sequence[Struct]:
    if demand_channel(rows[0], command.channel).held_at is None:
        return ()
    unheld = facts.ChannelUnheld(
        channel=command.channel, operator=command.operator, at=now, reason=command.reason
    )
    return (unheld,)


# ── protection ────────────────────────────────────────────────────────────────────────────────────


def rows_of_protection(command: ProtectChannel) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_channel(command.channel)
    check_operator(command.operator, command.reason)
    given = command.protection
    if given is not None and not 1 <= given.approvals <= APPROVALS_MAX:
        raise InvalidInput(
            f"a protected channel asks for 1 to {APPROVALS_MAX} approvals, found {given.approvals}",
            field="approvals",
        )
    if given is not None and not (
        REQUEST_SECONDS_MIN <= given.request_seconds <= REQUEST_SECONDS_MAX
    ):
        raise InvalidInput(
            f"a request waits {REQUEST_SECONDS_MIN} to {REQUEST_SECONDS_MAX} seconds, "
            f"found {given.request_seconds}",
            field="request_seconds",
        )
    return (channel_rows.channel_key(command.channel),)


def decide_protection(
    rows: tuple[channel_rows.Channel | None], command: ProtectChannel, now: datetime
) -> Sequence[Struct]:
    """Raises: ProtectionLoosened."""
    found = demand_channel(rows[0], command.channel).protection
    if found == command.protection:
        return ()
    if command.tightens and loosens(found, command.protection):
        raise refusals.ProtectionLoosened(command.channel)
    changed = facts.ChannelProtectionSet(
        channel=command.channel,
        operator=command.operator,
        at=now,
        protection=command.protection,
        reason=command.reason,
    )
    return (changed,)


def loosens(old: facts.ChannelProtection | None, new: facts.ChannelProtection | None) -> bool:
    """Whether a change makes the protection weaker."""
    if old is None:
        return False
    if new is None or new.approvals < old.approvals:
        return True
    return (new.break_glass and not old.break_glass) or new.request_seconds > old.request_seconds


# ── quarantine ────────────────────────────────────────────────────────────────────────────────────


def rows_of_lifting(command: LiftQuarantine) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_channel(command.channel)
    model.check_text("closure_hash", command.closure_hash, CLOSURE_BYTES_MAX)
    check_operator(command.operator, command.reason)
    return (channel_rows.quarantine_key(command.channel, command.closure_hash),)


def decide_lifting(
    rows: tuple[channel_rows.Quarantined | None], command: LiftQuarantine, now: datetime
) -> Sequence[Struct]:
    if rows[0] is None:
        raise refusals.QuarantineNotFound(command.channel, command.closure_hash)
    lifted = facts.QuarantineLifted(
        channel=command.channel,
        operator=command.operator,
        at=now,
        closure_hash=command.closure_hash,
        reason=command.reason,
    )
    return (lifted,)


# ── freezes ───────────────────────────────────────────────────────────────────────────────────────


def _check_freeze(command: StartFreeze | EndFreeze) -> None:
    if not FREEZE.fullmatch(command.freeze_id):
        raise InvalidInput(
            f"a freeze is called by {FREEZE.pattern}, found {command.freeze_id[:80]!r}",
            field="freeze_id",
        )
    check_operator(command.operator, command.reason)


def rows_of_freeze(command: StartFreeze) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    _check_freeze(command)
    model.at_most("channels of a freeze", len(command.channels), FROZEN_MAX)
    if len(set(command.channels)) != len(command.channels):
        raise InvalidInput("a freeze names each channel once", field="channels")
    for channel in command.channels:
        check_channel(channel)
    return channel_rows.freeze_key(command.freeze_id), *map(stops.own_stops_key, command.channels)


def decide_freeze(
    rows: tuple[channel_rows.Freeze | stops.ChannelStops | None, ...],
    command: StartFreeze,
    now: datetime,
) -> Sequence[Struct]:
    freeze, *channels = rows
    for name, channel in zip(command.channels, channels, strict=True):
        if channel is None:
            raise refusals.ChannelNotFound(name)
    if command.until is not None and command.until <= now:
        raise InvalidInput(f"a freeze until {command.until} is over already", field="until")
    started = facts.FreezeStarted(
        freeze_id=command.freeze_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        channels=command.channels,
        until=command.until,
    )
    if freeze is None:
        return (started,)
    assert isinstance(freeze, channel_rows.Freeze)
    if (freeze.channels, freeze.until) == (command.channels, command.until):
        return ()
    raise refusals.FreezeExists(command.freeze_id)


def rows_of_thaw(command: EndFreeze) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    _check_freeze(command)
    return (channel_rows.freeze_key(command.freeze_id),)


def _expect_freeze(command: EndFreeze) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {channel_rows.freeze_key(command.freeze_id): command.expected_version}


def decide_thaw(
    rows: tuple[channel_rows.Freeze | None], command: EndFreeze, now: datetime
) -> Sequence[Struct]:
    if rows[0] is None:
        raise refusals.FreezeNotFound(command.freeze_id)
    ended = facts.FreezeEnded(
        freeze_id=command.freeze_id,
        operator=command.operator,
        reason=command.reason,
        at=now,
        channels=rows[0].channels,
    )
    return (ended,)


create_channel = slices.Slice(
    name="create-channel",
    command=CreateChannel,
    writes=(facts.ChannelCreated,),
    rows=rows_of_claim,
    expects=_expect_claim,
    decide=decide_creation,
)
edit_channel = slices.Slice(
    name="edit-channel",
    command=EditChannel,
    writes=(facts.ChannelEdited,),
    rows=rows_of_claim,
    expects=_expect_claim,
    decide=decide_edit,
)
hold_channel = slices.Slice(
    name="hold-channel",
    command=HoldChannel,
    writes=(facts.ChannelHeld,),
    rows=rows_of_hold,
    decide=decide_hold,
)
unhold_channel = slices.Slice(
    name="unhold-channel",
    command=UnholdChannel,
    writes=(facts.ChannelUnheld,),
    rows=rows_of_hold,
    decide=decide_unhold,
)
protect_channel = slices.Slice(
    name="protect-channel",
    command=ProtectChannel,
    writes=(facts.ChannelProtectionSet,),
    rows=rows_of_protection,
    decide=decide_protection,
)
lift_quarantine = slices.Slice(
    name="lift-quarantine",
    command=LiftQuarantine,
    writes=(facts.QuarantineLifted,),
    rows=rows_of_lifting,
    decide=decide_lifting,
)
start_freeze = slices.Slice(
    name="start-freeze",
    command=StartFreeze,
    writes=(facts.FreezeStarted,),
    rows=rows_of_freeze,
    decide=decide_freeze,
)
end_freeze = slices.Slice(
    name="end-freeze",
    command=EndFreeze,
    writes=(facts.FreezeEnded,),
    rows=rows_of_thaw,
    expects=_expect_freeze,
    decide=decide_thaw,
)
SLICES = (
    create_channel,
    edit_channel,
    hold_channel,
    unhold_channel,
    protect_channel,
    lift_quarantine,
    start_freeze,
    end_freeze,
)
