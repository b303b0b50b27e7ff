"""Gives the body of a request to its handler in pieces, as it arrives.

    socket ──▶ 64 KiB that the handler has not read: reading pauses ──▶ a piece ──▶ the handler

The whole body is never in memory. A client that sends nothing or too slowly is disconnected, so
that it does not hold a connection and a temporary file for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

from tidegate.web.problems import RequestTooSlow

PIECE_BYTES: Final = 256 * 1024
SILENT_SECONDS_MAX = 30.0  # without a byte
BYTES_PER_SECOND_MIN = 16 * 1024  # on average, after the first SILENT_SECONDS_MAX

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class IncomingBody:
    """A body that is still arriving. ``announced``: its length, if the request has one."""

    def __init__(self, receive: Receive, announced: int | None) -> None:
        self.announced = announced
        self._receive = receive

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield all bytes in pieces; the last piece may be empty.

        Raises:
            RequestTooSlow, ClientGone.
        """
        gathered = bytearray()
        received, waited, has_more = 0, 0.0, True
        while has_more:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(SILENT_SECONDS_MAX):
                    message = await self._receive()
            except TimeoutError:
                raise RequestTooSlow(
                    f"The body of the request stopped for {SILENT_SECONDS_MAX:g} seconds."
                ) from None
            waited += time.monotonic() - begun
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            received += len(part)
            if received < (waited - SILENT_SECONDS_MAX) * BYTES_PER_SECOND_MIN:
                raise RequestTooSlow(
                    "The body of the request comes too slowly; at least "
                    f"{BYTES_PER_SECOND_MIN} bytes per second are needed."
                )
            gathered += part
            has_more = message.get("more_body", False)
            if len(gathered) >= PIECE_BYTES or not has_more:
                yield bytes(gathered)
                gathered.clear()
