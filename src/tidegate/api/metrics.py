"""Prometheus metrics of one server. Labels come from routes, never from input."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


_BOUNDS = (*(str(bound) for bound in SECONDS), "+Inf")


class Requests(Collector):
    """The number and duration of requests.

    These are plain numbers, changed on the event loop only. The library's own counters take a lock
    for each of the three, which is a good part of the cost of an unchanged poll.
    """

    def __init__(self) -> None:
        self._answered: dict[tuple[str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * len(_BOUNDS))
        self._seconds: dict[str, float] = defaultdict(float)

    def count(self, operation: str, status: int, seconds: float) -> None:
        self._answered[operation, status] += 1
        self._buckets[operation][bisect_left(SECONDS, seconds)] += 1
        self._seconds[operation] += seconds

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        answered = CounterMetricFamily(
            "tidegate_http_requests",
            "Requests answered, by operation and status",
            labels=("operation", "status"),
        )
        for (operation, status), number in sorted(self._answered.items()):
            answered.add_metric((operation, str(status)), number)
        yield answered
        took = HistogramMetricFamily(
            "tidegate_http_request_seconds",
            "Time from the first byte of a request to the last of its answer",
            labels=("operation",),
        )
        for operation, buckets in sorted(self._buckets.items()):
            counts = zip(_BOUNDS, accumulate(buckets), strict=True)
            took.add_metric((operation,), list(counts), self._seconds[operation])
        yield took


class Refusals(Collector):
    """Refused reports of agents by error code, including those in a batch whose own status is 200.

    These are plain numbers, changed on the event loop only.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def count(self, code: str) -> None:
        self._codes[code] = self._codes.get(code, 0) + 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        refused = CounterMetricFamily(
            "tidegate_reports_refused",
            "Reports of agents that were not taken, by code",
            labels=("code",),
        )
        for code, number in sorted(self._codes.items()):
            refused.add_metric((code,), number)
        yield refused


class Metrics:
    """The metrics of one application. Each application has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests()
        self.registry.register(self.requests)
        self.refusals = Refusals()
        self.registry.register(self.refusals)
        self.subscribers = Gauge(
            "tidegate_feed_subscribers",
            "Clients that follow the log at this moment",
            registry=self.registry,
        )
        self.connections = Gauge(
            "tidegate_http_connections",
            "Connections that are open at this moment",
            registry=self.registry,
        )
        self.position = Gauge(
            "tidegate_log_position", "Position of the newest event seen", registry=self.registry
        )
        self.outbox_age = Gauge(
            "tidegate_outbox_oldest_seconds",
            "Age of the oldest outbox intent that is due",
            registry=self.registry,
        )

    def follow(
        self,
        position: Callable[[], float],
        subscribers: Callable[[], float],
        connections: Callable[[], float],
    ) -> None:
        """Read these values on every scrape."""
        self.position.set_function(position)
        self.subscribers.set_function(subscribers)
        self.connections.set_function(connections)

    def text(self) -> bytes:
        return generate_latest(self.registry)
