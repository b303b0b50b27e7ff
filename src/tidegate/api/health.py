"""Whether the process lives, is ready to serve, and what it is; and what it counts."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.installation import Installation
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


def livez(request: Plain, installation: Installation) -> Response:
    """The process answers."""
    return Response(Alive())


def readyz(request: Plain, installation: Installation) -> Response:
    """The log takes commits and outbox work is not stuck; 503 if one of them fails."""
    checks = (_writable(installation), _outbox(installation, request))
    ready = all(check.ok for check in checks)
    return Response(Readiness(ready, checks), status=200 if ready else 503)


def version(request: Plain, installation: Installation) -> Response:
    """What runs here."""
    restored = installation.reads.find(epoch_key(), Epoch)
    epoch = FIRST if restored is None else restored.row.epoch
    return Response(Version("tidegate", installation.version, "v1", epoch))


def metrics(request: Plain, installation: Installation) -> Response:
    """Counters for Prometheus."""
    metrics = request.server.metrics
    metrics.position.set(request.server.tail.position)
    metrics.outbox_age.set(installation.outbox_age())
    return Response(metrics.text(), media=METRICS_MEDIA)


def _writable(installation: Installation) -> ReadinessCheck:
    fault = installation.write_fault()
    return ReadinessCheck("log", not fault, fault or "takes commits")


def _outbox(installation: Installation, request: Plain) -> ReadinessCheck:
    age = installation.outbox_age()
    return ReadinessCheck("outbox", age <= OUTBOX_SECONDS_MAX, f"oldest due work is {age} s old")


ROUTES = (
    Route("GET", "/livez", livez, PUBLIC, Alive, quick=True),
    Route("GET", "/readyz", readyz, PUBLIC, Readiness, also=(503,)),
    Route("GET", "/version", version, PUBLIC, Version, quick=True),
    Route("GET", "/metrics", metrics, requires(Verb.READ), str, produces="text/plain"),
)
