"""Malformed requests on raw sockets: each gets a 4xx or a closed connection, never a 5xx.

A seeded generator damages templates: bytes are dropped, doubled, swapped or replaced, framing
contradicts itself, one request hides in the body of another. A hidden request must not get a
response.
"""

from __future__ import annotations

import re
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.attack.hostile_values import FRAMING
from bench.faults.server import prepare, serving
from bench.trials import Findings, Trial

REQUESTS = {"smoke": 300, "ci": 1_500, "full": 1_500, "long": 2_000}
ANSWER_SECONDS = 3.0
ANSWER_BYTES_MAX = 1 << 20
SPOILS_MAX = 6
ODD_BYTES = (b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\xff", b"%", b";", b"\x7f", b"{")
_JSON = b"content-type: application/json\r\n"
_TOKEN = b"authorization: Bearer TOKEN\r\n"
TEMPLATES = (
    b"GET /v1/me HTTP/1.1\r\nhost: localhost\r\n" + _TOKEN + b"\r\n",
    b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\n"
    + _JSON
    + b"content-length: 13\r\n\r\n"
    + b'{"login":"a"}',
    b"POST /v1/repositories HTTP/1.1\r\nhost: localhost\r\n"
    + _TOKEN
    + _JSON
    + b'transfer-encoding: chunked\r\n\r\nc\r\n{"name":"r1"\r\n1\r\n}\r\n0\r\n\r\n',
    b"GET /v1/agent/dispatch HTTP/1.1\r\nhost: localhost\r\ntidegate-protocol: 2\r\n"
    + _TOKEN
    + b"\r\n",
    (
        b"GET /static/app.css HTTP/1.1\r\nhost: localhost\r\n"
        b'if-none-match: "a"\r\nrange: bytes=0-9\r\n\r\n'
    ),
)
# A request in the body of another one; it must never get a response of its own.
HIDDEN = b"GET /v1/hidden-request HTTP/1.1\r\nhost: localhost\r\n\r\n"


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    with tempfile.TemporaryDirectory(prefix="raw-") as home:
        data = Path(home) / "data"
        token = prepare(data).encode()
        with serving(data) as server:
            for number in range(REQUESTS[trial.mode]):
                if number % 5 == 0:
                    request = random.choice(FRAMING).replace(b"HIDDEN", HIDDEN)
                else:
                    request = spoil(random, random.choice(TEMPLATES))
                request = request.replace(b"TOKEN", token)
                answer = exchange(server.port, request)
                findings.counts["requests"] += 1
                for wrong in _wrongs(request, answer):
                    findings.failures.append(f"request {number}: {wrong}"[:600])
                if server.process.poll() is not None:
                    findings.failures.append(f"request {number} ended the server: {request!r}")
                    return findings
            if not exchange(server.port, TEMPLATES[1]).startswith(b"HTTP/1.1 200"):
                findings.failures.append("it no longer answers")
    return findings


def spoil(random: Random, request: bytes) -> bytes:
    """Change a few bytes."""
    spoilt = bytearray(request)
    for _ in range(random.randint(0, SPOILS_MAX)):
        at = random.randrange(len(spoilt) + 1)
        match random.randrange(5):
            case 0:
                del spoilt[at : at + random.randint(1, 8)]
            case 1:
                spoilt[at:at] = random.choice(ODD_BYTES) * random.randint(1, 4)
            case 2:
                spoilt[at:at] = spoilt[max(0, at - random.randint(1, 40)) : at]
            case 3:
                spoilt[at : at + 1] = random.randbytes(1)
            case _:
                spoilt[at:at] = b"a" * random.choice((10, 1_000, 70_000))
    return bytes(spoilt)


def exchange(port: int, request: bytes) -> bytes:
    """All bytes until the server closes the connection or stops sending."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection,
        suppress(OSError),
    ):
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while len(answer) < ANSWER_BYTES_MAX and (part := connection.recv(65_536)):
            answer += part
    return answer


def _wrongs(request: bytes, answer: bytes) -> list[str]:
    wrong = []
    statuses = re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)
    if any(status.startswith(b"5") and status != b"501" for status in statuses):
        wrong.append(f"{statuses} to {request[:300]!r}")
    if answer and not answer.startswith(b"HTTP/1.1 "):
        wrong.append(f"no HTTP: {answer[:100]!r} to {request[:300]!r}")
    if HIDDEN in request and b"hidden-request" in answer:
        wrong.append(f"a hidden request was answered: {request[:300]!r}")
    return wrong
