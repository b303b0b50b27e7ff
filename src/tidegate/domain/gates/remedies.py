"""The commands that end a wait, and when each is the right one."""

from __future__ import annotations

from typing import Final

from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels.rows import Freeze
from tidegate.domain.gates import context, inputs, rollout_checks
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import names, rows as rollout_rows, states, tallies

IN_EMERGENCY: Final = "in an emergency"


def list_after_end(look: context.GateContext) -> tuple[inputs.Remedy, ...]:
    """List what to do after a rollout that did not succeed, if it is the channel's newest."""
    seen = look.state.channels.get(look.tally.channel)
    if seen is None or seen.row.newest_rollout_id != look.tally.rollout_id:
        return ()
    return list_next(look.tally)


def list_next(tally: rollout_rows.RolloutTally) -> tuple[inputs.Remedy, ...]:
    """List what to do after a channel's newest rollout ended without success.

    A rollback comes first if hosts run its release, or ran it and failed.
    """
    onward = promote(tally.channel, "RELEASE", "if you have a release to go on to")
    back = inputs.make_remedy(
        steps.ROLL_BACK, tally.channel, f"tidegate channel rollback {tally.channel} --dry-run"
    )
    on_it = _count_on_it(tally)
    match tally.outcome:
        case states.Outcome.FAILED | states.Outcome.ROLLED_BACK:
            return back, onward
        case states.Outcome.ABORTED:
            return (back, onward) if on_it else (onward,)
        case states.Outcome.EMPTY:
            return (promote(tally.channel, tally.target_ref, "if hosts are there now"),)
        case _:
            return ()


def _count_on_it(tally: rollout_rows.RolloutTally) -> int:
    """Count the hosts that run the release, or ran it and failed."""
    return tallies.total(tally, HostState.CONVERGED, *tallies.ON_TARGET, HostState.FAILED)


def list_gate_remedies(
    look: context.GateContext, name: str, first: inputs.BlockedHosts
) -> tuple[inputs.Remedy, ...]:
    tally = look.tally
    rollout, channel = tally.rollout_id, tally.channel
    id = "" if first.evidence is None else first.evidence.id
    host = first.host_id
    match name:
        case "halted" | "wave-promotion":
            return ()  # the rollout's or wave's own wait has them, or it is progress
        case "paused":
            return (resume(rollout),)
        case "freeze":
            freeze = next(seen.row for seen in look.state.freezes if seen.row.freeze_id == id)
            end = end_freeze(freeze, "if the freeze is no longer needed")
            return *_hasten(look), end, _override(rollout, "freeze")
        case "hold":
            end = end_hold(channel, "if the hold is no longer needed")
            return *_hasten(look), end, _override(rollout, "hold")
        case "window":
            return *_hasten(look), _override(rollout, "window")
        case "channel-edges":
            shut = rollout_checks.find_shut_edge(look)
            opens = () if shut is None or shut.remedy is None else (shut.remedy,)
            if shut is None or not shut.concern:
                return *opens, _override(rollout, "edges")
            when = f"only if you know that {shut.concern} does not concern {channel}"
            return _give_up(tally), *opens, _override(rollout, "edges", when)
        case "quarantine":
            lift = f"tidegate quarantine lift {channel} {tally.target_ref} --reason …"
            when = "only if the host was at fault and the release is good"
            return (inputs.make_remedy(steps.LIFT_QUARANTINE, channel, lift, when),)
        case "freshness":
            return (promote(channel, f"{tally.target_ref} --refresh"),)
        case "start-at":
            return (_override(rollout, "start-at"),)
        case "disruption-budget":
            edit = f"tidegate budget edit {id} --max N"
            larger = inputs.Remedy(
                edit, "if the budget is too small", steps.SET_BUDGET.verbs, (roles.EVERYWHERE,)
            )
            return *_ignore_budgets(look), larger
        case "host-busy" if host:
            order = look.state.orders.get(host)
            ours = order is not None and names.channel_of(order.row.rollout_id) == channel
            return *(_hasten(look) if ours else ()), skip(rollout, host)
        case "host-silent" | "host-edge" if host:
            return (skip(rollout, host),)
        case _:
            return (abort(rollout),)


