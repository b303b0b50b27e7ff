"""The gates that are asked for each host: windows, wave, budgets, probes, agent."""

from __future__ import annotations

from datetime import timedelta

from tidegate.domain import times
from tidegate.domain.fleet import budgets, rows as fleet_rows
from tidegate.domain.fleet.selectors import parse
from tidegate.domain.gates import context, inputs
from tidegate.domain.hosts import rows as host_rows, states as host_states
from tidegate.domain.rollouts import progress, tallies
from tidegate.domain.windows import evaluation, rows as window_rows, sentences

UNSTAGED = "wave-promotion-host-unstaged"


def check_window(look: context.GateContext, host_id: str) -> context.Block | None:
    """Block outside of the host's maintenance windows, in the host's time zone.

    Hosts of one class share a verdict and its text. A text that names a host names the first of its
    class; ``list_blocked`` words it for each host.
    """
    if not look.windows:
        return None
    verdict = look.window_verdict(host_id)
    if verdict.is_open:
        return None
    known = look.window_blocks.get(id(verdict))
    if known is None:
        known = look.window_blocks[id(verdict)] = describe_shut_window(look, host_id, verdict)
    return known


def describe_shut_window(
    look: context.GateContext, host_id: str, verdict: evaluation.WindowVerdict, scope: str = ""
) -> context.Block:
    """Describe why the host's windows are shut; with ``scope``, for all hosts like it."""
    assert verdict.by is not None
    id = verdict.by.window.window_id
    seen = next(item for item in look.state.windows if item.row.window_id == id)
    sentence = sentences.shut_text(
        verdict,
        look.state.at,
        look.tally.channel,
        host_id,
        scope=scope,
        need=look.need(host_id),
        reason=seen.row.reason,
    )
    return context.Block(
        sentence,
        inputs.GateEvidence(window_rows.WINDOWS.name, id, seen.version),
        until=verdict.until,
    )


def check_wave(look: context.GateContext, host_id: str) -> context.Block | None:
    number = look.rollout.chart.waves.get(host_id)
    if number is None:
        if host_id in look.late:
            return None
        if _came_late(look, host_id):
            return context.Block(
                "the host came after the plan was made; it gets the newest success of "
                f"{look.tally.channel} when {look.tally.rollout_id} ends",
                look.cite_tally(),
            )
        return context.Block("no wave of the plan takes the host", look.cite_tally(), UNSTAGED)
    if host_id in look.late:
        return None
    if has_left_with_wave(look, host_id, number):
        name = progress.name_wave(look.tally, number)
        return context.Block(f"wave {name} was skipped, the host gets no order", look.cite_tally())
    if number <= look.reached:
        return None
    until = None
    own = progress.name_wave(look.tally, number)
    reason = f"wave {own} waits for wave {progress.name_wave(look.tally, max(look.reached, 0))}"
    if (going := next_to_go(look)) is not None:
        is_manual = tallies.waits_for_person(look.tally.waves[going])
        until = None if is_manual else tallies.next_wave_at(look.tally)
        hold = describe_hold(look, going)
        before = progress.name_wave(look.tally, going)
        reason = hold if number == going else f"wave {own} waits for wave {before}: {hold}"
    return context.Block(reason, look.cite_tally(), until=until)


def _came_late(look: context.GateContext, host_id: str) -> bool:
    """Whether the host joined the channel after this open rollout was planned."""
    host = look.state.hosts.get(host_id)
    seen = look.state.channels.get(look.tally.channel)
    if host is None or seen is None or look.tally.outcome is not None:
        return False
    if host_id in look.rollout.chart.plan.unstaged or host.row.status != fleet_rows.ENROLLED:
        return False
    return parse(seen.row.selector).matches(host.row.labels, host_id)


def has_left_with_wave(look: context.GateContext, host_id: str, number: int) -> bool:
    """Whether an operator skipped the host's wave while it had no order, and it is not retried."""
    if not look.tally.waves[number].skipped:
        return False
    found = look.rollout.standings.get(host_id)
    if found is None:
        return True
    return found.row.state is host_states.HostState.PENDING and not found.row.busy


