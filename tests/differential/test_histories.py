"""Clients that race on one log, as threads and as processes, observe no anomaly."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.differential.clients import (
    MANY,
    TURNS,
    Queued,
    Run,
    history_in_turns,
    history_of_processes,
    history_of_threads,
)
from tests.differential.history import History, Landed, Moved, RowMoved, anomalies
from tests.differential.logs import DENSE, Logs
from tests.differential.replaying import contradictions
from tests.differential.tiny import shrink, shrink_pairs
from tests.differential.world import SCHEMA

OPERATIONS_MIN = {"memory": 1_000, "sqlite": 3_000, "postgres": 1_500, "dynamodb": 300}
CLIENTS = 4
HANDLES = 2
FACTOR = int(os.environ.get("TIDEGATE_EXAMPLES", "1"))
FIRST_SEED = int(os.environ.get("TIDEGATE_SEED", "1"))


def operations_of(history: History) -> int:
    return len(history.readings) + len(history.attempts)


def check(history: History, engine: str) -> None:
    """Check that there is no anomaly, in a history that is worth checking."""
    outcomes = [type(attempt.outcome) for attempt in history.attempts]
    replayed = [a for a in history.attempts if isinstance(a.outcome, Landed) and a.outcome.replayed]

    assert anomalies(history, SCHEMA.vocabulary, one_order=engine in DENSE) == []
    assert contradictions(history, SCHEMA) == []
    assert outcomes.count(Landed) >= len(outcomes) // 10
    assert outcomes.count(Moved) >= len(outcomes) // 50
    assert outcomes.count(RowMoved) + len(replayed) >= len(outcomes) // 100


@pytest.mark.req("CB-1", "CB-25")
def test_racing_threads_observe_one_history(engine: str, logs: Logs) -> None:
    wanted = OPERATIONS_MIN[engine]
    share = wanted // 2 if engine == "sqlite" else wanted

    history = history_of_threads(
        logs.fresh(SCHEMA), Run(CLIENTS, share // CLIENTS), handles=HANDLES
    )

    assert operations_of(history) >= share
    check(history, engine)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_racing_processes_observe_one_history(engine: str, logs: Logs) -> None:
    share = OPERATIONS_MIN[engine] // 2

    history = history_of_processes(logs.address(), Run(CLIENTS, share // CLIENTS))

    assert operations_of(history) >= share
    check(history, engine)


# ── caches that drop their contents ───────────────────────────────────────────────────────────────

TINY_OPERATIONS = {"memory": 50, "sqlite": 80, "postgres": 80, "dynamodb": 15}  # of one client


def tiny_run(engine: str, seed: int = FIRST_SEED) -> Run:
    print(f"seed {seed}")
    return Run(CLIENTS, TINY_OPERATIONS[engine] * FACTOR, MANY, seed)


def check_tiny(history: History, engine: str) -> None:
    outcomes = [type(attempt.outcome) for attempt in history.attempts]

    assert anomalies(history, SCHEMA.vocabulary, one_order=engine in DENSE) == []
    assert contradictions(history, SCHEMA) == []
    assert outcomes.count(Landed) >= len(outcomes) // 10
    assert outcomes.count(Moved) >= len(outcomes) // 50


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", [FIRST_SEED, FIRST_SEED + 1])
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "dynamodb"])
def test_clients_in_turns_agree_when_every_cache_is_tiny(
    engine: str, logs: Logs, seed: int
) -> None:
    handles, turn_max = TURNS[engine]

    history = history_in_turns(
        logs.fresh(SCHEMA), tiny_run(engine, seed), handles=handles, turn_max=turn_max
    )

    check_tiny(history, engine)


@pytest.mark.usefixtures("tiny")
def test_threads_in_a_queue_agree_when_every_cache_is_tiny(engine: str, logs: Logs) -> None:
    connect = logs.fresh(SCHEMA)

    def queued() -> Any:
        return Queued(connect())

    check_tiny(history_of_threads(queued, tiny_run(engine), handles=HANDLES), engine)


@pytest.mark.usefixtures("tiny")  # this process follows the feed, and must know the stored format
@pytest.mark.parametrize(
    ("engine", "prepare"),
    [
        ("sqlite", shrink),
        ("postgres", shrink),
        ("postgres", shrink_pairs),
        ("dynamodb", shrink),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
    scope="function",
)
def test_processes_agree_when_their_caches_are_tiny(
    engine: str, logs: Logs, prepare: Callable[[], None]
) -> None:
    history = history_of_processes(logs.address(), tiny_run(engine), prepare=prepare)

    check_tiny(history, engine)
