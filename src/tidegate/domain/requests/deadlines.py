"""End requests that have expired or are void, and report overdue reviews."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from tidegate.domain.requests import facts, refusals, request_commands, rows as request_rows, states
from tidegate.errors import LeaseLost
from tidegate.kernel import leases, model, slices as kernel_slices

REVIEW_SECONDS = 72 * 3_600  # after which people are notified that a review is missing
LEADER: Final = "requests"  # the job whose leader ends requests and reminds of reviews


class EndRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that a request expired or became void. Does nothing if neither is the case.

    With a ``refusal`` the request becomes void in any case.
    """

    refusal: str = ""  # why it can never be carried out
    term: str = ""  # the leader's token; empty: on behalf of a person who read the request


class RemindReview(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that a review is overdue."""

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
    """No fact follows if it was reviewed, or a reminder was sent before. Raises: LeaseLost."""
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
