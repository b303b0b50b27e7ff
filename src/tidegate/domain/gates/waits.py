"""Everything that an open rollout waits for, and what would end each wait.

    the rollout   stopped, halted, paused, held, frozen, quarantined, an edge, old evidence
    its waves     too few hosts converged, a delay, somebody must continue it
    its hosts     under way by state, or without an order by the gate that holds them

``explain`` shows them beside the gates. A wait names hosts or a cause, since when it lasts, when it
ends by itself, and the commands that end it now. Progress that ends by itself needs no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tidegate.domain.channels.rows import Freeze
from tidegate.domain.gates import (
    automation,
    checks,
    context,
    dispatch_pass,
    host_checks,
    inputs,
    rollout_checks,
)
from tidegate.domain.hosts.states import SETTLED, HostState, describe_host_state
from tidegate.domain.rollouts import progress, rows as rollout_rows, states, tallies
from tidegate.domain.times import describe_time

SOME_MAX = 5  # hosts that a wait names

# Gates at which only a person helps.
_NEEDS_PERSON: Final = frozenset({"paused", "hold", "quarantine", "freshness"})
IN_EMERGENCY: Final = "in an emergency"


class _Doing(NamedTuple):
    """What one host under way is doing."""

    code: str
    text: str  # behind the host's name
    until: datetime | None = None
    remedies: tuple[inputs.Remedy, ...] = ()
    by_person: bool = False


def list_waits(
    state: inputs.FleetState, rollout_id: str, ready: Sequence[str] = ()
) -> tuple[inputs.Wait, ...]:
    """What the rollout waits for, the most important first. ``ready``: hosts whose order goes out
    with the next pass.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    look = context.GateContext(state, state.sight(rollout_id))
    if look.tally.state not in states.OPEN:
        return (_concluded(look), *_switched_off(look), *_late_failed(look), *_under_way(look))
    found = (
        *_stopped(look),
        *_switched_off(look),
        *_held_waves(look),
        *_minimum(look),
        *_under_way(look),
        *_at_gates(look, state, rollout_id),
    )
    if ready:
        found = (*found, _ready(ready))
    if found:
        return found
    text = "Every host is done; the rollout moves on with the next pass"
    return (inputs.Wait(code="ready", sentence=text, ends=inputs.WaitEnds.BY_ITSELF),)


def _ready(host_ids: Sequence[str]) -> inputs.Wait:
    count = len(host_ids)
    return inputs.Wait(
        code="ready",
        sentence=f"{count} {_hosts(count)} {'gets' if count == 1 else 'get'} an order with the "
        "next pass",
        hosts=count,
        some=tuple(host_ids[:SOME_MAX]),
        ends=inputs.WaitEnds.BY_ITSELF,
    )


def wait_of_host(state: inputs.FleetState, rollout_id: str, host_id: str) -> inputs.Wait | None:
    """What a host that has a record waits for; None: it is through, or waits at a gate."""
    look = context.GateContext(state, state.sight(rollout_id))
    found = look.sight.standings.get(host_id)
    doing = None if found is None else _doing(look, found.row)
    return None if found is None or doing is None else _wait(look, doing, [found.row])


# ── the rollout ───────────────────────────────────────────────────────────────────────────────────


def _concluded(look: context.GateContext) -> inputs.Wait:
    tally = look.tally
    hosts = sum(wave.hosts for wave in tally.waves)
    done = tallies.total(tally, HostState.CONVERGED)
    how = str(tally.outcome or states.describe_rollout_state(tally.state)).replace("_", " ")
    return inputs.Wait(
        code="concluded",
        sentence=f"{tally.rollout_id} ended: {how}, {done:,} of {hosts:,} hosts converged",
        since=tally.outcome_at or tally.opened_at,
        ends=inputs.WaitEnds.NEVER,
        evidence=look.tallied(),
        remedies=_after_end(look),
    )


