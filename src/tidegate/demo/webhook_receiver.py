"""A receiver of webhooks on loopback that can be taken down: then its port is closed."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

BODY_BYTES_MAX = 256 * 1024
ADDRESS = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """Accepts every request."""

    def do_POST(self) -> None:
        self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class Receiver:
    """Receives the webhooks of the demo's promotions."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: _Server | None = _Server((ADDRESS, 0), _Handler)
        self.port: int = self._server.server_address[1]
        self._serve(self._server)

    @property
    def place(self) -> str:
        return f"{ADDRESS}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/deploys"

    def go_down(self) -> None:
        """Stop listening. It may be called twice."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def come_back(self) -> None:
        """Listen again, on the same port."""
        with self._lock:
            if self._server is None:
                self._server = _Server((ADDRESS, self.port), _Handler)
                self._serve(self._server)

    def _serve(self, server: _Server) -> None:
        Thread(target=server.serve_forever, name="demo-receiver", daemon=True).start()
