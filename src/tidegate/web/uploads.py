"""The body of a request, handed to its handler piece by piece as it arrives.

    socket ──▶ 64 KiB that nobody has taken: reading pauses ──▶ a piece ──▶ the handler

The body is never whole in memory. A client that sends nothing, or sends too slowly, is cut off, so
that a connection and a temporary file are not held for ever.
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
    """The client went away before its request was whole."""


class IncomingBody:
    """A body that is still on its way. ``announced``: how many bytes it shall have, if it says."""

    def __init__(self, receive: Receive, announced: int | None) -> None:
        self.announced = announced
        self._receive = receive

    async def pieces(self) -> AsyncIterator[bytes]:
        """All bytes, in pieces of some size; the last may be empty.

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
