"""The row of a window, and the row that names all of them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.windows.facts import WindowSpec
from tidegate.kernel import collections as kernel_collections, model


class Window(WindowSpec, frozen=True, omit_defaults=True, kw_only=True):
    """A window, and who set it last. Deleting it removes the row."""

    reason: str
    operator: str
    set_at: datetime


class WindowNames(Struct, frozen=True, omit_defaults=True):
    """The windows that exist, by name.

    It is one row, so that two windows that are created at the same moment cannot exceed the limit.
    """

    window_ids: tuple[str, ...] = ()


WINDOWS = kernel_collections.Collection(
    "windows",
    Window,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("window_id",),
)


WINDOW_NAMES = kernel_collections.Collection(
    "window_names",
    WindowNames,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


def window_names_key() -> model.Key:
    return model.Key(WINDOW_NAMES.name, "all")


def window_key(window_id: str) -> model.Key:
    return model.Key(WINDOWS.name, window_id)


COLLECTIONS = (WINDOWS, WINDOW_NAMES)
