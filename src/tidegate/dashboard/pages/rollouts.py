"""Rollouts: the list, and one rollout with its waves, hosts, gates and history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, structs

from tidegate.api.feed.tail import Tail
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries import host_releases, log_reader, rollout_lists
from tidegate.control.queries.ladder import read_ladder
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    components,
    event_text,
    gate_panel,
    grid_cache,
    grid_encoding,
    layout as dashboard_layout,
    protected_verbs,
    rollout_lines,
    rollout_verbs,
    sorting,
    state_labels,
)
from tidegate.dashboard.pages.overview import bad_records, places_of, why_failed
from tidegate.dashboard.view_models import rollout_screens
from tidegate.domain.access import callers, roles, scopes
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.hosts import refusals, rows as host_rows, states as host_states
from tidegate.domain.releases import rows as release_rows
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states
from tidegate.kernel.model import Clause, Match, Position, Query
from tidegate.web import inputs, paging, routing

TROUBLED_MAX = 12
# Verbs that may need a second person.
MAY_ASK = ("retry", "override", "skip-wave", "promote-all", "clear")
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


SORTED_MAX = 2_000  # the newest finished rollouts, if sorted by another column
COLUMNS: Final[sorting.SortColumns[rollout_screens.RolloutLine]] = sorting.SortColumns(
    "-opened",
    sorting.SortColumn(label="Rollout", name="name", key=lambda it: it.rollout_id),
    sorting.SortColumn(label="Outcome", name="outcome", key=lambda it: it.state.word),
    sorting.SortColumn(
        label="Hosts", name="hosts", key=lambda it: it.hosts, newest_first=True, classes="right"
    ),
    sorting.SortColumn(
        label="Failed",
        name="failed",
        key=lambda it: it.failed,
        newest_first=True,
        classes="right optional",
    ),
    sorting.SortColumn(
        label="By", name="by", key=lambda it: it.opened_by or None, classes="optional"
    ),
    sorting.SortColumn(
        label="Took",
        name="took",
        key=lambda it: it.took_seconds,
        newest_first=True,
        classes="right optional",
    ),
    sorting.SortColumn(
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


class RolloutsQuery(dashboard_layout.ListQuery, frozen=True, kw_only=True):
    limit: int = dashboard_layout.ROWS
    outcome: Annotated[str, Meta(max_length=16)] = ""
    sort: dashboard_layout.SortWish = ""


def index(
    request: routing.Request[inputs.Nothing, RolloutsQuery, inputs.Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
    cursors: paging.Cursors,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List open rollouts, then finished ones."""

    def sees(rollout: rollout_rows.Rollout) -> bool:
        return request.principal.may(roles.Verb.READ, scopes.channel_scope(rollout.channel))

    query = request.query
    people = layout.names(request)
    outcome = query.outcome if query.outcome in {*rollout_states.Outcome} else ""
    order = COLUMNS.order(query.sort)
    page = _finished(reads, people, order, outcome, sees, cursors.after(request))
    view = rollout_screens.Rollouts(
        open=rollout_lines.summaries(reads, filter(sees, fleet_reader.open_rollouts())),
        past=page.rows,
        headings=COLUMNS.headings(order, "/rollouts", outcome=outcome),
        outcomes=tuple(
            components.Option(
                value, label, components.address("/rollouts", outcome=value, sort=query.sort)
            )
            for value, label in OUTCOME_FILTERS
        ),
        outcome=outcome,
        note=page.note,
        next=layout.next_page(request, "/rollouts", page.last, outcome=outcome, sort=query.sort),
    )
    shown = dashboard_layout.PageView(
        template="rollouts.html", title="Rollouts", here="/rollouts", view=view
    )
    return layout.answer(request, shown)


class _Finished(NamedTuple):
    """A page of finished rollouts; ``last``: where the next one starts."""

    rows: tuple[rollout_screens.RolloutLine, ...]
    last: str | None
    note: str = ""


def _finished(
    reads: Reads,
    people: dashboard_layout.UserDirectory,
    order: sorting.SortOrder[rollout_screens.RolloutLine],
    outcome: str,
    sees: Callable[[rollout_rows.Rollout], bool],
    after: str,
) -> _Finished:
    """Finished rollouts by time of opening, in pages; by another column, only the newest."""
    wanted = rollout_lists.RolloutsWanted(
        ended=True, outcomes=frozenset({rollout_states.Outcome(outcome)} if outcome else ())
    )
    by_opening = order.text == "-opened"
    limit, start = (dashboard_layout.ROWS, after) if by_opening else (SORTED_MAX, "")
    found, last = rollout_lists.newest_rollouts(reads, wanted, sees, after=start, limit=limit)
    lines = tuple(
        structs.replace(line, opened_by=people(line.opened_by))
        for line in rollout_lines.summaries(reads, [item.rollout.row for item in found])
    )
    if by_opening:
        return _Finished(lines, last)
    page = sorting.list_page(lines, order, lambda it: it.rollout_id, after, dashboard_layout.ROWS)
    note = f"the newest {SORTED_MAX:,} are sorted" if last is not None else ""
    return _Finished(page.rows, page.last, note)


