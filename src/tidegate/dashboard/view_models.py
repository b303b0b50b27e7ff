"""What each screen shows, as frozen data: made by the pages from rows, drawn by the templates."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.queries.request_changes import RequestChange
from tidegate.dashboard import components, fleet_lines

# ── rollouts ──────────────────────────────────────────────────────────────────────────────────────


class RolloutLine(Struct, frozen=True, kw_only=True):
    """A rollout in a list: its bar and a sentence."""

    rollout_id: str
    channel: str
    target_ref: str
    state: components.Chip
    also: tuple[components.Chip, ...]
    opened_at: datetime
    bar: components.Bar
    summary: str
    hosts: int
    settled: int
    failed: int
    is_stopped: bool = False  # a host failed: no more orders are sent
    wave_name: str = ""
    wave_number: int = 0
    wave_count: int = 0
    waits: str = ""
    opened_by: str = ""
    took_seconds: int | None = None  # from its opening to its end


class Tile(Struct, frozen=True, kw_only=True):
    """A figure of the overview, and where it leads."""

    label: str
    figure: int
    icon: str
    tone: str
    href: str
    note: str = ""


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A revision that waits for approval."""

    name: str
    package: str
    number: int  # that it would get
    by: str
    at: datetime | None
    approvals: int
    quorum: int
    why: str = ""  # why this reader cannot approve it


class Trouble(Struct, frozen=True, kw_only=True):
    """A host that failed or is silent."""

    host_id: str
    chip: components.Chip
    text: str
    at: datetime | None
    href: str


class Quarantine(Struct, frozen=True, kw_only=True):
    channel: str
    closure_hash: str
    release: str
    at: datetime
    host_id: str
    rollout_id: str
    reason: str


class ChecklistStep(Struct, frozen=True, kw_only=True):
    """A step of setting an installation up."""

    title: str
    text: str
    href: str  # where it is done
    command: str
    done: bool


class OverviewCounts(Struct, frozen=True, kw_only=True):
    """How many there are of what the overview lists: a tile shows all, a list only some."""

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
    rollouts: tuple[RolloutLine, ...]
    waiting: tuple[PendingApproval, ...]
    troubles: tuple[Trouble, ...]
    quarantine: tuple[Quarantine, ...]
    outbox: tuple[OutboxLine, ...]
    news: tuple[components.TimelineEntry, ...]
    requests: tuple[ChannelRequestLine, ...] = ()
    reviews: tuple[ChannelRequestLine, ...] = ()
    counts: OverviewCounts


class Rollouts(Struct, frozen=True, kw_only=True):
    open: tuple[RolloutLine, ...]
    past: tuple[RolloutLine, ...]
    headings: tuple[components.Heading, ...]
    outcomes: tuple[
        components.Option, ...
    ]  # by which the finished ones can be filtered; hint: the address
    outcome: str = ""
    note: str = ""  # how many are sorted, where that is not all of them
    next: str = ""  # the address of the next page


class WaveView(Struct, frozen=True, kw_only=True):
    name: str
    number: int
    phase: str  # done, current, waiting
    hosts: int
    settled: int
    bar: components.Bar
    status: components.Chip
    soak_seconds: int
    failures_max: int
    soaking: int = 0


class GateLine(Struct, frozen=True, kw_only=True):
    gate: str
    passed: bool
    reason: str
    evidence: str = ""
    hosts: int = 0
    sample: tuple[str, ...] = ()  # some of these hosts
    href: str = ""  # where all of them are


class GatePanel(Struct, frozen=True, kw_only=True):
    """Why a rollout waits: an answer, then each gate's word."""

    title: str = "Why is it waiting?"
    icon: str = ""  # empty: by the tone
    verdict: str
    tone: str
    lines: tuple[GateLine, ...] = ()
    at: datetime | None = None  # None: now
    href: str = ""  # where it is asked for again; empty: with the page


class HeldLine(Struct, frozen=True, kw_only=True):
    host_id: str
    gate: str
    wave: str
    reason: str


