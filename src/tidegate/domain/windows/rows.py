"""The row of a window."""

from __future__ import annotations

from datetime import datetime

from tidegate.domain.windows.facts import WindowSpec
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.model import Key


class Window(WindowSpec, frozen=True, omit_defaults=True, kw_only=True):
    """A window, and who set it last. Deleted, the row is gone."""

    reason: str
    operator: str
    set_at: datetime


WINDOWS = Collection(
    "windows", Window, writers=Writers.FOLDED, nature=Nature.DERIVED, columns=("window_id",)
)


def window_key(window_id: str) -> Key:
    return Key(WINDOWS.name, window_id)


COLLECTIONS = (WINDOWS,)
