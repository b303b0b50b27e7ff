"""Check what a policy would do on a channel with the current fleet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels import facts, policy_document, refusals, rows
from tidegate.domain.fleet.rows import ChannelScope, Fleet, fleet_key
from tidegate.domain.policy_check import PolicyCheck, PolicySite, check
from tidegate.domain.windows import rows as window_rows
from tidegate.domain.windows.slices import WINDOWS_MAX, spec_of


def check_document(
    reads: Reads,
    fleet: FleetReader,
    document: Any,
    channel: str | None,
    planned: ChannelScope | None = None,
    *,
    now: datetime,
) -> tuple[policy_document.PolicyRead, PolicyCheck, rows.Channel | None]:
    """Return a policy as it would be stored, the findings about it, and the channel.

    ``planned`` describes a channel that may not exist yet; the policy is then checked on its hosts.

    Raises:
        ChannelNotFound: the channel does not exist, and ``planned`` does not describe it.
        InvalidSelector.
    """
    read = policy_document.read_policy(document)
    if channel is None:
        return read, check(read, None), None
    row = reads.find(rows.channel_key(channel), rows.Channel)
    found = None if row is None else row.row
    if found is None and planned is None:
        raise refusals.ChannelNotFound(channel)
    around = reads.find(fleet_key(), Fleet)
    site = PolicySite(
        channel=found or _planned_row(planned),
        scopes=() if around is None else around.row.channels,
        hosts=tuple(fleet.hosts()),
        budgets=tuple(seen.row for seen in fleet.budgets() if not seen.row.removed),
        windows=tuple(
            spec_of(item.row) for item in reads.range(window_rows.WINDOWS, limit=WINDOWS_MAX)
        ),
        at=now,
    )
    return read, check(read, site), found


def _planned_row(planned: ChannelScope | None) -> rows.Channel:
    """Make the row that a channel would have. Its creation time does not matter for a policy."""
    assert planned is not None
    return rows.Channel(
        channel=planned.channel,
        package=planned.package,
        selector=planned.selector,
        policy=facts.ChannelPolicy(),
        created_at=datetime.min.replace(tzinfo=UTC),
    )