def _after_end(look: context.GateContext) -> tuple[inputs.Remedy, ...]:
    """What to do after a rollout that did not succeed, if nothing followed it."""
    seen = look.state.channels.get(look.tally.channel)
    if seen is None or seen.row.newest_rollout_id != look.tally.rollout_id:
        return ()
    return list_next(look.tally)


def list_next(tally: rollout_rows.RolloutTally) -> tuple[inputs.Remedy, ...]:
    """What to do after the newest rollout of a channel ended without success: a rollback first
    where hosts run its release, or ran it and failed.
    """
    promote = inputs.Remedy(
        f"tidegate channel promote {tally.channel} RELEASE", "if you have a release to go on to"
    )
    back = inputs.Remedy(f"tidegate channel rollback {tally.channel} --dry-run")
    on_it = tallies.total(tally, HostState.CONVERGED, *tallies.ON_TARGET, HostState.FAILED)
    match tally.outcome:
        case states.Outcome.FAILED | states.Outcome.ROLLED_BACK:
            return back, promote
        case states.Outcome.ABORTED:
            return (back, promote) if on_it else (promote,)
        case _:
            return ()


def _switched_off(look: context.GateContext) -> Iterator[inputs.Wait]:
    """That the channel promotes nothing by itself because of this rollout."""
    tally, seen = look.tally, look.state.channels.get(look.tally.channel)
    sentence = "" if seen is None else automation.describe_off(seen.row, tally)
    if sentence:
        yield inputs.Wait(
            code="auto-promote",
            sentence=sentence,
            since=tally.outcome_at or tally.halted_at or tally.opened_at,
            ends=inputs.WaitEnds.NEVER,
            evidence=look.tallied(),
            remedies=(inputs.Remedy(f"tidegate channel promote {tally.channel} RELEASE"),),
        )


def _rolls_back_by_itself(look: context.GateContext) -> str:
    seen = look.state.channels.get(look.tally.channel)
    sentence = "" if seen is None else automation.describe_rollback(seen.row, look.tally)
    return f". {sentence}" if sentence else ""


def _late_failed(look: context.GateContext) -> Iterator[inputs.Wait]:
    tally = look.tally
    if not tallies.late_failures(tally):
        return
    bad = [
        seen.row
        for seen in look.sight.standings.values()
        if seen.row.late and seen.row.left is None and seen.row.state in _ENDED_BADLY
    ]
    names = tuple(row.host_id for row in bad[:SOME_MAX])
    yield inputs.Wait(
        code="late-host-failed",
        sentence=f"{', '.join(names)} came late and failed; no further late host gets the release",
        hosts=len(bad),
        some=names,
        since=min((row.failed_at for row in bad if row.failed_at), default=tally.opened_at),
        ends=inputs.WaitEnds.NEVER,
        evidence=look.tallied(),
        remedies=tuple(_skip(tally.rollout_id, name) for name in names),
    )


def _stopped(look: context.GateContext) -> Iterator[inputs.Wait]:
    """A failure, which is told before everything else."""
    tally = look.tally
    if tally.halted_at is None:
        return
    going = tally.state not in states.CLEARABLE
    rest = tallies.total(tally, HostState.ACTIVATING, HostState.SOAKING)
    back = [seen.row for seen in look.sight.standings.values() if _rolls_back(seen.row)]
    cause = look.sight.causes.get(tally.halted_by or "", "failed")
    what = f"{tally.halted_by or 'a host'} {cause}"
    on_it = tallies.total(tally, HostState.CONVERGED)
    if going:
        text = f"Halted: {what}. {rest} {_hosts(rest)} finish, {len(back)} roll back; then decide"
        text += _rolls_back_by_itself(look)
        remedies: tuple[inputs.Remedy, ...] = (_roll_back(tally.channel), _abort(tally.rollout_id))
    else:
        text = f"Stopped: {what}; {on_it} {_hosts(on_it)} run the release"
        text += _rolls_back_by_itself(look)
        retry = f"tidegate rollout retry {tally.rollout_id} --reason …"
        remedies = (
            _roll_back(tally.channel),
            inputs.Remedy(retry, "if the hosts were at fault and are mended"),
            _waive(tally.rollout_id, tally.halted_by or "HOST"),
            _abort(tally.rollout_id),
        )
    yield inputs.Wait(
        code="halted" if going else "stopped",
        sentence=text,
        some=() if tally.halted_by is None else (tally.halted_by,),
        hosts=0 if tally.halted_by is None else 1,
        since=tally.halted_at,
        ends=inputs.WaitEnds.NEVER,
        evidence=look.tallied(),
        remedies=remedies,
    )


