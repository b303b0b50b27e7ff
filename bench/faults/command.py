"""`python -m bench faults`: the parts, and the number of trials of each in each mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench import trials
from bench.trials import Part, Subject, imported


def _demand(counts: Counter[str], *names: str) -> list[str]:
    return [f"no {name}" for name in names if not counts[name]]


def _power_blind_spots(counts: Counter[str]) -> list[str]:
    blind = []
    if not counts["of them lost commits"]:
        blind.append("synchronous=NORMAL loses nothing here")
    if not counts["acknowledged before cuts"]:
        blind.append("no cut came after an acknowledgement")
    return blind


SUBJECT = Subject(
    "faults",
    (
        Part(
            "power",
            {"smoke": 1, "ci": 10, "full": 40, "long": 400},
            imported("bench.faults.power"),
            _power_blind_spots,
            preload="recorder",
        ),
        Part(
            "kills",
            {"smoke": 1, "ci": 5, "full": 10, "long": 50},
            imported("bench.faults.kills"),
            lambda counts: _demand(counts, "acknowledged", "requests without an answer"),
        ),
        Part(
            "io",  # four kinds of fault for each scenario
            {"smoke": 1, "ci": 8, "full": 24, "long": 24},
            imported("bench.faults.io"),
            lambda counts: _demand(counts, "points", "answers of 503"),
        ),
        Part(
            "postgres",  # kills, a failover, a bad connection, in turn
            {"smoke": 3, "ci": 3, "full": 9, "long": 90},
            imported("bench.faults.postgres"),
            lambda counts: _demand(counts, "kills", "failovers", "drops", "told that it is away"),
        ),
        Part(
            "dynamodb",
            {"smoke": 1, "ci": 2, "full": 5, "long": 20},
            imported("bench.faults.dynamodb"),
            lambda counts: _demand(counts, "answer lost", "throttled", "conflicts injected"),
            server="dynamodb",
        ),
    ),
)


def main(arguments: Sequence[str]) -> int:
    return trials.main(SUBJECT, arguments)
