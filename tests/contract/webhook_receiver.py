"""A webhook receiver on loopback that records requests."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from unittest.mock import patch

from standardwebhooks.webhooks import Webhook

from tidegate.control.outbox.targets.webhook import WebhookTarget
from tidegate.control.webhooks import to_secret

SECRET = to_secret(b"a secret of thirty-three bytes ..")


Answer = Callable[[BaseHTTPRequestHandler], None]


class Receiver(ThreadingHTTPServer):
    """Keeps the requests that it receives, and answers as configured."""

    daemon_threads = True

    def __init__(self, port: int = 0, answer: Answer | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = answer or (lambda handler: reply(handler, 204))
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers, body))
        self.server.answer(self)

    def log_message(self, *args: Any) -> None:
        pass


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serve_webhooks(
    port: int = 0, answer: Answer | None = None, context: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    with Receiver(port, answer) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def webhook(place: str, **settings: Any) -> WebhookTarget:
    settings.setdefault("allowed", (place,))
    return WebhookTarget(f"http://{place}/hooks?x=1", (SECRET,), **settings)


def verified(secret: str, headers: dict[str, str], body: bytes, now: datetime) -> Any:
    """Verify a request that was received now, with the stock library.

    Raises:

        WebhookVerificationError.
    """
    with patch("standardwebhooks.webhooks.datetime", wraps=datetime) as clock:
        clock.now.return_value = now
        return Webhook(secret).verify(body, headers)
