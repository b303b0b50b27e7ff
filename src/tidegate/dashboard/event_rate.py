"""Events as a rate: stacked bars with the number of events of each kind per minute, hour or day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from tidegate.dashboard import components, html
from tidegate.dashboard.view_models import log_screens, rollout_screens
from tidegate.kernel.model import Event

BARS_MAX: Final = 60
STEPS: Final = (
    (60, "minute"),
    (300, "5 minutes"),
    (900, "15 minutes"),
    (3_600, "hour"),
    (21_600, "6 hours"),
    (86_400, "day"),
    (604_800, "week"),
    (2_419_200, "4 weeks"),
    (31_536_000, "year"),
)
OTHER: Final = "Other"
KINDS: Final = {
    "Rollouts": components.Chip("rollouts", "info", "Rollouts"),
    "Hosts": components.Chip("hosts", "good", "Hosts"),
    "Releases": components.Chip("releases", "soak", "Releases"),
    "Channels": components.Chip("channels", "calm", "Channels"),
    "People": components.Chip("user", "warn", "People"),
    "Deliveries": components.Chip("outbox", "back", "Deliveries"),
    OTHER: components.Chip("dots", "gone", OTHER),
}
# Maps the package of the domain that defines a fact to the kind that is shown.
_KIND_OF: Final = {
    **dict.fromkeys(("rollouts",), "Rollouts"),
    **dict.fromkeys(("hosts", "fleet"), "Hosts"),
    **dict.fromkeys(("packages", "releases", "publication", "content"), "Releases"),
    **dict.fromkeys(("channels", "windows", "requests"), "Channels"),
    **dict.fromkeys(("access",), "People"),
    **dict.fromkeys(("outbox", "notifications"), "Deliveries"),
}


def rate_of(
    events: Sequence[Event],
    package_of: Callable[[str], str],
    *,
    until: datetime,
    cut: bool,
    link: Callable[[datetime], str],
) -> log_screens.EventRate:
    """Build the bars up to a time. ``package_of`` returns the package of an event type. ``cut``:
    there are older events, so the first bar may be incomplete.
    """
    if not events:
        return log_screens.EventRate()
    end = max(int(until.timestamp()), int(events[-1].at.timestamp()))
    step, unit = _step(end - int(events[0].at.timestamp()))
    first = int(events[0].at.timestamp()) // step * step
    if cut and end - first > step:
        first += step
    counts: dict[int, Counter[str]] = {at: Counter() for at in range(first, end + 1, step)}
    for event in events:
        at = int(event.at.timestamp()) // step * step
        if at in counts:
            counts[at][_KIND_OF.get(package_of(event.type), OTHER)] += 1
    totals: Counter[str] = sum(counts.values(), Counter())
    most = max((found.total() for found in counts.values()), default=0) or 1
    width = 100 / len(counts)
    bars = tuple(
        _bar(datetime.fromtimestamp(at, UTC), found, number * width, width, most, link, step)
        for number, (at, found) in enumerate(counts.items())
    )
    return log_screens.EventRate(
        unit=unit,
        bars=bars,
        kinds=tuple(
            rollout_screens.Legend(name, chip, totals[name])
            for name, chip in KINDS.items()
            if totals[name]
        ),
        total=totals.total(),
        most=most,
        start=datetime.fromtimestamp(first, UTC),
        end=datetime.fromtimestamp(end, UTC),
    )


def _step(span: int) -> tuple[int, str]:
    return next((item for item in STEPS if span // item[0] < BARS_MAX), STEPS[-1])


def _bar(
    at: datetime,
    counts: Counter[str],
    x: float,
    width: float,
    most: int,
    link: Callable[[datetime], str],
    step: int,
) -> log_screens.RateBar:
    count = counts.total()
    ends = datetime.fromtimestamp(at.timestamp() + step - 1, UTC)
    return log_screens.RateBar(
        x=round(x, 3),
        width=round(width * 0.82, 3),
        parts=tuple(_parts(((name, counts[name]) for name in KINDS), most)),
        href=link(ends),
        title=f"{html.absolute(at)}: {count:,} event{'' if count == 1 else 's'}",
    )


def _parts(counts: Iterable[tuple[str, int]], most: int) -> Iterable[log_screens.RatePart]:
    """The parts of a bar from the bottom up, in percent of the highest bar."""
    reached = 100.0
    for name, count in counts:
        if count:
            height = count * 100 / most
            reached -= height
            yield log_screens.RatePart(KINDS[name].tone, round(reached, 3), round(height, 3))
