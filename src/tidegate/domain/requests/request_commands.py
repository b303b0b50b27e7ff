"""The common part of all commands on a request: the rows that they read and their checks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.access import reasons
from tidegate.domain.channels import rows as channel_rows, slices as channel_slices
from tidegate.domain.releases.rows import actual_key
from tidegate.domain.requests import changes, refusals, rows as request_rows, states, subjects
from tidegate.kernel import model

REQUEST_ID_BYTES_MAX = 64

# The request, its channel and the pin, then the rows of the things that the request names.
Rows = tuple[Any, ...]


class RequestCommand(Struct, frozen=True, kw_only=True):
    request_id: str
    channel: str
    by: str
    reason: str = ""
    kind: str = ""  # of the request, where the things that it names are compared
    command: dict[str, Any] = {}


def rows_of_request(command: RequestCommand) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    parts = subjects.list_parts(command.kind, command.channel, command.command)
    return *own_rows(command), *(part.key for part in parts)


def own_rows(command: RequestCommand) -> tuple[model.Key, ...]:
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


def rows_with_reason(command: RequestCommand) -> tuple[model.Key, ...]:
    reasons.check_operator(command.by, command.reason)
    return rows_of_request(command)


def demand_open(rows: Rows, command: RequestCommand) -> request_rows.ChannelRequest:
    row: request_rows.ChannelRequest | None = rows[0]
    if row is None:
        raise refusals.RequestNotFound(command.request_id)
    if row.state not in states.OPEN:
        raise refusals.RequestOver(row.request_id, row.state)
    return row


def demand_current(
    rows: Rows, command: RequestCommand, now: datetime
) -> request_rows.ChannelRequest:
    """Raises: RequestNotFound, RequestOver, RequestExpiredAt, RequestOutdated."""
    row = demand_open(rows, command)
    if row.expires_at is not None and row.expires_at <= now:
        raise refusals.RequestExpiredAt(row.request_id, row.channel, row.expires_at)
    same = (row.kind, row.command) == (command.kind, command.command)
    assert same, "what a request asks for never changes"
    parts = subjects.list_parts(row.kind, row.channel, row.command)
    changed = changes.find_change(row, rows[1], rows[2], rows[3 : 3 + len(parts)])
    if changed:
        raise refusals.RequestOutdated(row.request_id, row.channel, changed)
    return row
