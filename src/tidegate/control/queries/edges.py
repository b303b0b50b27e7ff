"""Judge an edge between channels for the pinned release."""

from __future__ import annotations

from datetime import datetime

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.reads import Found
from tidegate.domain.channels import facts, rows
from tidegate.domain.gates.edges import EdgeVerdict, WaitingRelease, judge_edge
from tidegate.domain.releases.rows import Actual


def edge_of(
    fleet_reader: FleetReader,
    row: rows.Channel,
    pin: Found[Actual] | None,
    edge: facts.ChannelEdge,
    now: datetime,
) -> EdgeVerdict:
    """Judge an edge for the release that is pinned on the channel."""
    if pin is None and edge.require is facts.EdgeRequires.SUCCEEDED:
        return EdgeVerdict(True, f"no release is pinned on {row.channel} yet")
    release, digest = ("", "") if pin is None else (pin.row.pinned_release_id, pin.row.digest)
    seen = fleet_reader.preceding(edge, release, digest)
    return judge_edge(edge, WaitingRelease(row.channel, release), seen, now)
