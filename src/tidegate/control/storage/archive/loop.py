"""The worker's loop for the archive: copy the log, and report the lag."""

from __future__ import annotations

import logging
from threading import Event

from prometheus_client import CollectorRegistry, Gauge

from tidegate.control.storage.archive import Archive, Lag
from tidegate.errors import TRANSIENT, Unavailable, Unknown

log = logging.getLogger("tidegate.worker")


class ArchiveLoop:
    """Runs rounds of the archive, and measures the lag after each."""

    def __init__(self, archive: Archive, stop: Event, registry: CollectorRegistry) -> None:
        self._archive = archive
        self._stop = stop
        self._is_alarming = False
        self._events = Gauge(
            "tidegate_archive_lag_events",
            "Events that are not archived yet, counted up to 5,000",
            registry=registry,
        )
        self._seconds = Gauge(
            "tidegate_archive_lag_seconds",
            "Age of the oldest event that is not archived yet",
            registry=registry,
        )
        self._alarming = Gauge(
            "tidegate_archive_alarming",
            "1 while the archive is further behind than is normal",
            registry=registry,
        )
        self._position = Gauge(
            "tidegate_archive_position", "Everything up to here is archived", registry=registry
        )
        self._looked_at = Gauge(
            "tidegate_archive_looked_at_seconds",
            "When the lag was looked at last, in seconds since 1970",
            registry=registry,
        )

    def round(self) -> bool:
        """Archive new events; return whether there are more.

        Raises:
            Unavailable, Unknown, Conflict: what was archived until then remains.
        """
        try:
            more = self._archive.work(self._stop).more
        except TRANSIENT as error:
            self._look(error.code)
            raise
        self._look("")
        return more

    def _look(self, trouble: str) -> None:
        """Measure the lag. If the log is unavailable, the last lag shows its age."""
        try:
            lag = self._archive.lag(trouble)
        except (Unavailable, Unknown):
            return
        self._events.set(lag.events)
        self._seconds.set(lag.seconds)
        self._alarming.set(lag.alarming)
        self._position.set(lag.position)
        self._looked_at.set(lag.at.timestamp())
        self._warn(lag)

    def _warn(self, lag: Lag) -> None:
        """Log a line when the archive falls behind, and one when it has caught up."""
        if lag.alarming and not self._is_alarming:
            log.warning(
                "the archive is %d events and %d s behind, at position %d%s",
                lag.events,
                lag.seconds,
                lag.position,
                f": {lag.trouble}" if lag.trouble else "",
            )
        elif self._is_alarming and not lag.alarming:
            log.info("the archive has caught up, at position %d", lag.position)
        self._is_alarming = lag.alarming
