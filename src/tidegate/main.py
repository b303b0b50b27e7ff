"""The composition root: it builds an installation from settings, and a server from that.

``serve`` runs the API and the worker until a signal stops it; ``work`` runs the worker alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry

from tidegate import config, errors
from tidegate.api.agents.fast_path.protocol import FastConnection
from tidegate.api.metrics import Metrics
from tidegate.cli.exit_codes import ExitCode
from tidegate.commands.application import make_application
from tidegate.commands.sockets import bind_sockets, serve_worker_metrics
from tidegate.commands.startup import open_installation, open_store_alone, refuse_old_clock
from tidegate.control.installation import Installation
from tidegate.control.outbox.targets.configured import configure_targets
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.worker import Worker
from tidegate.dashboard.grid_cache import GridCache
from tidegate.web import connection_limits, connections, request_log
from tidegate.web.application import Application

KEEP_ALIVE_SECONDS = 75
SHUTDOWN_SECONDS = 10
CONNECTIONS_WAITING_MAX = 2_048
TURN_SECONDS = 0.003  # how long a thread keeps the interpreter while another one wants it
M_MMAP_THRESHOLD = -3  # of malloc.h
LARGE_BLOCK_BYTES = 1024 * 1024
GARBAGE_LOOKS = 10_000  # new containers between two searches for cycles; Python's default is 700
FAULT_LOOK_SECONDS = 0.5  # how often ``work`` checks whether the worker has failed
STOPPING = (signal.SIGINT, signal.SIGTERM)

__all__ = [
    "HttpServer",
    "log_to_stderr",
    "main",
    "make_application",
    "make_server",
    "make_worker",
    "open_installation",
    "serve",
    "work",
]


class HttpServer(uvicorn.Server):
    """uvicorn, changed in two ways.

    It ends our streams before it waits for connections to close. After a signal it returns, so
    that the caller can close everything else.
    """

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application
        self.ended_by = ""  # the name of the signal that stopped it
        self.is_broken: Callable[[], bool] = lambda: False  # True stops the server

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ended_by = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    def end(self) -> None:
        """Shut down. Any thread may call this."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self.is_broken():
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)


def make_server(
    application: Application,
    settings: config.Settings,
    protocol: type[connections.Connection] = FastConnection,
) -> HttpServer:
    """Make a server for the application, and do not start it yet."""
    return HttpServer(
        uvicorn.Config(
            application,
            host=settings.host,
            port=settings.port,
            loop="uvloop",
            http=protocol,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips=list(map(str, settings.proxy_networks)),
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            backlog=CONNECTIONS_WAITING_MAX,
        ),
        application,
    )


def serve(settings: config.Settings, *, accepts_clock: bool = False) -> None:
    """Serve until a signal, then finish the requests in progress. Raises: AddressUnusable."""
    with ExitStack() as stack:
        stack.enter_context(open_store_alone(Path(settings.data)))
        sockets = stack.enter_context(bind_sockets(settings))
        installation = open_installation(settings)
        stack.callback(installation.close)
        refuse_old_clock(installation, is_accepted=accepts_clock)
        connection_limits.raise_open_files()
        application = make_application(installation, lines=request_log.RequestLog(_write))
        stack.callback(application.close)
        warming = Thread(target=application.parts[GridCache].warm_up, name="tidegate-ahead")
        warming.start()
        stack.callback(warming.join)
        code = installation.accounts.open_setup()
        if code is not None:
            _say(
                f"first start: set up within 15 minutes with the one-time code {code}\n"
                f"  try: tidegate setup --code {code}"
            )
        _say(f"serving on http://{settings.host}:{sockets[0].getsockname()[1]}")
        server = make_server(application, settings)
        server.is_broken = lambda: installation.fault is not None
        if settings.worker:
            registry = application.parts[Metrics].registry
            stack.enter_context(make_worker(installation, registry, server.end))
        _tune_interpreter()
        server.run(sockets=sockets)
        _raise_fault(installation)


def _raise_fault(installation: Installation) -> None:
    """Raises: WriterClosed: the process cannot continue."""
    if installation.fault is not None:
        raise installation.fault


def _tune_interpreter() -> None:
    """Tune the interpreter for short waits.

    Objects that exist now are not searched for garbage again. Threads switch every 3 ms instead of
    Python's 5, so that a response waits less; at 2 ms a report costs a sixth more CPU.
    """
    _return_large_blocks()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_LOOKS)
    sys.setswitchinterval(TURN_SECONDS)


def _return_large_blocks() -> None:
    """Make glibc return large blocks to the system when they are freed.

    By default glibc raises the threshold to the size of the freed block, up to 32 MiB, and then
    keeps that much memory after every large upload.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def make_worker(
    installation: Installation, registry: CollectorRegistry, failed: Callable[[], None]
) -> Worker:
    """Make the worker that the settings describe. Raises: InvalidSetting, ArchiveForeign."""
    settings = installation.settings
    return Worker(
        installation,
        targets=configure_targets(settings, installation.clock),
        archive=FileSegmentStore(settings.archive) if settings.archive else None,
        registry=registry,
        failed=failed,
    )


def work(settings: config.Settings, *, accepts_clock: bool = False) -> None:
    """Run the worker without the API until a signal."""
    installation = open_installation(settings)
    try:
        refuse_old_clock(installation, is_accepted=accepts_clock)
        stop = Event()
        before = {number: signal.signal(number, lambda *_: stop.set()) for number in STOPPING}
        try:
            registry = CollectorRegistry()
            with (
                serve_worker_metrics(settings, registry),
                make_worker(installation, registry, stop.set),
            ):
                _say("working")
                while not stop.wait(FAULT_LOOK_SECONDS) and installation.fault is None:
                    pass
            _raise_fault(installation)
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)
    finally:
        installation.close()


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "log": record.name}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Write all logs to stderr as lines of JSON, without the URLs of webhooks: they are secret."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[lines], force=True)
    for client in ("httpx2", "httpcore2"):  # they log the URL of each request
        logging.getLogger(client).setLevel(logging.WARNING)


def _write(lines: bytes) -> None:
    sys.stderr.buffer.write(lines)
    sys.stderr.buffer.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run ``serve [--data DIR] [--port N] …``; every setting is also a flag."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0] != "serve":
        _say("usage: python -m tidegate.main serve --data DIR [--config FILE] [--<setting> VALUE]")
        return 2
    try:
        settings = _settings(given[1:])
        log_to_stderr()
        serve(settings)
    except errors.TidegateError as error:
        _say(f"{error.code}: {error.detail}")
        return int(ExitCode.RESTART) if isinstance(error, errors.WriterClosed) else 1
    return 0


def _settings(flags: list[str]) -> config.Settings:
    names = flags[::2]
    values = flags[1::2]
    if len(names) != len(values) or not all(name.startswith("--") for name in names):
        raise config.InvalidSetting("each flag is --<setting> and its value")
    found = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(names, values, strict=True)
    }
    file = found.pop("config", None)
    environ = {
        **os.environ,
        **{f"{config.PREFIX}{name.upper()}": value for name, value in found.items()},
    }
    unknown = sorted(set(found) - set(config.NAMES))
    if unknown:
        raise config.InvalidSetting(
            f"there is no setting {unknown[0]}; known are {', '.join(config.NAMES)}"
        )
    return config.load({}, environ, file)


if __name__ == "__main__":
    sys.exit(main())