def show(
    request: routing.Request[
        grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, inputs.Nothing
    ],
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show one rollout."""
    return layout.answer(request, pages.page_of(request, request.path.rollout_id))


@dataclass(frozen=True)
class RolloutPages:
    """Builds the page of one rollout."""

    reads: Reads
    fleet_reader: FleetReader
    log: log_reader.LogReader
    tail: Tail
    layout: dashboard_layout.Layout
    grids: grid_cache.GridCache
    gate_reports: gate_panel.GateReports

    def page_of(
        self, request: routing.Request[Any, Any, Any], rollout_id: str
    ) -> dashboard_layout.PageView:
        """Build the page. Raises: RolloutUnknown."""
        rollout, tally = self.reads.find_all(
            (rollout_rows.rollout_key(rollout_id), rollout_rows.Rollout),
            (rollout_rows.tally_key(rollout_id), rollout_rows.RolloutTally),
        )
        if rollout is None or tally is None:
            raise refusals.RolloutUnknown(rollout_id)
        people = self.layout.names(request)
        events = self.log.events(
            Query((Clause(TIMELINE, frozenset({f"rollout_id:{rollout_id}"}), Match.EXACT),)),
            limit=TIMELINE_MAX,
        )
        events = tuple(event for event in events if event_text.is_news(self.log, event))
        row: rollout_rows.RolloutTally = tally.row
        hosts = sum(wave.hosts for wave in row.waves)
        troubled = _troubled(self.reads, self.grids, row, hosts, self.tail.position)
        verbs = rollout_verbs.verbs_of(request.principal, rollout, row, troubled)
        channel = self.reads.find(channel_key(row.channel), Channel)
        if channel is not None:
            ladder = read_ladder(self.fleet_reader, row.channel)
            pin = self.reads.find(release_rows.actual_key(row.channel), release_rows.Actual)
            back = rollout_verbs.roll_back(ladder, pin, row, request.caller)
            verbs = (back, *(_as_protected(verb, request.caller, channel.row) for verb in verbs))
        view = rollout_screens.RolloutPage(
            rollout_id=rollout_id,
            display_name=rollout.row.display_name,
            channel=row.channel,
            target_ref=row.target_ref,
            target_closure=row.target_closure,
            previous_ref=rollout.row.previous_ref or "",
            state=rollout_lines.state_chip(rollout.row, row),
            also=rollout_lines.marks(row),
            opened_at=row.opened_at,
            opened_by=_opener(rollout.row, people),
            opened_reason=rollout.row.opened_reason,
            on_failure=str(row.on_failure),
            hosts=hosts,
            settled=sum(map(rollout_lines.count_settled, row.waves)),
            waves=tuple(_wave(number, wave, row) for number, wave in enumerate(row.waves)),
            gates=gate_panel.panel_of(self.reads, self.gate_reports, row),
            legend=_legend(row),
            troubled=troubled,
            timeline=event_text.describe_all(self.log, events[-TIMELINE_SHOWN:], people),
            verbs=verbs,
            bar=components.arrange(verbs, rollout_verbs.sensible_verbs(row)),
            attempt=row.attempt,
            late=sum(row.late.values()),
            plan_digest=row.plan_digest,
            current_wave=row.current_wave,
            version=rollout.version,
        )
        return dashboard_layout.PageView(
            template="rollout.html",
            address=f"/rollouts/{rollout_id}",
            title=rollout_id,
            here="/rollouts",
            view=view,
            crumbs=(components.Link("Rollouts", "/rollouts"), components.Link(rollout_id)),
            verbs=verbs,
            about=f"rollout_id:{rollout_id}",
        )


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def _wave(
    number: int, wave: rollout_rows.WaveTally, tally: rollout_rows.RolloutTally
) -> rollout_screens.WaveView:
    done = rollout_lines.count_settled(wave)
    phase = "waiting" if number > tally.current_wave else "current"
    over = (
        tally.state not in rollout_states.DISPATCHABLE
        and tally.state not in rollout_states.CLEARABLE
    )
    if number < tally.current_wave or (done == wave.hosts and phase == "current") or over:
        phase = "done" if done == wave.hosts else "ended" if over else phase
    return rollout_screens.WaveView(
        name=wave.name or "all",
        number=number,
        phase=phase,
        hosts=wave.hosts,
        settled=done,
        bar=rollout_lines.wave_bar(wave),
        status=_status(number, wave, tally, phase),
        soak_seconds=wave.soak_seconds,
        failures_max=wave.failures_max,
        soaking=wave.count(host_states.HostState.SOAKING),
    )


def _status(
    number: int, wave: rollout_rows.WaveTally, tally: rollout_rows.RolloutTally, phase: str
) -> components.Chip:
    """What a wave does, in a few words."""
    bad = wave.count(*rollout_lines.BAD)
    if bad:
        return components.Chip("cross", "bad", f"{bad:,} failed or rolled back")
    if phase == "done":
        return components.Chip("check", "good", "done")
    if phase == "ended":
        missing = wave.hosts - rollout_lines.count_settled(wave)
        began = wave.left or wave.count(*host_states.HostState)
        return components.Chip("skip", "gone", f"{missing:,} not done" if began else "not started")
    if phase == "waiting":
        return components.Chip("ring", "idle", f"after wave {number}")
    if tally.halted_at is not None:
        return state_labels.HALTED
    if tally.paused_at is not None:
        return state_labels.PAUSED
    soaking, moving = (
        wave.count(host_states.HostState.SOAKING),
        wave.count(host_states.HostState.ACTIVATING),
    )
    if soaking:
        return components.Chip("hourglass", "soak", f"{soaking:,} soaking")
    if moving:
        return components.Chip("gear", "info", f"{moving:,} activating")
    if wave.count(host_states.HostState.PENDING):
        return components.Chip("dots", "idle", "orders are sent")
    return components.Chip("clock", "idle", "waits for orders")


def _opener(row: rollout_rows.Rollout, people: event_text.Names) -> str:
    """Who opened the rollout; for an automatic one, what did, and who enabled that."""
    name = people(row.opened_by) if row.opened_by else ""
    return f"{row.automatic}, which {name} switched on" if row.automatic else name


def _legend(tally: rollout_rows.RolloutTally) -> tuple[rollout_screens.Legend, ...]:
    counts = {
        str(state): sum(wave.states.get(state, 0) for wave in tally.waves)
        for state in host_states.HostState
    }
    counts["left"] = sum(wave.left for wave in tally.waves)
    total = sum(wave.hosts for wave in tally.waves)
    counts["unordered"] = max(0, total - sum(counts.values()))
    return tuple(
        rollout_screens.Legend(
            name, chip, counts[name], rollout_lines.bar_place(name), rollout_lines.is_done(name)
        )
        for name, chip in state_labels.GRID
    )


# ── hosts in trouble ──────────────────────────────────────────────────────────────────────────────


def _troubled(
    reads: Reads,
    grids: grid_cache.GridCache,
    tally: rollout_rows.RolloutTally,
    hosts: int,
    head: Position,
) -> tuple[rollout_screens.HostLine, ...]:
    """Hosts that failed, rolled back, or fail an enforced probe."""
    rollout_id = tally.rollout_id
    lines: list[rollout_screens.HostLine] = []
    if any(wave.count(*rollout_lines.BAD) for wave in tally.waves):
        records = bad_records(reads, grids, rollout_id, hosts, head)
        names = host_releases.release_names(reads, places_of(records))
        lines += [_line(record, tally, names) for record in records]
    failing = reads.range(host_rows.PROBE_FAILURES, prefix=f"{rollout_id}/", limit=TROUBLED_MAX)
    known = {line.host_id for line in lines}
    lines += [_probe_line(item.row, tally) for item in failing if item.row.host_id not in known]
    return tuple(lines[:TROUBLED_MAX])


def _wave_name(number: int, tally: rollout_rows.RolloutTally) -> str:
    return f"wave {number + 1} · {tally.waves[number].name}" if number < len(tally.waves) else ""


def _line(
    record: host_rows.HostRecord,
    tally: rollout_rows.RolloutTally,
    names: Mapping[host_releases.Place, str],
) -> rollout_screens.HostLine:
    return rollout_screens.HostLine(
        host_id=record.host_id,
        state=state_labels.HOSTS[record.state],
        wave=_wave_name(record.wave, tally),
        text=why_failed(record, names),
        at=record.reverted_at or record.failed_at,
    )


def _probe_line(
    failure: host_rows.ProbeFailure, tally: rollout_rows.RolloutTally
) -> rollout_screens.HostLine:
    return rollout_screens.HostLine(
        host_id=failure.host_id,
        state=components.Chip("eye", "warn", "Probe fails"),
        wave=_wave_name(failure.wave, tally),
        text=f"probe {failure.probe_name}: {failure.failure_reason or 'fails'}",
        at=failure.observed_at,
    )


def _as_protected(
    verb: components.VerbButton, caller: callers.Caller, channel: Channel
) -> components.VerbButton:
    if verb.id not in MAY_ASK:
        return verb
    return protected_verbs.ask_second_person(verb, caller, channel, whole=verb.id != "clear")


ROUTES = (
    dashboard_layout.page_route("/rollouts", index, routing.requires_somewhere(roles.Verb.READ)),
    dashboard_layout.page_route(
        "/rollouts/{rollout_id}",
        show,
        routing.requires(roles.Verb.READ, grid_encoding.rollout_scope),
    ),
)
