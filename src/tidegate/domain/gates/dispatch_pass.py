"""Who gets an order now, and why the others do not: a pass over the hosts of a rollout.

    FleetState ──▶ survey ──▶ orders, by wave and name      the dispatcher reserves them
                        └──▶ what holds the others back     recorded in the log when it changes
    FleetState ──▶ explain                                  every gate, for people

A pass looks at each host and each edge once. The order of hosts is fixed, so the same rows give the
same orders. The pass counts its own orders against budgets at once; the commit of each reservation
finally decides about the slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from tidegate.domain.access.reasons import REASON_BYTES_MAX
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet import claims, rows as fleet_rows
from tidegate.domain.fleet.budgets import slots as slots_of
from tidegate.domain.gates import checks, context, host_checks, inputs, rollout_checks
from tidegate.domain.hosts import facts as host_facts, states as host_states
from tidegate.domain.rollouts import facts as rollout_facts, rows as rollout_rows, states, tallies
from tidegate.domain.rollouts.preconditions import EDGES
from tidegate.domain.rollouts.states import OverridableGate
from tidegate.domain.times import describe_time

ORDERS_MAX = 10_000  # orders of one pass

# Asked again when an order is handed out and when it is acknowledged.
ASKED_AGAIN: Final = frozenset(
    {
        *("halted", "paused", "freeze", "hold", "quarantine", "channel-edges"),
        *("start-at", "window"),
    }
)

FREEZE: Final = "freeze"  # names of gates
WINDOW: Final = "window"

_TRIED = frozenset({host_states.HostState.FAILED, host_states.HostState.REVERTED})
_OVER = _TRIED | {host_states.HostState.CONVERGED}


# ── waiting hosts ─────────────────────────────────────────────────────────────────────────────────


def attempt_of(standing: inputs.HostStanding | None, attempt: int) -> int | None:
    """Return the attempt of the host's next order; None: it already had one, or was skipped."""
    if standing is None:
        return attempt
    if standing.left is not None or standing.busy:
        return None
    if standing.cancelled_at is not None and standing.state is host_states.HostState.PENDING:
        return max(attempt, standing.attempt + 1)  # the host knows an order of the same attempt
    return attempt if standing.state in _TRIED and standing.attempt < attempt else None


def latecomers(
    rollout: inputs.GateInput,
    channel: Channel,
    hosts: Sequence[fleet_rows.Host],
    budgets: Iterable[fleet_rows.Budget],
) -> tuple[inputs.Latecomer, ...]:
    """List the hosts that the channel claims now but the plan did not count, by name.

    They joined after the plan was made, or were skipped. A host that no wave took at that time is
    ignored. ``hosts`` is the whole fleet. Raises: InvalidSelector.
    """
    unstaged = frozenset(rollout.chart.plan.unstaged)
    found = (host.host_id for host in claims.members(channel.selector, hosts))
    late = sorted(id for id in found if id not in unstaged and _is_late(rollout, id))
    slots: dict[str, list[host_facts.BudgetSlot]] = {id: [] for id in late}
    for budget in sorted(budgets, key=lambda item: item.budget_id) if late else ():
        matching = claims.members(budget.selector, hosts)
        allowed = slots_of(budget, len(matching))
        if allowed is None or budget.removed:
            continue
        for host in matching:
            if host.host_id in slots:
                slots[host.host_id].append(host_facts.BudgetSlot(budget.budget_id, allowed))
    return tuple(inputs.Latecomer(id, tuple(taken)) for id, taken in slots.items())


def _is_late(rollout: inputs.GateInput, host_id: str) -> bool:
    found = rollout.standings.get(host_id)
    if found is None:
        return host_id not in rollout.chart.waves
    row = found.row
    if row.state is not host_states.HostState.PENDING or row.busy:
        return False
    # Its order was cancelled, or it was skipped before its first try. A tolerated failure, or
    # one that was skipped before its retry, is not retried automatically.
    return row.cancelled_at is not None if row.late else row.left == "skipped"


def list_waiting(look: context.GateContext) -> Iterator[tuple[str, int, int]]:
    """List each host without an order, with its wave and attempt, by wave and name."""
    standings = look.rollout.standings
    attempt = look.tally.attempt
    plan = look.rollout.chart.plan
    for number, wave in enumerate(plan.waves):
        for host_id in wave.hosts:
            found = standings.get(host_id)
            under = attempt_of(None if found is None else found.row, attempt)
            if look.tally.waves[number].skipped and host_checks.has_left_with_wave(
                look, host_id, number
            ):
                continue
            if under is not None and host_id not in look.late:
                yield host_id, number, under
    last = max(len(plan.waves) - 1, 0)
    for host_id in look.late:
        found = standings.get(host_id)
        under = attempt if found is None else max(attempt, found.row.attempt + 1)
        yield host_id, look.rollout.chart.waves.get(host_id, last), under


