"""One line of JSON per request, written in batches so that a line costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

FLUSH_SECONDS = 0.05
WAITING_MAX = 1_000  # lines that wait for the next flush

Write = Callable[[bytes], object]


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a request. The route is its pattern: no name and no secret comes with it."""

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
    """Collects lines and hands them on together; on one event loop."""

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
        """Write what waits."""
        lines, self._waiting = self._waiting, []
        if lines:
            self._write(self._encode(lines))
