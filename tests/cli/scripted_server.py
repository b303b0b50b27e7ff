"""A server that sends scripted responses, for cases that a real server rarely produces."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class ScriptedResponse:
    """A response; status 0 cuts the connection instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def problem(status: int, code: str, **facts: Any) -> ScriptedResponse:
    body = {"type": f"/problems/{code}", "title": "", "status": status, "code": code}
    return ScriptedResponse(
        status,
        {"detail": f"because of {code}", **body, **facts},
        {"content-type": "application/problem+json"},
    )


Script = Callable[[RecordedRequest], ScriptedResponse]


class ScriptedServer:
    """A running server, and the requests that it got."""

    def __init__(self, url: str, asked: list[RecordedRequest]) -> None:
        self.url = url
        self.asked = asked


@contextmanager
def serve_script(script: Script) -> Iterator[ScriptedServer]:
    """Serve by a function from requests to responses, until the block ends."""
    asked: list[RecordedRequest] = []

    class Desk(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            names = {name.lower(): value for name, value in self.headers.items()}
            request = RecordedRequest(self.command, self.path, names, self.rfile.read(length))
            asked.append(request)
            says = script(request)
            if says.status == 0:
                linger = struct.pack("ii", 1, 0)  # closes with a reset, as after a crash
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
                return
            body = says.body if isinstance(says.body, bytes) else json.dumps(says.body).encode()
            self.send_response(says.status)
            for name, value in {"content-length": str(len(body)), **says.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield ScriptedServer(f"http://127.0.0.1:{server.server_port}", asked)
        finally:
            server.shutdown()
            thread.join()


def in_turn(*says: ScriptedResponse) -> Script:
    """Send these responses one after the other, and then the last one forever."""
    left = list(says)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]
