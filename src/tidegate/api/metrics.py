"""What a server counts about itself, for Prometheus; labels come from routes, never from input."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counters of one application; each application has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tidegate_http_requests",
            "Requests answered, by operation and status",
            ("operation", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tidegate_http_request_seconds",
            "Time from the first byte of a request to the last of its answer",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.subscribers = Gauge(
            "tidegate_feed_subscribers",
            "Clients that follow the log at this moment",
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
        self._children: dict[tuple[str, int], Any] = {}
        self._timers: dict[str, Any] = {}

    def count(self, operation: str, status: int, seconds: float) -> None:
        child = self._children.get((operation, status))
        if child is None:
            child = self._requests.labels(operation, str(status))
            self._children[operation, status] = child
            self._timers[operation] = self._seconds.labels(operation)
        child.inc()
        self._timers[operation].observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
