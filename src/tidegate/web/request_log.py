"""Writes one line of JSON per request, in batches to keep the cost of a line low."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

FLUSH_SECONDS = 0.05
WAITING_MAX = 1_000  # lines that wait for the next flush; more are dropped

Write = Callable[[bytes], object]


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request and its status. It logs the route's pattern, so no name or secret is included."""

    at: datetime
    log: str
    request: str
    principal: str
    method: str
    route: str
    status: int
    ms: float
    code: str | None = None


class RequestLog:
    """Collects lines and writes them in batches. Used on one event loop."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[RequestLine] = []
        self._encode = msgspec.json.Encoder().encode_lines

    def add(self, line: RequestLine) -> None:
        self._waiting.append(line)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        elif len(self._waiting) >= WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        lines, self._waiting = self._waiting, []
        if lines:
            self._write(self._encode(lines))
