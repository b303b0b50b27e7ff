"""Rollouts: the list, and one of them with its waves, its hosts, its gates and its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, structs

from tidegate.api.feed.tail import Tail
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.rollout_lists import RolloutsWanted, newest_rollouts
from tidegate.dashboard import state_labels
from tidegate.dashboard.components import Chip, Link, Option, VerbButton, address, arrange
from tidegate.dashboard.event_text import Names, describe_all
from tidegate.dashboard.gate_panel import GateReports, panel_of
from tidegate.dashboard.grid_cache import GridCache
from tidegate.dashboard.grid_encoding import RolloutPagePath, rollout_scope
from tidegate.dashboard.layout import (
    ROWS,
    Layout,
    ListQuery,
    PageQuery,
    PageView,
    SortWish,
    UserDirectory,
    page_route,
)
from tidegate.dashboard.pages.overview import bad_records, why_failed
from tidegate.dashboard.protected_verbs import ask_second_person
from tidegate.dashboard.rollout_lines import (
    BAD,
    bar_place,
    count_settled,
    is_done,
    marks,
    state_chip,
    summaries,
    wave_bar,
)
from tidegate.dashboard.rollout_verbs import sensible_verbs, verbs_of
from tidegate.dashboard.sorting import SortColumn, SortColumns, SortOrder, list_page
from tidegate.dashboard.view_models import (
    HostLine,
    Legend,
    RolloutLine,
    RolloutPage,
    Rollouts,
    WaveView,
)
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.rows import Channel, channel_key
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
from tidegate.domain.rollouts.states import CLEARABLE, DISPATCHABLE, Outcome
from tidegate.kernel.model import Clause, Match, Position, Query
from tidegate.web.inputs import Nothing
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, requires, requires_somewhere

TROUBLED_MAX = 12
MAY_ASK = ("retry", "override", "skip-wave", "promote-all", "clear")  # for a second person
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


SORTED_MAX = 2_000  # finished rollouts, the newest, that are sorted by another column
COLUMNS: Final[SortColumns[RolloutLine]] = SortColumns(
    "-opened",
    SortColumn(label="Rollout", name="name", key=lambda it: it.rollout_id),
    SortColumn(label="Outcome", name="outcome", key=lambda it: it.state.word),
    SortColumn(
        label="Hosts", name="hosts", key=lambda it: it.hosts, newest_first=True, classes="right"
    ),
    SortColumn(
        label="Failed or reverted",
        name="failed",
        key=lambda it: it.failed,
        newest_first=True,
        classes="right optional",
    ),
    SortColumn(label="By", name="by", key=lambda it: it.opened_by or None, classes="optional"),
    SortColumn(
        label="Took",
        name="took",
        key=lambda it: it.took_seconds,
        newest_first=True,
        classes="right optional",
    ),
    SortColumn(
        label="Opened",
        name="opened",
        key=lambda it: it.opened_at,
        newest_first=True,
        classes="right",
    ),
)

OUTCOME_FILTERS: Final = (
    ("", "All"),
    *((str(item), chip.word) for item, chip in state_labels.OUTCOMES.items()),
)


class RolloutsQuery(ListQuery, frozen=True, kw_only=True):
    limit: int = ROWS
    outcome: Annotated[str, Meta(max_length=16)] = ""
    sort: SortWish = ""


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

    query = request.query
    people = layout.names(request)
    outcome = query.outcome if query.outcome in {*Outcome} else ""
    order = COLUMNS.order(query.sort)
    page = _finished(reads, people, order, outcome, sees, cursors.after(request))
    view = Rollouts(
        open=summaries(reads, filter(sees, fleet_reader.open_rollouts())),
        past=page.rows,
        headings=COLUMNS.headings(order, "/rollouts", outcome=outcome),
        outcomes=tuple(
            Option(value, label, address("/rollouts", outcome=value, sort=query.sort))
            for value, label in OUTCOME_FILTERS
        ),
        outcome=outcome,
        note=page.note,
        next=layout.next_page(request, "/rollouts", page.last, outcome=outcome, sort=query.sort),
    )
    shown = PageView(template="rollouts.html", title="Rollouts", here="/rollouts", view=view)
    return layout.answer(request, shown)


class _Finished(NamedTuple):
    """A page of finished rollouts; ``last``: where the next one starts."""

    rows: tuple[RolloutLine, ...]
    last: str | None
    note: str = ""


def _finished(
    reads: Reads,
    people: UserDirectory,
    order: SortOrder[RolloutLine],
    outcome: str,
    sees: Callable[[Rollout], bool],
    after: str,
) -> _Finished:
    """In the order of opening, all of them by pages; by another column, the newest ones."""
    wanted = RolloutsWanted(ended=True, outcomes=frozenset({Outcome(outcome)} if outcome else ()))
    by_opening = order.text == "-opened"
    limit, start = (ROWS, after) if by_opening else (SORTED_MAX, "")
    found, last = newest_rollouts(reads, wanted, sees, after=start, limit=limit)
    lines = tuple(
        structs.replace(line, opened_by=people(line.opened_by))
        for line in summaries(reads, [item.rollout.row for item in found])
    )
    if by_opening:
        return _Finished(lines, last)
    page = list_page(lines, order, lambda it: it.rollout_id, after, ROWS)
    note = f"the newest {SORTED_MAX:,} are sorted" if last is not None else ""
    return _Finished(page.rows, page.last, note)


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
        channel = self.reads.find(channel_key(row.channel), Channel)
        if channel is not None:
            verbs = tuple(_as_protected(verb, request.caller, channel.row) for verb in verbs)
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
            opened_by=_opener(rollout.row, people),
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
            bar=arrange(verbs, sensible_verbs(row)),
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
        return Chip("ring", "idle", f"after wave {number}")
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


def _opener(row: Rollout, people: Names) -> str:
    """Who opened it; of an automatic one, by what, and who switched that on."""
    name = people(row.opened_by) if row.opened_by else ""
    return f"{row.automatic}, which {name} switched on" if row.automatic else name


def _legend(tally: RolloutTally) -> tuple[Legend, ...]:
    counts = {
        str(state): sum(wave.states.get(state, 0) for wave in tally.waves) for state in HostState
    }
    counts["left"] = sum(wave.left for wave in tally.waves)
    total = sum(wave.hosts for wave in tally.waves)
    counts["unordered"] = max(0, total - sum(counts.values()))
    return tuple(
        Legend(name, chip, counts[name], bar_place(name), is_done(name))
        for name, chip in state_labels.GRID
    )


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
    return f"wave {number + 1} · {tally.waves[number].name}" if number < len(tally.waves) else ""


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


def _as_protected(verb: VerbButton, caller: Caller, channel: Channel) -> VerbButton:
    if verb.id not in MAY_ASK:
        return verb
    return ask_second_person(verb, caller, channel, whole=verb.id != "clear")


ROUTES = (
    page_route("/rollouts", index, requires_somewhere(Verb.READ)),
    page_route("/rollouts/{rollout_id}", show, requires(Verb.READ, rollout_scope)),
)