def next_to_go(look: context.GateContext) -> int | None:
    """Return the wave that only time or a person keeps from starting; None: hosts are not done
    yet.
    """
    tally = look.tally
    if look.reached < 0:
        return 0
    if (
        tallies.next_wave(tally) is None
        or tally.done_at is None
        or look.reached < tally.current_wave
    ):
        return None
    return tally.current_wave + 1


def describe_hold(look: context.GateContext, number: int) -> str:
    """Say why a wave does not start although those before it are done."""
    wave, name = look.tally.waves[number], progress.name_wave(look.tally, number)
    if tallies.waits_for_person(wave):
        return f"wave {name} waits for an operator to continue it"
    at = tallies.next_wave_at(look.tally)
    if at is None:
        return f"wave {name} waits until the rollout resumes"
    before = progress.name_wave(look.tally, look.tally.current_wave)
    after = sentences.span_text(timedelta(seconds=wave.delay_seconds))
    return f"wave {name} starts at {times.describe_time(at)}, {after} after wave {before} was done"


def check_host_edges(look: context.GateContext, host_id: str) -> context.Block | None:
    for before in look.rollout.chart.before.get(host_id, ()):
        found = look.rollout.standings.get(before)
        if found is None:
            return context.Block(f"waits for {before}, which has no order yet", look.cite_tally())
        # No host waits for one that was waived or skipped.
        if found.row.state not in host_states.SETTLED and found.row.left is None:
            return context.Block(
                f"waits for {before}, which {host_states.describe_host_state(found.row.state)}",
                look.cite_record(before),
            )
    return None


def check_budgets(look: context.GateContext, host_id: str) -> context.Block | None:
    for slot in look.slots_of(host_id):
        found = look.state.budgets.get(slot.budget_id)
        assert found is not None, f"the state lacks budget {slot.budget_id}"
        allowed = budgets.current_bound(found.row, slot.slots)
        taken = found.row.in_flight + look.slots.get(slot.budget_id, 0)
        claimed = look.claims.get(slot.budget_id, 0)
        if allowed is not None and taken + claimed >= allowed:
            back = f"; {claimed} back from a reboot wait for a slot" if claimed else ""
            return context.Block(
                f"budget {slot.budget_id}: {taken} of {allowed} in flight{back}",
                inputs.GateEvidence(fleet_rows.BUDGETS.name, slot.budget_id, found.version),
            )
    return None


def check_probes(look: context.GateContext, host_id: str) -> context.Block | None:
    found = look.failing
    if found is None or host_id in look.late:
        return None
    number = look.wave(host_id)
    if number is None or found.row.wave >= number:
        return None
    row = found.row
    return context.Block(
        f"probe {row.probe_name} fails on {row.host_id}, "
        f"of wave {progress.name_wave(look.tally, row.wave)}",
        inputs.GateEvidence(
            host_rows.PROBE_FAILURES.name,
            host_rows.probe_failure_id(row.rollout_id, row.host_id, row.probe_name),
            found.version,
        ),
    )


def check_busy(look: context.GateContext, host_id: str) -> context.Block | None:
    if host_id in look.hosts:
        return context.Block("the host gets another order in this very pass")
    back = look.state.rebooted.get(host_id)
    if back is not None:
        return context.Block(f"the host was rebooted into the target of {back.rollout_id}")
    found = look.state.orders.get(host_id)
    if found is None:
        return None
    own = found.row.rollout_id == look.tally.rollout_id
    return context.Block(
        "the host has its order of this rollout already"
        if own
        else f"the host is busy with {found.row.rollout_id}",
        inputs.GateEvidence(host_rows.HOST_ORDERS.name, host_id, found.version),
    )


def check_silence(look: context.GateContext, host_id: str) -> context.Block | None:
    found = look.state.hosts.get(host_id)
    if found is None:
        return context.Block("the fleet does not know the host")
    if found.row.status != fleet_rows.ENROLLED:
        return context.Block(f"the host is {found.row.status}", cite_host(look, host_id))
    if found.row.silent_since is None:
        return None
    since = times.describe_time(found.row.silent_since)
    return context.Block(f"the host has not reported since {since}", cite_host(look, host_id))


def cite_host(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    found = look.state.hosts.get(host_id)
    return (
        None
        if found is None
        else inputs.GateEvidence(fleet_rows.HOSTS.name, host_id, found.version)
    )