class HeldPage(Struct, frozen=True, kw_only=True):
    """The hosts that stop at a gate."""

    rollout_id: str
    gate: str  # empty: at any
    gates: tuple[tuple[str, int], ...]
    hosts: tuple[HeldLine, ...]
    total: int
    start: int
    at: datetime | None
    next: str = ""


class Legend(Struct, frozen=True):
    """A state in the legend of the grid; where it is in the list is the byte of the host."""

    name: str
    chip: components.Chip
    count: int
    place: int = 0  # in the bar of a wave, from the left
    done: bool = False  # hosts in it count as done


class HostLine(Struct, frozen=True, kw_only=True):
    """A host of the rollout that deserves a line of its own."""

    host_id: str
    state: components.Chip
    wave: str
    text: str
    at: datetime | None


class RolloutPage(Struct, frozen=True, kw_only=True):
    rollout_id: str
    display_name: str
    channel: str
    target_ref: str
    target_closure: str
    previous_ref: str
    state: components.Chip
    also: tuple[components.Chip, ...]
    opened_at: datetime
    opened_by: str
    opened_reason: str
    on_failure: str
    hosts: int
    settled: int
    waves: tuple[WaveView, ...]
    gates: GatePanel
    legend: tuple[Legend, ...]
    troubled: tuple[HostLine, ...]
    timeline: tuple[components.TimelineEntry, ...]
    verbs: tuple[components.VerbButton, ...]
    bar: components.VerbBar
    attempt: int
    late: int
    plan_digest: str
    current_wave: int
    version: int


# ── channels ──────────────────────────────────────────────────────────────────────────────────────


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
    confidence: components.Chip | None
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


class PinChange(Struct, frozen=True, kw_only=True):
    """One change of a channel's pin."""

    release: str
    previous: str
    by: str
    at: datetime
    reason: str
    chip: components.Chip


class RungLine(Struct, frozen=True):
    """A release that the channel can go back to; or why a rollback skips it."""

    release: str
    at: datetime
    hosts: int
    skipped: str


class OverrideLine(Struct, frozen=True):
    """A gate that the newest rollout passes, because a person says so."""

    gate: str
    by: str
    at: datetime
    reason: str


class AutomationLine(Struct, frozen=True, kw_only=True):
    """What a channel does by itself next, or what stops it."""

    chip: components.Chip
    text: str
    until: datetime | None = None  # when time alone changes it


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
    confidence: components.Chip | None
    reasons: str
    reason_codes: str = ""
    evidence: tuple[EvidenceLine, ...]
    version: int | None
    waits: tuple[GateLine, ...]
    rollouts: tuple[RolloutLine, ...]
    waves: tuple[str, ...]
    edges: tuple[str, ...]
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
    requests: tuple[ChannelRequestLine, ...] = ()  # that wait, also for a review
    edit: components.LinkButton | None = None


# ── releases ──────────────────────────────────────────────────────────────────────────────────────


class RevisionLine(Struct, frozen=True, kw_only=True):
    name: str
    package: str
    repository: str
    workspace: str
    lifecycle: components.Chip
    number: int
    by: str
    at: datetime | None
    files: int
    bytes: int
    digest: str
    channels: tuple[str, ...] = ()


class Releases(Struct, frozen=True, kw_only=True):
    tab: str
    tabs: tuple[components.Option, ...]
    waiting: tuple[PendingApproval, ...]
    revisions: tuple[RevisionLine, ...]
    headings: tuple[components.Heading, ...] = ()
    note: str = ""  # why they are not in the order that was asked for
    next: str = ""  # the address of the next page


class DiffLine(Struct, frozen=True):
    kind: str  # add, del, same, hunk
    old: str
    new: str
    text: str


class FileDiff(Struct, frozen=True, kw_only=True):
    path: str
    change: components.Chip
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    note: str = ""  # why there are no lines
    mode: str = ""  # that it is a program, or that this changed
    open: bool = True


