"""A server as a child process: detached from our terminal, awaited until ready, stopped by pid."""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01
LOG_TAIL_BYTES = 4_000
RUN_VARIABLE = "TIDEGATE_TEST_RUN"
PORT_MIN, PORT_MAX = 12_000, 32_000  # Linux gives clients and port 0 the ports from 32768 on
PORT_TRIES_MAX = 100
STARTS_MAX = 3


class ServerUnavailable(RuntimeError):
    """A server that the tests need is not available; the message says what would help."""


def until(ready: Callable[[], bool], *, seconds_max: float) -> bool:
    """Poll `ready` until it holds; return False when the time is over."""
    deadline = time.monotonic() + seconds_max
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def free_port() -> int:
    """A port of the loopback address for a process that binds it later.

    It is below the ports that the system assigns, and this run does not return it again, so that no
    other process binds it first.

    Raises:
        ServerUnavailable: none was found.
    """
    for _ in range(PORT_TRIES_MAX):
        port = PORT_MIN + secrets.randbelow(PORT_MAX - PORT_MIN)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _is_ours(port):
            return port
    raise ServerUnavailable(f"no free port between {PORT_MIN} and {PORT_MAX}")


def _is_ours(port: int) -> bool:
    """Whether no other process of this run has reserved the port; always true without a run."""
    run = os.environ.get(RUN_VARIABLE)
    if run is None:
        return True
    ports = Path(run) / "ports"
    ports.mkdir(exist_ok=True)
    try:
        (ports / str(port)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def speaks_http(port: int) -> bool:
    """Whether a server speaks HTTP there; its response to a bare GET does not matter."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def tail(log: Path) -> str:
    """The end of a log, for an error message."""
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


@contextmanager
def serving(
    command: Sequence[str | Path],
    *,
    ready: Callable[[], bool],
    log: Path,
    cwd: Path,
    owner: Mapping[str, Any] | None = None,
    stop_signal: int,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command while the block runs.

    Raises:
        ServerUnavailable: it ended or was not ready in time; the message ends with its output.
    """
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,  # an interrupt at the terminal is for the tests, they stop us
            **(owner or {}),
        )
    try:
        settled = until(
            lambda: process.poll() is not None or ready(), seconds_max=READY_SECONDS_MAX
        )
        if process.poll() is not None or not settled:
            what = f"ended with {process.poll()}" if settled else "is not ready in time"
            raise ServerUnavailable(f"{Path(command[0]).name} {what}\n{tail(log)}")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(stop_signal)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving_http(command: Callable[[int], Sequence[str | Path]], home: Path) -> Iterator[str]:
    """The URL of a server on a free port, given to ``command``, while the block runs.

    Raises:
        ServerUnavailable: it did not start on any of a few ports.
    """
    with ExitStack() as stack:
        for start in range(1, STARTS_MAX + 1):
            port = free_port()
            server = serving(
                command(port),
                ready=partial(speaks_http, port),
                log=home / "log",
                cwd=home,
                stop_signal=signal.SIGTERM,
            )
            try:
                stack.enter_context(server)
            except ServerUnavailable:
                if start == STARTS_MAX:
                    raise  # another process may have taken the port
            else:
                yield f"http://127.0.0.1:{port}"
                return
