"""How facts become the row of a window and the row of all names. Channels fold the times."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import asdict

from tidegate.domain.windows import facts, rows
from tidegate.kernel.folds import Fold


def step_window(
    row: rows.Window | None, fact: facts.WindowSet | facts.WindowDeleted, now: datetime
) -> rows.Window | None:
    if isinstance(fact, facts.WindowDeleted):
        return None
    return rows.Window(
        **asdict(fact.window), reason=fact.reason, operator=fact.operator, set_at=fact.at
    )


windows = Fold(
    collection=rows.WINDOWS,
    number=1,
    reads=(facts.WindowSet, facts.WindowDeleted),
    ids=lambda fact: (fact.window_id,),
    start=lambda id, fact: None,
    step=step_window,
)


def step_names(
    row: rows.WindowNames, fact: facts.WindowSet | facts.WindowDeleted, now: datetime
) -> rows.WindowNames:
    named = {*row.window_ids, fact.window_id}
    if isinstance(fact, facts.WindowDeleted):
        named.discard(fact.window_id)
    return rows.WindowNames(tuple(sorted(named)))


window_names = Fold(
    collection=rows.WINDOW_NAMES,
    number=1,
    reads=(facts.WindowSet, facts.WindowDeleted),
    ids=lambda fact: (rows.window_names_key().id,),
    start=lambda id, fact: rows.WindowNames(),
    step=step_names,
)

FOLDS = (windows, window_names)
