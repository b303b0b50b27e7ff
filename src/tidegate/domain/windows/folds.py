"""How facts become the row of a window, and the row of all names. Times enter `channel_stops`."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import asdict

from tidegate.domain.windows.facts import WindowDeleted, WindowSet
from tidegate.domain.windows.rows import (
    WINDOW_NAMES,
    WINDOWS,
    Window,
    WindowNames,
    window_names_key,
)
from tidegate.kernel.folds import Fold


def step_window(
    row: Window | None, fact: WindowSet | WindowDeleted, now: datetime
) -> Window | None:
    if isinstance(fact, WindowDeleted):
        return None
    return Window(**asdict(fact.window), reason=fact.reason, operator=fact.operator, set_at=fact.at)


windows = Fold(
    collection=WINDOWS,
    number=1,
    reads=(WindowSet, WindowDeleted),
    ids=lambda fact: (fact.window_id,),
    start=lambda id, fact: None,
    step=step_window,
)


def step_names(row: WindowNames, fact: WindowSet | WindowDeleted, now: datetime) -> WindowNames:
    named = {*row.window_ids, fact.window_id}
    if isinstance(fact, WindowDeleted):
        named.discard(fact.window_id)
    return WindowNames(tuple(sorted(named)))


window_names = Fold(
    collection=WINDOW_NAMES,
    number=1,
    reads=(WindowSet, WindowDeleted),
    ids=lambda fact: (window_names_key().id,),
    start=lambda id, fact: WindowNames(),
    step=step_names,
)

FOLDS = (windows, window_names)
