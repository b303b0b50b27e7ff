"""Which releases channels want on a host, and which ones it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet.claims import claims
from tidegate.domain.fleet.rows import RETIRED, ChannelScope, Fleet, Host, Liveness, fleet_key
from tidegate.domain.releases import from_packages, rows as release_rows
from tidegate.kernel.model import Key

ROWS_MAX: Final = 50  # per read

Place = tuple[str, str]  # a channel, and the digest of what a host runs there


class HostRelease(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one channel wants on a host, and what the host runs."""

    channel: str
    wanted: str | None = None  # a release; None: the channel wants nothing yet
    runs: str | None = None  # a release; None: the host has not reported, or this is no release
    digest: str | None = None  # of what it runs; None: the host has not reported


def host_releases(
    reads: Reads, hosts: Sequence[tuple[Host, Liveness | None]]
) -> list[tuple[HostRelease, ...]]:
    """Return per host and channel which release the channel wants and which one the host runs."""
    fleet = reads.find(fleet_key(), Fleet)
    scopes = () if fleet is None else fleet.row.channels
    running = [{} if live is None else live.current_closures for _, live in hosts]
    channels = [
        sorted({*_claiming(scopes, host), *closures})
        for (host, _), closures in zip(hosts, running, strict=True)
    ]
    wanted = _wanted(reads, {name for names in channels for name in names})
    names = release_names(reads, {place for closures in running for place in closures.items()})
    claiming = [frozenset(_claiming(scopes, host)) for host, _ in hosts]
    return [
        tuple(
            HostRelease(
                channel=name,
                wanted=wanted[name].pinned_release_id
                if name in wanted and name in claimed
                else None,
                runs=names.get((name, closures[name])) if name in closures else None,
                digest=closures.get(name),
            )
            for name in listed
        )
        for listed, closures, claimed in zip(channels, running, claiming, strict=True)
    ]


def _claiming(scopes: Iterable[ChannelScope], host: Host) -> list[str]:
    return [] if host.status == RETIRED else claims(scopes, host.host_id, host.labels)


def _wanted(reads: Reads, channels: Iterable[str]) -> dict[str, release_rows.Actual]:
    """Return the pin of each channel."""
    ordered = sorted(channels)
    found = _find_all(
        reads, [(release_rows.actual_key(name), release_rows.Actual) for name in ordered]
    )
    return {name: row for name, row in zip(ordered, found, strict=True) if row is not None}


def release_names(reads: Reads, places: Iterable[Place]) -> dict[Place, str]:
    """Find the release name for a digest on a channel: the wanted release, else one that succeeded
    there, else the newest release of its package with this content. Other digests have no name.
    """
    ordered = sorted(places)
    channels = sorted({channel for channel, _ in ordered})
    wanted = _wanted(reads, channels)
    rows = _find_all(reads, [(channel_key(name), Channel) for name in channels])
    known: dict[str, Channel] = {
        name: row for name, row in zip(channels, rows, strict=True) if row is not None
    }
    matches = _find_all(
        reads,
        [(release_rows.matches_key(digest), release_rows.DigestMatches) for _, digest in ordered],
    )
    names: dict[Place, str] = {}
    for (channel, digest), found in zip(ordered, matches, strict=True):
        pin = wanted.get(channel)
        if pin is not None and pin.digest == digest:
            names[channel, digest] = pin.pinned_release_id
        elif channel in known:
            releases = () if found is None else found.release_ids
            name = _name_on(known[channel], digest, releases)
            if name is not None:
                names[channel, digest] = name
    return names


def _name_on(channel: Channel, digest: str, releases: Sequence[str]) -> str | None:
    for rung in channel.ladder:
        if rung.digest == digest:
            return rung.release_id
    of_package = [name for name in releases if _is_of(channel.package, name)]
    return of_package[-1] if of_package else None


def _is_of(package: str, release_id: str) -> bool:
    number = release_id.rpartition(".")[2]
    return number.isdigit() and from_packages.release_id_of(package, int(number)) == release_id


def _find_all(reads: Reads, wanted: Sequence[tuple[Key, type[Any]]]) -> list[Any | None]:
    rows: list[Any | None] = []
    for start in range(0, len(wanted), ROWS_MAX):
        found = reads.find_all(*wanted[start : start + ROWS_MAX])
        rows += [None if item is None else item.row for item in found]
    return rows
