"""Where an open rollout is, in words for people. Waves are counted from 1 here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.channels.policy import default_wave_name
from tidegate.domain.hosts.states import SETTLED, HostState
from tidegate.domain.rollouts import rows, tallies


class RolloutProgress(Struct, frozen=True, omit_defaults=True):
    """What the rollout does now, and when that ends by itself."""

    says: str
    until: datetime | None = None  # None: not known yet


def name_wave(tally: rows.RolloutTally, number: int) -> str:
    """Return the wave's name, or its number (from 1) if the policy does not name it."""
    return _own_name(tally, number) or str(number + 1)


def _own_name(tally: rows.RolloutTally, number: int) -> str:
    """Return the policy's name for the wave; empty: it has none, or the plan has no such wave."""
    name = tally.waves[number].name if number < len(tally.waves) else ""
    return "" if name == default_wave_name(number) else name


def describe_progress(
    tally: rows.RolloutTally, soaks_until: datetime | None, shut: Sequence[str] = ()
) -> RolloutProgress | None:
    """Describe what the rollout is doing; None: it is over, stopped or paused.

    ``soaks_until``: when the last soaking host is done. ``shut``: the gates that hold hosts back.
    """
    stopped = tally.halted_at is not None or tally.paused_at is not None
    if tally.outcome is not None or stopped or not tally.waves:
        return None
    last = len(tally.waves) - 1
    number = min(max(tallies.reached(tally), 0), last)
    starts_at = tallies.next_wave_at(tally)
    if tallies.waits_for_person(tally.waves[0]):
        return RolloutProgress(f"{_describe_wave(tally, 0)} waits for a person")
    if (
        tally.done_at is not None
        and number < last
        and tallies.waits_for_person(tally.waves[number + 1])
    ):
        return RolloutProgress(f"{_describe_wave(tally, number + 1)} waits for a person")
    if starts_at is not None and tally.waves[number + 1].delay_seconds:
        return RolloutProgress(
            f"{_describe_wave(tally, number + 1)} waits for its delay", starts_at
        )
    wave = tally.waves[number]
    busy = wave.hosts - wave.left - wave.count(*SETTLED)
    if busy and wave.count(HostState.SOAKING) == busy:
        return RolloutProgress(f"{_describe_wave(tally, number)} soaks", soaks_until)
    done = f"{wave.count(*SETTLED)} of {wave.hosts - wave.left} hosts done"
    held = [gate for gate in shut if gate != "wave-promotion"]
    waits = f", waits for {', '.join(held)}" if held and not tallies.under_way(tally) else ""
    return RolloutProgress(f"{_describe_wave(tally, number)}: {done}{waits}")


def _describe_wave(tally: rows.RolloutTally, number: int) -> str:
    name = _own_name(tally, number)
    return f"wave {number + 1} of {len(tally.waves)}{f' ({name})' if name else ''}"
