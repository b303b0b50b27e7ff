"""The commands on requests on protected channels.

    make ──▶ approve … approve, carry out ──▶ executed
               └ reject, withdraw; or it expires, or the channel changes

Four eyes: the person who made a request cannot approve it, and each approver counts once. The last
approval carries the request out in one commit: ``carry_request`` is decided together with the
command itself.

A command without a request is committed together with ``act_alone`` (protection.py), which refuses
it if a channel has been protected in between.

A command also reads the things that the request names (``subjects``). So a request to release a
hold never releases a later hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec import Struct, structs

from tidegate.domain.channels import rows as channel_rows, slices as channel_slices
from tidegate.domain.requests import (
    changes,
    facts,
    protection,
    refusals,
    request_commands,
    rows as request_rows,
    states,
    subjects,
)
from tidegate.kernel import codec, model, slices as kernel_slices

EMERGENCY_SECONDS = 3_600  # how long an urgent request stays open


class MakeRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Request something that needs a second person."""

    kind: str
    command: dict[str, Any]
    also: tuple[str, ...] = ()
    hosts: int | None = None  # of the plan, if there is one
    emergency: bool = False  # it expires within an hour


class ApproveRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Approve the request with this digest."""

    digest: str


class CarryRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that a command in the same commit carries the request out.

    With a ``digest`` it is the last approval, too.
    """

    digest: str | None = None
    covers: tuple[str, ...] | None = None  # channels of the command; empty: all; None: unchecked
    hosts: int | None = None  # of the plan now
    confirmed_hosts: int | None = None  # of the plan that the caller saw; the asker confirms none


class RejectRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Reject a request."""


class WithdrawRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Withdraw one's own request."""


class _Digested(Struct, frozen=True, omit_defaults=True):
    kind: str
    channel: str
    command: dict[str, Any]
    seen: facts.SeenChannel
    also: tuple[str, ...]


def decide_making(
    rows: request_commands.Rows, command: MakeRequest, now: datetime
) -> Sequence[Struct]:
    if rows[0] is not None:
        return ()  # a repeat: ids are unique
    channel = channel_slices.demand_channel(rows[1], command.channel)
    parts = subjects.list_parts(command.kind, command.channel, command.command)
    seen = structs.replace(
        changes.see_channel(channel, rows[2]),
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


def _approve(
    row: request_rows.ChannelRequest,
    command: request_commands.RequestCommand,
    digest: str,
    now: datetime,
) -> tuple[facts.RequestApproved, ...]:
    """The approval; empty if this person has approved before. Raises: as ``decide_approval``."""
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


def decide_approval(
    rows: request_commands.Rows, command: ApproveRequest, now: datetime
) -> Sequence[Struct]:
    """Raises: OwnRequest, RequestChanged, and those of ``demand_current``."""
    return _approve(
        request_commands.demand_current(rows, command, now), command, command.digest, now
    )


def rows_of_carrying(command: CarryRequest) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    return *request_commands.rows_of_request(command), channel_rows.protected_channels_key()


def decide_carrying(
    rows: request_commands.Rows, command: CarryRequest, now: datetime
) -> Sequence[Struct]:
    """Raises: ApprovalsMissing, RequestHostsMoved, and those of ``decide_approval``."""
    row = request_commands.demand_current(rows, command, now)
    covered = () if command.covers is None else protection.list_protected(rows[-1], command.covers)
    unasked = [name for name in covered if name not in row.channels]
    if unasked:  # its approvers did not need the permission there
        what = f"{', '.join(unasked)}, which it also concerns, was protected"
        raise refusals.RequestOutdated(row.request_id, row.channel, what)
    assert row.seen is not None, "an open request has seen its channel"
    confirmed = row.seen.hosts
    if command.confirmed_hosts is not None and command.by != row.by:
        confirmed = command.confirmed_hosts
    approved = () if command.digest is None else _approve(row, command, command.digest, now)
    found = len(row.approvals) + len(approved)
    if found < row.approvals_needed:
        raise refusals.ApprovalsMissing(row.request_id, found, row.approvals_needed)
    if (
        confirmed is not None
        and command.hosts is not None
        and changes.has_moved(confirmed, command.hosts)
    ):
        raise refusals.RequestHostsMoved(
            row.request_id,
            row.channel,
            confirmed,
            command.hosts,
            verb="run" if command.digest is None else "approve",
            is_own=command.by == row.by,
        )
    executed = facts.RequestExecuted(
        request_id=row.request_id, channel=row.channel, by=command.by, at=now
    )
    return (*approved, executed)


def decide_rejection(
    rows: request_commands.Rows, command: RejectRequest, now: datetime
) -> Sequence[Struct]:
    row = request_commands.demand_open(rows, command)
    rejected = facts.RequestRejected(
        request_id=row.request_id,
        channel=row.channel,
        by=command.by,
        at=now,
        reason=command.reason,
    )
    return (rejected,)


def decide_withdrawal(
    rows: request_commands.Rows, command: WithdrawRequest, now: datetime
) -> Sequence[Struct]:
    row = request_commands.demand_open(rows, command)
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


make_request = kernel_slices.Slice(
    name="make-request",
    command=MakeRequest,
    writes=(facts.RequestMade,),
    rows=request_commands.rows_of_request,
    decide=decide_making,
)
approve_request = kernel_slices.Slice(
    name="approve-request",
    command=ApproveRequest,
    writes=(facts.RequestApproved,),
    rows=request_commands.rows_of_request,
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
    rows=request_commands.rows_with_reason,
    decide=decide_rejection,
)
withdraw_request = kernel_slices.Slice(
    name="withdraw-request",
    command=WithdrawRequest,
    writes=(facts.RequestWithdrawn,),
    rows=request_commands.rows_of_request,
    decide=decide_withdrawal,
)
SLICES = (make_request, approve_request, carry_request, reject_request, withdraw_request)
