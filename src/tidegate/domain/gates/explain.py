"""Why a host has no order, or why a rollout waits: one answer for API, CLI and dashboard."""

from __future__ import annotations

from msgspec.structs import replace

from tidegate.domain.gates import checks, context, dispatch_pass, inputs, remedies
from tidegate.domain.gates.host_waits import wait_of_host
from tidegate.domain.gates.waits import list_waits
from tidegate.domain.hosts.states import describe_host_state
from tidegate.domain.rollouts import rows as rollout_rows, states

ASKED_MAX = 1_000  # hosts that a gate after the first shut one is asked about
STOPS = dispatch_pass.ASKED_AGAIN - {
    dispatch_pass.WINDOW
}  # windows may hold some hosts while others get orders
HELD_WAVES = frozenset({"minimum", "manual", "delay"})  # waits that shut ``wave-promotion``
READABLE = "plan-and-rows"  # not a gate: the plan and rows that all gates need


def judge(
    state: inputs.FleetState, rollout_id: str, host_id: str
) -> tuple[inputs.GateVerdict, ...]:
    """Return the verdict of every gate on this host, including those after the first shut one.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    fault = state.faults.get(rollout_id)
    if fault is not None:
        return (_report_fault(fault),)
    look = context.GateContext(state, state.sight(rollout_id))
    return tuple(_judge_gate(gate, look, host_id) for gate in checks.GATES)


def explain(
    state: inputs.FleetState, rollout_id: str, host_id: str | None = None, skipped: str = ""
) -> inputs.Explanation:
    """Explain a host, or all hosts that wait: every gate with its verdict and evidence.

    ``skipped``: by whom the host was skipped, when and why, as the log tells it.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    fault = state.faults.get(rollout_id)
    if fault is not None:
        answer = f"the dispatcher leaves the rollout out, {fault.code}: {fault.detail}"
        return inputs.Explanation(
            rollout_id=rollout_id,
            host_id=host_id,
            answer=answer,
            verdicts=(_report_fault(fault),),
            waits=(inputs.Wait(code="fault", sentence=answer, since=state.at),),
        )
    if host_id is None:
        return _explain_rollout(state, rollout_id)
    rollout = state.sight(rollout_id)
    verdicts = judge(state, rollout_id, host_id)
    found = rollout.standings.get(host_id)
    standing = None if found is None else found.row
    late = any(host.host_id == host_id for host in rollout.latecomers)
    shut = next((verdict for verdict in verdicts if not verdict.passed), None)
    if not late and dispatch_pass.attempt_of(standing, rollout.tally.row.attempt) is None:
        assert standing is not None
        answer = f"the host had its order and {describe_host_state(standing.state)}"
        doing = wait_of_host(state, rollout_id, host_id)
        if doing is not None:
            answer = f"{answer}: {doing.sentence}"
        stop = next(
            (
                item
                for item in verdicts
                if not item.passed and item.gate in dispatch_pass.ASKED_AGAIN
            ),
            None,
        )
        if dispatch_pass.is_ordered(standing) and stop is not None:
            answer = f"{stop.gate}: {stop.reason}; the host has its order and may not use it now"
        if standing.left is not None:
            answer = (
                f"{_describe_leaving(rollout_id, standing.left, skipped)}. It is not waited for"
            )
        if standing.regressed_at is not None:
            answer = _describe_regression(rollout.tally.row)
    elif standing is not None and standing.left is not None:
        later = "" if shut is None else f". Now {shut.gate} holds it: {shut.reason}"
        answer = (
            f"{_describe_leaving(rollout_id, standing.left, skipped)}. It gets the release as a "
            f"late host{later}"
        )
    elif shut is not None:
        answer = f"{shut.gate}: {shut.reason}"
    else:
        answer = "nothing holds the host back: its order goes out with the next pass"
    return inputs.Explanation(
        rollout_id=rollout_id,
        host_id=host_id,
        answer=answer,
        wave=rollout.chart.waves.get(host_id),
        host_state=None if standing is None else standing.state,
        verdicts=verdicts,
        waits=_list_waits_of_host(state, rollout_id, host_id, answer, verdicts),
        protection=_describe_protection(state, rollout.tally.row.channel),
    )


def _describe_regression(tally: rollout_rows.RolloutTally) -> str:
    return f"the host converged, but does not run {tally.target_ref} any more"


def _describe_leaving(rollout_id: str, left: str, skipped: str) -> str:
    return f"the host was {left} in {rollout_id}{f' {skipped}' if skipped else ''}"


def _describe_protection(state: inputs.FleetState, channel: str) -> str:
    """Say that commands on the channel need a second person; empty: they do not."""
    seen = state.channels.get(channel)
    protection = None if seen is None else seen.row.protection
    if protection is None:
        return ""
    alone = ", or --break-glass" if protection.break_glass else ""
    return (
        f"{channel} is protected: a command that moves it forward, loosens it or bypasses "
        f"something needs a second person{alone}"
    )