def _held_waves(look: context.GateContext) -> Iterator[inputs.Wait]:
    """A wave that does not go though those before it are done: somebody must continue it, or its
    delay runs.
    """
    number, tally = host_checks.next_to_go(look), look.tally
    if number is None or tally.halted_at is not None:
        return
    by_hand = tallies.waits_for_person(tally.waves[number])
    until = None if by_hand else tallies.next_wave_at(tally)
    if not by_hand and until is None:
        return  # it is paused, or hosts are tried again: another wait tells
    yield inputs.Wait(
        code="manual" if by_hand else "delay",
        sentence=_capital(host_checks.describe_hold(look, number)),
        since=tally.done_at or tally.opened_at,
        until=until,
        ends=inputs.WaitEnds.NEVER if by_hand else inputs.WaitEnds.BY_ITSELF,
        evidence=look.tallied(),
        remedies=(
            inputs.Remedy(f"tidegate rollout continue {tally.rollout_id}")
            if by_hand
            else inputs.Remedy(
                f"tidegate rollout promote-all {tally.rollout_id} --reason …", IN_EMERGENCY
            ),
        ),
    )


def _minimum(look: context.GateContext) -> Iterator[inputs.Wait]:
    """A wave of which too few hosts can still converge."""
    tally = look.tally
    for number, wave in enumerate(tally.waves[: look.reached + 1]):
        needed = tallies.missing(wave)
        left = wave.hosts - wave.left - wave.count(HostState.CONVERGED)
        if needed == 0 or left >= needed or number + 1 >= len(tally.waves):
            continue
        wanted = min(wave.converged_min, wave.hosts)
        found = wave.count(HostState.CONVERGED)
        said = f"has no converged host left to wait for; it needs {wanted}"
        if found or left:
            said = (
                f"has {found} converged {_hosts(found)} and {left} to wait for; it needs {wanted}"
            )
        yield inputs.Wait(
            code="minimum",
            sentence=f"Wave {progress.name_wave(tally, number)} {said}",
            since=look.sight.blocked_since.get("wave-promotion", tally.opened_at),
            ends=inputs.WaitEnds.NEVER,
            evidence=look.tallied(),
            remedies=(
                inputs.Remedy(
                    f"tidegate rollout skip-wave {tally.rollout_id} {wave.name} --reason …",
                    "to continue with the next wave",
                ),
                _abort(tally.rollout_id),
            ),
        )


# ── hosts under way ───────────────────────────────────────────────────────────────────────────────

_ENDED_BADLY: Final = frozenset({HostState.FAILED, HostState.REVERTED})


def _rolls_back(row: inputs.HostStanding) -> bool:
    return row.state is HostState.FAILED and row.due_at is not None


def _under_way(look: context.GateContext) -> Iterator[inputs.Wait]:
    """The hosts that have a record and are not through, those that do the same together."""
    groups: dict[str, tuple[_Doing, list[inputs.HostStanding]]] = {}
    for seen in look.sight.standings.values():
        doing = _doing(look, seen.row)
        if doing is not None:
            groups.setdefault(doing.code, (doing, []))[1].append(seen.row)
    for doing, rows in groups.values():
        yield _wait(look, doing, rows)


