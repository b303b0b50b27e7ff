"""Rollouts: the list, and one of them with its waves, its hosts, its gates and its history."""

from __future__ import annotations

from typing import Any

from tidegate.api import paging
from tidegate.api.dashboard import words
from tidegate.api.dashboard.hostgrid import RolloutPath, rollout_scope
from tidegate.api.dashboard.overview import why_failed
from tidegate.api.dashboard.pages import ROWS, ListQuery, Page, PageQuery, People, answer, shows
from tidegate.api.dashboard.parts import Chip, Place
from tidegate.api.dashboard.steering import verbs_of
from tidegate.api.dashboard.summaries import BAD, marks, settled, summaries, wave_bar
from tidegate.api.dashboard.telling import all_told
from tidegate.api.dashboard.views import (
    GateLine,
    HostLine,
    Legend,
    RolloutPage,
    Rollouts,
    WaveView,
)
from tidegate.api.releases import channel_scope
from tidegate.api.routing import Answer, Request, may, somewhere
from tidegate.control.installation import Found, Installation
from tidegate.domain.access.roles import Verb
from tidegate.domain.gates import explain
from tidegate.domain.hosts.refusals import RolloutUnknown
from tidegate.domain.hosts.rows import HOST_RECORDS, PROBE_FAILURES, HostRecord, ProbeFailure
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import (
    ROLLOUTS,
    Rollout,
    RolloutGates,
    RolloutTally,
    WaveTally,
    gates_key,
    rollout_key,
    tally_key,
)
from tidegate.domain.rollouts.states import CLEARABLE, DISPATCHABLE, RolloutState
from tidegate.kernel.model import Clause, Match, Query
from tidegate.wire import Nothing

EXPLAINED_HOSTS_MAX = 2_000  # past it the gates that the dispatcher last saw are shown
TROUBLED_MAX = 12
RECORDS_MAX = 500  # that are looked through for troubled hosts
TIMELINE_MAX = 200
TIMELINE_SHOWN = 40
TIMELINE = frozenset(
    {
        *("RolloutOpened", "WaveAdvanced", "RolloutTerminal", "RetentionExpired"),
        *("OperatorClearance", "RolloutTransitioned", "RolloutHalted", "RolloutPaused"),
        *("RolloutResumed", "RolloutAborted", "GateChanged", "SuccessorOpened"),
    }
)


class RolloutsQuery(ListQuery, frozen=True, kw_only=True):
    limit: int = ROWS


def index(request: Request[Nothing, RolloutsQuery, Nothing], installation: Installation) -> Answer:
    """Open rollouts, then the others."""
    after = paging.after(request, installation)
    found = installation.range(ROLLOUTS, after=after, limit=ROWS)
    last = found[-1].id if len(found) == ROWS else None

    def sees(rollout: Rollout) -> bool:
        return request.principal.may(Verb.READ, channel_scope(rollout.channel))

    under_way = installation.sights.open_rollouts()
    past = [item.row for item in found if item.row.in_flight is None and sees(item.row)]
    view = Rollouts(
        open=summaries(installation, filter(sees, under_way)),
        past=summaries(installation, past),
        next=paging.listed(request, installation, (), last).next or "",
    )
    page = Page(template="rollouts.html", title="Rollouts", here="/rollouts", view=view)
    return answer(request, installation, page)


def show(request: Request[RolloutPath, PageQuery, Nothing], installation: Installation) -> Answer:
    """One rollout."""
    return answer(request, installation, page_of(request, installation, request.path.rollout_id))


def page_of(request: Request[Any, Any, Any], installation: Installation, rollout_id: str) -> Page:
    """Raises: RolloutUnknown."""
    rollout, tally, gates = installation.find_all(
        (rollout_key(rollout_id), Rollout),
        (tally_key(rollout_id), RolloutTally),
        (gates_key(rollout_id), RolloutGates),
    )
    if rollout is None or tally is None:
        raise RolloutUnknown(rollout_id)
    people = People(request)
    events = installation.events(
        Query((Clause(TIMELINE, frozenset({f"rollout_id:{rollout_id}"}), Match.EXACT),)),
        limit=TIMELINE_MAX,
    )
    row: RolloutTally = tally.row
    hosts = sum(wave.hosts for wave in row.waves)
    troubled = _troubled(installation, row)
    verdict, lines = _gates(installation, row, gates, hosts)
    verbs = verbs_of(request.principal, rollout, row, troubled)
    view = RolloutPage(
        rollout_id=rollout_id,
        display_name=rollout.row.display_name,
        channel=row.channel,
        target_ref=row.target_ref,
        target_closure=row.target_closure,
        previous_ref=rollout.row.previous_ref or "",
        state=words.ROLLOUTS[row.state],
        also=marks(row),
        opened_at=row.opened_at,
        opened_by=people(rollout.row.opened_by) if rollout.row.opened_by else "",
        opened_reason=rollout.row.opened_reason,
        on_failure=str(row.on_failure),
        hosts=hosts,
        settled=sum(map(settled, row.waves)),
        waves=tuple(_wave(number, wave, row) for number, wave in enumerate(row.waves)),
        gates=lines,
        verdict=verdict,
        verdict_tone=_tone(row, lines),
        legend=_legend(row),
        troubled=troubled,
        timeline=all_told(installation, events[-TIMELINE_SHOWN:], people),
        verbs=verbs,
        attempt=row.attempt,
        late=sum(row.late.values()),
        plan_digest=row.plan_digest,
        current_wave=row.current_wave,
        version=rollout.version,
    )
    return Page(
        template="rollout.html",
        title=rollout_id,
        here="/rollouts",
        view=view,
        crumbs=(Place("Rollouts", "/rollouts"), Place(rollout_id)),
        verbs=verbs,
        about=f"rollout_id:{rollout_id}",
    )


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def _wave(number: int, wave: WaveTally, tally: RolloutTally) -> WaveView:
    done = settled(wave)
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
        return words.HALTED
    if tally.paused_at is not None:
        return words.PAUSED
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
    return tuple(Legend(name, chip, counts[name]) for name, chip in words.GRID)


