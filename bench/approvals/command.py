"""`python -m bench approvals`: the engines, and the number of rounds on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench import trials
from bench.trials import Part, Subject, imported


def _blind_spots(counts: Counter[str]) -> list[str]:
    return [] if counts["begun before another ended"] else ["approvals never overlapped"]


SUBJECT = Subject(
    "approvals",
    tuple(
        Part(
            engine,
            {"smoke": 1, "ci": 1, "full": 1, "long": 10},
            imported("bench.approvals.check"),
            _blind_spots,
            server=server,
        )
        for engine, server in (
            ("memory", ""),
            ("sqlite", ""),
            ("postgres", "postgres"),
            ("dynamodb", "dynamodb"),
        )
    ),
)


def main(arguments: Sequence[str]) -> int:
    return trials.main(SUBJECT, arguments)