def is_ordered(standing: inputs.HostStanding) -> bool:
    """Whether the host has an order that it has not acknowledged."""
    return standing.busy and standing.state is host_states.HostState.PENDING


def list_staged(rollout: inputs.GateInput) -> list[str]:
    """List the planned hosts whose order waits for a reboot."""
    return [
        host_id
        for host_id, found in rollout.standings.items()
        if found.row.state is host_states.HostState.DEFERRED
        and found.row.left is None
        and not found.row.late
    ]


def _list_ordered(look: context.GateContext) -> Iterator[str]:
    for host_id, found in look.rollout.standings.items():
        if is_ordered(found.row):
            yield host_id


def _list_blocked_by_windows(
    look: context.GateContext, ordered: Iterable[str]
) -> Iterator[inputs.BlockedHosts]:
    """Return those hosts that may not use their order now, because their windows are shut."""
    for host_id in ordered if look.windows else ():
        block = host_checks.check_window(look, host_id)
        if block is not None:
            yield _to_blocked(WINDOW, host_id, block)


def list_outside_later(look: context.GateContext) -> list[inputs.BlockedHosts]:
    """List the hosts whose windows would hold them if no gate did that is the same for all."""
    waiting = [host_id for host_id, _, _ in list_waiting(look)]
    return list(_list_blocked_by_windows(look, (*waiting, *_list_ordered(look))))


def list_further_freezes(look: context.GateContext) -> list[inputs.BlockedHosts]:
    """List the freezes of the channel after the first one, which the gate names."""
    blocks = list(rollout_checks.list_freeze_blocks(look))[1:]
    return [replace(_to_blocked(FREEZE, "", block), hosts=0) for block in blocks]


def _word_for_host(
    look: context.GateContext, gate: str, host_id: str, block: context.Block
) -> context.Block:
    """Word the block for this host instead of the first one of its class."""
    if gate != WINDOW:
        return block
    return host_checks.describe_shut_window(look, host_id, look.window_verdict(host_id))


def list_outside_windows(state: inputs.FleetState, rollout_id: str) -> list[str]:
    """List the hosts that have not acknowledged their order and may not use it, because their
    windows are shut. Raises: NotFound.
    """
    look = _make_context(state, rollout_id, None)
    return [item.host_id for item in _list_blocked_by_windows(look, _list_ordered(look))]


# ── a pass ────────────────────────────────────────────────────────────────────────────────────────


def survey(
    state: inputs.FleetState,
    rollout_id: str,
    given: inputs.HandedOut | None = None,
    orders_max: int = ORDERS_MAX,
) -> inputs.Survey:
    """Ask every gate about every host that waits.

    ``given``: what earlier passes over other rollouts took from the same rows.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    look = _make_context(state, rollout_id, given)
    gates, shut = _select_gates(look)
    orders: list[inputs.DueOrder] = []
    held: dict[str, inputs.BlockedHosts] = {}
    counts: dict[str, int] = {}
    waiting = 0
    for host_id, wave, attempt in list_waiting(look):
        waiting += 1
        for name, blocks in gates:
            block = blocks(look, host_id)
            if block is not None:
                if name not in held:
                    held[name] = _to_blocked(name, host_id, block)
                counts[name] = counts.get(name, 0) + 1
                break
        else:
            if len(orders) < orders_max:
                orders.append(_give_order(look, host_id, wave, attempt))
    ordered = list(_list_ordered(look))
    if shut is not None:
        stopped = ordered if shut.gate in ASKED_AGAIN else []
        if stopped or look.tally.state in states.DISPATCHABLE:
            first = replace(shut, host_id=stopped[0]) if stopped else shut
            held.setdefault(shut.gate, first)
            counts[shut.gate] = counts.get(shut.gate, 0) + len(stopped)
    else:
        for blocked in _list_blocked_by_windows(look, ordered):
            held.setdefault(WINDOW, blocked)
            counts[WINDOW] = counts.get(WINDOW, 0) + 1
    return inputs.Survey(
        rollout_id=rollout_id,
        orders=tuple(orders),
        waiting=waiting,
        ordered=len(ordered),
        held=tuple(replace(held[name], hosts=counts[name]) for name, _ in gates if name in held),
        hidden=_list_hidden(look, shut),
        given=inputs.HandedOut(look.slots, frozenset(look.hosts)),
    )


def survey_shared_gates(state: inputs.FleetState, rollout_id: str) -> inputs.Survey:
    """Ask only the gates that are the same for all hosts.

    For rollouts in which no host waits for an order. ``state`` need not hold any row of a host.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    look = _make_context(state, rollout_id, None)
    _, shut = _select_gates(look)
    return inputs.Survey(
        rollout_id=rollout_id,
        held=() if shut is None else (shut,),
        hidden=_list_hidden(look, shut),
        whole=False,
    )


