"""The result of a command that needs a second person: a request was made instead."""

from __future__ import annotations

from msgspec import Struct

from tidegate.kernel.model import Position


class SecondPersonNeeded(Exception):
    """The command waits for another person's approval. ``request`` is shown to the caller.

    This is not an error, but the command was not carried out either.
    """

    def __init__(self, request: Struct, position: Position, detail: str) -> None:
        super().__init__(detail)
        self.request = request
        self.position = position
        self.detail = detail