def _wait(look: context.GateContext, doing: _Doing, rows: list[inputs.HostStanding]) -> inputs.Wait:
    names = tuple(row.host_id for row in rows[:SOME_MAX])
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    untils = [row.due_at for row in rows if row.due_at is not None]
    until = doing.until if len(rows) == 1 or not untils else max(untils)
    started = [row.dispatched_at for row in rows if row.dispatched_at is not None]
    ends = inputs.WaitEnds.WHEN if until is None else inputs.WaitEnds.BY_ITSELF
    return inputs.Wait(
        code=doing.code,
        sentence=f"{names[0]}{more} {doing.text}",
        hosts=len(rows),
        some=names,
        since=min(started, default=look.tally.opened_at),
        until=until,
        ends=inputs.WaitEnds.NEVER if doing.by_person else ends,
        evidence=look.recorded(names[0]),
        remedies=doing.remedies,
    )


def _doing(look: context.GateContext, row: inputs.HostStanding) -> _Doing | None:
    """What the host does, and when it ends; None: it is through, or waits for an order."""
    if row.left is not None:
        return None
    skip = (_skip(look.tally.rollout_id, row.host_id),)
    by = "" if row.due_at is None else f" by {describe_time(row.due_at)}"
    host = look.state.hosts.get(row.host_id)
    silent = None if host is None else host.row.silent_since
    heard = "" if silent is None else f"; it last reported at {describe_time(silent)}"
    match row.state:
        case HostState.PENDING if row.cancelled_at is None:
            skipped, at = ("", None) if row.late else _silence(look, row.host_id)
            again = skipped or f"; it is handed out again{by}"
            text = f"has its order and has not taken it{heard}{again}"
            return _Doing("pending", text, at or row.due_at, skip if silent else ())
        case HostState.ACTIVATING:
            text = f"is switching; it fails{by} if it does not report{heard}"
            return _Doing("activating", text, row.due_at)
        case HostState.SOAKING:
            return _soaking(look, row, by)
        case HostState.DEFERRED if row.host_id in look.state.rebooted:
            text = "was rebooted and waits for its order or for a slot of a budget"
            return _Doing("rebooted", text, row.due_at)
        case HostState.DEFERRED:
            text = f"takes the release with its next reboot; it fails{by}"
            return _Doing("deferred", text, row.due_at, skip)
        case HostState.FAILED if row.due_at is not None:
            text = f"{_how_failed(look, row)} rolls back{by}"
            return _Doing("rolling-back", text, row.due_at)
        case HostState.FAILED | HostState.REVERTED:
            return _ended_badly(look, row)
        case _:
            return None


def _soaking(look: context.GateContext, row: inputs.HostStanding, by: str) -> _Doing:
    if row.topology_declared_at is None:
        text = f"runs the release; its probes must be declared{by}"
        return _Doing("undeclared", text, row.due_at)
    failing = [seen.row for seen in look.sight.failures if seen.row.host_id == row.host_id]
    probes = "".join(f"; probe {item.probe_name} fails" for item in failing)
    if row.soak_due_at is not None and look.state.at < row.soak_due_at:
        text = f"soaks until {describe_time(row.soak_due_at)}{probes}"
        return _Doing("soaking", text, row.soak_due_at)
    return _Doing("soaked", f"has soaked; its report is awaited{by}{probes}", row.due_at)


def _how_failed(look: context.GateContext, row: inputs.HostStanding) -> str:
    """How it failed, with the word before what it did then."""
    cause = look.sight.causes.get(row.host_id) or f"failed ({row.failure or 'unknown'})"
    what, colon, why = cause.partition(": ")
    return f"{what} ({why}), and" if colon else f"{cause} and"


