"""Requests that expire or become void, and reviews that are overdue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.requests import facts, refusals, request_commands, rows as request_rows, states
from tidegate.errors import LeaseLost
from tidegate.kernel import leases, model, slices as kernel_slices

REVIEW_SECONDS = 72 * 3_600  # after which people are told that nobody has reviewed it
LEADER: Final = "requests"  # the job whose leader ends requests and reminds of reviews


class EndRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that it expired, or that the channel changed. Otherwise nothing happens, unless it is
    said why it can never be carried out.
    """

    refusal: str = ""  # why it cannot be carried out any more
    term: str = ""  # the token of the leader; empty: a person who looked at it


class RemindReview(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that nobody has reviewed it in time."""

    term: str


def rows_of_end(command: EndRequest | RemindReview) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    return *request_commands.rows_of_request(command), *(
        (leases.leader_key(LEADER),) if command.term else ()
    )


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
        request_commands.demand_current(rows, command, now)
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
SLICES = (end_request, remind_review)
