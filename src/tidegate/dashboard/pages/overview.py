"""The overview: what is in progress, what waits for approval, what failed, what is to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.api.feed.tail import Tail
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries import (
    first_steps,
    fleet_picture,
    host_releases,
    log_reader,
)
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    event_text,
    fleet_lines,
    grid_cache,
    layout as dashboard_layout,
    request_lines,
    rollout_lines,
    state_labels,
)
from tidegate.dashboard.checklist import checklist
from tidegate.dashboard.html import ago, short
from tidegate.dashboard.pages import outbox, releases
from tidegate.dashboard.view_models import (
    channel_screens,
    log_screens,
    overview_screen,
    release_screens,
    rollout_screens,
)
from tidegate.domain.access import principals, roles, scopes
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.hosts import probes, rows as host_rows
from tidegate.domain.rollouts.names import channel_of, ref_of
from tidegate.kernel.model import Clause, Event, Position, Query
from tidegate.web import inputs, routing

ROLLOUTS_MAX = 30
TROUBLES_MAX = 12
RECORDS_MAX = 400  # searched for failed hosts of one rollout
SILENT_MAX = 500
QUARANTINED_MAX = 500
NEWS_MAX = 7
NEWS_READ_MAX = 2_000
NEWS_WINDOWS = (2_000, 50_000)  # positions to search back for news
NEWS = frozenset(
    {
        *("RolloutOpened", "RolloutTransitioned", "RolloutHalted", "WaveAdvanced"),
        *("WaveContinued", "WaveSkipped"),
        *("RolloutPaused", "RolloutResumed", "RolloutAborted"),
        *("OperatorClearance", "RolloutConcluded"),
        *("RevisionProposed", "RevisionPublished", "ProposalRejected"),
        *("ReleaseRegistered", "ReleaseTransitioned", "ChannelHeld", "ChannelUnheld"),
        *("QuarantineLifted", "FreezeStarted", "FreezeEnded", "IntentDied"),
    }
)


def overview(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    reads: Reads,
    log: log_reader.LogReader,
    outbox_reader: OutboxReader,
    fleet_reader: FleetReader,
    clock: Clock,
    tail: Tail,
    grids: grid_cache.GridCache,
    pictures: fleet_picture.FleetPictures,
    guard: ProtectionGuard,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the overview."""
    people = layout.names(request)
    visible = _Visible(request.principal)
    rollouts = fleet_reader.open_rollouts()
    lines = rollout_lines.summaries(
        reads, [item for item in rollouts if visible.channel(item.channel)]
    )
    asks = releases.list_pending_approvals(request, reads, people)
    of_channels = request_lines.RequestLines(reads, guard, request.caller, people, clock())
    requests, reviews = of_channels.list_open(), of_channels.list_to_review()
    failed = failed_hosts(reads, grids, lines, tail.position)
    silent = silent_hosts(reads) if visible.all else ()
    kept = list_quarantined(reads, request.principal)
    owed = tuple(item for item in outbox.backlog(outbox_reader) if visible.channel(item.scope))
    counts = overview_screen.OverviewCounts(
        rollouts=len(lines),
        waiting=len(asks) + len(requests),
        failed=sum(line.failed for line in lines),
        silent=len(silent),
        quarantined=len(kept),
        outbox=len(owed),
    )
    picture = pictures.look()
    steps = first_steps.read_first_steps(reads)
    ended = fleet_lines.ended_within_a_day(reads, clock(), lambda row: visible.channel(row.channel))
    view = overview_screen.Overview(
        tiles=_tiles(counts, clock, lines, (*asks, *requests), reviews, owed),
        counts=counts,
        channels=fleet_lines.channel_lines(reads, picture, visible.channel),
        taken_at=picture.taken_at,
        ended=ended,
        ended_summary=fleet_lines.summarize(ended),
        is_in_use=steps.rollout,
        rollouts=lines[:ROLLOUTS_MAX],
        waiting=asks,
        requests=requests,
        reviews=reviews,
        troubles=(*failed, *silent)[:TROUBLES_MAX],
        quarantine=kept[:TROUBLES_MAX],
        outbox=owed[:TROUBLES_MAX],
        checklist=checklist(steps) if visible.all else (),
        news=event_text.describe_all(log, news(log, tail), people) if visible.all else (),
    )
    page = dashboard_layout.PageView(
        template="overview.html", title="Overview", here="/", view=view
    )
    return layout.answer(request, page)


class _Visible:
    """What the user may see on the overview."""

    def __init__(self, principal: principals.Principal) -> None:
        self._principal = principal
        self.all = principal.may(roles.Verb.READ)

    def channel(self, name: str) -> bool:
        return self.all or self._principal.may(roles.Verb.READ, scopes.channel_scope(name))