def _ended_badly(look: context.GateContext, row: inputs.HostStanding) -> _Doing | None:
    tally = look.tally
    if tally.state not in states.OPEN:
        return None  # it is over; a late host that failed has a wait of its own
    reverted = row.state is HostState.REVERTED
    text = f"{_how_failed(look, row)} {'rolled back' if reverted else 'stays as it is'}"
    code = "reverted" if reverted else "failed"
    if tally.halted_at is None and row.attempt < tally.attempt:
        return _Doing(code, f"{text}; it is tried again")
    retry = f"tidegate rollout retry {tally.rollout_id} {row.host_id} --reason …"
    remedies: tuple[inputs.Remedy, ...] = (
        inputs.Remedy(retry, "to try only this host again"),
        _waive(tally.rollout_id, row.host_id),
    )
    if row.late:
        remedies = (_skip(tally.rollout_id, row.host_id),)
    return _Doing(code, text, None, remedies, by_person=True)


# ── hosts at a gate ───────────────────────────────────────────────────────────────────────────────


def _at_gates(
    look: context.GateContext, state: inputs.FleetState, rollout_id: str
) -> Iterator[inputs.Wait]:
    """The hosts that a gate holds, and the gates of the rollout that are shut though nobody waits
    there now.
    """
    held: dict[str, list[inputs.BlockedHosts]] = {}
    for item in dispatch_pass.list_blocked(state, rollout_id):
        held.setdefault(item.gate, []).append(item)
    for gate in _shut_for_all(look):
        held.setdefault(gate.gate, [gate])
    for name, items in held.items():
        yield _gate_wait(look, name, items)


def _shut_for_all(look: context.GateContext) -> Iterator[inputs.BlockedHosts]:
    for gate in checks.GATES:
        block = None if gate.per_host else gate.blocks(look, "")
        if block is not None:
            yield inputs.BlockedHosts(
                gate=gate.name,
                hosts=0,
                host_id="",
                reason=block.reason,
                evidence=block.evidence,
                until=block.until,
            )


def _gate_wait(
    look: context.GateContext, name: str, items: list[inputs.BlockedHosts]
) -> inputs.Wait:
    if name == dispatch_pass.WINDOW:
        return _window_wait(look, items)
    names = tuple(item.host_id for item in items[:SOME_MAX] if item.host_id)
    count = sum(1 for item in items if item.host_id)
    first = items[0]
    who = ""
    if names:
        who = f"{names[0]}{f' (and {count - 1} more)' if count > 1 else ''}: "
    more, until = _gate_detail(look, name, first)
    until = first.until or until
    remedies = _gate_remedies(look, name, first)
    ends = inputs.WaitEnds.WHEN if until is None else inputs.WaitEnds.BY_ITSELF
    if until is None and (name in _NEEDS_PERSON or (name == "host-silent" and remedies)):
        ends = inputs.WaitEnds.NEVER
    return inputs.Wait(
        code=name,
        sentence=f"{who}{first.reason}{more}",
        hosts=count,
        some=names,
        since=_gate_since(look, name, first),
        until=until,
        ends=ends,
        evidence=first.evidence,
        remedies=remedies,
    )


def _window_wait(look: context.GateContext, items: list[inputs.BlockedHosts]) -> inputs.Wait:
    """The hosts whose windows are shut, told by the one whose windows open first."""
    first = min(items, key=lambda item: (item.until is None, item.until or look.state.at))
    verdict = look.window_verdict(first.host_id)
    total_hosts = look.sight.chart.plan.hosts + len(look.late)
    block = host_checks.window_block(
        look, first.host_id, verdict, f" for {len(items)} of {total_hosts} hosts"
    )
    return inputs.Wait(
        code=dispatch_pass.WINDOW,
        sentence=block.reason,
        hosts=len(items),
        some=tuple(item.host_id for item in items[:SOME_MAX]),
        since=_gate_since(look, dispatch_pass.WINDOW, first),
        until=block.until,
        ends=inputs.WaitEnds.NEVER if block.until is None else inputs.WaitEnds.BY_ITSELF,
        evidence=block.evidence,
        remedies=_gate_remedies(look, dispatch_pass.WINDOW, first),
    )


