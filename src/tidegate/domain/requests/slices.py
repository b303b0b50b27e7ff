"""What people do with requests on protected channels.

    make ──▶ approve … approve, carry out ──▶ executed
               └ reject, withdraw; or it expires, or the channel changes

Four eyes: who made a request does not approve it, and each person counts once. The last approval
is carried out in its own commit: ``carry_request`` is decided together with the command itself.

Whoever acts without a request commits ``act_alone`` with the command: a channel that was protected
in between refuses it.

What a request names (``subjects``) is read with it: a request of a hold never ends the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.domain.access import reasons, steps
from tidegate.domain.channels import rows as channel_rows, slices as channel_slices
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.requests import facts, refusals, rows as request_rows, states, subjects
from tidegate.errors import LeaseLost
from tidegate.kernel import codec, leases, model, slices as kernel_slices

REQUEST_ID_BYTES_MAX = 64
DIGEST_BYTES_MAX = 64
EMERGENCY_SECONDS = 3_600  # that a request of what cannot wait waits at most
REVIEW_SECONDS = 72 * 3_600  # after which people are told that nobody has reviewed it
LEADER: Final = "requests"  # the job whose leader ends requests and reminds of reviews

# Requests about what stops a channel. What the channel is pinned to does not matter to them.
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

TWINS_ENDED_MAX = 20  # open requests for the same that one use of break-glass ends

# The request, its channel, the pin; then the rows that it names.
Rows = tuple[Any, ...]


class RequestCommand(Struct, frozen=True, kw_only=True):
    request_id: str
    channel: str
    by: str
    reason: str = ""
    kind: str = ""  # of the request, where what it names is compared
    command: dict[str, Any] = {}


class MakeRequest(RequestCommand, frozen=True, kw_only=True):
    """Ask for what needs a second person."""

    kind: str
    command: dict[str, Any]
    also: tuple[str, ...] = ()
    hosts: int | None = None  # of the plan, where it has one
    emergency: bool = False  # it expires within the hour


class ApproveRequest(RequestCommand, frozen=True, kw_only=True):
    """Agree to what has this digest."""

    digest: str


class CarryRequest(RequestCommand, frozen=True, kw_only=True):
    """What goes along with the command itself: with a digest also the last approval."""

    digest: str | None = None
    covers: tuple[str, ...] | None = None  # channels that the command concerns; none: all
    hosts: int | None = None  # of the plan now
    confirmed_hosts: int | None = None  # of the plan that the caller looked at


class RejectRequest(RequestCommand, frozen=True, kw_only=True):
    """Say no."""


class WithdrawRequest(RequestCommand, frozen=True, kw_only=True):
    """Take the own request back."""


class EndRequest(RequestCommand, frozen=True, kw_only=True):
    """Record that it expired, or that the channel changed. Otherwise nothing happens, unless it is
    said why it can never be carried out.
    """

    refusal: str = ""  # why it cannot be carried out any more
    term: str = ""  # the token of the leader; empty: a person who looked at it


class RemindReview(RequestCommand, frozen=True, kw_only=True):
    """Record that nobody has reviewed it in time."""

    term: str


class ActAlone(Struct, frozen=True, kw_only=True):
    """What goes along with a command that one person carries out: none of these channels is
    protected (none named: no channel at all), or the hold or the freeze is the person's own.
    """

    by: str
    channels: tuple[str, ...] = ()
    own_hold: str = ""  # a channel
    own_freeze: str = ""


class UseEmergency(RequestCommand, frozen=True, kw_only=True):
    """What goes along with a command that one person carries out with break-glass."""

    kind: str
    command: dict[str, Any]
    also: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()  # open requests for the same: it is done now


class ReviewRequest(RequestCommand, frozen=True, kw_only=True):
    """Say what another person thinks of what was done alone."""

    accepted: bool


class _Digested(Struct, frozen=True, omit_defaults=True):
    kind: str
    channel: str
    command: dict[str, Any]
    seen: facts.SeenChannel
    also: tuple[str, ...]


def rows_of_request(command: RequestCommand) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    parts = subjects.list_parts(command.kind, command.channel, command.command)
    return *_own_rows(command), *(part.key for part in parts)


def _own_rows(command: RequestCommand) -> tuple[model.Key, ...]:
    model.check_text("request_id", command.request_id, REQUEST_ID_BYTES_MAX)
    channel_slices.check_channel(command.channel)
    reasons.check_operator(command.by, "an operator's word")
    if command.reason:
        model.check_text("reason", command.reason, reasons.REASON_BYTES_MAX)
    return (
        request_rows.request_key(command.request_id),
        channel_rows.channel_key(command.channel),
        actual_key(command.channel),
    )


def _reasoned(command: RequestCommand) -> tuple[model.Key, ...]:
    reasons.check_operator(command.by, command.reason)
    return rows_of_request(command)


# ── making ────────────────────────────────────────────────────────────────────────────────────────


def see_channel(channel: channel_rows.Channel, pin: Actual | None) -> facts.SeenChannel:
    """What a request is made of. Raises: NotProtected."""
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


def decide_making(rows: Rows, command: MakeRequest, now: datetime) -> Sequence[Struct]:
    if rows[0] is not None:
        return ()  # a repeat: ids are not given twice
    channel = channel_slices.demand_channel(rows[1], command.channel)
    parts = subjects.list_parts(command.kind, command.channel, command.command)
    seen = structs.replace(
        see_channel(channel, rows[2]),
        hosts=command.hosts,
        subject=subjects.digest_parts(parts, rows[3:]),
    )
    asked = _Digested(command.kind, command.channel, command.command, seen, command.also)
    seconds = seen.protection.request_seconds
    if command.emergency:
        seconds = min(seconds, EMERGENCY_SECONDS)
    made = facts.RequestMade(
        request_id=command.request_id,
        channel=command.channel,
        by=command.by,
        at=now,
        kind=command.kind,
        command=command.command,
        digest=sha256(codec.encode(asked)).hexdigest(),
        seen=seen,
        reason=command.reason,
        expires_at=now + timedelta(seconds=seconds),
        also=command.also,
    )
    return (made,)


# ── approving and carrying out ────────────────────────────────────────────────────────────────────


def find_change(
    row: request_rows.ChannelRequest,
    channel: channel_rows.Channel | None,
    pin: Actual | None,
    named: Sequence[Any],
) -> str:
    """What changed since the request was made; empty: nothing that counts. ``named`` are the rows
    of what it names, as ``subjects.list_parts`` lists them.
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
    if found.rollout != seen.rollout:  # it went there and came back
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
    """Whether a plan has more than a tenth more or fewer hosts than before."""
    return seen is not None and found is not None and abs(found - seen) * 10 > seen


