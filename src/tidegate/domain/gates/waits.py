"""Everything that an open rollout waits for, and what would end each wait.

    the rollout   stopped, halted, paused, held, frozen, quarantined, an edge, old evidence
    its waves     too few hosts converged, a delay, an operator who must continue it
    its hosts     under way by state, or without an order by the gate that holds them

``explain`` shows them next to the gates. A wait names hosts or a cause, since when it lasts, when
it ends by itself, and the commands that end it now. Progress that ends by itself needs no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.domain.access import steps
from tidegate.domain.gates import context, gate_waits, host_checks, host_waits, inputs, remedies
from tidegate.domain.gates.automation import describe_off, describe_rollback
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import progress, states, tallies


def list_waits(
    state: inputs.FleetState, rollout_id: str, ready: Sequence[str] = ()
) -> tuple[inputs.Wait, ...]:
    """List what the rollout waits for, the most important first.

    ``ready``: hosts that get their order with the next pass.

    Raises:
        NotFound: the state does not hold the rollout.
    """
    look = context.GateContext(state, state.sight(rollout_id))
    if look.tally.state not in states.OPEN:
        return (
            _report_end(look),
            *_report_switched_off(look),
            *_report_late_failures(look),
            *host_waits.list_host_waits(look),
        )
    found = (
        *_report_failure(look),
        *_report_switched_off(look),
        *_report_held_wave(look),
        *_report_minimum(look),
        *host_waits.list_host_waits(look),
        *gate_waits.list_gate_waits(look, state, rollout_id),
    )
    if ready:
        found = (*found, _report_ready(ready))
    if found:
        return found
    text = "Every host is done; the rollout moves on with the next pass"
    return (inputs.Wait(code="ready", sentence=text, ends=inputs.WaitEnds.BY_ITSELF),)


def _report_ready(host_ids: Sequence[str]) -> inputs.Wait:
    count = len(host_ids)
    return inputs.Wait(
        code="ready",
        sentence=f"{count} {_hosts(count)} {'gets' if count == 1 else 'get'} an order with the "
        "next pass",
        hosts=count,
        some=tuple(host_ids[: host_waits.SOME_MAX]),
        ends=inputs.WaitEnds.BY_ITSELF,
    )


# ── the rollout ───────────────────────────────────────────────────────────────────────────────────


def _report_end(look: context.GateContext) -> inputs.Wait:
    tally = look.tally
    hosts = sum(wave.hosts for wave in tally.waves)
    done = tallies.total(tally, HostState.CONVERGED)
    how = str(tally.outcome or states.describe_rollout_state(tally.state)).replace("_", " ")
    return inputs.Wait(
        code="concluded",
        sentence=f"{tally.rollout_id} ended: {how}, {done:,} of {hosts:,} hosts converged",
        since=tally.outcome_at or tally.opened_at,
        ends=inputs.WaitEnds.NEVER,
        evidence=look.cite_tally(),
        remedies=remedies.list_after_end(look),
    )


def _report_switched_off(look: context.GateContext) -> Iterator[inputs.Wait]:
    """Report that the channel promotes nothing automatically because of this rollout."""
    tally, seen = look.tally, look.state.channels.get(look.tally.channel)
    sentence = "" if seen is None else describe_off(seen.row, tally)
    if sentence:
        yield inputs.Wait(
            code="auto-promote",
            sentence=sentence,
            since=tally.outcome_at or tally.halted_at or tally.opened_at,
            ends=inputs.WaitEnds.NEVER,
            evidence=look.cite_tally(),
            remedies=(remedies.promote(tally.channel, "RELEASE"),),
        )


def _describe_rollback(look: context.GateContext) -> str:
    seen = look.state.channels.get(look.tally.channel)
    sentence = "" if seen is None else describe_rollback(seen.row, look.tally)
    return f". {sentence}" if sentence else ""


def _report_late_failures(look: context.GateContext) -> Iterator[inputs.Wait]:
    tally = look.tally
    if not tallies.late_failures(tally):
        return
    bad = [
        seen.row
        for seen in look.rollout.standings.values()
        if seen.row.late and seen.row.left is None and seen.row.state in host_waits.ENDED_BADLY
    ]
    names = tuple(row.host_id for row in bad[: host_waits.SOME_MAX])
    yield inputs.Wait(
        code="late-host-failed",
        sentence=f"{', '.join(names)} came late and failed; no further late host gets the release",
        hosts=len(bad),
        some=names,
        since=min((row.failed_at for row in bad if row.failed_at), default=tally.opened_at),
        ends=inputs.WaitEnds.NEVER,
        evidence=look.cite_tally(),
        remedies=tuple(remedies.skip(tally.rollout_id, name) for name in names),
    )


def _report_failure(look: context.GateContext) -> Iterator[inputs.Wait]:
    """Report the failure that halted the rollout. It comes before all other waits."""
    tally = look.tally
    if tally.halted_at is None:
        return
    going = tally.state not in states.CLEARABLE
    rest = tallies.total(tally, HostState.ACTIVATING, HostState.SOAKING)
    back = [
        seen.row for seen in look.rollout.standings.values() if host_waits.is_rolling_back(seen.row)
    ]
    cause = look.rollout.causes.get(tally.halted_by or "", "failed")
    what = f"{tally.halted_by or 'a host'} {cause}"
    on_it = tallies.total(tally, HostState.CONVERGED)
    if going:
        text = f"Halted: {what}. {_finish(rest)}, {_go_back(len(back))}; then decide"
        text += _describe_rollback(look)
        commands: tuple[inputs.Remedy, ...] = (
            remedies.roll_back(tally.channel),
            remedies.abort(tally.rollout_id),
        )
    else:
        text = f"Stopped: {what}; {_stay(on_it, tally.target_ref)}"
        text += _describe_rollback(look)
        retry = f"tidegate rollout retry {tally.rollout_id} --reason …"
        commands = (
            remedies.roll_back(tally.channel),
            inputs.make_remedy(
                steps.RETRY_ROLLOUT,
                tally.channel,
                retry,
                "if the hosts were at fault and are repaired",
            ),
            remedies.waive(tally.rollout_id, tally.halted_by or "HOST"),
            remedies.abort(tally.rollout_id),
        )
    yield inputs.Wait(
        code="halted" if going else "stopped",
        sentence=text,
        some=() if tally.halted_by is None else (tally.halted_by,),
        hosts=0 if tally.halted_by is None else 1,
        since=tally.halted_at,
        ends=inputs.WaitEnds.NEVER,
        evidence=look.cite_tally(),
        remedies=commands,
    )


# ── its waves ─────────────────────────────────────────────────────────────────────────────────────


def _report_held_wave(look: context.GateContext) -> Iterator[inputs.Wait]:
    """Report a wave that does not start although those before it are done: an operator must
    continue it, or its delay is running.
    """
    number, tally = host_checks.next_to_go(look), look.tally
    if number is None or tally.halted_at is not None:
        return
    by_hand = tallies.waits_for_person(tally.waves[number])
    until = None if by_hand else tallies.next_wave_at(tally)
    if not by_hand and until is None:
        return  # it is paused, or hosts are retried: another wait reports that
    yield inputs.Wait(
        code="manual" if by_hand else "delay",
        sentence=_capitalize(host_checks.describe_hold(look, number)),
        since=tally.done_at or tally.opened_at,
        until=until,
        ends=inputs.WaitEnds.NEVER if by_hand else inputs.WaitEnds.BY_ITSELF,
        evidence=look.cite_tally(),
        remedies=(
            inputs.make_remedy(
                steps.CONTINUE_ROLLOUT,
                tally.channel,
                f"tidegate rollout continue {tally.rollout_id}",
            )
            if by_hand
            else inputs.make_remedy(
                steps.PROMOTE_ALL,
                tally.channel,
                f"tidegate rollout promote-all {tally.rollout_id} --reason …",
                remedies.IN_EMERGENCY,
            ),
        ),
    )


def _report_minimum(look: context.GateContext) -> Iterator[inputs.Wait]:
    """Report a wave in which too few hosts can still converge."""
    tally = look.tally
    for number, wave in enumerate(tally.waves[: look.reached + 1]):
        needed = tallies.missing(wave)
        left = wave.hosts - wave.left - wave.count(HostState.CONVERGED)
        if needed == 0 or left >= needed or number + 1 >= len(tally.waves):
            continue
        wanted = min(wave.converged_min, wave.hosts)
        found = wave.count(HostState.CONVERGED)
        problem = f"has no converged host left to wait for; it needs {wanted}"
        if found or left:
            problem = (
                f"has {found} converged {_hosts(found)} and {left} to wait for; it needs {wanted}"
            )
        yield inputs.Wait(
            code="minimum",
            sentence=f"Wave {progress.name_wave(tally, number)} {problem}",
            since=look.rollout.blocked_since.get("wave-promotion", tally.opened_at),
            ends=inputs.WaitEnds.NEVER,
            evidence=look.cite_tally(),
            remedies=(
                inputs.make_remedy(
                    steps.SKIP_WAVE,
                    tally.channel,
                    f"tidegate rollout skip-wave {tally.rollout_id} {wave.name} --reason …",
                    "to continue with the next wave",
                ),
                remedies.abort(tally.rollout_id),
            ),
        )


def _finish(count: int) -> str:
    return "1 host finishes" if count == 1 else f"{count} hosts finish"


def _go_back(count: int) -> str:
    return "1 rolls back" if count == 1 else f"{count} roll back"


def _stay(count: int, release_id: str) -> str:
    """Say that hosts which converged keep the release of a stopped rollout."""
    if not count:
        return f"no host converged on {release_id}"
    run = "1 host runs" if count == 1 else f"{count:,} hosts run"
    return f"{run} {release_id} until you roll back"


def _hosts(count: int) -> str:
    return "host" if count == 1 else "hosts"


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
