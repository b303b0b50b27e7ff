"""``as_of=``: a position of the log, or a time. Both select the state at that point."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from tidegate.control.queries.log_reader import LogReader
from tidegate.errors import InvalidInput
from tidegate.kernel.model import POSITION_MAX, Position
from tidegate.web.inputs import ReadQuery

AsOf = Annotated[
    str,
    Meta(
        max_length=40,
        pattern=r"^([0-9]{1,16}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(Z|[+-][0-9]{2}:[0-9]{2}))?$",
    ),
]


class AsOfQuery(ReadQuery, frozen=True, kw_only=True):
    """How one thing is read: now, or as it was."""

    as_of: AsOf = ""


def position_of(log: LogReader, text: str) -> Position:
    """Convert the text of ``as_of`` to a position. Raises: InvalidInput."""
    if text.isdigit():
        position = int(text)
        if position > POSITION_MAX:
            raise InvalidInput(f"as_of is at most {POSITION_MAX}, found {text}", field="as_of")
        return min(position, log.head())
    try:
        at = datetime.fromisoformat(text)
        return log.position_at(at.astimezone(UTC))
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"as_of is a position or an RFC 3339 time, found {text!r}", field="as_of"
        ) from None