def _demand_open(rows: Rows, command: RequestCommand) -> request_rows.ChannelRequest:
    row: request_rows.ChannelRequest | None = rows[0]
    if row is None:
        raise refusals.RequestNotFound(command.request_id)
    if row.state not in states.OPEN:
        raise refusals.RequestOver(row.request_id, row.state)
    return row


def _demand_current(
    rows: Rows, command: RequestCommand, now: datetime
) -> request_rows.ChannelRequest:
    """Raises: RequestNotFound, RequestOver, RequestExpiredAt, RequestOutdated."""
    row = _demand_open(rows, command)
    if row.expires_at is not None and row.expires_at <= now:
        raise refusals.RequestExpiredAt(row.request_id, row.channel, row.expires_at)
    same = (row.kind, row.command) == (command.kind, command.command)
    assert same, "what a request asks for never changes"
    parts = subjects.list_parts(row.kind, row.channel, row.command)
    changed = find_change(row, rows[1], rows[2], rows[3 : 3 + len(parts)])
    if changed:
        raise refusals.RequestOutdated(row.request_id, row.channel, changed)
    return row


def _approved(
    row: request_rows.ChannelRequest, command: RequestCommand, digest: str, now: datetime
) -> tuple[facts.RequestApproved, ...]:
    """The approval; nothing if this person has approved before. Raises: as ``decide_approval``."""
    if command.by == row.by:
        raise refusals.OwnRequest(row.request_id, "approve")
    if digest != row.digest:
        raise refusals.RequestChanged(row.request_id, digest, row.digest)
    if command.by in row.approvals:
        return ()
    if row.state is states.RequestState.APPROVED:
        raise refusals.RequestOver(
            row.request_id,
            row.state,
            f"Enough people approved request {row.request_id}; "
            f"carry it out: tidegate request run {row.request_id}",
        )
    approved = facts.RequestApproved(
        request_id=row.request_id,
        channel=row.channel,
        by=command.by,
        at=now,
        digest=digest,
        reason=command.reason,
    )
    return (approved,)


def decide_approval(rows: Rows, command: ApproveRequest, now: datetime) -> Sequence[Struct]:
    """Raises: OwnRequest, RequestChanged. Those of a request that is over."""
    return _approved(_demand_current(rows, command, now), command, command.digest, now)


