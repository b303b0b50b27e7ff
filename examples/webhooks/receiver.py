"""A receiver of Tidegate's webhooks: it verifies an event, skips repeats, and applies it.

    pip install standardwebhooks

    python receiver.py SECRET_FILE PORT

It accepts the messages of a subscription and the effects of an outbox target. Its state is lost
when it ends. A receiver that matters stores ids and states where its effects are.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

BODY_BYTES_MAX = 256 * 1024
SEEN_MAX = 10_000


class Receiver:
    """What was received, and what is in effect."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}  # in order, so that the oldest can be dropped
        self._effects: dict[tuple[str, str], dict[str, Any]] = {}  # by scope and operation

    def receive(self, event: dict[str, Any]) -> tuple[int, object]:
        """Return the status and the content of the answer."""
        if event["id"] in self._seen:
            print("again", event["id"], flush=True)
            return 204, None
        status, content = self._do(event)
        self._seen[event["id"]] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return status, content

    def _do(self, event: dict[str, Any]) -> tuple[int, object]:
        data = event.get("data", {})
        match event["type"]:
            case "dev.tidegate.effect.requested.v1":
                place = data["scope"], data["operation"]
                found = self._effects.get(place)
                if found is None or data["sequence"] >= found["sequence"]:
                    self._effects[place] = {**data, "key": event["id"]}
                    print("effect", *place, data["releaseId"], flush=True)
            case "dev.tidegate.state.requested.v1":
                found = self._effects.get((data["scope"], data["operation"]), {})
                state = found.get("requestedState", {})
                return 200, {"idempotencyKey": found.get("key", ""), "state": state}
            case "dev.tidegate.target.tested.v1":
                print("test", flush=True)
            case kind:
                print("message", kind, data["title"], flush=True)
        return 204, None


class Hooks(BaseHTTPRequestHandler):
    """Passes only verified requests to the receiver."""

    webhook: Webhook
    receiver: Receiver

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        if not 0 <= size <= BODY_BYTES_MAX:
            self.answer(413)
            return
        body = self.rfile.read(size)
        try:
            event = self.webhook.verify(body, dict(self.headers.items()))
        except WebhookVerificationError as error:
            print("refused", error, flush=True)
            self.answer(401)
            return
        self.answer(*self.receiver.receive(event))

    def answer(self, status: int, content: object = None) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def main(secret_file: str, port: str) -> None:
    Hooks.webhook = Webhook(Path(secret_file).read_text().split()[0])
    Hooks.receiver = Receiver()
    with HTTPServer(("127.0.0.1", int(port)), Hooks) as server:
        print("listening on", server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