# ── why it waits, and for whom ────────────────────────────────────────────────────────────────────


def _gates(
    installation: Installation, tally: RolloutTally, gates: Found[RolloutGates] | None, hosts: int
) -> tuple[str, tuple[GateLine, ...]]:
    """The answer to "why is it waiting?", and each gate's word."""
    over = _over(tally)
    if over:
        return over, ()
    stopped = _stopped(tally)
    if hosts <= EXPLAINED_HOSTS_MAX:
        state = installation.sights.state([tally.rollout_id], installation.clock())
        said = explain(state, tally.rollout_id)
        lines = tuple(
            GateLine(
                gate=item.gate,
                passed=item.passed,
                reason=item.reason,
                evidence="" if item.evidence is None else f"#{item.evidence.position}",
                hosts=item.hosts,
            )
            for item in said.verdicts
        )
        return stopped or said.answer[:1].upper() + said.answer[1:] + ".", lines
    blocked = () if gates is None else gates.row.blocked
    lines = tuple(GateLine(gate=item.gate, passed=False, reason=item.reason) for item in blocked)
    if lines:
        return stopped or f"{lines[0].gate} holds hosts back: {lines[0].reason}.", lines
    return stopped or "No gate holds a host back.", ()


def _stopped(tally: RolloutTally) -> str:
    """Where only a person takes it on: what they have to do."""
    if tally.state in CLEARABLE:
        return f"{tally.halted_by or 'A host'} failed and halted it: clear it, retry or abort."
    if tally.halted_at is not None:
        return f"{tally.halted_by or 'A host'} failed and halted it; hosts in flight finish first."
    return "It is paused until somebody resumes it." if tally.paused_at is not None else ""


def _tone(tally: RolloutTally, lines: tuple[GateLine, ...]) -> str:
    if tally.halted_at is not None and not _over(tally):
        return "bad"
    return "warn" if any(not line.passed for line in lines) else "good"


def _over(tally: RolloutTally) -> str:
    match tally.state:
        case RolloutState.TERMINAL:
            return "It is through: every host converged or left."
        case RolloutState.SUPERSEDED:
            return "It was superseded: a newer rollout of the channel goes on, or it was given up."
        case RolloutState.PRUNED:
            return "It is past its retention."
    return ""


def _troubled(installation: Installation, tally: RolloutTally) -> tuple[HostLine, ...]:
    """Hosts that failed, went back, or whose enforced probes fail."""
    rollout_id = tally.rollout_id
    lines: list[HostLine] = []
    if any(wave.count(*BAD) for wave in tally.waves):
        rows = installation.range(HOST_RECORDS, prefix=f"{rollout_id}/", limit=RECORDS_MAX)
        lines += [_line(item.row, tally) for item in rows if item.row.state in BAD]
    failing = installation.range(PROBE_FAILURES, prefix=f"{rollout_id}/", limit=TROUBLED_MAX)
    known = {line.host_id for line in lines}
    lines += [_probe_line(item.row, tally) for item in failing if item.row.host_id not in known]
    return tuple(lines[:TROUBLED_MAX])


def _wave_name(number: int, tally: RolloutTally) -> str:
    return f"wave {number} · {tally.waves[number].name}" if number < len(tally.waves) else ""


def _line(record: HostRecord, tally: RolloutTally) -> HostLine:
    return HostLine(
        host_id=record.host_id,
        state=words.HOSTS[record.state],
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
    shows("/rollouts", index, somewhere(Verb.READ)),
    shows("/rollouts/{rollout_id}", show, may(Verb.READ, rollout_scope)),
)
