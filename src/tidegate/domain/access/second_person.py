"""That a request was made instead of what was asked for: no error, and not done either."""

from __future__ import annotations

from msgspec import Struct

from tidegate.kernel.model import Position


class SecondPersonNeeded(Exception):
    """What was asked for waits for another person. ``request`` is shown to who asked."""

    def __init__(self, request: Struct, position: Position, detail: str) -> None:
        super().__init__(detail)
        self.request = request
        self.position = position
        self.detail = detail
