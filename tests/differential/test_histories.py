"""Clients that race on one log, as threads and as processes, see nothing that they must not see."""

from __future__ import annotations

import pytest

from tests.differential.clients import history_of_processes, history_of_threads
from tests.differential.history import History, Landed, Moved, RowMoved, anomalies
from tests.differential.logs import DENSE, Logs
from tests.differential.world import SCHEMA

OPERATIONS_MIN = {"memory": 1_000, "sqlite": 3_000, "postgres": 1_500, "dynamodb": 300}
CLIENTS = 4
HANDLES = 2


def operations_of(history: History) -> int:
    return len(history.readings) + len(history.attempts)


def check(history: History, engine: str) -> None:
    """No anomaly, in a history that is worth checking."""
    outcomes = [type(attempt.outcome) for attempt in history.attempts]
    replayed = [a for a in history.attempts if isinstance(a.outcome, Landed) and a.outcome.replayed]

    assert anomalies(history, SCHEMA.vocabulary, one_order=engine in DENSE) == []
    assert outcomes.count(Landed) >= len(outcomes) // 10
    assert outcomes.count(Moved) >= len(outcomes) // 50
    assert outcomes.count(RowMoved) + len(replayed) >= len(outcomes) // 100


@pytest.mark.req("CB-1", "CB-25")
def test_shows_racing_threads_one_history(engine: str, logs: Logs) -> None:
    wanted = OPERATIONS_MIN[engine]
    share = wanted // 2 if engine == "sqlite" else wanted

    history = history_of_threads(
        logs.fresh(SCHEMA), clients=CLIENTS, operations=share // CLIENTS, handles=HANDLES
    )

    assert operations_of(history) >= share
    check(history, engine)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_shows_racing_processes_one_history(engine: str, logs: Logs) -> None:
    share = OPERATIONS_MIN[engine] // 2

    history = history_of_processes(logs.address(), clients=CLIENTS, operations=share // CLIENTS)

    assert operations_of(history) >= share
    check(history, engine)
