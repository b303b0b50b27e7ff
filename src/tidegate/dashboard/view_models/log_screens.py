"""What the screens of the log and the outbox show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components
from tidegate.dashboard.view_models import rollout_screens


class EventLine(Struct, frozen=True, kw_only=True):
    position: int
    at: datetime
    type: str
    kind: str
    icon: str
    tone: str
    title: str
    actor: str
    tags: tuple[str, ...]
    body: str
    request: str
    open: bool = False


class RatePart(Struct, frozen=True):
    """A part of a bar: events of one kind, in percent of the plot's height."""

    tone: str
    y: float
    height: float


class RateBar(Struct, frozen=True, kw_only=True):
    """The events of one bar."""

    x: float
    width: float
    parts: tuple[RatePart, ...]
    href: str  # to the events up to the end of this bar
    title: str


class EventRate(Struct, frozen=True, kw_only=True):
    """The number of events in each bar, by kind."""

    unit: str = ""  # minute, hour, …
    bars: tuple[RateBar, ...] = ()
    kinds: tuple[rollout_screens.Legend, ...] = ()
    total: int = 0
    most: int = 0  # in one bar
    start: datetime | None = None
    end: datetime | None = None


class NewEvents(Struct, frozen=True, kw_only=True):
    """How many events were appended since the page was rendered."""

    ask: str  # the address that updates this
    count: int = 0
    is_more: bool = False  # there are more than were counted
    href: str = ""  # the page that shows them


class Events(Struct, frozen=True, kw_only=True):
    events: tuple[EventLine, ...]
    types: tuple[str, ...]
    type: str
    tag: str
    at: int  # shows events up to here
    head: int
    following: bool  # whether this is the end of the log: new events are announced
    older: str  # addresses of other pages
    newer: str
    back: str
    rate: EventRate
    new: NewEvents
    at_time: datetime | None
    fault: components.FormError | None = None


class OutboxLine(Struct, frozen=True, kw_only=True):
    id: str
    scope: str
    operation: str
    release: str
    state: components.Chip
    attempts: int
    next_at: datetime | None
    updated_at: datetime
    error: str
    key: str
    redrive: components.VerbButton | None = None
    cancel: components.VerbButton | None = None


class DriftLine(Struct, frozen=True, kw_only=True):
    scope: str
    subject: str
    chip: components.Chip
    finding: str
    at: datetime


class Outbox(Struct, frozen=True, kw_only=True):
    tab: str
    tabs: tuple[components.Option, ...]
    intents: tuple[OutboxLine, ...]
    headings: tuple[components.Heading, ...]
    drifts: tuple[DriftLine, ...]
    oldest: datetime | None
    next: str = ""  # the address of the next page
