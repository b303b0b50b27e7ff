"""``python -m tidegate …`` as processes, on data directories prepared for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

import httpx2

from tests.servers.process import free_port
from tidegate.commands.startup import open_installation
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.operations.accounts import caller_of
from tidegate.domain.setup import SetUp, set_up
from tidegate.kernel.model import Meta

ADMIN = "user_admin0000"
SECONDS_MAX = 60.0
PROGRAM = [sys.executable, "-m", "tidegate"]
LIMITS = ("reads", "writes", "agent-requests")
RATES = [word for name in LIMITS for word in (f"--{name}-per-second", "100000")]


def prepared(data: Path, store: str = "") -> str:
    """Set up an installation of one person, and return a token with every permission."""
    installation = open_installation(Settings(data=str(data), store=store))
    try:
        command = SetUp(user_id=ADMIN, alone=True)
        installation.execute.run(set_up, command, meta=Meta(actor=ADMIN))
        return installation.access.create_token(caller_of(ADMIN), 30).token
    finally:
        installation.close()


@contextmanager
def opened(data: Path, store: str = "") -> Iterator[Installation]:
    installation = open_installation(Settings(data=str(data), store=store))
    try:
        yield installation
    finally:
        installation.close()


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, **environ},
        check=False,
    )


class Process:
    """A command that runs until it is stopped, or until the end of a ``with``."""

    def __init__(self, words: list[str], output: Path, module: str = "tidegate") -> None:
        self.output = output
        command = [sys.executable, "-m", module, *words]
        with output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)

    def said(self) -> str:
        return self.output.read_text()

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until it prints something."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.said()):
                return found
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)
        raise AssertionError(f"it never said {pattern!r}: {self.said()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(SECONDS_MAX)


class ServerProcess(Process):
    """``serve`` on a free port."""

    def __init__(self, data: Path, *flags: str, module: str = "tidegate") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["serve", "--data", str(data), "--port", str(self.port), *flags]
        super().__init__(words, data.parent / f"said-{self.port}", module)

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


class Server(ServerProcess):
    """``tidegate serve`` without limits of rates, and a client of it."""

    def __init__(self, data: Path, token: str, *flags: str) -> None:
        self.token = token
        super().__init__(data, *RATES, *flags)

    def client(self) -> httpx2.Client:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=SECONDS_MAX)


@contextmanager
def served(data: Path, token: str, *flags: str) -> Iterator[Server]:
    with Server(data, token, *flags) as server:
        server.wait()
        yield server


class Load:
    """Clients that create repositories one after the other, and keep what was acknowledged."""

    def __init__(self, server: Server, clients: int = 4) -> None:
        self.acknowledged: list[str] = []
        self._server = server
        self._stop = Event()
        self._threads = [Thread(target=self._run, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def reach(self, count: int) -> None:
        """Wait until this many were acknowledged."""
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, self._server.said()
            time.sleep(0.01)

    def _run(self, client: int) -> None:
        with self._server.client() as http:
            number = 0
            while not self._stop.is_set():
                name = f"r{client}-{number}"
                try:
                    answer = http.post("/v1/repositories", json={"name": name})
                except httpx2.TransportError:
                    return  # it has ended; what it did not answer may or may not be stored
                if answer.status_code == 201:
                    self.acknowledged.append(name)
                else:
                    assert answer.status_code == 503, answer.text
                    return
                number += 1
