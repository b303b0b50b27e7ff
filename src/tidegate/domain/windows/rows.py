"""The row of a window, and the row that names all of them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.windows.facts import WindowSpec
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.model import Key


class Window(WindowSpec, frozen=True, omit_defaults=True, kw_only=True):
    """A window, and who set it last. Deleted, the row is gone."""

    reason: str
    operator: str
    set_at: datetime


class WindowNames(Struct, frozen=True, omit_defaults=True):
    """The windows that exist, by name: one row, so that two that are created at the same moment
    cannot both be the last.
    """

    window_ids: tuple[str, ...] = ()


WINDOWS = Collection(
    "windows", Window, writers=Writers.FOLDED, nature=Nature.DERIVED, columns=("window_id",)
)


WINDOW_NAMES = Collection(
    "window_names", WindowNames, writers=Writers.FOLDED, nature=Nature.DERIVED
)


def window_names_key() -> Key:
    return Key(WINDOW_NAMES.name, "all")


def window_key(window_id: str) -> Key:
    return Key(WINDOWS.name, window_id)


COLLECTIONS = (WINDOWS, WINDOW_NAMES)
