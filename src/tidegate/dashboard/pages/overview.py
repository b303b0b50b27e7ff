"""The overview: what is under way, what waits for somebody, what went wrong, what is owed."""

from __future__ import annotations

from tidegate.api.feed.tail import Tail
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries.documents import OutboxReader
from tidegate.control.queries.first_steps import read_first_steps
from tidegate.control.queries.fleet_picture import FleetPictures
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import state_labels
from tidegate.dashboard.checklist import checklist
from tidegate.dashboard.event_text import describe_all
from tidegate.dashboard.fleet_lines import channel_lines, ended_within_a_day
from tidegate.dashboard.grid_cache import GridCache
from tidegate.dashboard.html import ago, short
from tidegate.dashboard.layout import Layout, PageQuery, PageView, page_route
from tidegate.dashboard.pages.outbox import backlog
from tidegate.dashboard.pages.releases import list_pending_approvals
from tidegate.dashboard.request_lines import RequestLines
from tidegate.dashboard.rollout_lines import BAD, summaries
from tidegate.dashboard.view_models import (
    ChannelRequestLine,
    OutboxLine,
    Overview,
    PendingApproval,
    Quarantine,
    RolloutLine,
    Tile,
    Trouble,
)
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord
from tidegate.domain.rollouts.names import ref_of
from tidegate.kernel.model import Clause, Event, Position, Query
from tidegate.web.inputs import Nothing
from tidegate.web.routing import Request, Response, requires_somewhere

ROLLOUTS_MAX = 30
TROUBLES_MAX = 12
RECORDS_MAX = 400  # that are looked through for failed hosts of one rollout
SILENT_MAX = 500
NEWS_MAX = 7
NEWS_READ_MAX = 2_000
NEWS_WINDOWS = (2_000, 50_000)  # positions that are looked back for news
NEWS = frozenset(
    {
        *("RolloutOpened", "RolloutTransitioned", "RolloutHalted", "WaveAdvanced"),
        *("WaveContinued", "WaveSkipped"),
        *("RolloutPaused", "RolloutResumed", "RolloutAborted"),
        *("OperatorClearance", "SuccessorOpened"),
        *("RevisionProposed", "RevisionPublished", "ProposalRejected"),
        *("ReleaseRegistered", "ReleaseTransitioned", "ChannelHeld", "ChannelUnheld"),
        *("QuarantineLifted", "FreezeStarted", "FreezeEnded", "IntentDied"),
    }
)


def overview(
    request: Request[Nothing, PageQuery, Nothing],
    reads: Reads,
    log: LogReader,
    outbox_reader: OutboxReader,
    fleet_reader: FleetReader,
    clock: Clock,
    tail: Tail,
    grids: GridCache,
    pictures: FleetPictures,
    guard: ProtectionGuard,
    layout: Layout,
) -> Response:
    """Everything at a glance."""
    people = layout.names(request)
    sees = _Sees(request.principal)
    rollouts = fleet_reader.open_rollouts()
    lines = summaries(reads, [item for item in rollouts if sees.channel(item.channel)])
    asks = list_pending_approvals(request, reads, people)
    of_channels = RequestLines(reads, guard, request.caller, people, clock())
    requests, reviews = of_channels.list_open(), of_channels.list_to_review()
    failed = failed_hosts(reads, grids, lines, tail.position)
    silent = silent_hosts(reads) if sees.all else ()
    kept = list_quarantined(reads, request.principal)
    owed = tuple(item for item in backlog(outbox_reader) if sees.channel(item.scope))
    picture = pictures.look()
    view = Overview(
        tiles=_tiles(request, clock, lines, (*asks, *requests, *reviews), silent, kept, owed),
        channels=channel_lines(reads, picture, sees.channel),
        taken_at=picture.taken_at,
        ended=ended_within_a_day(reads, clock(), lambda row: sees.channel(row.channel)),
        rollouts=lines[:ROLLOUTS_MAX],
        waiting=asks,
        requests=requests,
        reviews=reviews,
        troubles=(*failed, *silent)[:TROUBLES_MAX],
        quarantine=kept,
        outbox=owed[:TROUBLES_MAX],
        checklist=checklist(read_first_steps(reads)) if sees.all else (),
        news=describe_all(log, news(request, log, tail), people) if sees.all else (),
    )
    page = PageView(template="overview.html", title="Overview", here="/", view=view)
    return layout.answer(request, page)


