"""`tidegate serve` as a process, its output and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.servers.process import free_port

SECONDS_MAX = 60.0


class Process:
    """A server process and its address."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.errors = data.parent / f"stderr-{self.port}"
        module = "tidegate" if flags else "tidegate.main"  # the latter takes settings only
        command = [sys.executable, "-m", module, "serve"]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--data", str(data), "--port", str(self.port), *flags], stderr=errors
            )

    def wait(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.said()
            try:
                httpx2.get(f"{self.url}/livez")
            except httpx2.TransportError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(self.said())

    def said(self) -> str:
        return self.errors.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(SECONDS_MAX)


@contextmanager
def start_server(data: Path) -> Iterator[Process]:
    process = Process(data)
    try:
        process.wait()
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(SECONDS_MAX)
