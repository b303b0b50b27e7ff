"""The overview: what is under way, what waits for somebody, what went wrong, what is owed."""

from __future__ import annotations

from tidegate.api.feed.tail import Tail
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries import documents, first_steps, fleet_picture, log_reader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    event_text,
    fleet_lines,
    grid_cache,
    layout as dashboard_layout,
    request_lines,
    rollout_lines,
    state_labels,
    view_models,
)
from tidegate.dashboard.checklist import checklist
from tidegate.dashboard.html import ago, short
from tidegate.dashboard.pages import outbox, releases
from tidegate.domain.access import principals, roles, scopes
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord
from tidegate.domain.rollouts.names import ref_of
from tidegate.kernel.model import Clause, Event, Position, Query
from tidegate.web import inputs, routing

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
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    reads: Reads,
    log: log_reader.LogReader,
    outbox_reader: documents.OutboxReader,
    fleet_reader: FleetReader,
    clock: Clock,
    tail: Tail,
    grids: grid_cache.GridCache,
    pictures: fleet_picture.FleetPictures,
    guard: ProtectionGuard,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Everything at a glance."""
    people = layout.names(request)
    sees = _Sees(request.principal)
    rollouts = fleet_reader.open_rollouts()
    lines = rollout_lines.summaries(
        reads, [item for item in rollouts if sees.channel(item.channel)]
    )
    asks = releases.list_pending_approvals(request, reads, people)
    of_channels = request_lines.RequestLines(reads, guard, request.caller, people, clock())
    requests, reviews = of_channels.list_open(), of_channels.list_to_review()
    failed = failed_hosts(reads, grids, lines, tail.position)
    silent = silent_hosts(reads) if sees.all else ()
    kept = list_quarantined(reads, request.principal)
    owed = tuple(item for item in outbox.backlog(outbox_reader) if sees.channel(item.scope))
    picture = pictures.look()
    view = view_models.Overview(
        tiles=_tiles(request, clock, lines, (*asks, *requests, *reviews), silent, kept, owed),
        channels=fleet_lines.channel_lines(reads, picture, sees.channel),
        taken_at=picture.taken_at,
        ended=fleet_lines.ended_within_a_day(reads, clock(), lambda row: sees.channel(row.channel)),
        rollouts=lines[:ROLLOUTS_MAX],
        waiting=asks,
        requests=requests,
        reviews=reviews,
        troubles=(*failed, *silent)[:TROUBLES_MAX],
        quarantine=kept,
        outbox=owed[:TROUBLES_MAX],
        checklist=checklist(first_steps.read_first_steps(reads)) if sees.all else (),
        news=event_text.describe_all(log, news(request, log, tail), people) if sees.all else (),
    )
    page = dashboard_layout.PageView(
        template="overview.html", title="Overview", here="/", view=view
    )
    return layout.answer(request, page)


class _Sees:
    """What somebody may see here."""

    def __init__(self, principal: principals.Principal) -> None:
        self._principal = principal
        self.all = principal.may(roles.Verb.READ)

    def channel(self, name: str) -> bool:
        return self.all or self._principal.may(roles.Verb.READ, scopes.channel_scope(name))


def _tiles(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    clock: Clock,
    lines: tuple[view_models.RolloutLine, ...],
    asks: tuple[view_models.PendingApproval | view_models.ChannelRequestLine, ...],
    silent: tuple[view_models.Trouble, ...],
    kept: tuple[view_models.Quarantine, ...],
    owed: tuple[view_models.OutboxLine, ...],
) -> tuple[view_models.Tile, ...]:
    halted = sum(state_labels.HALTED in line.also for line in lines)
    paused = sum(state_labels.PAUSED in line.also for line in lines)
    said = [f"{halted} halted"] * bool(halted) + [f"{paused} paused"] * bool(paused)
    oldest = min((item.at for item in asks if item.at is not None), default=None)
    dead = sum(item.state.word == "Dead" for item in owed)
    return (
        view_models.Tile(
            label="Open rollouts",
            figure=len(lines),
            icon="rollouts",
            tone="info",
            href="/rollouts",
            note=", ".join(said),
        ),
        view_models.Tile(
            label="Waiting approvals",
            figure=len(asks),
            icon="clock",
            tone="warn",
            href="/approvals",
            note="" if oldest is None else f"oldest {ago(oldest, clock())}",
        ),
        view_models.Tile(
            label="Failed hosts",
            figure=sum(line.failed for line in lines),
            icon="cross",
            tone="bad",
            href="/rollouts",
        ),
        view_models.Tile(
            label="Silent hosts",
            figure=len(silent),
            icon="silent",
            tone="warn",
            href="/hosts?filter=silent",
        ),
        view_models.Tile(
            label="Quarantined", figure=len(kept), icon="ban", tone="bad", href="/channels"
        ),
        view_models.Tile(
            label="Outbox backlog",
            figure=len(owed),
            icon="outbox",
            tone="warn",
            href="/outbox",
            note="" if not dead else f"{dead} dead letter{'' if dead == 1 else 's'}",
        ),
    )


def failed_hosts(
    reads: Reads,
    grids: grid_cache.GridCache,
    lines: tuple[view_models.RolloutLine, ...],
    head: Position,
) -> tuple[view_models.Trouble, ...]:
    """Hosts that failed or rolled back in open rollouts; a rollout without any is not looked at."""
    found: list[view_models.Trouble] = []
    for line in lines:
        if not line.failed:
            continue
        records = bad_records(reads, grids, line.rollout_id, line.hosts, head)
        found += map(_trouble, records)
    return tuple(found[:TROUBLES_MAX])


def bad_records(
    reads: Reads, grids: grid_cache.GridCache, rollout_id: str, hosts: int, head: Position
) -> list[HostRecord]:
    """Records of a rollout's hosts that failed or rolled back; of a large one, some."""
    if hosts > RECORDS_MAX:
        return grids.in_trouble(rollout_id, head, TROUBLES_MAX)
    rows = reads.range(HOST_RECORDS, prefix=f"{rollout_id}/", limit=RECORDS_MAX)
    return [item.row for item in rows if item.row.state in rollout_lines.BAD]


def _trouble(record: HostRecord) -> view_models.Trouble:
    return view_models.Trouble(
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


def silent_hosts(reads: Reads) -> tuple[view_models.Trouble, ...]:
    """Enrolled hosts of which nothing is heard."""
    rows = reads.first(HOSTS, "by_silence", limit=SILENT_MAX)
    return tuple(
        view_models.Trouble(
            host_id=found.row.host_id,
            chip=state_labels.SILENT,
            text="it does not report",
            at=found.row.silent_since,
            href=f"/hosts/{found.row.host_id}",
        )
        for found in rows
        if found.row.status == "enrolled"
    )


def list_quarantined(
    reads: Reads, principal: principals.Principal
) -> tuple[view_models.Quarantine, ...]:
    sees = _Sees(principal)
    rows = reads.range(QUARANTINE, limit=TROUBLES_MAX)
    return tuple(quarantine(found.row) for found in rows if sees.channel(found.row.channel))


def quarantine(row: Quarantined) -> view_models.Quarantine:
    return view_models.Quarantine(
        channel=row.channel,
        closure_hash=row.closure_hash,
        release=ref_of(row.rollout_id),
        at=row.quarantined_at,
        host_id=row.host_id,
        rollout_id=row.rollout_id,
        reason=f"{row.host_id}: {row.reason}",
    )


def news(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    log: log_reader.LogReader,
    tail: Tail,
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


ROUTES = (dashboard_layout.page_route("/", overview, routing.requires_somewhere(roles.Verb.READ)),)
