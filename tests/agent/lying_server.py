"""A server that sends what a test wants, signed with the installation's key or another one."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.agent.single_host import CHANNEL, HOST, ContentSource
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.agent.config import AgentSettings, ChannelSettings
from tidegate.agent.drivers import build_drivers
from tidegate.agent.journal import Journal
from tidegate.agent.loop import AgentLoop
from tidegate.agent.manifest import PAYLOAD_TYPE
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import EnrollmentAnswer, Order

LOG_ID = "log"
KEY = Ed25519PrivateKey.generate()
KEYS = {"k": KEY.public_key().public_bytes_raw().hex()}
Answer = tuple[int, Any]


def release(release_id: str, digest: str) -> dict[str, str]:
    return {"release_id": release_id, "digest": digest}


def manifest(wanted: Mapping[str, str], version: int = 1, **changes: Any) -> bytes:
    """A signed manifest of the channel, generated now unless ``changes`` sets another time."""
    now = system_clock()
    members = {
        "channel": CHANNEL,
        "version": version,
        "generated_at": now,
        "expires_at": now + timedelta(hours=1),
        "status": "active",
        "wanted": wanted,
        **changes,
    }
    return signed(msgspec.json.encode(members))


def signed(payload: bytes, key: Ed25519PrivateKey = KEY) -> bytes:
    signature = b64encode(key.sign(PAYLOAD_TYPE + payload)).decode()
    envelope = {"payload": payload.decode(), "key_id": "k", "signature": signature}
    return msgspec.json.encode(envelope)


class LyingServer(ThreadingHTTPServer):
    """Opens sessions, sends ``orders`` one after the other, and accepts every report."""

    def __init__(self, content_source: ContentSource) -> None:
        super().__init__(("127.0.0.1", 0), Speaker)
        self.daemon_threads = True
        self.content_source = content_source
        self.orders: list[Order] = []
        self.manifest: Answer = (404, {"code": "not_found", "detail": "none", "status": 404})
        self.polls = 0
        self.manifests_asked: list[datetime] = []
        self.reports: list[dict[str, Any]] = []
        self.heartbeats = 0
        self.refuse: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda report: None

    def kinds(self) -> list[str]:
        return [report["kind"] for report in self.reports]

    def reason(self) -> str:
        """The reason that the agent gave for rejecting an order."""
        return " ".join(str(report.get("reason", "")) for report in self.reports)


class Speaker(BaseHTTPRequestHandler):
    server: LyingServer

    def do_GET(self) -> None:
        path, _, _ = self.path.partition("?")
        match path.split("/")[3:]:
            case ["dispatch"]:
                self.server.polls += 1
                orders = self.server.orders
                order = orders.pop(0) if orders else None
                self._say(*((204, b"") if order is None else (200, msgspec.json.encode(order))))
            case ["manifest", _]:
                self.server.manifests_asked.append(system_clock())
                self._say(*self.server.manifest)
            case ["releases", name]:
                self._say(200, msgspec.json.encode(self.server.content_source.listing(f"/{name}")))
            case ["releases", name, "blobs", hashed]:
                self._say(200, self.server.content_source.body(f"/{name}", hashed))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        now = system_clock()
        match self.path:
            case "/v1/agent/session":
                ends = (now + timedelta(minutes=15)).isoformat()
                opened = {"session": "s", "mac_key": "00" * 32, "expires_at": ends}
                self._say(200, {**opened, "server_time": now.isoformat()})
            case "/v1/agent/heartbeat":
                self.server.heartbeats += 1
                self._say(200, {"received_at": now.isoformat(), "last_accepted_seq": {}})
            case _:
                self.server.reports += body["reports"]
                answers = [
                    {
                        "rollout_id": report["rollout_id"],
                        "seq": report["seq"],
                        **(self.server.refuse(report) or {"status": 200}),
                    }
                    for report in body["reports"]
                ]
                self._say(200, {"answers": answers})

    def _say(self, status: int, body: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@contextmanager
def serve_lies(**releases: Mapping[str, bytes]) -> Iterator[LyingServer]:
    """Serve the content of these releases from a lying server."""
    server = LyingServer(ContentSource(**releases))
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@contextmanager
def agent(server: LyingServer, place: Path, log_id: str = LOG_ID) -> Iterator[Path]:
    """Run a real agent below ``place``, and yield the link to the running content."""
    state, root = place / "state", place / "root"
    for directory in (state, root):
        directory.mkdir(exist_ok=True, mode=0o700)
    settings = AgentSettings(
        server=f"http://127.0.0.1:{server.server_port}",
        state=str(state),
        channels={CHANNEL: ChannelSettings(driver="symlink", root=str(root))},
        poll_seconds=1,
        tick_seconds=0.05,
        heartbeat_seconds=0.1,
        back_off_seconds_max=0.1,
    )
    client = AgentClient(settings.server, identity.load_or_create_key(state), system_clock, HOST)
    journal = Journal(state)
    enrolled = EnrollmentAnswer(HOST, log_id, KEYS)
    loop = AgentLoop(
        settings, enrolled, client, journal, build_drivers(settings, client), system_clock, "1"
    )
    working = Thread(target=loop.run)
    working.start()
    try:
        yield root / "current"
    finally:
        loop.stop()
        working.join()
        client.close()
        journal.close()