def rows_of_carrying(command: CarryRequest) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    return *rows_of_request(command), channel_rows.protected_channels_key()


def decide_carrying(rows: Rows, command: CarryRequest, now: datetime) -> Sequence[Struct]:
    """Raises: ApprovalsMissing, RequestHostsMoved. Those of ``decide_approval``."""
    row = _demand_current(rows, command, now)
    covered = () if command.covers is None else list_protected(rows[-1], command.covers)
    unasked = [name for name in covered if name not in row.channels]
    if unasked:  # nobody was asked who may approve there
        what = f"{', '.join(unasked)}, which it also concerns, was protected"
        raise refusals.RequestOutdated(row.request_id, row.channel, what)
    assert row.seen is not None, "an open request has seen its channel"
    confirmed = row.seen.hosts if command.confirmed_hosts is None else command.confirmed_hosts
    approved = () if command.digest is None else _approved(row, command, command.digest, now)
    found = len(row.approvals) + len(approved)
    if found < row.approvals_needed:
        raise refusals.ApprovalsMissing(row.request_id, found, row.approvals_needed)
    if confirmed is not None and command.hosts is not None and has_moved(confirmed, command.hosts):
        raise refusals.RequestHostsMoved(row.request_id, row.channel, confirmed, command.hosts)
    executed = facts.RequestExecuted(
        request_id=row.request_id, channel=row.channel, by=command.by, at=now
    )
    return (*approved, executed)


# ── ending ────────────────────────────────────────────────────────────────────────────────────────


def decide_rejection(rows: Rows, command: RejectRequest, now: datetime) -> Sequence[Struct]:
    row = _demand_open(rows, command)
    rejected = facts.RequestRejected(
        request_id=row.request_id,
        channel=row.channel,
        by=command.by,
        at=now,
        reason=command.reason,
    )
    return (rejected,)


def decide_withdrawal(rows: Rows, command: WithdrawRequest, now: datetime) -> Sequence[Struct]:
    row = _demand_open(rows, command)
    if command.by != row.by:
        raise refusals.NotOwnRequest(row.request_id)
    withdrawn = facts.RequestWithdrawn(
        request_id=row.request_id,
        channel=row.channel,
        by=command.by,
        at=now,
        reason=command.reason,
    )
    return (withdrawn,)


def rows_of_end(command: EndRequest | RemindReview) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    return *rows_of_request(command), *((leases.leader_key(LEADER),) if command.term else ())


def _demand_leader(lease: leases.Lease | None, term: str) -> None:
    """Raises: LeaseLost."""
    if lease is None or lease.lease_token != term:
        raise LeaseLost("another process looks after requests now", id=LEADER)


def decide_end(rows: tuple[Any, ...], command: EndRequest, now: datetime) -> Sequence[Struct]:
    """Raises: LeaseLost."""
    if command.term:
        _demand_leader(rows[-1], command.term)
    members = {"request_id": command.request_id, "channel": command.channel, "by": command.by}
    try:
        _demand_current(rows, command, now)
    except refusals.RequestExpiredAt:
        return (facts.RequestExpired(**members, at=now),)
    except refusals.RequestOutdated as outdated:
        return (facts.RequestVoided(**members, at=now, reason=outdated.what),)
    except refusals.RequestOver:
        return ()
    if command.refusal:
        return (facts.RequestVoided(**members, at=now, reason=command.refusal),)
    return ()


def decide_reminder(
    rows: tuple[Any, ...], command: RemindReview, now: datetime
) -> Sequence[Struct]:
    """Nothing follows if somebody reviewed it, or people were told before. Raises: LeaseLost."""
    row: request_rows.ChannelRequest | None = rows[0]
    _demand_leader(rows[-1], command.term)
    if row is None or row.state is not states.RequestState.TO_REVIEW or row.reminded_at is not None:
        return ()
    if now < row.made_at + timedelta(seconds=REVIEW_SECONDS):
        return ()
    unreviewed = facts.EmergencyUnreviewed(
        request_id=row.request_id, channel=row.channel, by=command.by, at=now
    )
    return (unreviewed,)


# ── alone ─────────────────────────────────────────────────────────────────────────────────────────


def rows_of_acting(command: ActAlone) -> tuple[model.Key, ...]:
    return (
        channel_rows.protected_channels_key(),
        *((channel_rows.channel_key(command.own_hold),) if command.own_hold else ()),
        *((channel_rows.freeze_key(command.own_freeze),) if command.own_freeze else ()),
    )


