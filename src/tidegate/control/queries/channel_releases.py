"""Which release a channel wants, who decided that, and what its hosts run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.control.queries.fleet_picture import ChannelPicture
from tidegate.control.queries.host_releases import release_names
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.pin_history import PinMove, pin_moves
from tidegate.control.queries.reads import Reads
from tidegate.domain.releases import rows

CHANGES_MAX: Final = 50  # changes of a pin that are searched for the one that chose its release


class WantedRelease(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The release that a channel wants, and the change that chose it."""

    release_id: str
    what: PinMove
    since: datetime
    by: str
    by_name: str | None = None  # their current name; null: erased, or not a person
    reason: str | None = None


class RunningRelease(Struct, frozen=True, kw_only=True):
    """How many hosts of a channel report one artifact."""

    digest: str
    hosts: int
    release_id: str | None = None  # null: no release of the package has this content


class ActualReleases(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the hosts of a channel reported that they run. Retired hosts do not count."""

    hosts: int
    silent: int = 0
    unknown: int = 0  # hosts that have not reported what they run
    releases: tuple[RunningRelease, ...] = ()  # the wanted one first, then by hosts


def find_wanted(reads: Reads, people: PeopleNames, channel: str) -> WantedRelease | None:
    """Find the release that a channel wants. New evidence for the same release is no change."""
    changes = reads.range(
        rows.EVENTS, prefix=rows.row_id(channel, "EVENT#"), limit=CHANGES_MAX, descending=True
    )
    chosen = [
        item.row for item in changes if item.row.event_type is not rows.EventType.CONFIRMED
    ] or [item.row for item in changes]
    if not chosen:
        return None
    (what,) = pin_moves(reads, channel, chosen[:1])
    return WantedRelease(
        release_id=chosen[0].release_id,
        what=what,
        since=chosen[0].recorded_at,
        by=chosen[0].by,
        by_name=people.find_name(chosen[0].by),
        reason=chosen[0].reason,
    )


def count_actual(reads: Reads, pictures: Sequence[ChannelPicture]) -> tuple[ActualReleases, ...]:
    """Name what the hosts of each of these channels run."""
    names = release_names(
        reads, {(item.channel, digest) for item in pictures for digest in item.running}
    )
    return tuple(
        ActualReleases(
            hosts=item.hosts,
            silent=item.silent,
            unknown=item.unknown,
            releases=_running(item, names),
        )
        for item in pictures
    )


def _running(
    item: ChannelPicture, names: Mapping[tuple[str, str], str]
) -> tuple[RunningRelease, ...]:
    found = (
        RunningRelease(digest=digest, hosts=hosts, release_id=names.get((item.channel, digest)))
        for digest, hosts in item.running.items()
    )
    return tuple(
        sorted(
            found,
            key=lambda one: (
                one.digest != item.digest,
                -one.hosts,
                one.release_id is None,
                one.digest,
            ),
        )
    )
