"""Requests of agents as bytes on the wire, signed before they are sent.

A MAC is valid for a minute around its time: sign a round just before you run it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.fleet.fleets import reports_of_host
from bench.http.prepared_data import PreparedData, public_key
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import PROTOCOL, PROTOCOL_HEADER, SESSION_SECONDS, authorization

DISPATCH = "/v1/agent/dispatch"
EVENTS = "/v1/agent/events"


class Signer:
    """Signs for any host of the prepared data; sessions are derived from the server's secret."""

    def __init__(self, prepared: PreparedData) -> None:
        self._harbour = prepared
        self._sessions: dict[str, tuple[str, bytes]] = {}

    def _session(self, host_id: str) -> tuple[str, bytes]:
        found = self._sessions.get(host_id)
        if found is None:
            name = f"{host_id}:{int(time.time()) + SESSION_SECONDS}:{public_key(host_id)}"
            key = hmac.digest(self._harbour.secret, name.encode(), "sha256")
            found = self._sessions[host_id] = (name, key)
        return found

    def request(self, host_id: str, method: str, path: str, body: bytes = b"") -> bytes:
        session, key = self._session(host_id)
        now = int(time.time())
        proof = authorization(session, key, method, path.encode(), b"", body, now)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n"
            f"user-agent: tidegate-agent\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\n"
            f"authorization: {proof}\r\n"
        )
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return f"{head}\r\n".encode() + body

    def poll(self, host_id: str) -> bytes:
        return self.request(host_id, "GET", DISPATCH)

    def report(self, content: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"report": content})
        return self.request(content["host_id"], "POST", EVENTS, body)

    def passages(self, rollout_id: str, hosts: Sequence[str]) -> list[bytes]:
        """All reports of these hosts, one host after the other, each report by itself."""
        at = system_clock()
        return [
            self.report(content)
            for host in hosts
            for content in reports_of_host(rollout_id, host, at)
        ]