def _tiles(
    counts: overview_screen.OverviewCounts,
    clock: Clock,
    lines: tuple[rollout_screens.RolloutLine, ...],
    asks: tuple[release_screens.PendingApproval | channel_screens.ChannelRequestLine, ...],
    reviews: tuple[channel_screens.ChannelRequestLine, ...],
    owed: tuple[log_screens.OutboxLine, ...],
) -> tuple[overview_screen.Tile, ...]:
    stopped = sum(line.is_stopped for line in lines)
    paused = sum(state_labels.PAUSED in line.also for line in lines)
    parts = [f"{stopped} stopped"] * bool(stopped) + [f"{paused} paused"] * bool(paused)
    oldest = min((item.at for item in asks if item.at is not None), default=None)
    waiting = [] if oldest is None else [f"oldest {ago(oldest, clock())}"]
    waiting += [f"{len(reviews)} to review"] * bool(reviews)
    dead = sum(item.state.word == "Dead" for item in owed)
    return (
        overview_screen.Tile(
            label="Open rollouts",
            figure=counts.rollouts,
            icon="rollouts",
            tone="bad" if stopped else "info",
            href="/rollouts",
            note=", ".join(parts),
        ),
        overview_screen.Tile(
            label="Waiting for approval",
            figure=counts.waiting,
            icon="clock",
            tone="warn",
            href="/approvals",
            note=", ".join(waiting),
        ),
        overview_screen.Tile(
            label="Failed hosts", figure=counts.failed, icon="cross", tone="bad", href="/rollouts"
        ),
        overview_screen.Tile(
            label="Silent hosts",
            figure=counts.silent,
            icon="silent",
            tone="warn",
            href="/hosts?filter=silent",
        ),
        overview_screen.Tile(
            label="Quarantined", figure=counts.quarantined, icon="ban", tone="bad", href="/channels"
        ),
        overview_screen.Tile(
            label="Outbox backlog",
            figure=counts.outbox,
            icon="outbox",
            tone="warn",
            href="/outbox",
            note="" if not dead else f"{dead} dead letter{'' if dead == 1 else 's'}",
        ),
    )


def failed_hosts(
    reads: Reads,
    grids: grid_cache.GridCache,
    lines: tuple[rollout_screens.RolloutLine, ...],
    head: Position,
) -> tuple[overview_screen.Trouble, ...]:
    """Hosts that failed or rolled back in open rollouts. Rollouts without any are not read."""
    found: list[host_rows.HostRecord] = []
    for line in lines:
        if not line.failed:
            continue
        found += bad_records(reads, grids, line.rollout_id, line.hosts, head)
    shown = found[:TROUBLES_MAX]
    names = host_releases.release_names(reads, places_of(shown))
    return tuple(_trouble(record, names) for record in shown)


def bad_records(
    reads: Reads, grids: grid_cache.GridCache, rollout_id: str, hosts: int, head: Position
) -> list[host_rows.HostRecord]:
    """Records of a rollout's hosts that failed or rolled back; only some of a large rollout."""
    if hosts > RECORDS_MAX:
        return grids.find_troubled(rollout_id, head, TROUBLES_MAX)
    rows = reads.range(host_rows.HOST_RECORDS, prefix=f"{rollout_id}/", limit=RECORDS_MAX)
    return [item.row for item in rows if item.row.state in rollout_lines.BAD]


def _trouble(
    record: host_rows.HostRecord, names: Mapping[host_releases.Place, str]
) -> overview_screen.Trouble:
    return overview_screen.Trouble(
        host_id=record.host_id,
        chip=state_labels.HOSTS[record.state],
        text=why_failed(record, names),
        at=record.reverted_at or record.failed_at,
        href=f"/hosts/{record.host_id}",
    )


def places_of(records: Iterable[host_rows.HostRecord]) -> set[host_releases.Place]:
    """What these hosts run again, each on its channel: the digests that `why_failed` names."""
    return {
        (channel_of(record.rollout_id), record.reverted_to)
        for record in records
        if record.reverted_to
    }


def why_failed(record: host_rows.HostRecord, names: Mapping[host_releases.Place, str]) -> str:
    """Why a host failed, in a few words from its record. ``names``: of what hosts run."""
    failed = probes.failure_text(record.failure or "", *probes.failed_probe(record))
    parts = [f"{failed}, in {record.rollout_id}"]
    if record.reverted_to:
        place = (channel_of(record.rollout_id), record.reverted_to)
        parts.append(f"runs {names.get(place) or short(record.reverted_to)} again")
    if record.rollback_failed:
        parts.append("could not roll back")
    return "; ".join(parts)


def silent_hosts(reads: Reads) -> tuple[overview_screen.Trouble, ...]:
    """Enrolled hosts that do not report."""
    rows = reads.first(HOSTS, "by_silence", limit=SILENT_MAX)
    return tuple(
        overview_screen.Trouble(
            host_id=found.row.host_id,
            chip=state_labels.SILENT,
            text="does not report",
            at=found.row.silent_since,
            href=f"/hosts/{found.row.host_id}",
        )
        for found in rows
        if found.row.status == "enrolled"
    )


def list_quarantined(
    reads: Reads, principal: principals.Principal
) -> tuple[channel_screens.Quarantine, ...]:
    visible = _Visible(principal)
    rows = reads.range(QUARANTINE, limit=QUARANTINED_MAX)
    return tuple(quarantine(found.row) for found in rows if visible.channel(found.row.channel))


def quarantine(row: Quarantined) -> channel_screens.Quarantine:
    return channel_screens.Quarantine(
        channel=row.channel,
        closure_hash=row.closure_hash,
        release=ref_of(row.rollout_id),
        at=row.quarantined_at,
        host_id=row.host_id,
        rollout_id=row.rollout_id,
        reason=row.reason,
    )


def news(log: log_reader.LogReader, tail: Tail) -> tuple[Event, ...]:
    """The latest events that matter to people. Searches further back if there are too few."""
    head = tail.position
    asked = Query((Clause(NEWS),))
    found: tuple[Event, ...] = ()
    for window in NEWS_WINDOWS:
        after = max(0, head - window)
        events = log.events(asked, after=after, limit=NEWS_READ_MAX)
        found = tuple(event for event in events if event_text.is_news(log, event))
        if len(found) >= NEWS_MAX or after == 0:
            break
    return found[-NEWS_MAX:]


ROUTES = (dashboard_layout.page_route("/", overview, routing.requires_somewhere(roles.Verb.READ)),)
