"""The hosts that run a release because a channel wants it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.gates.inputs import HostStanding
from tidegate.domain.hosts import rows as host_rows, states
from tidegate.domain.rollouts import rows as rollout_rows, tallies
from tidegate.domain.rollouts.names import ref_of

NAMED_MAX: Final = 3  # hosts that are named
PAGE_ROWS: Final = 1_000

_RUNNING = (states.HostState.SOAKING, states.HostState.CONVERGED)


class ReleaseHosts(Struct, frozen=True):
    """How many hosts run a release, and the names of the first ones."""

    names: tuple[str, ...] = ()
    count: int = 0


def find_release_hosts(reads: Reads, release_id: str, channels: Iterable[str]) -> ReleaseHosts:
    """Find the hosts that run the release because one of these channels wants it."""
    names: list[str] = []
    count = 0
    for rollout_id in _rollouts(reads, release_id, channels):
        found = reads.find(rollout_rows.tally_key(rollout_id), rollout_rows.RolloutTally)
        if found is None:
            continue
        tally = found.row
        count += tallies.total(tally, *_RUNNING) + sum(
            tally.late.get(state, 0) for state in _RUNNING
        )
        names += _names(reads, rollout_id, NAMED_MAX - len(names))
    return ReleaseHosts(tuple(names), count)


def _rollouts(reads: Reads, release_id: str, channels: Iterable[str]) -> Iterator[str]:
    """Yield the newest rollout of each channel, if it is one of the release."""
    for name in channels:
        channel = reads.find(channel_key(name), Channel)  # not every scope is a channel
        newest = None if channel is None else channel.row.newest_rollout_id
        if newest is not None and ref_of(newest) == release_id:
            yield newest


def _names(reads: Reads, rollout_id: str, most: int) -> list[str]:
    names: list[str] = []
    if most <= 0:
        return names
    prefix = host_rows.record_id(rollout_id, "")
    for page in reads.views(
        host_rows.HOST_RECORDS, HostStanding, prefix=prefix, page_rows=PAGE_ROWS
    ):
        running = (row.host_id for row in page if row.state in _RUNNING and row.left is None)
        names += running
        if len(names) >= most:
            break
    return names[:most]