class ReferenceLine(Struct, frozen=True, kw_only=True):
    """A file whose bytes lie elsewhere."""

    path: str
    uri: str
    digest: str
    bytes: int
    executable: bool = False


class RevisionPage(Struct, frozen=True, kw_only=True):
    line: RevisionLine
    against: str  # the name of what it is compared with; empty: with nothing
    files: tuple[FileDiff, ...]
    added: int
    removed: int
    cut: int  # files that are not shown
    created_by: str
    proposed_by: str
    published_by: str
    self_approved: bool
    editors: str
    approvals: tuple[str, ...]
    quorum: int
    gates: tuple[str, ...]
    tasks: tuple[str, ...]
    version: int
    verbs: tuple[components.VerbButton, ...]
    history: tuple[components.TimelineEntry, ...]
    pinned: tuple[components.Link, ...]
    references: tuple[ReferenceLine, ...] = ()
    references_cut: int = 0  # of them that are not shown


# ── plan and simulate ─────────────────────────────────────────────────────────────────────────────


class PlanWaveLine(Struct, frozen=True, kw_only=True):
    number: int
    name: str
    hosts: int
    soak: str
    failures_max: int
    sample: tuple[str, ...]
    bar: components.Bar


class PlanFinding(Struct, frozen=True, kw_only=True):
    chip: components.Chip
    text: str


class PlanPage(Struct, frozen=True, kw_only=True):
    channels: tuple[components.Option, ...]
    channel: str
    releases: tuple[components.Option, ...]
    release: str
    luck: str
    lucks: tuple[components.Option, ...]
    failing: str
    seed: int
    start_at: str
    history: str  # how hosts did in the last rollouts
    waves: tuple[PlanWaveLine, ...]
    unstaged: int
    hosts: int
    findings: tuple[PlanFinding, ...]
    forecast: str = ""  # where the first run is asked for; empty: none was
    no_simulation: str = ""  # why none can be run here
    why: str = ""  # why there is no plan


class AxisTick(Struct, frozen=True):
    """A round time on the axis, in percent of its length."""

    x: float
    label: str


class RunMark(Struct, frozen=True):
    """What one run did, and when."""

    x: float
    tone: str
    title: str


class WaveLane(Struct, frozen=True, kw_only=True):
    """A wave on the time axis: from when to when usually, and how much longer at worst."""

    number: int
    name: str
    hosts: int
    tone: str
    x: float
    width: float
    worst: float
    marks: tuple[RunMark, ...]
    ended: int  # runs
    stopped: int  # runs
    after: str  # empty: no run ends it
    after_worst: str
    failed: int
    failed_worst: int


class HeldSpan(Struct, frozen=True):
    """A time in which hosts get no order."""

    x: float
    width: float
    title: str


class HeldLane(Struct, frozen=True, kw_only=True):
    """What holds hosts for a known time, on the time axis."""

    by: str  # start, freeze or window
    name: str
    hosts: int
    until: str  # empty: it holds several times
    spans: tuple[HeldSpan, ...]


class OutcomeCount(Struct, frozen=True, kw_only=True):
    chip: components.Chip
    runs: int


class SimulationPart(Struct, frozen=True, kw_only=True):
    """What the same machines did with made-up hosts, in as many runs as were played so far."""

    wanted: int
    runs: int = 0
    next: str = ""  # where the next run is asked for; empty: all are played
    hosts: int = 0
    stands_for: int = 1
    seed: int = 0
    lanes: tuple[WaveLane, ...] = ()
    held: tuple[HeldLane, ...] = ()
    waits: str = ""  # how long no host may start
    ticks: tuple[AxisTick, ...] = ()
    ends: tuple[OutcomeCount, ...] = ()
    ends_bar: components.Bar = components.Bar()
    stops: tuple[tuple[str, int], ...] = ()
    failed: int = 0
    failed_worst: int = 0
    lasts: str = ""
    lasts_worst: str = ""
    said: tuple[components.TimelineEntry, ...] = ()
    said_more: int = 0
    fault: str = ""  # why nothing was played


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


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
    note: str = ""  # why they are not in the order that was asked for
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
    secret: str = ""  # of the token that was just made: shown once
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


