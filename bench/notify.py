"""How long it takes from a fact to its message: the real worker, SQLite, a receiver on loopback.

    python -m bench notify --messages 50

A message waits for the next round of the worker's loop `notify`, one second at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from tidegate.commands.startup import open_installation
from tidegate.config import NotifySetting, Settings
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.control.worker import Worker
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import EVERYWHERE, Grant, Role
from tidegate.domain.notifications.states import TargetKind

BOUND = 2.0  # seconds
PAUSE_SECONDS = 0.137  # apart, so that facts come at all times between two rounds
CALLER = Caller(
    principal=Principal("user_bench000000", "token", grants=tuple(Grant(role) for role in Role))
)


class ReceivedEvents(ThreadingHTTPServer):
    """Remembers when each freeze was told."""

    daemon_threads = True

    def __init__(self, expected: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.at: dict[str, float] = {}
        self.expected = expected
        self.all = Event()


class _Handler(BaseHTTPRequestHandler):
    server: ReceivedEvents

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        found = self.server.at
        found.setdefault(json.loads(body)["data"]["subject"], time.monotonic())
        if len(found) == self.server.expected:
            self.server.all.set()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


def measure(messages: int, directory: Path) -> list[float]:
    """The seconds from each commit to its message."""
    receiver = ReceivedEvents(messages)
    place = f"127.0.0.1:{receiver.server_address[1]}"
    Thread(target=receiver.serve_forever, daemon=True).start()
    settings = Settings(data=str(directory), notify=NotifySetting(allowed=(place,)))
    installation = open_installation(settings)
    committed: dict[str, float] = {}
    try:
        installation.subscriptions.create(
            CALLER,
            "bench",
            kind=TargetKind.WEBHOOK,
            target=NewTarget(url=f"http://{place}/"),
            events=("freeze.started",),
            scopes=(EVERYWHERE,),
        )
        with Worker(installation):
            for number in range(messages):
                name = f"f{number}"
                installation.freezes.start(CALLER, "bench", freeze_id=name)
                committed[name] = time.monotonic()
                time.sleep(PAUSE_SECONDS)
            assert receiver.all.wait(30), f"{len(receiver.at)} of {messages} arrived"
    finally:
        installation.close()
        receiver.shutdown()
    return sorted(receiver.at[name] - at for name, at in committed.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the delays; 1: one was longer than the bound."""
    parser = argparse.ArgumentParser(prog="bench notify", description=__doc__)
    parser.add_argument("--messages", type=int, default=50)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        delays = measure(asked.messages, Path(directory))
    print(f"messages {len(delays)}, bound {BOUND} s")
    print(f"shortest {delays[0]:.2f} s, median {median(delays):.2f} s, longest {delays[-1]:.2f} s")
    return int(delays[-1] > BOUND)


if __name__ == "__main__":
    sys.exit(main())