def list_protected(
    row: channel_rows.ProtectedChannels | None, channels: Collection[str]
) -> tuple[str, ...]:
    """Those of the channels that are protected; none named: of all channels."""
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


def rows_of_emergency(command: UseEmergency) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    reasons.check_operator(command.by, command.reason)
    model.at_most("requests for the same", len(command.twins), TWINS_ENDED_MAX)
    return *_own_rows(command), *map(request_rows.request_key, command.twins)


def decide_emergency(rows: Rows, command: UseEmergency, now: datetime) -> Sequence[Struct]:
    """Raises: BreakGlassForbidden."""
    channel = channel_slices.demand_channel(rows[1], command.channel)
    if channel.protection is None:
        return ()  # nothing was gone past
    if not channel.protection.break_glass:
        raise refusals.BreakGlassForbidden(command.channel)
    used = facts.EmergencyUsed(
        request_id=command.request_id,
        channel=command.channel,
        by=command.by,
        at=now,
        kind=command.kind,
        command=command.command,
        reason=command.reason,
        also=command.also,
    )
    ended = (
        facts.RequestVoided(
            request_id=twin.request_id,
            channel=twin.channel,
            by=command.by,
            at=now,
            reason=f"it was carried out with break-glass: {command.request_id}",
        )
        for twin in rows[3:]
        if twin is not None and twin.state in states.OPEN
    )
    return (used, *ended)


def decide_review(rows: Rows, command: ReviewRequest, now: datetime) -> Sequence[Struct]:
    row = rows[0]
    if row is None:
        raise refusals.RequestNotFound(command.request_id)
    if row.state is not states.RequestState.TO_REVIEW:
        raise refusals.RequestOver(
            row.request_id,
            row.state,
            f"Request {row.request_id} is {row.state}; only what was done with break-glass is "
            "reviewed, once.",
        )
    if command.by == row.by:
        raise refusals.OwnRequest(row.request_id, "review")
    reviewed = facts.RequestReviewed(
        request_id=row.request_id,
        channel=row.channel,
        by=command.by,
        at=now,
        accepted=command.accepted,
        reason=command.reason,
    )
    return (reviewed,)


make_request = kernel_slices.Slice(
    name="make-request",
    command=MakeRequest,
    writes=(facts.RequestMade,),
    rows=rows_of_request,
    decide=decide_making,
)
approve_request = kernel_slices.Slice(
    name="approve-request",
    command=ApproveRequest,
    writes=(facts.RequestApproved,),
    rows=rows_of_request,
    decide=decide_approval,
)
carry_request = kernel_slices.Slice(
    name="carry-request",
    command=CarryRequest,
    writes=(facts.RequestApproved, facts.RequestExecuted),
    rows=rows_of_carrying,
    decide=decide_carrying,
)
reject_request = kernel_slices.Slice(
    name="reject-request",
    command=RejectRequest,
    writes=(facts.RequestRejected,),
    rows=_reasoned,
    decide=decide_rejection,
)
withdraw_request = kernel_slices.Slice(
    name="withdraw-request",
    command=WithdrawRequest,
    writes=(facts.RequestWithdrawn,),
    rows=rows_of_request,
    decide=decide_withdrawal,
)
end_request = kernel_slices.Slice(
    name="end-request",
    command=EndRequest,
    writes=(facts.RequestExpired, facts.RequestVoided),
    rows=rows_of_end,
    decide=decide_end,
)
remind_review = kernel_slices.Slice(
    name="remind-review",
    command=RemindReview,
    writes=(facts.EmergencyUnreviewed,),
    rows=rows_of_end,
    decide=decide_reminder,
)
act_alone = kernel_slices.Slice(
    name="act-alone",
    command=ActAlone,
    writes=(),
    rows=rows_of_acting,
    decide=decide_acting,
)
use_emergency = kernel_slices.Slice(
    name="use-emergency",
    command=UseEmergency,
    writes=(facts.EmergencyUsed, facts.RequestVoided),
    rows=rows_of_emergency,
    decide=decide_emergency,
)
review_request = kernel_slices.Slice(
    name="review-request",
    command=ReviewRequest,
    writes=(facts.RequestReviewed,),
    rows=_reasoned,
    decide=decide_review,
)
SLICES = (
    make_request,
    approve_request,
    carry_request,
    reject_request,
    withdraw_request,
    end_request,
    remind_review,
    act_alone,
    use_emergency,
    review_request,
)