def _gate_since(look: context.GateContext, name: str, first: inputs.BlockedHosts) -> datetime:
    tally = look.tally
    channel = look.state.channels.get(tally.channel)
    host = look.state.hosts.get(first.host_id)
    freeze = _freeze(look, first)
    own = {
        "halted": tally.halted_at,
        "paused": tally.paused_at,
        "hold": None if channel is None else channel.row.held_at,
        "freeze": None if freeze is None else freeze.started_at,
        "quarantine": None
        if look.sight.quarantined is None
        else look.sight.quarantined.row.quarantined_at,
        "host-silent": None if host is None else host.row.silent_since,
    }
    return own.get(name) or look.sight.blocked_since.get(name) or tally.opened_at


def _freeze(look: context.GateContext, first: inputs.BlockedHosts) -> Freeze | None:
    id = "" if first.evidence is None else first.evidence.id
    return next((seen.row for seen in look.state.freezes if seen.row.freeze_id == id), None)


def _gate_detail(
    look: context.GateContext, name: str, first: inputs.BlockedHosts
) -> tuple[str, datetime | None]:
    """What else is to be said at this gate, and when it opens by itself."""
    match name:
        case "wave-promotion":
            return ("", None) if host_checks.next_to_go(look) is not None else _missing_hosts(look)
        case "disruption-budget":
            return _slot_holders(look, "" if first.evidence is None else first.evidence.id)
        case "freeze":
            freeze = _freeze(look, first)
            return "", None if freeze is None else freeze.until
        case "host-silent":
            return _silence(look, first.host_id)
        case _:
            return "", None


def _missing_hosts(look: context.GateContext) -> tuple[str, datetime | None]:
    """The hosts that the waves so far wait for."""
    told: list[str] = []
    untils: list[datetime] = []
    count = 0
    for wave in look.sight.chart.plan.waves[: look.reached + 1]:
        for host_id in wave.hosts:
            seen = look.sight.standings.get(host_id)
            if seen is not None and (seen.row.left is not None or seen.row.state in SETTLED):
                continue
            count += 1
            until = None if seen is None else (seen.row.soak_due_at or seen.row.due_at)
            if until is not None:
                untils.append(until)
            if len(told) < SOME_MAX:
                state = "has no order" if seen is None else describe_host_state(seen.row.state)
                by = "" if until is None else f" until {describe_time(until)}"
                told.append(f"{host_id} {state}{by}")
    if not told:
        return "", None
    more = f" and {count - len(told)} more" if count > len(told) else ""
    return f": {', '.join(told)}{more}", max(untils) if len(untils) == count else None


def _slot_holders(look: context.GateContext, budget_id: str) -> tuple[str, datetime | None]:
    """Who has the slots of a budget, of this rollout by name."""
    budget = look.state.budgets.get(budget_id)
    holders = [
        seen.row
        for host_id, seen in look.sight.standings.items()
        if seen.row.busy and any(s.budget_id == budget_id for s in look.slots_of(host_id))
    ]
    names = ", ".join(row.host_id for row in holders[:SOME_MAX])
    others = 0 if budget is None else max(0, budget.row.in_flight - len(holders))
    told = [f"{names} {'has' if len(holders) == 1 else 'have'} a slot"] if holders else []
    told += [f"{others} more in other rollouts"] if others else []
    untils = [row.soak_due_at or row.due_at for row in holders]
    known = [item for item in untils if item is not None]
    return (f"; {', '.join(told)}" if told else ""), min(known) if known and not others else None


def _silence(look: context.GateContext, host_id: str) -> tuple[str, datetime | None]:
    """When a silent host is skipped, or why it is not."""
    host = look.state.hosts.get(host_id)
    since = None if host is None else host.row.silent_since
    grace = look.sight.chart.plan.policy.offline_grace_seconds
    number = look.sight.chart.waves.get(host_id)
    if since is None:
        return "", None
    if grace is None:
        return "; the policy waits for silent hosts", None
    if number is None or not dispatch_pass.can_spare_silent(look.state, look.sight, number):
        name = "its wave" if number is None else f"wave {progress.name_wave(look.tally, number)}"
        return f"; it is not skipped: {name} needs it", None
    until = max(since + timedelta(seconds=grace), look.state.at)
    return f"; it is skipped at {describe_time(until)}", until


