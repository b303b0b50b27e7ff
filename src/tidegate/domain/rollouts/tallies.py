"""Counting a rollout's hosts, by wave and state. Hosts are never listed: the cost of an event does
not grow with the fleet.

    planned ──joins──▶ Pending ──moves──▶ …     a host is in one count at a time
       ▲────goes back────┴─────────────┘        its order was cancelled, or it is tried again
       └──leaves──▶ left                        waived, skipped, or its failure is allowed for
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.hosts.states import SETTLED, HostState, OnFailure
from tidegate.domain.rollouts.refusals import RolloutInvariant
from tidegate.domain.rollouts.rows import GateOverride, RolloutTally, WaveTally
from tidegate.domain.rollouts.states import NONE_PASSED, OverridableGate

# Not Deferred: nothing runs there, and halting takes the order back.
ON_TARGET = (HostState.ACTIVATING, HostState.SOAKING)
UNDER_WAY = (HostState.PENDING, *ON_TARGET, HostState.DEFERRED)


def wave_of(tally: RolloutTally, wave: int) -> WaveTally:
    """Raises: RolloutInvariant: the plan has no such wave."""
    if not 0 <= wave < len(tally.waves):
        raise broken(tally, f"there is no wave {wave}, the plan has {len(tally.waves)}")
    return tally.waves[wave]


def broken(tally: RolloutTally, what: str) -> RolloutInvariant:
    return RolloutInvariant(tally.rollout_id, tally.state, what)


# ── hosts come, move and go ───────────────────────────────────────────────────────────────────────


def joined(tally: RolloutTally, wave: int) -> RolloutTally:
    """Raises: RolloutInvariant: the wave's hosts all have their order."""
    counts = wave_of(tally, wave)
    if counts.joined + counts.left >= counts.hosts:
        raise broken(tally, f"all {counts.hosts} hosts of wave {wave} are counted already")
    tally = replace(tally, busy=tally.busy + 1)
    return _with(tally, wave, replace(counts, states=_added(counts.states, HostState.PENDING)))


def moved(tally: RolloutTally, wave: int, from_: HostState, to: HostState) -> RolloutTally:
    """One host of the wave goes on; to Pending it only goes away, until it joins again.

    Raises:
        RolloutInvariant: none is counted there.
    """
    counts = wave_of(tally, wave)
    return _with(tally, wave, replace(counts, states=_moved(tally, counts.states, from_, to)))


def left(
    tally: RolloutTally, wave: int, state: HostState | None, *, tolerated: bool = False
) -> RolloutTally:
    """One host of the wave does not count any more; without a state it never joined.

    Raises:
        RolloutInvariant: none is counted there.
    """
    counts = wave_of(tally, wave)
    if state is None:
        if counts.joined + counts.left >= counts.hosts:
            raise broken(tally, f"every host of wave {wave} has joined or left")
    else:
        counts = replace(counts, states=_taken(tally, counts.states, state))
    counts = replace(counts, left=counts.left + 1, tolerated=counts.tolerated + tolerated)
    gave_up = state in (HostState.FAILED, HostState.REVERTED)
    return _with(replace(tally, gave_up=tally.gave_up + gave_up), wave, counts)


def joined_late(tally: RolloutTally) -> RolloutTally:
    """A host that came after the plan joins."""
    return replace(tally, late=_added(tally.late, HostState.PENDING), busy=tally.busy + 1)


def freed(tally: RolloutTally) -> RolloutTally:
    """One host is through with its order. Raises: RolloutInvariant: none has one."""
    if tally.busy < 1:
        raise broken(tally, "no host has an order of it")
    return replace(tally, busy=tally.busy - 1)


def moved_late(tally: RolloutTally, from_: HostState, to: HostState) -> RolloutTally:
    """A host that came after the plan moves. Raises: RolloutInvariant: none is counted there."""
    return replace(tally, late=_moved(tally, tally.late, from_, to))


def left_late(tally: RolloutTally, state: HostState | None) -> RolloutTally:
    """A late host that failed holds nobody back any more. Raises: RolloutInvariant."""
    if state is None:
        raise broken(tally, "a late host without an order is not skipped")
    return replace(tally, late=_taken(tally, tally.late, state))


def late_failures(tally: RolloutTally) -> int:
    """Late hosts that failed or rolled back, and were not skipped since."""
    return tally.late.get(HostState.FAILED, 0) + tally.late.get(HostState.REVERTED, 0)


