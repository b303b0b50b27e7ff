"""What hosts without an order wait for: the gate that each of them stops at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tidegate.domain.channels.rows import Freeze
from tidegate.domain.gates import context, dispatch_pass, host_checks, host_waits, inputs, remedies
from tidegate.domain.gates.checks import GATES
from tidegate.domain.hosts.states import SETTLED, HostState, describe_host_state
from tidegate.domain.times import describe_time

# Gates that only a person can open.
_NEEDS_PERSON: Final = frozenset({"paused", "hold", "quarantine", "freshness"})


def list_gate_waits(
    look: context.GateContext, state: inputs.FleetState, rollout_id: str
) -> Iterator[inputs.Wait]:
    """List the hosts that each gate holds, and every other stop: the shut gates of the rollout at
    which no host waits, each further freeze, and the windows that would be shut after them.
    """
    held: dict[str, list[inputs.BlockedHosts]] = {}
    for item in dispatch_pass.list_blocked(state, rollout_id):
        held.setdefault(item.gate, []).append(item)
    for gate in _list_shut_for_all(look):
        held.setdefault(gate.gate, [gate])
    if dispatch_pass.WINDOW not in held and (outside := dispatch_pass.list_outside_later(look)):
        held[dispatch_pass.WINDOW] = outside
    for name, items in held.items():
        yield _make_wait(look, name, items)
    if dispatch_pass.FREEZE in held:
        for item in dispatch_pass.list_further_freezes(look):
            yield _make_wait(look, item.gate, [item])


def _list_shut_for_all(look: context.GateContext) -> Iterator[inputs.BlockedHosts]:
    for gate in GATES:
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


def _make_wait(
    look: context.GateContext, name: str, items: list[inputs.BlockedHosts]
) -> inputs.Wait:
    if name == dispatch_pass.WINDOW:
        return _make_window_wait(look, items)
    names = tuple(item.host_id for item in items[: host_waits.SOME_MAX] if item.host_id)
    count = sum(1 for item in items if item.host_id)
    first = items[0]
    who = ""
    if names:
        who = f"{names[0]}{f' (and {count - 1} more)' if count > 1 else ''}: "
    more, until = _find_detail(look, name, first)
    until = first.until or until
    commands = remedies.list_gate_remedies(look, name, first)
    ends = inputs.WaitEnds.WHEN if until is None else inputs.WaitEnds.BY_ITSELF
    if until is None and (name in _NEEDS_PERSON or (name == "host-silent" and commands)):
        ends = inputs.WaitEnds.NEVER
    return inputs.Wait(
        code=name,
        sentence=f"{who}{first.reason}{more}",
        hosts=count,
        some=names,
        since=_find_start(look, name, first),
        until=until,
        ends=ends,
        evidence=first.evidence,
        remedies=commands,
    )


def _make_window_wait(look: context.GateContext, items: list[inputs.BlockedHosts]) -> inputs.Wait:
    """Group the hosts whose windows are shut; the one that opens first gives the text."""
    first = min(items, key=lambda item: (item.until is None, item.until or look.state.at))
    verdict = look.window_verdict(first.host_id)
    total_hosts = look.rollout.chart.plan.hosts + len(look.late)
    block = host_checks.describe_shut_window(
        look, first.host_id, verdict, f" for {len(items)} of {total_hosts} hosts"
    )
    return inputs.Wait(
        code=dispatch_pass.WINDOW,
        sentence=block.reason,
        hosts=len(items),
        some=tuple(item.host_id for item in items[: host_waits.SOME_MAX]),
        since=_find_start(look, dispatch_pass.WINDOW, first),
        until=block.until,
        ends=inputs.WaitEnds.NEVER if block.until is None else inputs.WaitEnds.BY_ITSELF,
        evidence=block.evidence,
        remedies=remedies.list_gate_remedies(look, dispatch_pass.WINDOW, first),
    )


def _find_start(look: context.GateContext, name: str, first: inputs.BlockedHosts) -> datetime:
    tally = look.tally
    channel = look.state.channels.get(tally.channel)
    host = look.state.hosts.get(first.host_id)
    freeze = _find_freeze(look, first)
    own = {
        "halted": tally.halted_at,
        "paused": tally.paused_at,
        "hold": None if channel is None else channel.row.held_at,
        "freeze": None if freeze is None else freeze.started_at,
        "quarantine": None
        if look.rollout.quarantined is None
        else look.rollout.quarantined.row.quarantined_at,
        "host-silent": None if host is None else host.row.silent_since,
    }
    return own.get(name) or look.rollout.blocked_since.get(name) or tally.opened_at


def _find_freeze(look: context.GateContext, first: inputs.BlockedHosts) -> Freeze | None:
    id = "" if first.evidence is None else first.evidence.id
    return next((seen.row for seen in look.state.freezes if seen.row.freeze_id == id), None)


def _find_detail(
    look: context.GateContext, name: str, first: inputs.BlockedHosts
) -> tuple[str, datetime | None]:
    """Return more text for this gate, and when it opens by itself."""
    match name:
        case "wave-promotion":
            return (
                ("", None)
                if host_checks.next_to_go(look) is not None
                else _describe_missing_hosts(look)
            )
        case "disruption-budget":
            return _describe_slot_holders(look, "" if first.evidence is None else first.evidence.id)
        case "freeze":
            freeze = _find_freeze(look, first)
            return "", None if freeze is None else freeze.until
        case "host-silent":
            return host_waits.describe_silence(look, first.host_id)
        case _:
            return "", None


def _describe_missing_hosts(look: context.GateContext) -> tuple[str, datetime | None]:
    """Name the hosts of the waves so far that are not done."""
    texts: list[str] = []
    untils: list[datetime] = []
    count = 0
    for wave in look.rollout.chart.plan.waves[: look.reached + 1]:
        for host_id in wave.hosts:
            seen = look.rollout.standings.get(host_id)
            if seen is not None and (seen.row.left is not None or seen.row.state in SETTLED):
                continue
            count += 1
            until = None
            if seen is not None and seen.row.state is not HostState.PENDING:
                until = seen.row.soak_due_at or seen.row.due_at
            if until is not None:
                untils.append(until)
            if len(texts) < host_waits.SOME_MAX:
                state = "has no order" if seen is None else describe_host_state(seen.row.state)
                by = "" if until is None else f" until {describe_time(until)}"
                texts.append(f"{host_id} {state}{by}")
    if not texts:
        return "", None
    more = f" and {count - len(texts)} more" if count > len(texts) else ""
    return f": {', '.join(texts)}{more}", max(untils) if len(untils) == count else None


def _describe_slot_holders(
    look: context.GateContext, budget_id: str
) -> tuple[str, datetime | None]:
    """Say who holds the slots of a budget; hosts of this rollout by name."""
    budget = look.state.budgets.get(budget_id)
    holders = [
        seen.row
        for host_id, seen in look.rollout.standings.items()
        if seen.row.busy and any(s.budget_id == budget_id for s in look.slots_of(host_id))
    ]
    names = ", ".join(row.host_id for row in holders[: host_waits.SOME_MAX])
    others = 0 if budget is None else max(0, budget.row.in_flight - len(holders))
    parts = [f"{names} {'has' if len(holders) == 1 else 'have'} a slot"] if holders else []
    parts += [f"{others} more in other rollouts"] if others else []
    untils = [row.soak_due_at or row.due_at for row in holders]
    known = [item for item in untils if item is not None]
    return (f"; {', '.join(parts)}" if parts else ""), min(known) if known and not others else None
