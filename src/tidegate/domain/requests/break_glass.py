"""Break-glass: one person acts alone on a protected channel, and another reviews it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.access import reasons
from tidegate.domain.channels import slices as channel_slices
from tidegate.domain.requests import facts, refusals, request_commands, rows as request_rows, states
from tidegate.kernel import model, slices as kernel_slices

TWINS_ENDED_MAX = 20  # open requests for the same command that one use of break-glass ends


class UseEmergency(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Record that a command in the same commit is carried out with break-glass."""

    kind: str
    command: dict[str, Any]
    also: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()  # open requests for the same command, which are void now


class ReviewRequest(request_commands.RequestCommand, frozen=True, kw_only=True):
    """Accept or reject what another person did with break-glass."""

    accepted: bool


def rows_of_emergency(command: UseEmergency) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    reasons.check_operator(command.by, command.reason)
    model.at_most("requests for the same", len(command.twins), TWINS_ENDED_MAX)
    return *request_commands.own_rows(command), *map(request_rows.request_key, command.twins)


def decide_emergency(
    rows: request_commands.Rows, command: UseEmergency, now: datetime
) -> Sequence[Struct]:
    """Raises: BreakGlassForbidden."""
    channel = channel_slices.demand_channel(rows[1], command.channel)
    if channel.protection is None:
        return ()  # nothing was bypassed
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


def decide_review(
    rows: request_commands.Rows, command: ReviewRequest, now: datetime
) -> Sequence[Struct]:
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
    rows=request_commands.rows_with_reason,
    decide=decide_review,
)
SLICES = (use_emergency, review_request)