def _list_waits_of_host(
    state: inputs.FleetState,
    rollout_id: str,
    host_id: str,
    answer: str,
    verdicts: tuple[inputs.GateVerdict, ...],
) -> tuple[inputs.Wait, ...]:
    """Return what the host itself waits for, then the rollout's waits that concern it."""
    own = wait_of_host(state, rollout_id, host_id) or _find_regression(state, rollout_id, host_id)
    all_of_it = list_waits(state, rollout_id)
    shut = {verdict.gate for verdict in verdicts if not verdict.passed}
    if "wave-promotion" in shut:
        shut |= HELD_WAVES
    matching = [wait for wait in all_of_it if host_id in wait.some or wait.code in shut]
    found = ((own,) if own is not None else ()) + tuple(w for w in matching if w != own)
    if found:
        return found
    tally = state.sight(rollout_id).tally.row
    again = remedies.promote(tally.channel, tally.target_ref)
    return (
        inputs.Wait(
            code="nothing",
            sentence=answer,
            hosts=1,
            some=(host_id,),
            since=state.at,
            remedies=(again,) if again.command in answer else (),
        ),
    )


def _find_regression(state: inputs.FleetState, rollout_id: str, host_id: str) -> inputs.Wait | None:
    """The host lost the release after it converged, for example because it was re-imaged."""
    rollout = state.sight(rollout_id)
    found = rollout.standings.get(host_id)
    if found is None or found.row.regressed_at is None:
        return None
    tally = rollout.tally.row
    again = f"tidegate channel promote {tally.channel} {tally.target_ref}"
    return inputs.Wait(
        code="regressed",
        sentence=_describe_regression(tally),
        hosts=1,
        some=(host_id,),
        since=found.row.regressed_at,
        ends=inputs.WaitEnds.NEVER,
        remedies=(inputs.Remedy(again, "once the rollout has ended"),),
    )


def _report_fault(fault: inputs.GateFault) -> inputs.GateVerdict:
    """Report that the plan or rows cannot be read, so no gate can be asked."""
    return inputs.GateVerdict(gate=READABLE, passed=False, reason=fault.detail)


def _judge_gate(gate: context.Gate, look: context.GateContext, host_id: str) -> inputs.GateVerdict:
    block = gate.blocks(look, host_id)
    if block is None:
        return inputs.GateVerdict(
            gate=gate.name,
            passed=True,
            reason=_join(gate.open, gate.add(look, host_id)),
            evidence=gate.cite(look, host_id),
        )
    return inputs.GateVerdict(
        gate=block.gate or gate.name,
        passed=False,
        reason=block.reason,
        evidence=block.evidence,
        until=block.until,
    )


def _explain_rollout(state: inputs.FleetState, rollout_id: str) -> inputs.Explanation:
    found = dispatch_pass.survey(state, rollout_id)
    look = context.GateContext(state, state.sight(rollout_id))
    waiting = [host_id for host_id, _, _ in dispatch_pass.list_waiting(look)]
    asked = waiting[:ASKED_MAX]
    is_over = look.tally.state not in states.OPEN
    waits_now = sum(host_id in look.late for host_id in waiting) if is_over else found.waiting
    verdicts = tuple(_judge_all(gate, look, found, asked) for gate in checks.GATES)
    ready = len(found.orders)
    waits = list_waits(state, rollout_id, [order.host_id for order in found.orders])
    stopped = next((item for item in found.held if item.gate in STOPS and item.hosts), None)
    if is_over and not waits_now:
        answer = waits[0].sentence
    elif stopped is not None:
        total = found.waiting + found.ordered
        answer = f"{stopped.gate} holds {stopped.hosts} of {total} hosts: {stopped.reason}"
    elif not found.waiting:
        answer = waits[0].sentence
    elif ready:
        some = "host gets its order" if ready == found.waiting == 1 else "hosts get their order"
        answer = f"{ready} of {found.waiting} {some} with the next pass"
    else:
        first = found.held[0]
        answer = f"{first.gate} holds {first.hosts} of {found.waiting} hosts: {first.reason}"
        if first.gate == dispatch_pass.WINDOW:
            answer = next(wait.sentence for wait in waits if wait.code == dispatch_pass.WINDOW)
    return inputs.Explanation(
        rollout_id=rollout_id,
        answer=answer,
        waiting=waits_now,
        ready=ready,
        unstaged=len(look.rollout.chart.plan.unstaged),
        verdicts=verdicts,
        waits=waits,
        protection=_describe_protection(state, look.tally.channel),
    )


def _judge_all(
    gate: context.Gate, look: context.GateContext, found: inputs.Survey, asked: list[str]
) -> inputs.GateVerdict:
    """Return a gate's verdict on all waiting hosts; each counts at the first gate that is shut for
    it.

    Gates after that give the verdict that the hosts in ``asked`` would get.
    """
    held = next((item for item in found.held if item.gate == gate.name), None)
    if held is not None and not gate.per_host:
        return replace(_judge_gate(gate, look, ""), hosts=held.hosts)
    if held is not None:
        return inputs.GateVerdict(
            gate=gate.name,
            passed=False,
            reason=f"{held.host_id}: {held.reason}",
            evidence=held.evidence,
            hosts=held.hosts,
        )
    if gate.per_host:
        for host_id in asked:
            block = gate.blocks(look, host_id)
            if block is not None:
                return inputs.GateVerdict(
                    gate=block.gate or gate.name,
                    passed=False,
                    reason=f"{host_id}: {block.reason}",
                    evidence=block.evidence,
                    until=block.until,
                )
        text = _join("holds no host", gate.add(look, ""))
        return inputs.GateVerdict(gate=gate.name, passed=True, reason=text)
    return _judge_gate(gate, look, "")


def _join(text: str, more: str) -> str:
    return f"{text}; {more}" if more else text
