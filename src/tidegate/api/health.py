"""Whether the process lives, is ready to serve, and what it is; and what it counts."""

from __future__ import annotations

from tidegate.api.routing import PUBLIC, Answer, Request, Route, may
from tidegate.control.installation import Installation
from tidegate.domain.access.roles import Verb
from tidegate.domain.epochs import FIRST, Epoch, epoch_key
from tidegate.wire import Alive, Check, Nothing, Readiness, Version

Plain = Request[Nothing, Nothing, Nothing]
METRICS_MEDIA = "text/plain; version=0.0.4; charset=utf-8"
OUTBOX_SECONDS_MAX = 3_600  # older than this, outbox work is stuck


def livez(request: Plain, installation: Installation) -> Answer:
    """The process answers."""
    return Answer(Alive())


def readyz(request: Plain, installation: Installation) -> Answer:
    """The log takes commits and outbox work is not stuck; 503 if one of them fails."""
    checks = (_writable(installation), _outbox(installation, request))
    ready = all(check.ok for check in checks)
    return Answer(Readiness(ready, checks), status=200 if ready else 503)


def version(request: Plain, installation: Installation) -> Answer:
    """What runs here."""
    restored = installation.find(epoch_key(), Epoch)
    epoch = FIRST if restored is None else restored.row.epoch
    return Answer(Version("tidegate", installation.version, "v1", epoch))


def metrics(request: Plain, installation: Installation) -> Answer:
    """Counters for Prometheus."""
    metrics = request.server.metrics
    metrics.position.set(request.server.tail.position)
    metrics.outbox_age.set(installation.outbox_age())
    return Answer(metrics.text(), media=METRICS_MEDIA)


def _writable(installation: Installation) -> Check:
    fault = installation.write_fault()
    return Check("log", not fault, fault or "takes commits")


def _outbox(installation: Installation, request: Plain) -> Check:
    age = installation.outbox_age()
    return Check("outbox", age <= OUTBOX_SECONDS_MAX, f"oldest due work is {age} s old")


ROUTES = (
    Route("GET", "/livez", livez, PUBLIC, Alive, quick=True),
    Route("GET", "/readyz", readyz, PUBLIC, Readiness, also=(503,)),
    Route("GET", "/version", version, PUBLIC, Version, quick=True),
    Route("GET", "/metrics", metrics, may(Verb.READ), str, produces="text/plain"),
)
