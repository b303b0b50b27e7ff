"""Why a rollout waits: every gate, how many hosts it holds, and which.

A small rollout is evaluated on every request. A large one takes half a second, so its result is
cached for a while, and the page loads it separately and shows its age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Annotated, Final

from msgspec import Meta, Struct

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    components,
    grid_encoding,
    html,
    layout as dashboard_layout,
    rollout_lines,
    state_labels,
)
from tidegate.dashboard.view_models import rollout_screens
from tidegate.domain.access.roles import Verb
from tidegate.domain.gates import whom_to_ask
from tidegate.domain.gates.dispatch_pass import list_blocked
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import Explanation
from tidegate.domain.planner import PlanByHost
from tidegate.domain.rollouts import rows, states
from tidegate.lru import LruCache
from tidegate.web import inputs, routing

AT_ONCE_MAX = 2_000  # hosts of a rollout that is evaluated with its page
FRESH_SECONDS = 10  # the result of a larger one is cached at least this long
KEPT_MAX = 4
SAMPLE = 3


class GateReport(Struct, frozen=True):
    """The gates of a rollout at one moment: their answers, and which hosts each one holds."""

    at: datetime
    explanation: Explanation
    held: Mapping[str, Sequence[tuple[str, str]]]  # gate → hosts, each with the reason


class GateReports:
    """Evaluates the gates of rollouts, and caches the results of large ones."""

    def __init__(self, fleet_reader: FleetReader, clock: Clock, people: PeopleNames) -> None:
        self._people = people
        self._fleet_reader = fleet_reader
        self._clock = clock
        self._cached: LruCache[str, GateReport] = LruCache(KEPT_MAX)
        # One evaluation at a time: a second request waits for the first one's result.
        self._lock = Lock()

    def cached(self, rollout_id: str) -> GateReport | None:
        """The cached result of a large rollout."""
        return self._cached.find(rollout_id)

    def evaluate(self, rollout_id: str) -> GateReport:
        """Evaluate every gate for every host that waits. Raises: RolloutUnknown."""
        now = self._clock()
        state = self._fleet_reader.state([rollout_id], now)
        held: dict[str, list[tuple[str, str]]] = {}
        if rollout_id in state.rollouts:
            for item in list_blocked(state, rollout_id):
                held.setdefault(item.gate, []).append((item.host_id, item.reason))
        found = explain(state, rollout_id)
        found = whom_to_ask.leave_out(found, whom_to_ask.list_all(found))  # pages have buttons
        return GateReport(now, self._people.name_in_explanation(found), held)

    def current_report(self, tally: rows.RolloutTally) -> GateReport:
        """The gates now; of a large rollout, a few seconds ago. Raises: RolloutUnknown."""
        rollout_id = tally.rollout_id
        if _hosts(tally) <= AT_ONCE_MAX:
            return self.evaluate(rollout_id)
        with self._lock:
            found = self._cached.find(rollout_id)
            age = timedelta(seconds=FRESH_SECONDS)
            if found is None or self._clock() - found.at >= age:
                found = self.evaluate(rollout_id)
                self._cached.keep(rollout_id, found)
            return found


def _hosts(tally: rows.RolloutTally) -> int:
    return sum(wave.hosts for wave in tally.waves)


ENDED: Final[Mapping[states.Outcome | None, str]] = {
    states.Outcome.SUCCEEDED: "It succeeded: every host converged or was skipped.",
    states.Outcome.EMPTY: "It has ended, and no host ran it.",
    states.Outcome.FAILED: "It has ended, and hosts failed.",
    states.Outcome.ROLLED_BACK: "It has ended after its hosts rolled back.",
    states.Outcome.ABORTED: "An operator aborted it.",
    states.Outcome.REPLACED: "A newer rollout of the channel replaced it.",
}


# ── the panel ─────────────────────────────────────────────────────────────────────────────────────


def panel_of(
    reads: Reads, gate_reports: GateReports, tally: rows.RolloutTally
) -> rollout_screens.GatePanel:
    """The panel that is rendered with the page: whatever is known without long work."""
    over = _over_panel(tally)
    if over is not None:
        return over
    if _hosts(tally) <= AT_ONCE_MAX:
        return _panel(gate_reports.evaluate(tally.rollout_id), tally, is_separate=False)
    cached = gate_reports.cached(tally.rollout_id)
    if cached is not None:
        return _panel(cached, tally, is_separate=True)
    gates = reads.find(rows.gates_key(tally.rollout_id), rows.RolloutGates)
    lines = tuple(
        rollout_screens.GateLine(gate=item.gate, passed=False, reason=item.reason)
        for item in (() if gates is None else gates.row.blocked)
    )
    sentence = f"{lines[0].gate} holds hosts back: {lines[0].reason}." if lines else ""
    verdict = _stopped(tally) or sentence or "No gate held a host back at the last pass."
    return rollout_screens.GatePanel(
        verdict=verdict,
        tone=_tone(tally, lines),
        lines=lines,
        href=_panel_address(tally.rollout_id),
    )


def panel(
    request: routing.Request[grid_encoding.RolloutPagePath, inputs.Nothing, inputs.Nothing],
    fleet_reader: FleetReader,
    gate_reports: GateReports,
) -> routing.Response:
    """The panel of a large rollout, loaded separately."""
    tally = fleet_reader.tally(request.path.rollout_id).row
    found = _over_panel(tally) or _panel(
        gate_reports.current_report(tally), tally, is_separate=_hosts(tally) > AT_ONCE_MAX
    )
    return routing.Response(html.render_part("gate_panel.html", found), media=dashboard_layout.UTF8)


def _panel_address(rollout_id: str) -> str:
    return f"/rollouts/{rollout_id}/gates"


def _panel(
    found: GateReport, tally: rows.RolloutTally, *, is_separate: bool
) -> rollout_screens.GatePanel:
    rollout_id = tally.rollout_id
    lines = tuple(
        rollout_screens.GateLine(
            gate=item.gate,
            passed=item.passed,
            reason=item.reason,
            evidence="" if item.evidence is None else f"#{item.evidence.position}",
            hosts=item.hosts,
            sample=tuple(host for host, _ in found.held.get(item.gate, ())[:SAMPLE]),
            href=f"/rollouts/{rollout_id}/held?gate={item.gate}",
        )
        for item in found.explanation.verdicts
    )
    sentence = found.explanation.answer[:1].upper() + found.explanation.answer[1:] + "."
    return rollout_screens.GatePanel(
        verdict=_stopped(tally) or sentence,
        tone=_tone(tally, lines),
        lines=lines,
        at=found.at if is_separate else None,
        href=_panel_address(rollout_id) if is_separate else "",
    )


def _stopped(tally: rows.RolloutTally) -> str:
    """What a person must decide; empty: nothing."""
    if tally.state in states.CLEARABLE:
        return (
            f"Stopped: {rollout_lines.describe_stop(tally)}. Roll back, retry, clear or abort it."
        )
    if tally.halted_at is not None:
        host = tally.halted_by or "a host"
        return f"Halted: {host} failed. Hosts that are switching finish first; then you decide."
    return "It is paused until an operator resumes it." if tally.paused_at is not None else ""


def _tone(tally: rows.RolloutTally, lines: Sequence[rollout_screens.GateLine]) -> str:
    if tally.halted_at is not None:
        return "bad"
    return "warn" if any(not line.passed for line in lines) else "good"


def _over_panel(tally: rows.RolloutTally) -> rollout_screens.GatePanel | None:
    """How the rollout ended; None: it is open."""
    over = over_of(tally)
    if not over:
        return None
    chip = state_labels.ROLLOUTS[tally.state]
    if tally.outcome is not None:
        chip = state_labels.OUTCOMES[tally.outcome]
    done = sum(map(rollout_lines.count_settled, tally.waves))
    took = "" if tally.outcome_at is None else f" {_describe_length(tally, done)}"
    return rollout_screens.GatePanel(
        title="How it ended", verdict=f"{over}{took}", tone=chip.tone, icon=chip.icon
    )


def _describe_length(tally: rows.RolloutTally, done: int) -> str:
    assert tally.outcome_at is not None
    hosts = html.counted(_hosts(tally), "host")
    took = html.seconds(round((tally.outcome_at - tally.opened_at).total_seconds()))
    return f"{done:,} of {hosts} {'was' if done == 1 else 'were'} done after {took}."


def over_of(tally: rows.RolloutTally) -> str:
    """A sentence for a rollout that ended; empty: it is open."""
    match tally.state:
        case states.RolloutState.TERMINAL:
            return ENDED.get(tally.outcome, "It has ended.")
        case states.RolloutState.SUPERSEDED:
            return ENDED.get(tally.outcome, "Another rollout of the channel replaced it.")
        case states.RolloutState.PRUNED:
            return "It is past its retention."
    return ""


# ── hosts at a gate ───────────────────────────────────────────────────────────────────────────────


class HeldQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    gate: Annotated[str, Meta(max_length=64)] = ""
    next: Annotated[str, Meta(max_length=256)] = ""  # the last host of the page before


def held(
    request: routing.Request[grid_encoding.RolloutPagePath, HeldQuery, inputs.Nothing],
    fleet_reader: FleetReader,
    gate_reports: GateReports,
    people: PeopleNames,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List the hosts that wait at a gate, page by page."""
    rollout_id, query = request.path.rollout_id, request.query
    tally = fleet_reader.tally(rollout_id).row
    found = None if over_of(tally) else gate_reports.current_report(tally)
    by_gate: Mapping[str, Sequence[tuple[str, str]]] = {} if found is None else found.held
    listed = [
        (gate, host, reason)
        for gate, hosts in by_gate.items()
        if query.gate in ("", gate)
        for host, reason in hosts
    ]
    start = _start(listed, query.next)
    shown = listed[start : start + dashboard_layout.ROWS]
    chart = fleet_reader.chart(tally.plan_digest)
    view = rollout_screens.HeldPage(
        rollout_id=rollout_id,
        gate=query.gate,
        gates=tuple((gate, len(hosts)) for gate, hosts in by_gate.items()),
        hosts=tuple(
            _held_line(chart, gate, host, people.name_in(reason)) for gate, host, reason in shown
        ),
        total=len(listed),
        start=start,
        at=None if found is None else found.at,
        next=shown[-1][1] if start + dashboard_layout.ROWS < len(listed) else "",
    )
    page = dashboard_layout.PageView(
        template="held_hosts.html",
        title="Hosts that wait",
        here="/rollouts",
        view=view,
        crumbs=(
            components.Link("Rollouts", "/rollouts"),
            components.Link(rollout_id, f"/rollouts/{rollout_id}"),
            components.Link("Hosts that wait"),
        ),
        still=True,
    )
    return layout.answer(request, page)


def _start(listed: Sequence[tuple[str, str, str]], last: str) -> int:
    """The index after this host; 0 if the host does not wait any more."""
    places = (place for place, (_, host, _) in enumerate(listed, 1) if host == last)
    return next(places, 0) if last else 0


def _held_line(chart: PlanByHost, gate: str, host_id: str, reason: str) -> rollout_screens.HeldLine:
    number = chart.waves.get(host_id)
    wave = "" if number is None else f"{number + 1} · {chart.plan.waves[number].name or 'all'}"
    return rollout_screens.HeldLine(host_id=host_id, gate=gate, wave=wave, reason=reason)


_READS = routing.requires(Verb.READ, grid_encoding.rollout_scope)
ROUTES = (
    dashboard_layout.page_route("/rollouts/{rollout_id}/gates", panel, _READS),
    dashboard_layout.page_route("/rollouts/{rollout_id}/held", held, _READS),
)
