"""The charts of the overview: which release runs where, and which rollouts ended within a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from tidegate.control.queries import channel_releases, fleet_picture, rollout_lists
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, html, state_labels
from tidegate.domain.rollouts.rows import Rollout

CHANNELS_MAX: Final = 40
RELEASES_MAX: Final = 4  # named in one line; the others are summed up
DAY: Final = timedelta(days=1)
OPENED_WITHIN: Final = timedelta(days=7)  # a rollout that ended today was rarely opened earlier
ENDED_MAX: Final = 60
OTHER_TONES: Final = ("calm", "soak", "back", "gone")


class RunningPart(Struct, frozen=True):
    """One release on the hosts of a channel."""

    name: str
    hosts: int
    tone: str


class RunningLine(Struct, frozen=True, kw_only=True):
    """What the hosts of a channel run."""

    channel: str
    wanted: str
    hosts: int
    silent: int
    bar: components.Bar
    parts: tuple[RunningPart, ...]
    is_whole: bool  # every host runs the pinned release


class EndedRollout(Struct, frozen=True):
    """A rollout that ended within the last day."""

    rollout_id: str
    chip: components.Chip
    at: datetime


def channel_lines(
    reads: Reads, picture: fleet_picture.FleetPicture, sees: Callable[[str], bool]
) -> tuple[RunningLine, ...]:
    """The channels that have hosts, by name."""
    shown = [item for item in picture.channels if item.hosts and sees(item.channel)]
    shown = shown[:CHANNELS_MAX]
    return tuple(map(_line, shown, channel_releases.count_actual(reads, shown)))


def _line(
    item: fleet_picture.ChannelPicture, actual: channel_releases.ActualReleases
) -> RunningLine:
    parts: list[RunningPart] = []
    tones = iter(OTHER_TONES)
    for one in actual.releases[:RELEASES_MAX]:
        tone = "good" if one.digest == item.digest else next(tones)
        parts.append(RunningPart(one.release_id or html.short(one.digest), one.hosts, tone))
    if more := sum(one.hosts for one in actual.releases[RELEASES_MAX:]):
        parts.append(RunningPart("others", more, "gone"))
    if item.unknown:
        parts.append(RunningPart("not known", item.unknown, "none"))
    return RunningLine(
        channel=item.channel,
        wanted=item.wanted or "",
        hosts=item.hosts,
        silent=item.silent,
        bar=components.bar([(part.tone, part.name, part.hosts) for part in parts], of=[item.hosts]),
        parts=tuple(parts),
        is_whole=item.wanted is not None and item.on_wanted == item.hosts,
    )


def ended_within_a_day(
    reads: Reads, now: datetime, sees: Callable[[Rollout], bool]
) -> tuple[EndedRollout, ...]:
    """The rollouts that ended within the last day, oldest first."""
    found, _ = rollout_lists.newest_rollouts(
        reads,
        rollout_lists.RolloutsWanted(since=now - OPENED_WITHIN),
        sees,
        after="",
        limit=10 * ENDED_MAX,
    )
    ended = [
        EndedRollout(
            item.rollout.row.rollout_id,
            state_labels.OUTCOMES[item.tally.outcome],
            item.tally.outcome_at,
        )
        for item in found
        if item.tally is not None
        and item.tally.outcome is not None
        and item.tally.outcome_at is not None
        and item.tally.outcome_at >= now - DAY
    ]
    return tuple(sorted(ended, key=lambda item: item.at)[-ENDED_MAX:])


def summarize(ended: Sequence[EndedRollout]) -> str:
    """How many rollouts ended how, the most frequent first."""
    counts = Counter(item.chip.word.lower() for item in ended)
    return ", ".join(f"{count:,} {word}" for word, count in counts.most_common())
