"""The bench of histories: it runs in its smallest mode, and its checkers find planted anomalies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bench.histories.check import STYLES, judge
from tests.bench.harness import run_part
from tests.differential.clients import FEW, Run, history_in_turns
from tests.differential.history import History, Landed
from tests.differential.logs import Logs
from tests.differential.world import SCHEMA


@pytest.mark.in_bench
def test_processes_on_sqlite_see_one_history(tmp_path: Path) -> None:
    code, found = run_part("histories", "sqlite", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["operations"] >= 80
    assert found["counts"]["conflicts"] > 0


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    with closing(Logs("sqlite", tmp_path_factory.mktemp("log"))) as logs:
        return history_in_turns(logs.fresh(SCHEMA), Run(4, 30, FEW, 7), handles=2, turn_max=8)


def _lose(history: History) -> History:
    return replace(history, log=history.log[:-1])


def _swap(history: History) -> History:
    first, second, *others = history.log
    return replace(history, log=(second, first, *others))


def _blind(history: History) -> History:
    """Let every decision be based on no events."""
    attempts = tuple(
        replace(
            attempt, readings=tuple(replace(reading, positions=()) for reading in attempt.readings)
        )
        for attempt in history.attempts
    )
    return replace(history, attempts=attempts)


def _double(history: History) -> History:
    """Add a second receipt with another position."""
    landed = next(a for a in reversed(history.attempts) if isinstance(a.outcome, Landed))
    again = replace(landed, outcome=Landed(1, 1))
    return replace(history, attempts=(*history.attempts, again))


def _overwrite(history: History) -> History:
    rows = {key: version + 1 for key, version in history.rows.items()}
    return replace(history, rows=rows)


def test_a_sequential_history_passes(history: History) -> None:
    assert judge(history, "sqlite", STYLES[0]).failures == []


@pytest.mark.parametrize("plant", [_lose, _swap, _blind, _double, _overwrite])
def test_finds_a_planted_anomaly(plant: Callable[[History], History], history: History) -> None:
    assert judge(plant(history), "sqlite", STYLES[0]).failures
