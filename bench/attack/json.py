"""Bombs and odd forms of JSON for every route that takes a body: 4xx in time, and no 5xx."""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.attack.hostile_values import JSON_BOMBS
from bench.attack.routes import path_of
from bench.faults.server import prepare, serving
from bench.trials import Findings, Trial
from tidegate.api.routes import ROUTES
from tidegate.web.routing import AGENT

ANSWER_SECONDS_MAX = 20.0
LIVE_SECONDS_MAX = 5.0  # for one response, on a machine that has other work too


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    routes = [route for route in ROUTES if route.takes_body and route.permission is not AGENT]
    if trial.mode == "smoke":
        routes = random.sample(routes, 3)
    with tempfile.TemporaryDirectory(prefix="json-") as home:
        data = Path(home) / "data"
        token = prepare(data)
        with serving(data, "--sign-ins-per-minute", "1000000") as server:
            for route in routes:
                for number, body in enumerate(JSON_BOMBS):
                    findings.counts["bodies"] += 1
                    began = time.monotonic()
                    status = _send(server.port, token, route.method, path_of(route), body)
                    if status >= 500 or not status:
                        said = f"{route.name}: bomb {number} gets {status}, {body[:80]!r}"
                        findings.failures.append(said)
                    if time.monotonic() - began > LIVE_SECONDS_MAX:
                        findings.failures.append(f"{route.name}: bomb {number} takes too long")
    return findings


def _send(port: int, token: str, method: str, path: str, body: bytes) -> int:
    """The status; 0 if there was no response."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f'content-type: application/json\r\nif-match: "1"\r\nconnection: close\r\n'
        f"content-length: {len(body)}\r\n\r\n"
    )
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head.encode() + body)
        with suppress(ConnectionResetError):
            while len(answer) < 12 and (part := connection.recv(65_536)):
                answer += part
    return int(answer[9:12]) if len(answer) >= 12 else 0