def _hasten(look: context.GateContext) -> tuple[inputs.Remedy, ...]:
    """Return the emergency rollback that overrides what holds this one; nothing if this is none."""
    if not tallies.may_hasten(look.tally):
        return ()
    return (hasten(look.tally),)


def hasten(tally: rollout_rows.RolloutTally) -> inputs.Remedy:
    """Return the emergency rollback that overrides what holds this rollback."""
    # It names the release. Otherwise it would go back one more once this rollback has ended.
    command = f"tidegate channel rollback {tally.channel} --to {tally.target_ref} --now --reason …"
    return _roll_back_now(tally.channel, command)


def _ignore_budgets(look: context.GateContext) -> tuple[inputs.Remedy, ...]:
    """Return the emergency rollback that ignores budgets; nothing if this is no rollback."""
    if not tallies.may_hasten(look.tally, ignore_budgets=True):
        return ()
    command = (
        f"tidegate channel rollback {look.tally.channel} --to {look.tally.target_ref} --now "
        "--ignore-budgets --reason …"
    )
    return (_roll_back_now(look.tally.channel, command),)


def _roll_back_now(channel: str, command: str) -> inputs.Remedy:
    when = "if the rollback cannot wait"
    return inputs.make_remedy(steps.ROLL_BACK_NOW, channel, command, when)


def promote(channel: str, release_id: str, when: str = "") -> inputs.Remedy:
    command = f"tidegate channel promote {channel} {release_id}"
    return inputs.make_remedy(steps.PROMOTE, channel, command, when)


def roll_back(channel: str) -> inputs.Remedy:
    command = f"tidegate channel rollback {channel} --reason …"
    return inputs.make_remedy(steps.ROLL_BACK, channel, command, "if the release is bad")


def end_hold(channel: str, when: str = "") -> inputs.Remedy:
    command = f"tidegate channel release {channel} --reason …"
    return inputs.make_remedy(steps.UNHOLD_CHANNEL, channel, command, when)


def end_freeze(freeze: Freeze, when: str = "") -> inputs.Remedy:
    """Return the end of a freeze, which needs the permission on every channel that it covers."""
    command = f"tidegate freeze delete {freeze.freeze_id} --reason …"
    where = tuple(map(scopes.channel_scope, freeze.channels)) or (roles.EVERYWHERE,)
    return inputs.Remedy(command, when, steps.END_FREEZE.verbs, where)


def resume(rollout_id: str, shown: str = "") -> inputs.Remedy:
    """Return the command that resumes a paused rollout, which may be ``shown`` by its channel."""
    channel = names.channel_of(rollout_id)
    command = f"tidegate rollout resume {shown or rollout_id} --reason …"
    return inputs.make_remedy(steps.RESUME_ROLLOUT, channel, command)


def abort(
    rollout_id: str, when: str = "if you want to leave the hosts as they are"
) -> inputs.Remedy:
    channel = names.channel_of(rollout_id)
    command = f"tidegate rollout abort {rollout_id} --reason …"
    return inputs.make_remedy(steps.ABORT_ROLLOUT, channel, command, when)


def skip(rollout_id: str, host_id: str, when: str = "") -> inputs.Remedy:
    return inputs.make_remedy(
        steps.SKIP_HOST,
        names.channel_of(rollout_id),
        f"tidegate rollout skip {rollout_id} {host_id} --reason …",
        when or f"to continue without {host_id}",
    )


def waive(rollout_id: str, host_id: str) -> inputs.Remedy:
    return inputs.make_remedy(
        steps.CLEAR_ROLLOUT,
        names.channel_of(rollout_id),
        f"tidegate rollout clear {rollout_id} --mode waive --host {host_id} --reason …",
        "if the host does not matter now",
    )


def _give_up(tally: rollout_rows.RolloutTally) -> inputs.Remedy:
    """Return what keeps a bad release from the channel: an abort, or a rollback if hosts have it.

    An abort is enough before any host has it: late hosts join the channel's newest success.
    """
    if _count_on_it(tally):
        return roll_back(tally.channel)
    return abort(tally.rollout_id, "if the release is bad")


def _override(rollout_id: str, gate: str, when: str = IN_EMERGENCY) -> inputs.Remedy:
    channel = names.channel_of(rollout_id)
    command = f"tidegate rollout override {rollout_id} --gate {gate} --reason …"
    return inputs.make_remedy(steps.OVERRIDE_GATE, channel, command, when)
