"""Rollouts as lines of a list: bar, counts and what they wait for. Reads tallies, never hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, html, state_labels
from tidegate.dashboard.view_models import rollout_screens
from tidegate.domain.hosts.states import SETTLED, HostState
from tidegate.domain.rollouts import rows, states

# Order of the parts of a bar: what is done, what failed, what is under way.
ORDER = (
    HostState.CONVERGED,
    HostState.DEFERRED,
    HostState.REVERTED,
    HostState.FAILED,
    HostState.SOAKING,
    HostState.ACTIVATING,
    HostState.PENDING,
)
BAD = (HostState.FAILED, HostState.REVERTED)
BATCH = 30  # rows of three kinds that are read at once


def wave_parts(wave: rows.WaveTally) -> list[tuple[str, str, int]]:
    """The parts of a wave's bar. Skipped and waived hosts count as done: the wave ignores them."""
    parts = [
        (state_labels.HOSTS[state].tone, state_labels.HOSTS[state].word, wave.states.get(state, 0))
        for state in ORDER
    ]
    return [*parts[:2], (state_labels.LEFT.tone, state_labels.LEFT.word, wave.left), *parts[2:]]


LEFT = "left"  # of a square in the grid: waived or skipped
# What a bar shows from the left, by the names of the grid. Hosts without an order are the blank
# rest.
BAR_ORDER = (*map(str, ORDER[:2]), LEFT, *map(str, ORDER[2:]))


def bar_place(name: str) -> int:
    """The place of a grid state in a wave's bar; a place after the others is not drawn."""
    return BAR_ORDER.index(name) if name in BAR_ORDER else len(BAR_ORDER)


def is_done(name: str) -> bool:
    """Whether a host in this state of the grid counts as done."""
    return name == LEFT or name in map(str, SETTLED)


def wave_bar(wave: rows.WaveTally) -> components.Bar:
    return components.bar(wave_parts(wave), of=[wave.hosts])


def count_settled(wave: rows.WaveTally) -> int:
    return wave.count(*SETTLED) + wave.left


def marks(tally: rows.RolloutTally) -> tuple[components.Chip, ...]:
    """What is true of a rollout in addition to its state or outcome."""
    found: list[components.Chip] = []
    dispatches = tally.state in states.DISPATCHABLE
    if dispatches and tally.halted_at is not None:  # later, the state itself says that it stopped
        found.append(state_labels.HALTED)
    if dispatches and tally.paused_at is not None:
        found.append(state_labels.PAUSED)
    if tally.degraded:
        found.append(state_labels.DEGRADED)
    return tuple(found)


def state_chip(rollout: rows.Rollout, tally: rows.RolloutTally | None) -> components.Chip:
    """How the rollout ended, or what it does now, in the words of docs/rollouts.md."""
    if tally is not None and tally.outcome is not None:
        return state_labels.OUTCOMES[tally.outcome]
    chip = state_labels.ROLLOUTS[rollout.state]
    if tally is None or rollout.state not in states.CLEARABLE:
        return chip
    return structs.replace(chip, word=f"Stopped: {describe_stop(tally)}")


def describe_stop(tally: rows.RolloutTally) -> str:
    """Which host halted the rollout, and whether that host rolled back."""
    how = "rolled back" if tally.state is states.RolloutState.REVERTED else "failed"
    return f"{tally.halted_by or 'a host'} {how}"


def summary(
    rollout: rows.Rollout, tally: rows.RolloutTally | None, gates: rows.RolloutGates | None
) -> rollout_screens.RolloutLine:
    """Summarize a rollout in a line."""
    waves: Sequence[rows.WaveTally] = () if tally is None else tally.waves
    hosts = sum(wave.hosts for wave in waves)
    done = sum(map(count_settled, waves))
    current = waves[rollout.current_wave] if rollout.current_wave < len(waves) else None
    blocked = () if gates is None else gates.blocked
    is_open = rollout.in_flight is not None
    return rollout_screens.RolloutLine(
        rollout_id=rollout.rollout_id,
        channel=rollout.channel,
        target_ref=rollout.target_ref,
        state=state_chip(rollout, tally),
        also=() if tally is None else marks(tally),
        is_stopped=is_open and tally is not None and tally.halted_at is not None,
        opened_at=rollout.opened_at,
        bar=components.bar(*map(wave_parts, waves), of=[wave.hosts for wave in waves]),
        summary=f"{done:,} of {html.counted(hosts, 'host')} done",
        hosts=hosts,
        settled=done,
        failed=sum(wave.count(*BAD) for wave in waves),
        wave_name="" if current is None or not is_open else current.name or "all",
        wave_number=rollout.current_wave,
        wave_count=len(waves),
        waits=blocked[0].reason if blocked and is_open else "",
        opened_by=rollout.opened_by,
        took_seconds=_took(tally),
    )


def _took(tally: rows.RolloutTally | None) -> int | None:
    if tally is None or tally.outcome_at is None:
        return None
    return int((tally.outcome_at - tally.opened_at).total_seconds())


def summaries(
    reads: Reads, rollouts: Iterable[rows.Rollout]
) -> tuple[rollout_screens.RolloutLine, ...]:
    """Summarize rollouts, newest first."""
    ordered = sorted(rollouts, key=lambda item: item.opened_at, reverse=True)
    lines: list[rollout_screens.RolloutLine] = []
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        wanted: list[tuple[Any, type[Any]]] = []
        for item in batch:
            wanted += [
                (rows.tally_key(item.rollout_id), rows.RolloutTally),
                (rows.gates_key(item.rollout_id), rows.RolloutGates),
            ]
        found = [None if row is None else row.row for row in reads.find_all(*wanted)]
        for number, item in enumerate(batch):
            lines.append(summary(item, found[2 * number], found[2 * number + 1]))
    return tuple(lines)