class HostPage(Struct, frozen=True, kw_only=True):
    row: HostRow
    enrolled_at: datetime
    public_key: str
    silent_since: datetime | None
    releases: tuple[components.Option, ...]  # what it runs of each channel: digest, channel, text
    facts: tuple[components.Option, ...]  # what the host says of its machine
    passages: tuple[HostRolloutLine, ...]
    probes: tuple[ProbeLine, ...]
    gates: tuple[GateLine, ...]
    verbs: tuple[components.VerbButton, ...]
    bar: components.VerbBar


# ── events ────────────────────────────────────────────────────────────────────────────────────────


class EventLine(Struct, frozen=True, kw_only=True):
    position: int
    at: datetime
    type: str
    kind: str
    icon: str
    tone: str
    told: str
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
    """The events of one stretch of time."""

    x: float
    width: float
    parts: tuple[RatePart, ...]
    href: str  # to the events up to its end
    title: str


class EventRate(Struct, frozen=True, kw_only=True):
    """How many events there were in each stretch of time, by kind."""

    unit: str = ""  # minute, hour, …
    bars: tuple[RateBar, ...] = ()
    kinds: tuple[Legend, ...] = ()
    total: int = 0
    most: int = 0  # in one bar
    start: datetime | None = None
    end: datetime | None = None


class NewEvents(Struct, frozen=True, kw_only=True):
    """How many events came since the page was drawn."""

    ask: str  # where this is asked for again
    count: int = 0
    is_more: bool = False  # there are more than were counted
    href: str = ""  # where they are shown


class Events(Struct, frozen=True, kw_only=True):
    events: tuple[EventLine, ...]
    types: tuple[str, ...]
    type: str
    tag: str
    at: int  # events up to here
    head: int
    following: bool  # at the head: new ones are announced
    older: str  # addresses of other pages
    newer: str
    back: str
    rate: EventRate
    new: NewEvents
    at_time: datetime | None
    fault: components.FormError | None = None


# ── outbox ────────────────────────────────────────────────────────────────────────────────────────


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


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────


class OpeningLine(Struct, frozen=True, kw_only=True):
    """An occurrence of a window, drawn on an axis that begins now, in percent of its length."""

    starts: str  # as people in its zone say it
    ends: str
    at: datetime
    lasts: str
    tone: str
    x: float
    width: float


class FormPage(Struct, frozen=True, kw_only=True):
    """A form on a page of its own."""

    title: str
    action: str
    fields: tuple[components.Field, ...]
    submits: tuple[
        components.Option, ...
    ]  # what it can do; its hint is an icon. The first is the main one
    back: str
    text: str = ""
    asks: str = ""  # that it makes a request
    version: int | None = None
    found: str = ""  # what a check said, in a few words
    findings: tuple[PlanFinding, ...] = ()
    changes: tuple[RequestChange, ...] = ()
    openings: tuple[OpeningLine, ...] = ()
    members: tuple[components.Option, ...] = ()  # what can be written: name, default, meaning


# ── maintenance ───────────────────────────────────────────────────────────────────────────────────


class WindowLine(Struct, frozen=True, kw_only=True):
    window_id: str
    chip: components.Chip
    text: str
    reason: str
    openings: tuple[OpeningLine, ...]
    edit: components.LinkButton
    delete: components.VerbButton


class FreezeLine(Struct, frozen=True, kw_only=True):
    freeze_id: str
    channels: str
    by: str
    reason: str
    at: datetime
    until: datetime | None
    end: components.VerbButton


class BudgetLine(Struct, frozen=True, kw_only=True):
    budget_id: str
    selector: str
    limit: str
    in_flight: int
    edit: components.LinkButton
    remove: components.VerbButton


class Maintenance(Struct, frozen=True, kw_only=True):
    windows: tuple[WindowLine, ...]
    freezes: tuple[FreezeLine, ...]
    budgets: tuple[BudgetLine, ...]
    create: tuple[components.LinkButton, ...]


