"""What a policy would do on a channel as the fleet is now."""

from __future__ import annotations

from typing import Any

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.policy_document import PolicyRead, read_policy
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.policy_check import PolicyCheck, PolicySite, check


def check_document(
    reads: Reads, fleet: FleetReader, document: Any, channel: str | None
) -> tuple[PolicyRead, PolicyCheck, Channel | None]:
    """A policy as it would be stored, what there is to say about it, and the channel as it is.

    Raises:
        ChannelNotFound.
    """
    read = read_policy(document)
    if channel is None:
        return read, check(read, None), None
    found = reads.demand(channel_key(channel), Channel, ChannelNotFound(channel)).row
    around = reads.find(fleet_key(), Fleet)
    site = PolicySite(
        channel=found,
        scopes=() if around is None else around.row.channels,
        hosts=tuple(fleet.hosts()),
        budgets=tuple(seen.row for seen in fleet.budgets() if not seen.row.removed),
    )
    return read, check(read, site), found
