"""What the screens of channels show, including requests on protected channels."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.operations.protection import Alternative
from tidegate.control.queries.request_changes import RequestChange
from tidegate.dashboard import components, fleet_lines
from tidegate.dashboard.view_models import release_screens, rollout_screens


class MapNode(Struct, frozen=True, kw_only=True):
    """A channel on the map."""

    channel: str
    package: str
    x: int
    y: int
    release: str
    state: components.Chip
    hosts: str
    title: str


class MapEdge(Struct, frozen=True, kw_only=True):
    path: str
    blocks: bool
    text: str
    tip: str
    label_x: int
    label_y: int
    title: str


class ChannelLine(Struct, frozen=True, kw_only=True):
    channel: str
    package: str
    release: str
    evidence: components.Chip | None
    state: components.Chip
    also: tuple[components.Chip, ...]
    rollout_id: str
    selector: str
    waits: str
    updated_at: datetime | None


class Channels(Struct, frozen=True, kw_only=True):
    width: int
    height: int
    nodes: tuple[MapNode, ...]
    edges: tuple[MapEdge, ...]
    channels: tuple[ChannelLine, ...]
    headings: tuple[components.Heading, ...] = ()
    create: components.LinkButton | None = None


class EvidenceLine(Struct, frozen=True, kw_only=True):
    kind: str
    source: str
    ref: str
    digest: str
    at: str


class EdgeLine(Struct, frozen=True, kw_only=True):
    """A channel before this one, and whether it lets the pinned release through."""

    channel: str
    asks: str
    passed: bool
    reason: str


class PinChange(Struct, frozen=True, kw_only=True):
    """One change of a channel's pin."""

    release: str
    previous: str
    by: str
    at: datetime
    reason: str
    chip: components.Chip


class RungLine(Struct, frozen=True):
    """A release that the channel can go back to, or why a rollback skips it."""

    release: str
    at: datetime
    hosts: int
    skipped: str


class OverrideLine(Struct, frozen=True):
    """A gate of the newest rollout that a person has overridden."""

    gate: str
    by: str
    at: datetime
    reason: str


class AutomationLine(Struct, frozen=True, kw_only=True):
    """What a channel does next without a person, or what stops it."""

    chip: components.Chip
    text: str
    until: datetime | None = None  # when time alone changes it


class Quarantine(Struct, frozen=True, kw_only=True):
    channel: str
    closure_hash: str
    release: str
    at: datetime
    host_id: str
    rollout_id: str
    reason: str


class ChannelPage(Struct, frozen=True, kw_only=True):
    channel: str
    package: str
    selector: str
    state: components.Chip
    also: tuple[components.Chip, ...]
    release: str
    release_name: str
    digest: str
    previous: str
    since: datetime | None
    running: fleet_lines.RunningLine | None = None  # what its hosts run; None: it has no hosts
    evidence_chip: components.Chip | None
    by: str  # who pinned the release
    by_reason: str
    reasons: str
    reason_codes: str = ""
    evidence: tuple[EvidenceLine, ...]
    version: int | None
    waits: tuple[rollout_screens.GateLine, ...]
    rollouts: tuple[rollout_screens.RolloutLine, ...]
    waves: tuple[str, ...]
    edges: tuple[EdgeLine, ...]
    on_failure: str
    history: tuple[PinChange, ...]
    quarantine: tuple[Quarantine, ...]
    ladder: tuple[RungLine, ...]
    overrides: tuple[OverrideLine, ...]
    verbs: tuple[components.VerbButton, ...]
    bar: components.VerbBar
    windows: tuple[components.Option, ...] = ()
    automation: tuple[AutomationLine, ...] = ()
    protection: str = ""  # how it is protected; empty: it is not
    requests: tuple[ChannelRequestLine, ...] = ()  # requests that wait for approval or review
    edit: components.LinkButton | None = None


class ChannelRequestLine(Struct, frozen=True, kw_only=True):
    """A request on a protected channel, or a use of break-glass."""

    request_id: str
    channel: str
    title: str
    chip: components.Chip
    by: str
    at: datetime
    reason: str
    changes: tuple[RequestChange, ...]
    approvals: str  # who approved, and how many approvals are needed
    approvers: str  # who may still approve
    links: tuple[components.Link, ...]
    digest: str
    command: str  # everything that it asks for, as JSON
    expires_at: datetime | None = None
    ended: str = ""  # who decided it, and why
    verbs: tuple[components.VerbButton, ...] = ()
    notes: tuple[str, ...] = ()  # what an approver should know; on the request's own page


class Approvals(Struct, frozen=True, kw_only=True):
    tab: str
    tabs: tuple[components.Option, ...]
    requests: tuple[ChannelRequestLine, ...]
    reviews: tuple[ChannelRequestLine, ...]
    waiting: tuple[release_screens.PendingApproval, ...]
    ended: tuple[ChannelRequestLine, ...]


class RequestPage(Struct, frozen=True, kw_only=True):
    request: ChannelRequestLine
    note: str = ""  # why it was approved but not carried out
    alternatives: tuple[Alternative, ...] = ()  # what the person who asked can do alone
