"""How facts become the row of a window. Its times also enter ``channel_stops``, in channels."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import asdict

from tidegate.domain.windows.facts import WindowDeleted, WindowSet
from tidegate.domain.windows.rows import WINDOWS, Window
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

FOLDS = (windows,)
