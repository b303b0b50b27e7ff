"""Prometheus metrics of notifications, from rows, so every server reports the same.

The label is the name of the subscription. There are at most 64 subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.clock import Clock
from tidegate.control.queries.reads import Reads
from tidegate.domain.notifications.rows import QUEUES, NoticeQueue, QueuedNotice, notice_key

QUEUES_MAX: Final = 64
LABELS: Final = ("target",)


class NotifyMetrics(Collector):
    """Gauges of the queues of subscriptions, read on every scrape."""

    def __init__(self, reads: Reads, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "tidegate_notify_queue", "Messages that wait to be sent, by target", labels=LABELS
        )
        oldest = GaugeMetricFamily(
            "tidegate_notify_oldest_seconds",
            "For how long the oldest message has waited to be sent, by target",
            labels=LABELS,
        )
        dead = CounterMetricFamily(
            "tidegate_notify_dead", "Messages that were given up, by target", labels=LABELS
        )
        for found in self._reads.range(QUEUES, limit=QUEUES_MAX):
            queue: NoticeQueue = found.row
            waiting.add_metric((queue.name,), queue.waiting)
            oldest.add_metric((queue.name,), self._age(queue))
            dead.add_metric((queue.name,), queue.dead)
        yield from (waiting, oldest, dead)

    def _age(self, queue: NoticeQueue) -> float:
        if not queue.waiting:
            return 0.0
        found = self._reads.find(notice_key(queue.name, queue.first), QueuedNotice)
        if found is None:
            return 0.0
        return max(0.0, (self._clock() - found.row.queued_at).total_seconds())
