"""The simulation finds each planted bug, and finds nothing without one."""

from __future__ import annotations

from functools import cache

import pytest

from tests.simulation.mutants import BUGS, SWITCH, planted
from tidegate.simulate.scenario import draw_scenario
from tidegate.simulate.world import World

SEEDS_MAX = 60  # within which each bug is found

# How each bug must show, so that it is not found by an accident of how it was planted.
SIGNS = {
    "view_in_a_second_transaction": "rollouts/",
    "follow_ups_in_a_second_transaction": "the row is",
    "acknowledge_before_commit": "RO-11",
    "duplicate_check_removed": "H4",
    "repeat_refused": "H4",
    "cursor_moved_by_joins": "the cursor is not in the log",
    "wave_passed_for_good": "RO-12",
    "soak_from_open": "H9",
    "quarantine_not_loaded": "RO-10",
    "halted_still_dispatching": "R9",
    "budget_without_reservations": "budget",
    "quarantine_not_seen_by_gates": "the rows say closure_quarantined",
    "quarantine_not_seen_by_rows": "RO-10",
    "halt_not_seen_by_gates": "the rows say rollout_halted",
    "halt_not_seen_by_rows": "R9",
    "budget_not_seen_by_gates": "the rows say budget_exhausted",
    "budget_not_seen_by_rows": "budget",
    "freeze_not_seen_by_gates": "the rows say channel_frozen",
    "stops_not_seen_by_rows": "DispatchReserved while",
    "stops_not_seen_at_the_acknowledgement": "DispatchAck while",
    "wave_not_seen_by_gates": "the rows say wave_not_reached",
    "wave_not_seen_by_rows": "R8",
    "edge_opened_by_an_idle_channel": "OP-2",
}

# Where each was found last. It is tried first, so that a run need not search.
SEEDS = {
    "view_in_a_second_transaction": 0,
    "follow_ups_in_a_second_transaction": 0,
    "acknowledge_before_commit": 0,
    "duplicate_check_removed": 0,
    "repeat_refused": 0,
    "cursor_moved_by_joins": 1,
    "wave_passed_for_good": 19,
    "soak_from_open": 0,
    "quarantine_not_loaded": 57,
    "halted_still_dispatching": 6,
    "budget_without_reservations": 1,
    "quarantine_not_seen_by_gates": 57,
    "quarantine_not_seen_by_rows": 57,
    "halt_not_seen_by_gates": 10,
    "halt_not_seen_by_rows": 10,
    "budget_not_seen_by_gates": 1,
    "budget_not_seen_by_rows": 1,
    "freeze_not_seen_by_gates": 5,
    "stops_not_seen_by_rows": 5,
    "stops_not_seen_at_the_acknowledgement": 5,
    "wave_not_seen_by_gates": 1,
    "wave_not_seen_by_rows": 1,
    "edge_opened_by_an_idle_channel": 33,
}


def found(bug: str) -> tuple[int, str] | None:
    """Return a seed that fails, and its message."""
    with planted():
        for seed in (SEEDS.get(bug, 0), *range(SEEDS_MAX)):
            try:
                World(draw_scenario(seed)).run()
            except AssertionError as violation:
                return seed, str(violation)
    return None


@cache
def holds(seed: int) -> None:
    """Run the seed without any bug: it is the same program, whatever was planted before."""
    with planted():
        World(draw_scenario(seed)).run()


@pytest.mark.parametrize("bug", BUGS)
def test_finds_the_planted_bug_and_nothing_without_it(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, bug)
    broken = found(bug)

    assert broken is not None, f"{bug}: not found in {SEEDS_MAX} seeds"
    seed, what = broken
    assert SIGNS[bug] in what
    monkeypatch.delenv(SWITCH)
    holds(seed)


def test_every_bug_has_an_expected_symptom() -> None:
    assert SIGNS.keys() == BUGS.keys()
