"""What the overview shows."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components, fleet_lines
from tidegate.dashboard.view_models import (
    channel_screens,
    log_screens,
    release_screens,
    rollout_screens,
)


class Tile(Struct, frozen=True, kw_only=True):
    """A number of the overview, and the page that lists it."""

    label: str
    figure: int
    icon: str
    tone: str
    href: str
    note: str = ""


class Trouble(Struct, frozen=True, kw_only=True):
    """A host that failed or is silent."""

    host_id: str
    chip: components.Chip
    text: str
    at: datetime | None
    href: str


class ChecklistStep(Struct, frozen=True, kw_only=True):
    """A step of setting up an installation."""

    title: str
    text: str
    href: str  # where it is done
    command: str
    done: bool


class OverviewCounts(Struct, frozen=True, kw_only=True):
    """How many of each kind there are: a tile shows all, a list only some."""

    rollouts: int = 0
    waiting: int = 0
    failed: int = 0
    silent: int = 0
    quarantined: int = 0
    outbox: int = 0


class Overview(Struct, frozen=True, kw_only=True):
    checklist: tuple[ChecklistStep, ...] = ()
    tiles: tuple[Tile, ...]
    channels: tuple[fleet_lines.RunningLine, ...]
    taken_at: datetime  # when the hosts of the channels were counted
    ended: tuple[fleet_lines.EndedRollout, ...]
    ended_summary: str  # how many ended how
    is_in_use: bool  # something was promoted
    rollouts: tuple[rollout_screens.RolloutLine, ...]
    waiting: tuple[release_screens.PendingApproval, ...]
    troubles: tuple[Trouble, ...]
    quarantine: tuple[channel_screens.Quarantine, ...]
    outbox: tuple[log_screens.OutboxLine, ...]
    news: tuple[components.TimelineEntry, ...]
    requests: tuple[channel_screens.ChannelRequestLine, ...] = ()
    reviews: tuple[channel_screens.ChannelRequestLine, ...] = ()
    counts: OverviewCounts
