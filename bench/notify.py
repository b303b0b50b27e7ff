"""How long it takes from a fact to its message: the real worker, SQLite, receivers on loopback.

    python -m bench notify --messages 100

Each message is sent to a webhook and to a mail server. It waits for the next round of the worker's
loop `notify`, one second at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from statistics import median
from threading import Event, Thread
from typing import Any, Final

from aiosmtpd.controller import Controller

from bench.tables import table
from tidegate.commands.startup import open_installation
from tidegate.config import NotifySetting, Settings
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.control.worker import Worker
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import EVERYWHERE, Grant, Role
from tidegate.domain.notifications.states import TargetKind

BOUND = 2.0  # seconds
PAUSE_SECONDS = 0.137  # between two messages, so that facts arrive at all times between two rounds
ARRIVAL_SECONDS_MAX = 60
KINDS: Final = {"webhook": TargetKind.WEBHOOK, "mail": TargetKind.MAIL}
CALLER = Caller(
    principal=Principal("user_bench000000", "token", grants=tuple(Grant(role) for role in Role))
)


class Arrivals:
    """When each message arrived, by the position of its fact."""

    def __init__(self, expected: int) -> None:
        self.at: dict[int, float] = {}
        self.all = Event()
        self._expected = expected

    def note(self, position: int) -> None:
        self.at.setdefault(position, time.monotonic())
        if len(self.at) == self._expected:
            self.all.set()


class WebhookReceiver(ThreadingHTTPServer):
    """Answers each message with 204."""

    daemon_threads = True

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrivals = arrivals
        self.place = f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: WebhookReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.arrivals.note(json.loads(body)["data"]["position"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


class MailReceiver:
    """Accepts each mail. Its Message-ID contains the position: log.position.subscription@host."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content)
        self._arrivals.note(int(mail["Message-ID"].split(".")[1]))
        return "250 OK"


def measure(messages: int, directory: Path) -> dict[str, list[float]]:
    """By kind of target: the seconds from each commit to its message, the shortest first."""
    arrivals = {name: Arrivals(messages) for name in KINDS}
    receiver = WebhookReceiver(arrivals["webhook"])
    Thread(target=receiver.serve_forever, daemon=True).start()
    mails = Controller(MailReceiver(arrivals["mail"]), hostname="127.0.0.1", port=_free_port())
    mails.start()
    notify = NotifySetting(
        allowed=(receiver.place,), smtp_host="127.0.0.1", smtp_port=mails.port, smtp_tls="none"
    )
    installation = open_installation(Settings(data=str(directory), notify=notify))
    committed: dict[int, float] = {}
    targets = {
        "webhook": NewTarget(url=f"http://{receiver.place}/"),
        "mail": NewTarget(to=("ops@example.com",)),
    }
    try:
        for name, kind in KINDS.items():
            installation.subscriptions.create(
                CALLER,
                name,
                kind=kind,
                target=targets[name],
                events=("freeze.started",),
                scopes=(EVERYWHERE,),
            )
        with Worker(installation):
            for number in range(messages):
                started = installation.freezes.start(CALLER, "bench", freeze_id=f"f{number}")
                committed[started.position] = time.monotonic()
                time.sleep(PAUSE_SECONDS)
            for name, found in arrivals.items():
                is_complete = found.all.wait(ARRIVAL_SECONDS_MAX)
                assert is_complete, f"{name}: {len(found.at)} of {messages} arrived"
    finally:
        installation.close()
        receiver.shutdown()
        receiver.server_close()
        mails.stop()
    return {
        name: sorted(found.at[position] - at for position, at in committed.items())
        for name, found in arrivals.items()
    }


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the delays; return 1 if one was longer than the bound."""
    parser = argparse.ArgumentParser(
        prog="bench notify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=100)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        found = measure(asked.messages, Path(directory))
    rows = [
        (kind, str(len(delays)), *(f"{value:.2f} s" for value in _figures(delays)))
        for kind, delays in found.items()
    ]
    print(table(("target", "messages", "p50", "p99", "longest"), rows))
    longest = max(delays[-1] for delays in found.values())
    print(f"the bound is {BOUND} s")
    return int(longest > BOUND)


def _figures(delays: list[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the longest of sorted delays."""
    return median(delays), delays[(len(delays) - 1) * 99 // 100], delays[-1]


if __name__ == "__main__":
    sys.exit(main())
