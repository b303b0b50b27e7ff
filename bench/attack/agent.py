"""The agent's client against a hostile server: its memory and time are bounded.

The client runs in a new process for each response. Its peak memory and time are compared with those
for a normal response. The hostile ones: a body without end, a gzip bomb, a byte a second, an
endless head, chunks without end, JSON that nests without end.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep

from bench.trials import Findings, Trial

GROWTH_BYTES_MAX = 200 * 1024 * 1024  # above the peak of a client that got a normal response
SECONDS_MAX = 30.0  # per request; the client stops after 5 s, or 10 s for a download
SENT_BYTES_MAX = 600_000_000

CLIENT = """
import json, resource, sys, time
from tidegate.agent.client import AgentClient
from tidegate.errors import TidegateError
from tidegate.agent.identity import HostKey
from tidegate.clock import system_clock
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

kind, port = sys.argv[1], sys.argv[2]
key = HostKey(Ed25519PrivateKey.generate())
kept = []
client = AgentClient(
    f"http://127.0.0.1:{port}", key, system_clock, "h", answer_seconds=5.0, download_seconds=10.0
)
began, said = time.monotonic(), "done"
try:
    {"heartbeat": lambda: client.heartbeat("1", {}),
     "file": lambda: client.file("/v1/agent/releases/web.1", "0" * 64, 1 << 20, kept.append),
     "manifest": lambda: client.manifest("web"),
     "listing": lambda: client.listing("/v1/agent/releases/web.1")}[kind]()
except TidegateError as error:
    said = type(error).__name__
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.monotonic() - began, "peak": peak, "said": said}))
"""

Speak = Callable[[socket.socket], None]
_SESSION = json.dumps(
    {
        "session": "s",
        "mac_key": "00" * 32,
        "expires_at": "2999-01-01T00:00:00Z",
        "server_time": "2026-01-01T00:00:00Z",
    }
).encode()


def _response(body: bytes, *headers: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = ["HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {size}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def _flood(connection: socket.socket, begin: bytes, again: bytes) -> None:
    connection.sendall(begin)
    for _ in range(SENT_BYTES_MAX // len(again)):
        connection.sendall(again)


def _good(connection: socket.socket) -> None:
    connection.sendall(_response(b"{}"))


def _endless_body(connection: socket.socket) -> None:
    _flood(connection, _response(b"", length=1 << 50), b"x" * 65_536)


def _endless_chunks(connection: socket.socket) -> None:
    begin = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    _flood(connection, begin, b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def _gzip_bomb(connection: socket.socket) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(600)) + packer.flush()
    connection.sendall(_response(bomb, "content-encoding: gzip"))


def _slow_body(connection: socket.socket) -> None:
    connection.sendall(_response(b"", length=100_000))
    for _ in range(int(2 * SECONDS_MAX)):
        connection.sendall(b"x")
        sleep(1)


def _endless_head(connection: socket.socket) -> None:
    _flood(connection, b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000)


def _nested(connection: socket.socket) -> None:
    connection.sendall(_response(b"[" * 20_000_000))


RESPONSES: tuple[tuple[str, Speak, str], ...] = (
    ("a body without end", _endless_body, "file"),
    ("a body without end", _endless_body, "heartbeat"),
    ("chunks without end", _endless_chunks, "manifest"),
    ("a gzip bomb", _gzip_bomb, "listing"),
    ("a byte a second", _slow_body, "file"),
    ("a head without end", _endless_head, "heartbeat"),
    ("JSON that nests", _nested, "listing"),
)


def run(trial: Trial) -> Findings:
    findings = Findings()
    plain = _ask("heartbeat", _good)
    responses = RESPONSES[:3] if trial.mode == "smoke" else RESPONSES
    for name, speak, call in responses:
        findings.counts["hostile responses"] += 1
        found = _ask(call, speak)
        grown = found["peak"] - plain["peak"]
        most = max(findings.counts["most megabytes"], int(min(grown, 1e12) / 1e6))
        findings.counts["most megabytes"] = most
        if grown > GROWTH_BYTES_MAX:
            findings.failures.append(f"{name} to {call}: {grown / 1e6:.0f} MB")
        if found["seconds"] > SECONDS_MAX:
            findings.failures.append(f"{name} to {call}: {found['seconds']:.0f} s")
    return findings


def _ask(call: str, speak: Speak) -> dict[str, float]:
    """The peak memory and the time of a client that makes this call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reached: list[int] = []
        Thread(target=_serve, args=(listener, speak, reached), daemon=True).start()
        began = monotonic()
        words = [sys.executable, "-c", CLIENT, call, str(listener.getsockname()[1])]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            said, _ = process.communicate(timeout=2 * SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return {"seconds": monotonic() - began, "peak": 0.0}
    if process.returncode:
        return {"seconds": 0.0, "peak": float("inf")}
    assert reached, "the client never asked for more than a session"
    found: dict[str, float] = json.loads(said)
    return found


def _serve(listener: socket.socket, speak: Speak, reached: list[int]) -> None:
    """Open a session for any client, and then send the hostile response."""
    for connection in _accepted(listener):
        Thread(target=_talk, args=(connection, speak, reached), daemon=True).start()


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            yield listener.accept()[0]
        except OSError:
            return


def _talk(connection: socket.socket, speak: Speak, reached: list[int]) -> None:
    with connection, suppress(OSError):
        heard = b""
        while part := connection.recv(65_536):
            heard += part
            head, end, body = heard.partition(b"\r\n\r\n")
            if not end:
                continue
            lengths = [
                line[15:] for line in head.lower().split(b"\r\n") if b"content-length" in line
            ]
            if lengths and len(body) < int(lengths[0]):
                continue
            if b"/v1/agent/session" in head:
                connection.sendall(_response(_SESSION))
                heard = b""
            else:
                reached.append(1)
                speak(connection)
                return
