"""A server as a child process: apart from our terminal, awaited until ready, stopped by pid."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.01
LOG_TAIL_BYTES = 4_000


class ServerUnavailable(RuntimeError):
    """A server that the tests need cannot be had; the message says what would help."""


def until(ready: Callable[[], bool], *, seconds_max: float) -> bool:
    """Polls `ready` until it holds; False when the time is over."""
    deadline = time.monotonic() + seconds_max
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def speaks_http(port: int) -> bool:
    """Whether something speaks HTTP there; what it says to a bare GET does not matter."""
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
    """Runs the command while the block runs.

    Raises:
        ServerUnavailable: it ended or was not ready in time; its last words are in the message.
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
