"""Liveness, readiness, version and metrics of the process."""

from __future__ import annotations

import logging
import shutil

from msgspec import Struct

from tidegate import __version__, config
from tidegate.api.metrics import Metrics
from tidegate.control.queries.log_health import LogHealth
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.access.roles import Verb
from tidegate.domain.epochs import FIRST, Epoch, epoch_key
from tidegate.web import inputs, routing

Plain = routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing]
METRICS_MEDIA = "text/plain; version=0.0.4; charset=utf-8"
DISK_FREE_BYTES_MIN = 64 * 2**20  # of the data directory
OUTBOX_SECONDS_MAX = 3_600  # outbox work older than this is stuck


log = logging.getLogger("tidegate.health")


class Version(Struct, frozen=True):
    """The version of this server."""

    name: str
    version: str
    api: str
    epoch: int = 1  # grows when a backup is restored, which loses all later events


class ReadinessCheck(Struct, frozen=True):
    """One condition of readiness."""

    name: str
    ok: bool
    detail: str = ""


class Readiness(Struct, frozen=True):
    ready: bool
    checks: tuple[ReadinessCheck, ...]


class Alive(Struct, frozen=True):
    alive: bool = True


def livez(request: Plain) -> routing.Response:
    """Whether the process responds."""
    return routing.Response(Alive())


def readyz(
    request: Plain, health: LogHealth, blobs: Blobs, settings: config.Settings
) -> routing.Response:
    """Whether the log and files are writable, the outbox moves and the disk has room; else 503."""
    checks = (_writable(health), _blobs(blobs), _outbox(health), _disk(settings))
    ready = all(check.ok for check in checks)
    return routing.Response(Readiness(ready, checks), status=200 if ready else 503)


def version(request: Plain, reads: Reads) -> routing.Response:
    """The version of this server."""
    restored = reads.find(epoch_key(), Epoch)
    epoch = FIRST if restored is None else restored.row.epoch
    return routing.Response(Version("tidegate", __version__, "v1", epoch))


def metrics(request: Plain, health: LogHealth, metrics: Metrics) -> routing.Response:
    """Metrics for Prometheus."""
    metrics.outbox_age.set(health.outbox_age())
    return routing.Response(metrics.text(), media=METRICS_MEDIA)


def _writable(health: LogHealth) -> ReadinessCheck:
    fault = health.write_fault()
    if fault:  # this route is public, and the reason may name paths or hosts
        log.error("the log takes no commits: %s", fault)
    detail = "takes no commits; the reason is in the log of the server" if fault else ""
    return ReadinessCheck("log", not fault, detail or "takes commits")


def _blobs(blobs: Blobs) -> ReadinessCheck:
    fault = blobs.write_fault()
    if fault:
        log.error("blobs cannot be written: %s", fault)
    detail = "cannot be written; the reason is in the log of the server" if fault else ""
    return ReadinessCheck("blobs", not fault, detail or "can be written")


def _outbox(health: LogHealth) -> ReadinessCheck:
    age = health.outbox_age()
    return ReadinessCheck("outbox", age <= OUTBOX_SECONDS_MAX, f"oldest due work is {age} s old")


def _disk(settings: config.Settings) -> ReadinessCheck:
    ok = shutil.disk_usage(settings.data).free >= DISK_FREE_BYTES_MIN
    least = f"{DISK_FREE_BYTES_MIN // 2**20} MiB"
    return ReadinessCheck("disk", ok, f"{'at least' if ok else 'less than'} {least} are free")


ROUTES = (
    routing.Route("GET", "/livez", livez, routing.PUBLIC, Alive, quick=True),
    routing.Route("GET", "/readyz", readyz, routing.PUBLIC, Readiness, also=(503,)),
    routing.Route("GET", "/version", version, routing.PUBLIC, Version, quick=True),
    routing.Route(
        "GET", "/metrics", metrics, routing.requires(Verb.READ), str, produces="text/plain"
    ),
)
