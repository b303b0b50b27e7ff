"""Filter hosts by labels, by what they run, by silence and by their agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.fleet import agent_versions, rows as fleet_rows
from tidegate.domain.fleet.selectors import Selector
from tidegate.domain.releases import from_packages, rows as release_rows
from tidegate.errors import NotFound


class HostCriteria(Struct, frozen=True, kw_only=True):
    """The criteria that hosts in a list must meet."""

    status: str | None = None
    selectors: tuple[Selector, ...] = ()
    digest: str | None = None  # of the artifact that it runs
    channels: frozenset[str] = frozenset()  # on one of which it runs the artifact
    silent_before: datetime | None = None  # no heartbeat since
    is_silent: bool = False  # by the server's own limit
    has_old_agent: bool = False

    def matches(self, host: fleet_rows.Host, live: fleet_rows.Liveness | None) -> bool:
        return (
            self.status in (None, host.status)
            and all(selector.matches(host.labels, host.host_id) for selector in self.selectors)
            and (self.digest is None or self._runs(live))
            and (
                not self.is_silent
                or (host.status == fleet_rows.ENROLLED and host.silent_since is not None)
            )
            and (self.silent_before is None or self._is_quiet(host, live))
            and (
                not self.has_old_agent
                or (live is not None and agent_versions.is_too_old(live.agent_version))
            )
        )

    def _runs(self, live: fleet_rows.Liveness | None) -> bool:
        closures = {} if live is None else live.current_closures
        return any(closures.get(channel) == self.digest for channel in self.channels)

    def _is_quiet(self, host: fleet_rows.Host, live: fleet_rows.Liveness | None) -> bool:
        heard_at = host.enrolled_at if live is None else live.last_seen_at
        assert self.silent_before is not None
        return host.status == fleet_rows.ENROLLED and heard_at <= self.silent_before


class HostLists:
    """Reads the rows for lists of hosts."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def running(self, release_id: str) -> tuple[str, frozenset[str]]:
        """Return the digest of a release and the channels of its package. Raises: NotFound."""
        known, fleet = self._reads.find_all(
            (release_rows.known_key(release_id), release_rows.KnownRelease),
            (fleet_rows.fleet_key(), fleet_rows.Fleet),
        )
        if known is None:
            raise NotFound(
                f"there is no release {release_id}; tidegate rev list shows what is published",
                release_id=release_id,
            )
        number = release_id.rpartition(".")[2]
        scopes = () if fleet is None else fleet.row.channels
        return known.row.digest, frozenset(
            scope.channel
            for scope in scopes
            if number.isdigit()
            and from_packages.release_id_of(scope.package, int(number)) == release_id
        )

    def matching(
        self, page: Sequence[Found[fleet_rows.Host]], criteria: HostCriteria
    ) -> list[tuple[Found[fleet_rows.Host], fleet_rows.Liveness | None]]:
        """Return the hosts that match, each with its last report."""
        found = self._reads.find_all(
            *((fleet_rows.liveness_key(item.id), fleet_rows.Liveness) for item in page)
        )
        reports = [None if live is None else live.row for live in found]
        return [
            (item, live)
            for item, live in zip(page, reports, strict=True)
            if criteria.matches(item.row, live)
        ]


def silent_criteria(seconds: int | None, now: datetime) -> tuple[bool, datetime | None]:
    """Return ``is_silent`` and ``silent_before`` for hosts without a heartbeat for so many seconds;
    0: hosts that the server counts as silent.
    """
    if seconds is None:
        return False, None
    return (True, None) if seconds == 0 else (False, now - timedelta(seconds=seconds))
