"""A plain web server on loopback that serves referenced files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep

from tests.servers.certificates import Authority, secured


@dataclass(frozen=True)
class FileResponse:
    """The response to requests for one path."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None  # the content-length, if it differs from the real one
    waits: float = 0.0  # seconds before the response begins


class FileServer:
    """The responses by path, and every request received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.responses: dict[str, FileResponse | bytes] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def at(self, path: str) -> str:
        return f"{self.url}{path}"

    def find(self, path: str) -> FileResponse:
        found = self.responses.get(path, FileResponse(b"no such file", 404))
        return FileResponse(found) if isinstance(found, bytes) else found


def certificate(place: Path) -> Path:
    """Issue a certificate for 127.0.0.1, with its key and the authority to trust."""
    return Authority(place).issue("127.0.0.1")


@contextmanager
def serve_files(signed: Path | None = None) -> Iterator[FileServer]:
    """Serve until the block ends, over TLS if a certificate is given."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            says = held.find(self.path)
            sleep(says.waits)
            self.send_response(says.status)
            for name, value in says.headers.items():
                self.send_header(name, value)
            length = len(says.body) if says.announced is None else says.announced
            self.send_header("content-length", str(length))
            with suppress(OSError):  # the client hung up
                self.end_headers()
                self.wfile.write(says.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    scheme = "http"
    if signed is not None:
        server.socket = secured(signed).wrap_socket(server.socket, server_side=True)
        scheme = "https"
    held = FileServer(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
