"""Which release runs where, by channel, for the overview and the metrics.

This reads every host. For a large fleet the result is cached for ``FRESH_SECONDS``, and it says
how old it is.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.rows import CHANNELS, Channel
from tidegate.domain.fleet import agent_versions, rows, selectors
from tidegate.domain.releases.rows import ACTUAL, Actual
from tidegate.kernel import codec

FRESH_SECONDS: Final = 15
SMALL_FLEET: Final = 2_000  # hosts: up to here every call counts, in a few milliseconds
PAGE_ROWS: Final = 5_000


class HostView(Struct, frozen=True, kw_only=True):
    """The fields of a host that the picture needs."""

    host_id: str
    labels: dict[str, str] = {}
    status: str = ""
    silent_since: datetime | None = None


class LivenessView(Struct, frozen=True, kw_only=True):
    """The fields of a host's last report that the picture needs."""

    host_id: str
    agent_version: str = ""
    current_closures: dict[str, str] = {}


codec.prepare(HostView)
codec.prepare(LivenessView)


class ChannelPicture(Struct, kw_only=True):
    """Counts of one channel's hosts. Retired hosts do not count."""

    channel: str
    wanted: str | None = None  # the release
    digest: str | None = None  # of the wanted release
    enrolled: int = 0  # with a recent heartbeat and a valid key
    silent: int = 0
    revoked: int = 0
    running: Counter[str] = Counter()  # digest → hosts that report it
    unknown: int = 0  # hosts that have not reported what they run
    outcomes: dict[str, int] = {}  # outcome → number of the channel's rollouts
    newest_rollout_id: str | None = None

    @property
    def hosts(self) -> int:
        return self.enrolled + self.silent + self.revoked

    @property
    def on_wanted(self) -> int:
        return 0 if self.digest is None else self.running[self.digest]


class FleetPicture(Struct, frozen=True):
    taken_at: datetime
    channels: tuple[ChannelPicture, ...]
    hosts: int
    silent: int
    revoked: int
    old_agents: tuple[str, ...] = ()  # hosts whose agent should be upgraded


class FleetPictures:
    """Computes the picture of the fleet, and caches it."""

    def __init__(self, reads: Reads, clock: Clock, *, small_fleet: int = SMALL_FLEET) -> None:
        self._reads = reads
        self._clock = clock
        self._small_fleet = small_fleet
        self._lock = Lock()
        self._taken: FleetPicture | None = None

    def look(self) -> FleetPicture:
        """Return the current picture; for a large fleet, at most ``FRESH_SECONDS`` old."""
        with self._lock:
            now = self._clock()
            taken = self._taken
            if taken is None or taken.hosts <= self._small_fleet or not _is_fresh(taken, now):
                taken = self._taken = self._take(now)
            return taken

    def _take(self, now: datetime) -> FleetPicture:
        channels: list[Channel] = [item.row for item in self._reads.iterate(CHANNELS)]
        pins: dict[str, Actual] = {item.row.scope: item.row for item in self._reads.iterate(ACTUAL)}
        pictures = {}
        for channel in channels:
            pin = pins.get(channel.channel)
            pictures[channel.channel] = ChannelPicture(
                channel=channel.channel,
                wanted=None if pin is None else pin.pinned_release_id,
                digest=None if pin is None else pin.digest,
                running=Counter(),
                outcomes=channel.outcomes,
                newest_rollout_id=channel.newest_rollout_id,
            )
        liveness = {
            live.host_id: live
            for page in self._reads.views(rows.LIVENESS, LivenessView, page_rows=PAGE_ROWS)
            for live in page
        }
        chosen = ChannelsOfHosts(channels)
        counted: Counter[str] = Counter()
        old_agents: list[str] = []
        for page in self._reads.views(rows.HOSTS, HostView, page_rows=PAGE_ROWS):
            for host in page:
                if host.status == rows.RETIRED:
                    continue
                standing = _standing(host)
                counted[standing] += 1
                live = liveness.get(host.host_id)
                if live is not None and agent_versions.is_too_old(live.agent_version):
                    old_agents.append(host.host_id)
                closures = {} if live is None else live.current_closures
                for name in chosen.of(host):
                    _count(pictures[name], standing, closures.get(name))
        return FleetPicture(
            taken_at=now,
            channels=tuple(pictures.values()),
            hosts=counted.total(),
            silent=counted["silent"],
            revoked=counted["revoked"],
            old_agents=tuple(old_agents),
        )


def _is_fresh(taken: FleetPicture, now: datetime) -> bool:
    return timedelta() <= now - taken.taken_at < timedelta(seconds=FRESH_SECONDS)


class ChannelsOfHosts:
    """Finds the channels of a host. Hosts with equal labels are in the same channels, unless a
    selector names hosts.
    """

    def __init__(self, channels: list[Channel]) -> None:
        self._selectors = [(item.channel, selectors.parse(item.selector)) for item in channels]
        self._names_hosts = any(
            term.key == selectors.HOST for _, parsed in self._selectors for term in parsed.terms
        )
        self._known: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}

    def of(self, host: HostView) -> tuple[str, ...]:
        if self._names_hosts:
            return self._claimed(host)
        labels = tuple(sorted(host.labels.items()))
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = self._claimed(host)
        return found

    def _claimed(self, host: HostView) -> tuple[str, ...]:
        return tuple(
            channel
            for channel, selector in self._selectors
            if selector.matches(host.labels, host.host_id)
        )


def _standing(host: HostView) -> str:
    if host.status == rows.REVOKED:
        return "revoked"
    return "enrolled" if host.silent_since is None else "silent"


def _count(picture: ChannelPicture, standing: str, digest: str | None) -> None:
    if standing == "enrolled":
        picture.enrolled += 1
    elif standing == "silent":
        picture.silent += 1
    else:
        picture.revoked += 1
    if digest is None:
        picture.unknown += 1
    else:
        picture.running[digest] += 1
