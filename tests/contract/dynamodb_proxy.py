"""A proxy in front of DynamoDB that throttles the first calls of an operation, or drops their
answers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

THROTTLED = json.dumps({"__type": "com.amazonaws.dynamodb#ThrottlingException"}).encode()


@dataclass(slots=True)
class DynamoProxy:
    """How many calls of each operation are still to be broken, and how many were made."""

    throttled: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""


def _handler(proxy: DynamoProxy, endpoint: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            body = self.rfile.read(int(self.headers["Content-Length"]))
            proxy.asked[operation] += 1
            if proxy.throttled[operation] > 0:
                proxy.throttled[operation] -= 1
                self.answer(400, THROTTLED)
                return
            connection = HTTPConnection(urlsplit(endpoint).netloc)
            connection.request("POST", "/", body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if proxy.unanswered[operation] > 0:
                proxy.unanswered[operation] -= 1
                self.close_connection = True
                return
            self.answer(answer.status, content)

        def answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, form: str, *args: object) -> None:
            """Log nothing."""

    return Handler


@contextmanager
def dynamodb_proxy(endpoint: str) -> Iterator[DynamoProxy]:
    """Run a proxy on a port of its own for the length of the block."""
    proxy = DynamoProxy()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy, endpoint))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
