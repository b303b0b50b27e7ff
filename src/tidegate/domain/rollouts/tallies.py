"""Counts of a rollout's hosts, by wave and state. Hosts are never listed: the cost of an event does
not grow with the fleet.

    planned ──joins──▶ Pending ──moves──▶ …     a host is in one count at a time
       ▲─────returns─────┴─────────────┘        its order was cancelled, or it is retried
       └──leaves──▶ left                        waived, skipped, or its failure is tolerated

For a wave of n hosts, c Converged, d Deferred, l left:

    done     skipped, forced, or  c ≥ min(converged_min, n)  and  c + d ≥ success_percent of n − l
    advance  every wave so far is done, the next one's delay is over, and it needs no operator
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tidegate.domain.hosts.states import SETTLED, HostState, OnFailure
from tidegate.domain.rollouts import refusals, rows, states as rollout_states

# Not Deferred: the release does not run there, and a halt cancels the order.
ON_TARGET = (HostState.ACTIVATING, HostState.SOAKING)
_TRIED = (HostState.FAILED, HostState.REVERTED)
UNDER_WAY = (HostState.PENDING, *ON_TARGET, HostState.DEFERRED)


def wave_of(tally: rows.RolloutTally, wave: int) -> rows.WaveTally:
    """Raises: RolloutInvariant: the plan has no such wave."""
    if not 0 <= wave < len(tally.waves):
        raise broken(tally, f"there is no wave {wave}, the plan has {len(tally.waves)}")
    return tally.waves[wave]


def broken(tally: rows.RolloutTally, what: str) -> refusals.RolloutInvariant:
    return refusals.RolloutInvariant(tally.rollout_id, tally.state, what)


# ── changes of the counts ─────────────────────────────────────────────────────────────────────────


def joined(tally: rows.RolloutTally, wave: int) -> rows.RolloutTally:
    """Count a host that joins. Raises: RolloutInvariant: all hosts of the wave have their order."""
    counts = wave_of(tally, wave)
    if counts.joined + counts.left >= counts.hosts:
        raise broken(tally, f"all {counts.hosts} hosts of wave {wave} are counted already")
    tally = replace(tally, busy=tally.busy + 1)
    return _with(tally, wave, replace(counts, states=_added(counts.states, HostState.PENDING)))


def moved(
    tally: rows.RolloutTally, wave: int, from_: HostState, to: HostState
) -> rows.RolloutTally:
    """Count one host of the wave in its new state. To Pending it is only removed, until it joins
    again.

    Raises:
        RolloutInvariant: no host is counted in the old state.
    """
    counts = wave_of(tally, wave)
    counts = replace(counts, states=_moved(tally, counts.states, from_, to))
    if counts.skipped and to is HostState.PENDING and from_ not in _TRIED:
        counts = replace(counts, left=counts.left + 1)  # it gets no more orders
    return _with(tally, wave, counts)


def left(
    tally: rows.RolloutTally, wave: int, state: HostState | None, *, tolerated: bool = False
) -> rows.RolloutTally:
    """Stop counting one host of the wave; without a state it never joined.

    Raises:
        RolloutInvariant: no host is counted in this state.
    """
    counts = wave_of(tally, wave)
    if state is None:
        if counts.skipped:
            return tally  # it was skipped with its wave
        if counts.joined + counts.left >= counts.hosts:
            raise broken(tally, f"every host of wave {wave} has joined or left")
    else:
        counts = replace(counts, states=_taken(tally, counts.states, state))
    counts = replace(counts, left=counts.left + 1, tolerated=counts.tolerated + tolerated)
    gave_up = state in (HostState.FAILED, HostState.REVERTED)
    return _with(replace(tally, gave_up=tally.gave_up + gave_up), wave, counts)


def skipped(tally: rows.RolloutTally, wave: int) -> rows.RolloutTally:
    """Skip the wave: its hosts without an order leave. Raises: RolloutInvariant."""
    counts = wave_of(tally, wave)
    return _with(tally, wave, replace(counts, skipped=True, left=counts.hosts - counts.joined))


def marked(tally: rows.RolloutTally, wave: int, **marks: bool) -> rows.RolloutTally:
    """Mark the wave as continued or forced by an operator. Raises: RolloutInvariant: no such
    wave.
    """
    return _with(tally, wave, replace(wave_of(tally, wave), **marks))


def joined_late(tally: rows.RolloutTally) -> rows.RolloutTally:
    """Count a late host that joins."""
    return replace(tally, late=_added(tally.late, HostState.PENDING), busy=tally.busy + 1)


def freed(tally: rows.RolloutTally) -> rows.RolloutTally:
    """Count one host whose order is over. Raises: RolloutInvariant: no host has an order."""
    if tally.busy < 1:
        raise broken(tally, "no host has an order of it")
    return replace(tally, busy=tally.busy - 1)


def moved_late(tally: rows.RolloutTally, from_: HostState, to: HostState) -> rows.RolloutTally:
    """Count a late host in its new state. Raises: RolloutInvariant: none is counted in the old
    one.
    """
    return replace(tally, late=_moved(tally, tally.late, from_, to))


def left_late(tally: rows.RolloutTally, state: HostState | None) -> rows.RolloutTally:
    """Stop counting a failed late host, so that others can join. Raises: RolloutInvariant."""
    if state is None:
        raise broken(tally, "a late host without an order is not skipped")
    return replace(tally, late=_taken(tally, tally.late, state))


def late_failures(tally: rows.RolloutTally) -> int:
    """Count the late hosts that failed or rolled back, and were not skipped since."""
    return tally.late.get(HostState.FAILED, 0) + tally.late.get(HostState.REVERTED, 0)


def is_unproved(tally: rows.RolloutTally) -> bool:
    """Whether no host ran the release when the rollout ended, and no late host converged since.

    Late hosts then go one at a time.
    """
    return tally.outcome is rollout_states.Outcome.EMPTY and not tally.late.get(HostState.CONVERGED)


def late_under_way(tally: rows.RolloutTally) -> int:
    """Count the late hosts that have an order, or wait for their reboot."""
    return sum(tally.late.get(state, 0) for state in UNDER_WAY)


def is_late_order_void(
    tally: rows.RolloutTally, *, late: bool, dispatched_at: datetime | None
) -> bool:
    """Whether the order of a late host is void: another rollout replaced this one since.

    The channel may have been rolled back from the release. A replaced rollout may still order late
    hosts, if nothing succeeded after it. Those orders are valid.
    """
    replaced_at = tally.superseded_at
    return late and replaced_at is not None and (dispatched_at or replaced_at) < replaced_at


def _with(tally: rows.RolloutTally, wave: int, counts: rows.WaveTally) -> rows.RolloutTally:
    waves = (*tally.waves[:wave], counts, *tally.waves[wave + 1 :])
    return replace(tally, waves=waves)


def _moved(
    tally: rows.RolloutTally, states: dict[HostState, int], from_: HostState, to: HostState
) -> dict[HostState, int]:
    taken = _taken(tally, states, from_)
    return taken if to is HostState.PENDING else _added(taken, to)


def _added(states: dict[HostState, int], state: HostState) -> dict[HostState, int]:
    return states | {state: states.get(state, 0) + 1}


def _taken(
    tally: rows.RolloutTally, states: dict[HostState, int], state: HostState
) -> dict[HostState, int]:
    if not states.get(state):
        raise broken(tally, f"no host is counted as {state}")
    if states[state] == 1:
        return {known: count for known, count in states.items() if known is not state}
    return states | {state: states[state] - 1}


# ── questions about the counts ────────────────────────────────────────────────────────────────────


def total(tally: rows.RolloutTally, *states: HostState) -> int:
    """Count the hosts of all waves in these states."""
    return sum([wave.count(*states) for wave in tally.waves])


def count_skipped(tally: rows.RolloutTally) -> int:
    """Count the planned hosts that left because they were skipped, not waived or tolerated."""
    return sum(wave.left - wave.tolerated for wave in tally.waves) - tally.waived


def due_are_settled(tally: rows.RolloutTally) -> bool:
    """Whether every wave so far is done, and its hosts are Converged, Deferred or left."""
    return all(_is_settled(wave) and is_done(wave) for wave in _due(tally))


def due_are_done(tally: rows.RolloutTally) -> bool:
    """Whether every wave so far is done; some of their hosts may still be under way."""
    return all(map(is_done, _due(tally)))


def _due(tally: rows.RolloutTally) -> tuple[rows.WaveTally, ...]:
    return tally.waves[: tally.current_wave + 1]


def reached(tally: rows.RolloutTally) -> int:
    """Return the last wave that gets orders now: all before it are done.

    It is -1 if the first wave waits for an operator. Usually it is the current wave. But a host
    that waited for its reboot when the rollout advanced may need another order; then later waves
    wait for it again, although the current wave stays.
    """
    if tally.waves and waits_for_person(tally.waves[0]):
        return -1
    for number in range(min(tally.current_wave, len(tally.waves))):
        if not is_done(tally.waves[number]):
            return number
    return tally.current_wave


def is_done(wave: rows.WaveTally) -> bool:
    """Whether the next wave need not wait for this one any longer.

    This is the one predicate of waves: the current wave, the orders and ``explain`` all use it.
    """
    if wave.skipped or wave.forced:
        return True
    counted = wave.hosts - wave.left
    wanted = -(-wave.success_percent * counted // 100)  # rounded up
    return missing(wave) == 0 and wave.count(*SETTLED) >= wanted


def _is_settled(wave: rows.WaveTally) -> bool:
    return wave.count(*SETTLED) + wave.left == wave.hosts


def waits_for_person(wave: rows.WaveTally) -> bool:
    """Whether an operator must start the wave."""
    return wave.manual and not (wave.continued or wave.skipped or wave.forced)


def next_wave(tally: rows.RolloutTally) -> rows.WaveTally | None:
    """Return the wave that the rollout advances to next."""
    number = tally.current_wave + 1
    return tally.waves[number] if number < len(tally.waves) else None


def next_wave_at(tally: rows.RolloutTally) -> datetime | None:
    """Return when the next wave may start if nothing changes; None: time alone does not start
    it.
    """
    wave = next_wave(tally)
    stopped = tally.halted_at is not None or tally.paused_at is not None or bool(tally.retried)
    if (
        wave is None
        or tally.done_at is None
        or stopped
        or tally.state not in rollout_states.DISPATCHABLE
    ):
        return None
    if waits_for_person(wave) or waits_for_person(tally.waves[0]):
        return None
    return tally.done_at + timedelta(seconds=0 if wave.skipped else wave.delay_seconds)


def timed(tally: rows.RolloutTally, at: datetime) -> rows.RolloutTally:
    """Set the times of an open rollout: when the waves so far were done, and when a timer must
    check the next one.
    """
    done_at = (tally.done_at or at) if due_are_done(tally) else None
    if done_at != tally.done_at:
        tally = replace(tally, done_at=done_at)
    due_at = next_wave_at(tally)
    if due_at is not None and due_at <= at:
        due_at = None
    return tally if due_at == tally.due_at else replace(tally, due_at=due_at)


def may_advance(tally: rows.RolloutTally, now: datetime) -> bool:
    """Whether the rollout advances to the next wave now."""
    due_at = next_wave_at(tally)
    return due_at is not None and now >= due_at


def missing(wave: rows.WaveTally) -> int:
    """Return how many hosts of the wave must still converge before the next wave starts."""
    if wave.skipped or wave.forced:
        return 0
    wanted = min(wave.converged_min, wave.hosts)
    return max(0, wanted - wave.count(HostState.CONVERGED))


def all_converged(tally: rows.RolloutTally) -> bool:
    """Whether every planned host is Converged or left."""
    return all(wave.count(HostState.CONVERGED) + wave.left == wave.hosts for wave in tally.waves)


def is_everywhere(tally: rows.RolloutTally) -> bool:
    """Whether every planned host converged, and none failed or drifted after the end."""
    converged = all(wave.count(HostState.CONVERGED) == wave.hosts for wave in tally.waves)
    return bool(tally.waves) and converged and not tally.degraded


def rolling_back(tally: rows.RolloutTally) -> int:
    """Count the failed hosts whose rollback has neither completed nor failed yet."""
    if tally.on_failure is not OnFailure.ROLLBACK:
        return 0
    return total(tally, HostState.FAILED) - tally.rollback_failed


def on_target(tally: rows.RolloutTally) -> int:
    """Count the hosts that run the target or may still switch to it.

    Pending hosts of a halted rollout may not: their acknowledgement is refused.
    """
    return total(tally, *ON_TARGET) + rolling_back(tally)


def stuck(tally: rows.RolloutTally) -> int:
    """Count the failed hosts that nothing will roll back."""
    return total(tally, HostState.FAILED) - rolling_back(tally)


def troubled(tally: rows.RolloutTally) -> bool:
    """Whether some counted host failed or rolled back."""
    return total(tally, HostState.FAILED, HostState.REVERTED) > 0


def may_go(tally: rows.RolloutTally, host_id: str) -> bool:
    """Whether the host may take an order: not while an operator retries only others."""
    return not tally.retried or host_id in tally.retried


def under_way(tally: rows.RolloutTally) -> int:
    """Count the hosts that still have something to report.

    This includes late hosts, and skipped or waived hosts that are rolling back.
    """
    late = sum(tally.late.get(state, 0) for state in UNDER_WAY)
    return max(tally.busy, total(tally, *UNDER_WAY) + rolling_back(tally) + late)


def is_started(tally: rows.RolloutTally, now: datetime) -> bool:
    """Whether the start time has come, or the rollout passes that gate."""
    if tally.start_at is None or now >= tally.start_at:
        return True
    return override_of(tally, rollout_states.OverridableGate.START_AT, now) is not None


# ── overrides ─────────────────────────────────────────────────────────────────────────────────────


def override_of(
    tally: rows.RolloutTally, gate: rollout_states.OverridableGate, now: datetime
) -> rows.GateOverride | None:
    """Return the override by which the rollout passes the gate now.

    It ends with the rollout: the person who overrode the gate did not mean late hosts.
    """
    if tally.outcome is not None:
        return None
    for item in tally.overrides:
        if item.gate is gate and (item.until is None or now < item.until):
            return item
    return None


def list_passed(
    tally: rows.RolloutTally, now: datetime
) -> frozenset[rollout_states.OverridableGate]:
    """Return the gates that the rollout passes now, whatever their verdict."""
    if tally.emergency and tally.outcome is None:
        return rollout_states.ALL_PASSED
    if not tally.overrides:
        return rollout_states.NONE_PASSED
    return frozenset(
        gate for gate in rollout_states.OverridableGate if override_of(tally, gate, now) is not None
    )


def has_hosts_to_start(tally: rows.RolloutTally) -> bool:
    """Whether a planned host has no order yet, or has not acknowledged it."""
    return any(
        wave.joined + wave.left < wave.hosts or wave.count(HostState.PENDING)
        for wave in tally.waves
    )


def may_hasten(tally: rows.RolloutTally, *, ignore_budgets: bool = False) -> bool:
    """Whether the rollout is an open rollback that an emergency would speed up.

    One that is an emergency itself is only sped up by one that ignores budgets. After a host failed
    in it, an emergency goes further back instead.
    """
    is_going = tally.outcome is None and tally.halted_at is None
    return tally.rollback_of is not None and is_going and (ignore_budgets or not tally.emergency)
