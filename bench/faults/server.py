"""`tidegate serve` as a process that may be killed, or started with faults below it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import free_port, speaks_http, tail
from tidegate.commands.startup import open_installation
from tidegate.config import Settings
from tidegate.control.operations.accounts import caller_of
from tidegate.domain.setup import SetUp, set_up
from tidegate.kernel.model import Meta

ADMIN = "user_admin0000"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
LIMITS = ("reads", "writes", "agent-requests")
FAR = tuple(word for name in LIMITS for word in (f"--{name}-per-second", "1000000"))


class DoesNotStart(Exception):
    """The server ended before it answered, or never answered."""


class ServerProcess:
    """A server on a data directory; it runs until it is stopped or killed."""

    def __init__(
        self, data: Path, *flags: str, environ: Mapping[str, str] | None = None, store: str = ""
    ) -> None:
        self.port = free_port()
        self.log = data.parent / f"{data.name}.log"
        words = ["serve", "--data", str(data), "--port", str(self.port), *FAR, *flags]
        if store:
            words += ["--store", store]
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidegate", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **(environ or {})},
            )

    def wait(self) -> None:
        """Wait until the server answers. Raises: DoesNotStart."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not speaks_http(self.port):
            if self.process.poll() is not None:
                raise DoesNotStart(f"it ended with {self.process.returncode}: {tail(self.log)}")
            if time.monotonic() > deadline:
                raise DoesNotStart(f"no answer in {START_SECONDS_MAX:.0f} s: {tail(self.log)}")
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop it gracefully; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return -int(signal.SIGKILL)


@contextmanager
def serving(
    data: Path, *flags: str, environ: Mapping[str, str] | None = None, store: str = ""
) -> Iterator[ServerProcess]:
    """Run a server that answers; kill it after the block if it still runs. Raises: DoesNotStart."""
    server = ServerProcess(data, *flags, environ=environ, store=store)
    try:
        server.wait()
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def prepare(data: Path, store: str = "") -> str:
    """Prepare an installation with one user; return a token that may do everything."""
    installation = open_installation(Settings(data=str(data), store=store))
    try:
        installation.execute.run(set_up, SetUp(user_id=ADMIN, alone=True), meta=Meta(actor=ADMIN))
        return installation.access.create_token(caller_of(ADMIN), 30).token
    finally:
        installation.close()
