"""One history: some clients on a fresh log, and everything that the checkers report about it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.trials import Findings, Trial
from tests.differential.clients import (
    FEW,
    MANY,
    TURNS,
    Queued,
    Run,
    history_in_turns,
    history_of_processes,
    history_of_threads,
    nothing,
)
from tests.differential.history import History, Landed, Moved, RowMoved, Unknown, anomalies
from tests.differential.logs import DENSE, Logs
from tests.differential.replaying import contradictions
from tests.differential.tiny import shrink
from tests.differential.world import SCHEMA

CLIENTS = 4
HANDLES = 2
OPERATIONS = {"sqlite": 1_000, "postgres": 1_000, "dynamodb": 220}  # of one history
SMOKE_SHARE = 10
OPERATIONS_OF_ONE = 1.6  # the reads and commits of one step of a client

Play = Callable[[Logs, Run], History]


@dataclass(frozen=True)
class Style:
    """How the clients share the machine and the log."""

    name: str
    play: Play
    is_tiny: bool = False


def _processes(logs: Logs, run: Run) -> History:
    return history_of_processes(logs.address(), run)


def _tiny_processes(logs: Logs, run: Run) -> History:
    return history_of_processes(logs.address(), run, prepare=shrink)


def _threads(logs: Logs, run: Run) -> History:
    return history_of_threads(logs.fresh(SCHEMA), run, handles=HANDLES)


def _queued(logs: Logs, run: Run) -> History:
    connect = logs.fresh(SCHEMA)

    def queued() -> Any:
        return Queued(connect())

    return history_of_threads(queued, run, handles=HANDLES)


def _turns(logs: Logs, run: Run) -> History:
    handles, turn_max = TURNS[logs.engine]
    return history_in_turns(logs.fresh(SCHEMA), run, handles=handles, turn_max=turn_max)


STYLES = (
    Style("processes", _processes),
    Style("processes, tiny", _tiny_processes, is_tiny=True),
    Style("threads in a queue, tiny", _queued, is_tiny=True),
    Style("turns, tiny", _turns, is_tiny=True),
    Style("threads", _threads),
)


def run(trial: Trial) -> Findings:
    style, random = STYLES[trial.number % len(STYLES)], trial.random()
    wanted = OPERATIONS[trial.part] // (SMOKE_SHARE if trial.mode == "smoke" else 1)
    (shrink if style.is_tiny else nothing)()
    ground = MANY if style.is_tiny else random.choice((FEW, FEW, MANY))
    steps = max(1, int(wanted / OPERATIONS_OF_ONE / CLIENTS))
    asked = Run(CLIENTS, steps, ground, random.getrandbits(32))
    with (
        tempfile.TemporaryDirectory(prefix="histories-") as home,
        closing(Logs(trial.part, Path(home))) as logs,
    ):
        history = style.play(logs, asked)
    return judge(history, trial.part, style)


def judge(history: History, engine: str, style: Style) -> Findings:
    """Run the checkers, and count what the history contains."""
    findings = Findings()
    count = len(history.readings) + len(history.attempts)
    findings.counts["operations"] += count
    findings.counts["with tiny memories"] += count if style.is_tiny else 0
    for attempt in history.attempts:
        match attempt.outcome:
            case Landed(replayed=True):
                findings.counts["replayed"] += 1
            case Landed():
                findings.counts["commits"] += 1
            case Moved() | RowMoved():
                findings.counts["conflicts"] += 1
            case Unknown():
                findings.counts["unknown outcomes"] += 1
    wrong = [
        f"{anomaly.rule}: {anomaly.what}"
        for anomaly in anomalies(history, SCHEMA.vocabulary, one_order=engine in DENSE)
    ]
    wrong += contradictions(history, SCHEMA)
    findings.counts["anomalies"] += len(wrong)
    findings.failures += [f"{style.name}: {what}"[:400] for what in wrong[:5]]
    return findings
