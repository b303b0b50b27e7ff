"""A row as it was found: its value, its version and its id."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from tidegate.kernel.model import Position

Row = TypeVar("Row", bound=Struct)


class Found(NamedTuple, Generic[Row]):
    """A row and the position that last wrote it."""

    row: Row
    version: Position
    id: str
