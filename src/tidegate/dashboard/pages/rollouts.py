"""Rollouts: the list, and one of them with its waves, its hosts, its gates and its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.api.feed.tail import Tail
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.rollout_lists import RolloutsWanted, newest_rollouts
from tidegate.dashboard import state_labels
from tidegate.dashboard.components import Chip, Link
from tidegate.dashboard.event_text import describe_all
from tidegate.dashboard.gate_panel import GateReports, panel_of
from tidegate.dashboard.grid_cache import GridCache
from tidegate.dashboard.grid_encoding import RolloutPagePath, rollout_scope
from tidegate.dashboard.layout import (
    ROWS,
    Layout,
    ListQuery,
    PageQuery,
    PageView,
    page_route,
)
from tidegate.dashboard.pages.overview import bad_records, why_failed
from tidegate.dashboard.rollout_lines import (
    BAD,
    count_settled,
    marks,
    state_chip,
    summaries,
    wave_bar,
)
from tidegate.dashboard.rollout_verbs import verbs_of
from tidegate.dashboard.view_models import HostLine, Legend, RolloutPage, Rollouts, WaveView
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.hosts.refusals import RolloutUnknown
from tidegate.domain.hosts.rows import PROBE_FAILURES, HostRecord, ProbeFailure
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import (
    Rollout,
    RolloutTally,
    WaveTally,
    rollout_key,
    tally_key,
)
from tidegate.domain.rollouts.states import CLEARABLE, DISPATCHABLE
from tidegate.kernel.model import Clause, Match, Position, Query
from tidegate.web.inputs import Nothing
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, requires, requires_somewhere

TROUBLED_MAX = 12
TIMELINE_MAX = 200
TIMELINE_SHOWN = 40
TIMELINE = frozenset(
    {
        *("RolloutOpened", "WaveAdvanced", "RolloutTerminal", "RetentionExpired"),
        *("WaveContinued", "WaveSkipped"),
        *("OperatorClearance", "RolloutTransitioned", "RolloutHalted", "RolloutPaused"),
        *("RolloutResumed", "RolloutAborted", "GateChanged", "SuccessorOpened"),
        "RolloutConcluded",
    }
)


class RolloutsQuery(ListQuery, frozen=True, kw_only=True):
    limit: int = ROWS


def index(
    request: Request[Nothing, RolloutsQuery, Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
    cursors: Cursors,
    layout: Layout,
) -> Response:
    """Open rollouts, then the others."""

    def sees(rollout: Rollout) -> bool:
        return request.principal.may(Verb.READ, channel_scope(rollout.channel))

    under_way = fleet_reader.open_rollouts()
    found, last = newest_rollouts(
        reads, RolloutsWanted(ended=True), sees, after=cursors.after(request), limit=ROWS
    )
    view = Rollouts(
        open=summaries(reads, filter(sees, under_way)),
        past=summaries(reads, [item.rollout.row for item in found]),
        next=layout.further(request, last),
    )
    page = PageView(template="rollouts.html", title="Rollouts", here="/rollouts", view=view)
    return layout.answer(request, page)


def show(
    request: Request[RolloutPagePath, PageQuery, Nothing],
    pages: RolloutPages,
    layout: Layout,
) -> Response:
    """One rollout."""
    return layout.answer(
        request,
        pages.page_of(request, request.path.rollout_id),
    )


@dataclass(frozen=True)
class RolloutPages:
    """The page of one rollout."""

    reads: Reads
    log: LogReader
    tail: Tail
    layout: Layout
    grids: GridCache
    gate_reports: GateReports

    def page_of(
        self,
        request: Request[Any, Any, Any],
        rollout_id: str,
    ) -> PageView:
        """Raises: RolloutUnknown."""
        rollout, tally = self.reads.find_all(
            (rollout_key(rollout_id), Rollout), (tally_key(rollout_id), RolloutTally)
        )
        if rollout is None or tally is None:
            raise RolloutUnknown(rollout_id)
        people = self.layout.names(request)
        events = self.log.events(
            Query((Clause(TIMELINE, frozenset({f"rollout_id:{rollout_id}"}), Match.EXACT),)),
            limit=TIMELINE_MAX,
        )
        row: RolloutTally = tally.row
        hosts = sum(wave.hosts for wave in row.waves)
        troubled = _troubled(self.reads, self.grids, row, hosts, self.tail.position)
        verbs = verbs_of(request.principal, rollout, row, troubled)
        view = RolloutPage(
            rollout_id=rollout_id,
            display_name=rollout.row.display_name,
            channel=row.channel,
            target_ref=row.target_ref,
            target_closure=row.target_closure,
            previous_ref=rollout.row.previous_ref or "",
            state=state_chip(rollout.row, row),
            also=marks(row),
            opened_at=row.opened_at,
            opened_by=people(rollout.row.opened_by) if rollout.row.opened_by else "",
            opened_reason=rollout.row.opened_reason,
            on_failure=str(row.on_failure),
            hosts=hosts,
            settled=sum(map(count_settled, row.waves)),
            waves=tuple(_wave(number, wave, row) for number, wave in enumerate(row.waves)),
            gates=panel_of(self.reads, self.gate_reports, row),
            legend=_legend(row),
            troubled=troubled,
            timeline=describe_all(self.log, events[-TIMELINE_SHOWN:], people),
            verbs=verbs,
            attempt=row.attempt,
            late=sum(row.late.values()),
            plan_digest=row.plan_digest,
            current_wave=row.current_wave,
            version=rollout.version,
        )
        return PageView(
            template="rollout.html",
            title=rollout_id,
            here="/rollouts",
            view=view,
            crumbs=(Link("Rollouts", "/rollouts"), Link(rollout_id)),
            verbs=verbs,
            about=f"rollout_id:{rollout_id}",
        )


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def _wave(number: int, wave: WaveTally, tally: RolloutTally) -> WaveView:
    done = count_settled(wave)
    phase = "waiting" if number > tally.current_wave else "current"
    over = tally.state not in DISPATCHABLE and tally.state not in CLEARABLE
    if number < tally.current_wave or (done == wave.hosts and phase == "current") or over:
        phase = "done" if done == wave.hosts else phase
    return WaveView(
        name=wave.name or "all",
        number=number,
        phase=phase,
        hosts=wave.hosts,
        settled=done,
        bar=wave_bar(wave),
        status=_status(number, wave, tally, phase),
        soak_seconds=wave.soak_seconds,
        failures_max=wave.failures_max,
        soaking=wave.count(HostState.SOAKING),
    )


def _status(number: int, wave: WaveTally, tally: RolloutTally, phase: str) -> Chip:
    """Where a wave stands, in a few words."""
    bad = wave.count(*BAD)
    if bad:
        return Chip("cross", "bad", f"{bad:,} failed or reverted")
    if phase == "done":
        return Chip("check", "good", "done")
    if phase == "waiting":
        return Chip("ring", "idle", f"after wave {number - 1}")
    if tally.halted_at is not None:
        return state_labels.HALTED
    if tally.paused_at is not None:
        return state_labels.PAUSED
    soaking, moving = wave.count(HostState.SOAKING), wave.count(HostState.ACTIVATING)
    if soaking:
        return Chip("hourglass", "soak", f"{soaking:,} soaking")
    if moving:
        return Chip("gear", "info", f"{moving:,} activating")
    if wave.count(HostState.PENDING):
        return Chip("dots", "idle", "orders are out")
    return Chip("clock", "idle", "waits for orders")


def _legend(tally: RolloutTally) -> tuple[Legend, ...]:
    counts = {
        str(state): sum(wave.states.get(state, 0) for wave in tally.waves) for state in HostState
    }
    counts["left"] = sum(wave.left for wave in tally.waves)
    total = sum(wave.hosts for wave in tally.waves)
    counts["unordered"] = max(0, total - sum(counts.values()))
    return tuple(Legend(name, chip, counts[name]) for name, chip in state_labels.GRID)


# ── whom it waits for ─────────────────────────────────────────────────────────────────────────────


def _troubled(
    reads: Reads, grids: GridCache, tally: RolloutTally, hosts: int, head: Position
) -> tuple[HostLine, ...]:
    """Hosts that failed, rolled back, or whose enforced probes fail."""
    rollout_id = tally.rollout_id
    lines: list[HostLine] = []
    if any(wave.count(*BAD) for wave in tally.waves):
        records = bad_records(reads, grids, rollout_id, hosts, head)
        lines += [_line(record, tally) for record in records]
    failing = reads.range(PROBE_FAILURES, prefix=f"{rollout_id}/", limit=TROUBLED_MAX)
    known = {line.host_id for line in lines}
    lines += [_probe_line(item.row, tally) for item in failing if item.row.host_id not in known]
    return tuple(lines[:TROUBLED_MAX])


def _wave_name(number: int, tally: RolloutTally) -> str:
    return f"wave {number} · {tally.waves[number].name}" if number < len(tally.waves) else ""


def _line(record: HostRecord, tally: RolloutTally) -> HostLine:
    return HostLine(
        host_id=record.host_id,
        state=state_labels.HOSTS[record.state],
        wave=_wave_name(record.wave, tally),
        text=why_failed(record),
        at=record.reverted_at or record.failed_at,
    )


def _probe_line(failure: ProbeFailure, tally: RolloutTally) -> HostLine:
    return HostLine(
        host_id=failure.host_id,
        state=Chip("eye", "warn", "Probe fails"),
        wave=_wave_name(failure.wave, tally),
        text=f"probe {failure.probe_name}: {failure.failure_reason or 'fails'}",
        at=failure.observed_at,
    )


ROUTES = (
    page_route("/rollouts", index, requires_somewhere(Verb.READ)),
    page_route("/rollouts/{rollout_id}", show, requires(Verb.READ, rollout_scope)),
)
