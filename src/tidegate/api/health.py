"""Whether the process lives, is ready to serve, and what it is; and what it counts."""

from __future__ import annotations

from msgspec import Struct

from tidegate import __version__
from tidegate.api.metrics import Metrics
from tidegate.control.queries.log_health import LogHealth
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.epochs import FIRST, Epoch, epoch_key
from tidegate.web.inputs import Nothing
from tidegate.web.routing import PUBLIC, Request, Response, Route, requires

Plain = Request[Nothing, Nothing, Nothing]
METRICS_MEDIA = "text/plain; version=0.0.4; charset=utf-8"
OUTBOX_SECONDS_MAX = 3_600  # older than this, outbox work is stuck


class Version(Struct, frozen=True):
    """What runs."""

    name: str
    version: str
    api: str
    epoch: int = 1  # grows when a backup is restored: what came after it is gone


class ReadinessCheck(Struct, frozen=True):
    """One thing that must hold for a server to be ready."""

    name: str
    ok: bool
    detail: str = ""


class Readiness(Struct, frozen=True):
    ready: bool
    checks: tuple[ReadinessCheck, ...]


class Alive(Struct, frozen=True):
    alive: bool = True


def livez(request: Plain) -> Response:
    """The process answers."""
    return Response(Alive())


def readyz(request: Plain, health: LogHealth) -> Response:
    """The log takes commits and outbox work is not stuck; 503 if one of them fails."""
    checks = (_writable(health), _outbox(health))
    ready = all(check.ok for check in checks)
    return Response(Readiness(ready, checks), status=200 if ready else 503)


def version(request: Plain, reads: Reads) -> Response:
    """What runs here."""
    restored = reads.find(epoch_key(), Epoch)
    epoch = FIRST if restored is None else restored.row.epoch
    return Response(Version("tidegate", __version__, "v1", epoch))


def metrics(request: Plain, health: LogHealth, metrics: Metrics) -> Response:
    """Counters for Prometheus."""
    metrics.outbox_age.set(health.outbox_age())
    return Response(metrics.text(), media=METRICS_MEDIA)


def _writable(health: LogHealth) -> ReadinessCheck:
    fault = health.write_fault()
    return ReadinessCheck("log", not fault, fault or "takes commits")


def _outbox(health: LogHealth) -> ReadinessCheck:
    age = health.outbox_age()
    return ReadinessCheck("outbox", age <= OUTBOX_SECONDS_MAX, f"oldest due work is {age} s old")


ROUTES = (
    Route("GET", "/livez", livez, PUBLIC, Alive, quick=True),
    Route("GET", "/readyz", readyz, PUBLIC, Readiness, also=(503,)),
    Route("GET", "/version", version, PUBLIC, Version, quick=True),
    Route("GET", "/metrics", metrics, requires(Verb.READ), str, produces="text/plain"),
)