def _gate_remedies(
    look: context.GateContext, name: str, first: inputs.BlockedHosts
) -> tuple[inputs.Remedy, ...]:
    tally = look.tally
    rollout, channel = tally.rollout_id, tally.channel
    id = "" if first.evidence is None else first.evidence.id
    host = first.host_id
    match name:
        case "halted" | "wave-promotion":
            return ()  # the wait of the rollout or of the wave has them, or it is progress
        case "paused":
            return (inputs.Remedy(f"tidegate rollout resume {rollout} --reason …"),)
        case "freeze":
            end = f"tidegate freeze delete {id} --reason …"
            when = "if the freeze is no longer needed"
            return *_hasten(look), inputs.Remedy(end, when), _override(rollout, "freeze")
        case "hold":
            end = f"tidegate channel release {channel} --reason …"
            when = "if the hold is no longer needed"
            return *_hasten(look), inputs.Remedy(end, when), _override(rollout, "hold")
        case "window":
            return *_hasten(look), _override(rollout, "window")
        case "channel-edges":
            shut = rollout_checks.find_shut_edge(look)
            opens = () if shut is None or shut.remedy is None else (shut.remedy,)
            return *opens, _override(rollout, "edges")
        case "quarantine":
            lift = f"tidegate quarantine lift {channel} {tally.target_ref} --reason …"
            when = "only if the host was at fault and the release is good"
            return (inputs.Remedy(lift, when),)
        case "freshness":
            return (
                inputs.Remedy(f"tidegate channel promote {channel} {tally.target_ref} --refresh"),
            )
        case "start-at":
            return (_override(rollout, "start-at"),)
        case "disruption-budget":
            edit = f"tidegate budget edit {id} --max N"
            return (inputs.Remedy(edit, "if the budget is too small"),)
        case "host-silent" | "host-edge" | "host-busy" if host:
            return (_skip(rollout, host),)
        case _:
            return (_abort(rollout),)


def _hasten(look: context.GateContext) -> tuple[inputs.Remedy, ...]:
    """The rollback that passes what holds this one; none: it is no rollback."""
    if not tallies.may_hasten(look.tally):
        return ()
    # It names the release: without that it would go one further once this rollback has ended.
    command = (
        f"tidegate channel rollback {look.tally.channel} "
        f"--to {look.tally.target_ref} --now --reason …"
    )
    return (inputs.Remedy(command, "if the rollback cannot wait"),)


def _roll_back(channel: str) -> inputs.Remedy:
    return inputs.Remedy(f"tidegate channel rollback {channel} --reason …", "if the release is bad")


def _abort(rollout_id: str) -> inputs.Remedy:
    return inputs.Remedy(
        f"tidegate rollout abort {rollout_id} --reason …",
        "if you want to leave the hosts as they are",
    )


def _skip(rollout_id: str, host_id: str) -> inputs.Remedy:
    return inputs.Remedy(
        f"tidegate rollout skip {rollout_id} {host_id} --reason …", f"to continue without {host_id}"
    )


def _waive(rollout_id: str, host_id: str) -> inputs.Remedy:
    return inputs.Remedy(
        f"tidegate rollout clear {rollout_id} --mode waive --host {host_id} --reason …",
        "if the host does not matter now",
    )


def _override(rollout_id: str, gate: str) -> inputs.Remedy:
    return inputs.Remedy(
        f"tidegate rollout override {rollout_id} --gate {gate} --reason …", IN_EMERGENCY
    )


def _hosts(count: int) -> str:
    return "host" if count == 1 else "hosts"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
