"""How far back a row is rebuilt from its own facts."""

from __future__ import annotations

from tidegate.errors import TooLarge

AS_OF_EVENTS_MAX = 50_000


class HistoryTooLong(TooLarge):
    """The object has more history than one request folds."""

    code = "history_too_long"

    def __init__(self) -> None:
        super().__init__(f"more than {AS_OF_EVENTS_MAX} events", allowed=AS_OF_EVENTS_MAX)