class _Sees:
    """What somebody may see here."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self.all = principal.may(Verb.READ)

    def channel(self, name: str) -> bool:
        return self.all or self._principal.may(Verb.READ, channel_scope(name))


def _tiles(
    request: Request[Nothing, PageQuery, Nothing],
    clock: Clock,
    lines: tuple[RolloutLine, ...],
    asks: tuple[PendingApproval | ChannelRequestLine, ...],
    silent: tuple[Trouble, ...],
    kept: tuple[Quarantine, ...],
    owed: tuple[OutboxLine, ...],
) -> tuple[Tile, ...]:
    halted = sum(state_labels.HALTED in line.also for line in lines)
    paused = sum(state_labels.PAUSED in line.also for line in lines)
    said = [f"{halted} halted"] * bool(halted) + [f"{paused} paused"] * bool(paused)
    oldest = min((item.at for item in asks if item.at is not None), default=None)
    dead = sum(item.state.word == "Dead" for item in owed)
    return (
        Tile(
            label="Open rollouts",
            figure=len(lines),
            icon="rollouts",
            tone="info",
            href="/rollouts",
            note=", ".join(said),
        ),
        Tile(
            label="Waiting approvals",
            figure=len(asks),
            icon="clock",
            tone="warn",
            href="/approvals",
            note="" if oldest is None else f"oldest {ago(oldest, clock())}",
        ),
        Tile(
            label="Failed hosts",
            figure=sum(line.failed for line in lines),
            icon="cross",
            tone="bad",
            href="/rollouts",
        ),
        Tile(
            label="Silent hosts",
            figure=len(silent),
            icon="silent",
            tone="warn",
            href="/hosts?filter=silent",
        ),
        Tile(label="Quarantined", figure=len(kept), icon="ban", tone="bad", href="/channels"),
        Tile(
            label="Outbox backlog",
            figure=len(owed),
            icon="outbox",
            tone="warn",
            href="/outbox",
            note="" if not dead else f"{dead} dead letter{'' if dead == 1 else 's'}",
        ),
    )


def failed_hosts(
    reads: Reads, grids: GridCache, lines: tuple[RolloutLine, ...], head: Position
) -> tuple[Trouble, ...]:
    """Hosts that failed or rolled back in open rollouts; a rollout without any is not looked at."""
    found: list[Trouble] = []
    for line in lines:
        if not line.failed:
            continue
        records = bad_records(reads, grids, line.rollout_id, line.hosts, head)
        found += map(_trouble, records)
    return tuple(found[:TROUBLES_MAX])


def bad_records(
    reads: Reads, grids: GridCache, rollout_id: str, hosts: int, head: Position
) -> list[HostRecord]:
    """Records of a rollout's hosts that failed or rolled back; of a large one, some."""
    if hosts > RECORDS_MAX:
        return grids.in_trouble(rollout_id, head, TROUBLES_MAX)
    rows = reads.range(HOST_RECORDS, prefix=f"{rollout_id}/", limit=RECORDS_MAX)
    return [item.row for item in rows if item.row.state in BAD]


def _trouble(record: HostRecord) -> Trouble:
    return Trouble(
        host_id=record.host_id,
        chip=state_labels.HOSTS[record.state],
        text=why_failed(record),
        at=record.reverted_at or record.failed_at,
        href=f"/hosts/{record.host_id}",
    )


def why_failed(record: HostRecord) -> str:
    """In a few words, from what its record says."""
    said = [f"{record.failure} in {record.rollout_id}" if record.failure else record.rollout_id]
    said += [
        f"probe {name}: {probe.failure_reason}"
        for name, probe in sorted(record.probes.items())
        if probe.failure_reason
    ]
    if record.reverted_to:
        said.append(f"runs {short(record.reverted_to)} again")
    if record.rollback_failed:
        said.append("could not go back")
    return "; ".join(said)


def silent_hosts(reads: Reads) -> tuple[Trouble, ...]:
    """Enrolled hosts of which nothing is heard."""
    rows = reads.first(HOSTS, "by_silence", limit=SILENT_MAX)
    return tuple(
        Trouble(
            host_id=found.row.host_id,
            chip=state_labels.SILENT,
            text="it does not report",
            at=found.row.silent_since,
            href=f"/hosts/{found.row.host_id}",
        )
        for found in rows
        if found.row.status == "enrolled"
    )


def list_quarantined(reads: Reads, principal: Principal) -> tuple[Quarantine, ...]:
    sees = _Sees(principal)
    rows = reads.range(QUARANTINE, limit=TROUBLES_MAX)
    return tuple(quarantine(found.row) for found in rows if sees.channel(found.row.channel))


def quarantine(row: Quarantined) -> Quarantine:
    return Quarantine(
        channel=row.channel,
        closure_hash=row.closure_hash,
        release=ref_of(row.rollout_id),
        at=row.quarantined_at,
        host_id=row.host_id,
        rollout_id=row.rollout_id,
        reason=f"{row.host_id}: {row.reason}",
    )


def news(
    request: Request[Nothing, PageQuery, Nothing], log: LogReader, tail: Tail
) -> tuple[Event, ...]:
    """The last events that somebody would want to hear of, looking back a little further each
    time that there are too few.
    """
    head = tail.position
    asked = Query((Clause(NEWS),))
    found: tuple[Event, ...] = ()
    for window in NEWS_WINDOWS:
        after = max(0, head - window)
        found = log.events(asked, after=after, limit=NEWS_READ_MAX)
        if len(found) >= NEWS_MAX or after == 0:
            break
    return found[-NEWS_MAX:]


ROUTES = (page_route("/", overview, requires_somewhere(Verb.READ)),)
