"""A raw connection of an agent: the test sends and receives bytes on a socket."""

from __future__ import annotations

import socket
from typing import Any

from tests.api.served_fleet import ServedFleet, WireAgent

POLL = "/v1/agent/dispatch"


EVENTS = "/v1/agent/events"


SECONDS_MAX = 60.0


class RawConnection:
    """A connection on which the test decides what each send contains."""

    def __init__(self, fleet: ServedFleet) -> None:
        host, port = fleet.served.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._file = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def is_closed(self) -> bool:
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def raw(agent: WireAgent, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """A signed request as bytes."""
    request = agent.client.build_request(method, path, json=body)
    request.headers["authorization"] = agent.authorization(request)
    request.headers.update(headers)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + request.content


def acknowledgement(agent: WireAgent, seq: int = 1, **members: Any) -> dict[str, Any]:
    return {
        "report": agent.report(
            "DispatchAck",
            seq,
            **{
                "target_closure": agent.current["target_closure"],
                "current_closure_at_dispatch": "sha256:old",
                **members,
            },
        )
    }