def list_blocked(state: inputs.FleetState, rollout_id: str) -> Iterator[inputs.BlockedHosts]:
    """List each host that stops at a gate, with that gate, by wave and name.

    These are the waiting hosts and the hosts that may not use their order now. It is the same pass
    as that of ``survey``, host by host.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    look = _make_context(state, rollout_id, None)
    gates, shut = _select_gates(look)
    for host_id, wave, attempt in list_waiting(look):
        for name, blocks in gates:
            block = blocks(look, host_id)
            if block is not None:
                yield _to_blocked(name, host_id, _word_for_host(look, name, host_id, block))
                break
        else:
            _give_order(look, host_id, wave, attempt)  # count its slots as taken
    if shut is not None and shut.gate in ASKED_AGAIN:
        yield from (replace(shut, hosts=1, host_id=host_id) for host_id in _list_ordered(look))
    if shut is None:
        for item in _list_blocked_by_windows(look, _list_ordered(look)):
            verdict = look.window_verdict(item.host_id)
            yield _to_blocked(
                WINDOW, item.host_id, host_checks.describe_shut_window(look, item.host_id, verdict)
            )


def next_skips(state: inputs.FleetState, rollout_id: str) -> tuple[inputs.Skip, ...]:
    """Return the hosts that the waves so far no longer wait for.

    They left the fleet, or were silent for longer than the policy's grace. While a failure halts
    the rollout, only hosts that left the fleet are skipped. Raises: NotFound.
    """
    rollout = state.sight(rollout_id)
    tally = rollout.tally.row
    if tally.state not in states.OPEN:
        return ()
    plan = rollout.chart.plan
    is_halted = tally.halted_at is not None
    grace = None if is_halted else plan.policy.offline_grace_seconds
    attempt = 0 if is_halted else tally.attempt  # failed hosts are cleared, not skipped
    skips = []
    for number, wave in enumerate(plan.waves[: tally.current_wave + 1]):
        spared = grace if can_spare_silent(state, rollout, number) else None
        for host_id in wave.hosts:
            found = rollout.standings.get(host_id)
            standing = None if found is None else found.row
            going = attempt if tallies.may_go(tally, host_id) else 0
            if standing is not None and not _is_waiting(standing, going):
                continue
            if tally.waves[number].skipped and (standing is None or not standing.busy):
                continue  # it was skipped with its wave, or is retried
            reason = _find_skip_reason(state, host_id, standing, spared)
            if reason is not None:
                skips.append(
                    inputs.Skip(
                        rollout_id=rollout_id,
                        host_id=host_id,
                        wave=number,
                        reason=reason,
                        state=None if standing is None else standing.state,
                    )
                )
    return tuple(skips)


def can_spare_silent(state: inputs.FleetState, rollout: inputs.GateInput, number: int) -> bool:
    """Whether the wave can reach its minimum with the hosts that report."""
    needed = tallies.missing(rollout.tally.row.waves[number])
    reporting = 0
    for host_id in rollout.chart.plan.waves[number].hosts:
        if reporting >= needed:
            break
        found, host = rollout.standings.get(host_id), state.hosts.get(host_id)
        counts = found is None or (found.row.left is None and found.row.state not in _OVER)
        present = host is not None and host.row.status != fleet_rows.RETIRED
        reporting += counts and present and host is not None and host.row.silent_since is None
    return reporting >= needed


def _is_waiting(standing: inputs.HostStanding, attempt: int) -> bool:
    """Whether the rollout waits for the host's next order or its reboot.

    ``decide_skip`` decides the same again on newer rows.
    """
    if standing.left is not None:
        return False
    if standing.state in (host_states.HostState.FAILED, host_states.HostState.REVERTED):
        return standing.attempt < attempt
    return standing.state in (host_states.HostState.PENDING, host_states.HostState.DEFERRED)


def _find_skip_reason(
    state: inputs.FleetState, host_id: str, standing: inputs.HostStanding | None, grace: int | None
) -> str | None:
    """Return why the rollout need not wait for this host any longer; None: it must."""
    found = state.hosts.get(host_id)
    if found is None or found.row.status == fleet_rows.RETIRED:
        return "the host was retired"
    since = found.row.silent_since
    reboots = standing is not None and standing.state is host_states.HostState.DEFERRED
    if since is None or grace is None or reboots:
        return None
    if state.at - since < timedelta(seconds=grace):
        return None
    return f"the host has not reported since {describe_time(since)}"


def _make_context(
    state: inputs.FleetState, rollout_id: str, given: inputs.HandedOut | None
) -> context.GateContext:
    look = context.GateContext(state, state.sight(rollout_id))
    if given is not None:
        look.slots.update(given.slots)
        look.hosts.update(given.hosts)
    return look


def _select_gates(
    look: context.GateContext,
) -> tuple[list[tuple[str, context.Blocks]], inputs.BlockedHosts | None]:
    """Return the gates to ask for each host, and the first one that is shut for all of them.

    A gate that is the same for all hosts is asked here. If it is open, it need not be asked again.
    If it is shut, no later gate need be asked.
    """
    asked: list[tuple[str, context.Blocks]] = []
    for gate in checks.GATES:
        if gate.per_host:
            asked.append((gate.name, gate.blocks))
        elif (block := gate.blocks(look, "")) is not None:
            asked.append((gate.name, _block_always(block)))
            return asked, replace(_to_blocked(gate.name, "", block), hosts=0)
    return asked, None


def _list_hidden(
    look: context.GateContext, shut: inputs.BlockedHosts | None
) -> tuple[inputs.BlockedHosts, ...]:
    """Return the channel edges if they are shut while another gate is, too.

    An acknowledgement reads what the last pass recorded of them. So this is recorded while a pause
    or a freeze holds the hosts: when that ends, no order may get through before the next pass.
    """
    block = None if shut is None or shut.gate == EDGES else rollout_checks.check_edges(look, "")
    if block is None or OverridableGate.EDGES in tallies.list_passed(look.tally, look.state.at):
        return ()
    return (replace(_to_blocked(EDGES, "", block), hosts=0),)


def _block_always(block: context.Block) -> context.Blocks:
    return lambda look, host_id: block


def _give_order(
    look: context.GateContext, host_id: str, wave: int, attempt: int
) -> inputs.DueOrder:
    tally = look.tally
    slots = look.slots_of(host_id)
    for slot in slots:
        look.slots[slot.budget_id] = look.slots.get(slot.budget_id, 0) + 1
    look.hosts.add(host_id)
    look.late_given += host_id in look.late
    return inputs.DueOrder(
        rollout_id=tally.rollout_id,
        host_id=host_id,
        channel=tally.channel,
        target_closure=tally.target_closure,
        wave=wave,
        policy=look.rollout.chart.plan.host_policy(wave),
        attempt=attempt,
        budgets=slots,
        late=host_id in look.late,
    )


def _to_blocked(gate: str, host_id: str, block: context.Block) -> inputs.BlockedHosts:
    return inputs.BlockedHosts(
        gate=gate,
        hosts=1,
        host_id=host_id,
        reason=block.reason,
        evidence=block.evidence,
        until=block.until,
    )


# ── changes for the log ───────────────────────────────────────────────────────────────────────────


def gate_changes(
    known: rollout_rows.RolloutGates | None, found: inputs.Survey, now: datetime
) -> tuple[rollout_facts.GateChanged, ...]:
    """Return the gates that have shut or opened since the last recorded change.

    After a ``survey_shared_gates`` this leaves out the gates that it did not ask. A new count of
    hosts or another reason of the same gate is no change: a pass over an unchanged fleet records
    nothing.
    """
    recorded = {gate.gate: gate for gate in (() if known is None else known.blocked)}
    held = {gate.gate: gate for gate in (*found.hidden, *found.held)}
    changes = [
        rollout_facts.GateChanged(
            rollout_id=found.rollout_id,
            at=now,
            gate=name,
            blocked=name in held,
            reason=_cut_reason(held[name]) if name in held else "",
        )
        for name in (gate.name for gate in checks.GATES if found.whole or not gate.per_host)
        if (name in held) != (name in recorded)
    ]
    return tuple(changes)


def _cut_reason(held: inputs.BlockedHosts) -> str:
    """Cut the reason to what a fact may hold: it may quote probes and operators at length."""
    reason = f"{held.host_id}: {held.reason}" if held.host_id else held.reason
    cut = reason.encode()[:REASON_BYTES_MAX]
    return cut.decode(errors="ignore")