def _with(tally: RolloutTally, wave: int, counts: WaveTally) -> RolloutTally:
    waves = (*tally.waves[:wave], counts, *tally.waves[wave + 1 :])
    return replace(tally, waves=waves)


def _moved(
    tally: RolloutTally, states: dict[HostState, int], from_: HostState, to: HostState
) -> dict[HostState, int]:
    taken = _taken(tally, states, from_)
    return taken if to is HostState.PENDING else _added(taken, to)


def _added(states: dict[HostState, int], state: HostState) -> dict[HostState, int]:
    return states | {state: states.get(state, 0) + 1}


def _taken(
    tally: RolloutTally, states: dict[HostState, int], state: HostState
) -> dict[HostState, int]:
    if not states.get(state):
        raise broken(tally, f"no host is counted as {state}")
    if states[state] == 1:
        return {known: count for known, count in states.items() if known is not state}
    return states | {state: states[state] - 1}


# ── what the counts say ───────────────────────────────────────────────────────────────────────────


def total(tally: RolloutTally, *states: HostState) -> int:
    """Hosts of all waves in these states."""
    return sum([wave.count(*states) for wave in tally.waves])


def due_are_settled(tally: RolloutTally) -> bool:
    """Whether every host that may go is Converged, waits for its reboot, or left, and enough of
    them really converged.
    """
    return all(map(_is_settled, tally.waves[: tally.current_wave + 1]))


def reached(tally: RolloutTally) -> int:
    """The last wave that gets orders now: all before it are settled.

    That is where the cursor stands, unless a host waited for its reboot when the cursor passed
    it, and is not through since. The cursor stays; later waves wait for that host again.
    """
    for number in range(min(tally.current_wave, len(tally.waves))):
        if not _is_settled(tally.waves[number]):
            return number
    return tally.current_wave


def _is_settled(wave: WaveTally) -> bool:
    return missing(wave) == 0 and wave.count(*SETTLED) + wave.left == wave.hosts


def missing(wave: WaveTally) -> int:
    """How many hosts of the wave have yet to converge before the next wave starts."""
    wanted = min(wave.converged_min, wave.hosts)
    return max(0, wanted - wave.count(HostState.CONVERGED))


def all_converged(tally: RolloutTally) -> bool:
    """Whether every planned host is Converged or left."""
    return all(wave.count(HostState.CONVERGED) + wave.left == wave.hosts for wave in tally.waves)


def rolling_back(tally: RolloutTally) -> int:
    """Failed hosts of which a rollback, or the word that it failed, is still to come."""
    if tally.on_failure is not OnFailure.ROLLBACK:
        return 0
    return total(tally, HostState.FAILED) - tally.rollback_failed


def on_target(tally: RolloutTally) -> int:
    """Hosts that run the target or may come to. A halted rollout's Pending hosts may not: their
    acknowledgement is refused.
    """
    return total(tally, *ON_TARGET) + rolling_back(tally)


def stuck(tally: RolloutTally) -> int:
    """Failed hosts that nothing will bring back."""
    return total(tally, HostState.FAILED) - rolling_back(tally)


def troubled(tally: RolloutTally) -> bool:
    """Whether some host failed or rolled back, and still counts."""
    return total(tally, HostState.FAILED, HostState.REVERTED) > 0


def may_go(tally: RolloutTally, host_id: str) -> bool:
    """Whether the host may take an order: not while an operator has others tried again."""
    return not tally.retried or host_id in tally.retried


def under_way(tally: RolloutTally) -> int:
    """Hosts of which something is still to be heard: late ones too, and those that left on their
    way back.
    """
    late = sum(tally.late.get(state, 0) for state in UNDER_WAY)
    return max(tally.busy, total(tally, *UNDER_WAY) + rolling_back(tally) + late)


# ── overrides ─────────────────────────────────────────────────────────────────────────────────────


def override_of(tally: RolloutTally, gate: OverridableGate, now: datetime) -> GateOverride | None:
    """The override by which the rollout passes the gate now. It ends with the rollout: hosts that
    come late are not what the person had in mind.
    """
    if tally.outcome is not None:
        return None
    for item in tally.overrides:
        if item.gate is gate and (item.until is None or now < item.until):
            return item
    return None


def list_passed(tally: RolloutTally, now: datetime) -> frozenset[OverridableGate]:
    """The gates that the rollout passes now, whatever they say."""
    if not tally.overrides:
        return NONE_PASSED
    return frozenset(gate for gate in OverridableGate if override_of(tally, gate, now) is not None)
