"""The gates whose answer depends on the rollout and its channel."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidegate.domain import provenance, times
from tidegate.domain.channels import ladder, rows as channel_rows
from tidegate.domain.gates import context, edges, inputs
from tidegate.domain.releases.rows import ACTUAL, actual_key
from tidegate.domain.rollouts import states as rollout_states, tallies


def check_halt(look: context.GateContext, host_id: str) -> context.Block | None:
    tally = look.tally
    if tally.halted_at is None:
        return None
    by = tally.halted_by
    if by is None:
        return context.Block("the rollout is halted", look.cite_tally())
    return context.Block(f"{by} failed", look.cite_record(by) or look.cite_tally())


def check_state(look: context.GateContext, host_id: str) -> context.Block | None:
    tally = look.tally
    if host_id not in look.late:
        if not tallies.may_go(tally, host_id):
            tried = ", ".join(tally.retried)
            return context.Block(
                f"only hosts that failed are tried again now: {tried}", look.cite_tally()
            )
        if tally.state in rollout_states.DISPATCHABLE:
            return None
        return context.Block(
            f"the rollout {rollout_states.describe_rollout_state(tally.state)}", look.cite_tally()
        )
    if tallies.late_failures(tally):
        return context.Block(
            "a host that came late failed; it must be skipped first", look.cite_tally()
        )
    return _check_late_host(look)


def _check_late_host(look: context.GateContext) -> context.Block | None:
    """Why no late host may join now."""
    tally = look.tally
    joins = look.state.channels.get(tally.channel)
    targets = () if joins is None else ladder.list_late_targets(joins.row)
    ids = [item if isinstance(item, str) else item.rollout_id for item in targets]
    if tally.rollout_id not in ids:
        newest = ids[0] if ids else "none yet"
        return context.Block(
            f"a late host joins the channel's newest success, {newest}",
            look.cite_channel(tally.channel),
        )
    if tally.state is rollout_states.RolloutState.PRUNED:
        return context.Block(
            f"{tally.rollout_id} is past its retention, so no late host joins it. Promote its "
            f"release again: tidegate channel promote {tally.channel} {tally.target_ref}",
            look.cite_tally(),
        )
    if tally.outcome in rollout_states.BAD:
        return context.Block(
            "the rollout failed, a late host waits for a success", look.cite_tally()
        )
    if tally.terminal_at is None or tally.state not in rollout_states.ORDERED:
        return context.Block(
            f"the rollout {rollout_states.describe_rollout_state(tally.state)}, "
            "a late host waits for its end",
            look.cite_tally(),
        )
    if tallies.is_unproved(tally) and (look.late_given or tallies.late_under_way(tally)):
        return context.Block(
            f"no host ran {tally.target_ref} here yet; late hosts go one at a time until one "
            "converged. To record a success, promote it again: "
            f"tidegate channel promote {tally.channel} {tally.target_ref}",
            look.cite_tally(),
        )
    return None


def check_pause(look: context.GateContext, host_id: str) -> context.Block | None:
    tally = look.tally
    if tally.paused_at is None:
        return None
    why = f": {tally.paused_reason}" if tally.paused_reason else ""
    return context.Block(f"paused by {tally.paused_by or 'an operator'}{why}", look.cite_tally())


def check_freeze(look: context.GateContext, host_id: str) -> context.Block | None:
    return next(list_freeze_blocks(look), None)


def list_freeze_blocks(look: context.GateContext) -> Iterator[context.Block]:
    """Yield a block for each freeze that covers the channel."""
    for seen in look.state.freezes:
        freeze = seen.row
        if _covers(freeze, look):
            yield context.Block(
                f"freeze {freeze.freeze_id}{times.describe_end(freeze.until)}: {freeze.reason}",
                inputs.GateEvidence(channel_rows.FREEZES.name, freeze.freeze_id, seen.version),
            )


def _covers(freeze: channel_rows.Freeze, look: context.GateContext) -> bool:
    ours = not freeze.channels or look.tally.channel in freeze.channels
    return ours and (freeze.until is None or look.state.at < freeze.until)


def check_hold(look: context.GateContext, host_id: str) -> context.Block | None:
    found = look.state.channels.get(look.tally.channel)
    if found is None or found.row.held_at is None:
        return None
    return context.Block(
        f"channel {found.row.channel} is held by {found.row.held_by}: {found.row.held_reason}",
        look.cite_channel(found.row.channel),
    )


def check_quarantine(look: context.GateContext, host_id: str) -> context.Block | None:
    found = look.rollout.quarantined
    if found is None:
        return None
    row = found.row
    return context.Block(
        f"{look.tally.target_ref} is quarantined on {row.channel}: {row.reason} on {row.host_id}",
        inputs.GateEvidence(
            channel_rows.QUARANTINE.name,
            channel_rows.quarantine_key(row.channel, row.closure_hash).id,
            found.version,
        ),
    )


def check_edges(look: context.GateContext, host_id: str) -> context.Block | None:
    """Every edge must be open. One that is shut gives the reason."""
    found = find_shut_edge(look)
    return None if found is None else context.Block(found.reason, found.evidence, until=found.until)


def find_shut_edge(look: context.GateContext) -> edges.EdgeVerdict | None:
    """Return the verdict of a shut edge; None: all are open.

    It is the first one, or the first one where something is known against the release.
    """
    shut = [found for found in list_edge_verdicts(look) if not found.passed]
    return next((found for found in shut if found.concern), shut[0] if shut else None)


def list_edge_verdicts(look: context.GateContext) -> Iterator[edges.EdgeVerdict]:
    waits = edges.WaitingRelease(look.tally.channel, look.tally.target_ref)
    for edge in look.tally.edges:
        yield edges.judge_edge(edge, waits, look.rollout.edges[edge.channel], look.state.at)


def check_start(look: context.GateContext, host_id: str) -> context.Block | None:
    """Block before the rollout's start time.

    Late hosts wait too: a rollout may be over before its start, if all its waves were skipped or a
    person overrode this gate for it.
    """
    tally = look.tally
    if tally.start_at is None or look.state.at >= tally.start_at:
        return None
    return context.Block(
        f"starts at {times.describe_time(tally.start_at)}", look.cite_tally(), until=tally.start_at
    )


def check_freshness(look: context.GateContext, host_id: str) -> context.Block | None:
    """Block while the evidence of the pin is too old.

    If the pin moved on to a release that did not succeed, late hosts still join the success before
    it. Nobody can renew its evidence any more, so it is not asked for.
    """
    seconds = look.rollout.chart.plan.policy.freshness_seconds
    if seconds is None:
        return None
    pin = look.rollout.pin
    if pin is None or pin.row.pinned_release_id != look.tally.target_ref:
        if look.tally.outcome is rollout_states.Outcome.SUCCEEDED:
            return None
        return context.Block(
            f"nothing confirms that {look.tally.target_ref} is pinned on {look.tally.channel}",
            cite_pin(look, host_id),
        )
    observed_at = pin.row.provenance.observed_at
    if look.state.at - provenance.moment(observed_at) <= timedelta(seconds=seconds):
        return None
    return context.Block(
        f"the pin's evidence was observed at {observed_at}, more than {seconds} s ago. Renew it: "
        f"tidegate channel promote {look.tally.channel} {look.tally.target_ref} --refresh",
        cite_pin(look, host_id),
    )


def cite_pin(look: context.GateContext, host_id: str) -> inputs.GateEvidence | None:
    pin = look.rollout.pin
    if pin is None:
        return None
    return inputs.GateEvidence(ACTUAL.name, actual_key(pin.row.scope).id, pin.version)
