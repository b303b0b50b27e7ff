"""What the screens of hosts and join tokens show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components
from tidegate.dashboard.view_models import rollout_screens


class HostRow(Struct, frozen=True, kw_only=True):
    host_id: str
    status: components.Chip
    labels: tuple[str, ...]
    seen_at: datetime | None
    agent: str
    runs: str
    busy: str


class Hosts(Struct, frozen=True, kw_only=True):
    total: int
    hosts: tuple[HostRow, ...]
    headings: tuple[components.Heading, ...]
    filter: str
    selector: str
    sort: str = ""
    note: str = ""  # why they are not sorted as requested
    next: str = ""  # the address of the next page
    fault: components.FormError | None = None


class JoinLine(Struct, frozen=True, kw_only=True):
    """A join token, without its secret."""

    join_id: str
    chip: components.Chip
    labels: tuple[str, ...]
    enrolled: int
    limit: int
    until: datetime
    by: str
    delete: components.VerbButton


class Joins(Struct, frozen=True, kw_only=True):
    lines: tuple[JoinLine, ...]
    create: components.LinkButton
    secret: str = ""  # of the token that was just made; shown once
    made: str = ""  # its id


class HostRolloutLine(Struct, frozen=True, kw_only=True):
    """A host in one rollout."""

    rollout_id: str
    state: components.Chip
    wave: str
    text: str
    at: datetime
    attempt: int


class ProbeLine(Struct, frozen=True, kw_only=True):
    name: str
    mode: str
    chip: components.Chip
    text: str
    at: datetime | None


class HostWait(Struct, frozen=True, kw_only=True):
    """What a host waits for in one open rollout; without a rollout, why it gets no orders."""

    rollout_id: str
    verdict: str
    tone: str
    icon: str = "ring"
    lines: tuple[rollout_screens.GateLine, ...] = ()


class HostPage(Struct, frozen=True, kw_only=True):
    row: HostRow
    enrolled_at: datetime
    public_key: str
    silent_since: datetime | None
    releases: tuple[components.Option, ...]  # what it runs of each channel: digest, channel, text
    facts: tuple[components.Option, ...]  # what the host reports of its machine
    rollouts: tuple[HostRolloutLine, ...]
    probes: tuple[ProbeLine, ...]
    waits: tuple[HostWait, ...]
    verbs: tuple[components.VerbButton, ...]
    bar: components.VerbBar