# ── notifications ─────────────────────────────────────────────────────────────────────────────────


class NotificationLine(Struct, frozen=True, kw_only=True):
    """A subscription: what it tells, and how its queue does."""

    name: str
    kind: str
    chip: components.Chip
    text: str
    queue: str
    error: str
    dead: tuple[str, ...]  # messages that were given up, the newest ones
    edit: components.LinkButton
    verbs: tuple[components.VerbButton, ...]


class Notifications(Struct, frozen=True, kw_only=True):
    lines: tuple[NotificationLine, ...]
    create: components.LinkButton
    said: str = ""  # what a target answered to a test message
    secret: str = ""  # of a webhook, shown this once


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────


class ChannelRequestLine(Struct, frozen=True, kw_only=True):
    """A request on a protected channel, or what one person did alone."""

    request_id: str
    channel: str
    title: str
    chip: components.Chip
    by: str
    at: datetime
    reason: str
    changes: tuple[RequestChange, ...]
    approvals: str  # who agreed, and how many are needed
    approvers: str  # who may still
    links: tuple[components.Link, ...]
    digest: str
    command: str  # all that it asks for, as JSON
    expires_at: datetime | None = None
    ended: str = ""  # by whom and why
    verbs: tuple[components.VerbButton, ...] = ()
    notes: tuple[str, ...] = ()  # what an approver should know; on the request's own page


class Approvals(Struct, frozen=True, kw_only=True):
    tab: str
    tabs: tuple[components.Option, ...]
    requests: tuple[ChannelRequestLine, ...]
    reviews: tuple[ChannelRequestLine, ...]
    waiting: tuple[PendingApproval, ...]
    ended: tuple[ChannelRequestLine, ...]


class RequestPage(Struct, frozen=True, kw_only=True):
    request: ChannelRequestLine
    note: str = ""  # why it was approved and not carried out


# ── settings, sign in ─────────────────────────────────────────────────────────────────────────────


class UserLine(Struct, frozen=True, kw_only=True):
    user_id: str
    name: str
    chip: components.Chip
    grants: tuple[str, ...]
    tokens: int
    added_at: datetime | None
    verbs: tuple[components.VerbButton, ...] = ()


class TokenLine(Struct, frozen=True, kw_only=True):
    token_id: str
    owner: str
    chip: components.Chip
    created_at: datetime | None
    expires_at: datetime
    grants: str
    verbs: tuple[components.VerbButton, ...] = ()


class SubscriptionLine(Struct, frozen=True, kw_only=True):
    """Who is told of what, and whether messages get through."""

    name: str
    kind: str
    chip: components.Chip
    text: str


class RepositoryLine(Struct, frozen=True, kw_only=True):
    name: str
    text: str  # how its revisions are approved
    edit: components.LinkButton
    delete: components.VerbButton


class SettingsPage(Struct, frozen=True, kw_only=True):
    me: str
    new_repository: components.LinkButton
    users: tuple[UserLine, ...]
    tokens: tuple[TokenLine, ...]
    repositories: tuple[RepositoryLine, ...]
    verbs: tuple[components.VerbButton, ...]
    secret: str = ""  # a new token, shown this once
    link: str = ""  # of a reset, for another user, shown this once
    facts: tuple[components.Option, ...] = ()
    windows: tuple[components.Option, ...] = ()
    subscriptions: tuple[SubscriptionLine, ...] = ()


class SignInPage(Struct, frozen=True, kw_only=True):
    """Sign in, or the set-up of a first start."""

    action: str
    fields: tuple[components.Field, ...]
    label: str
    next: str = ""
    fault: components.FormError | None = None
    note: str = ""


class ErrorPage(Struct, frozen=True, kw_only=True):
    """A page that is not there or must not be seen, or what was looked for."""

    title: str
    text: str
    icon: str
    command: str = ""
    code: str = ""
    request: str = ""  # its id, where only our log knows what happened
    links: tuple[components.Option, ...] = ()
