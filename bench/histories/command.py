"""`python -m bench histories`: the engines, and the number of histories on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench import trials
from bench.trials import Part, Subject, imported


def _blind_spots(counts: Counter[str]) -> list[str]:
    blind = []
    if counts["conflicts"] * 50 < counts["operations"]:
        blind.append("clients hardly ever met")
    if not counts["replayed"]:
        blind.append("no commit was sent twice")
    if not counts["with tiny memories"]:
        blind.append("no memory ever forgot")
    return blind


SUBJECT = Subject(
    "histories",
    tuple(
        Part(engine, sizes, imported("bench.histories.check"), _blind_spots, server=server)
        for engine, server, sizes in (
            # About 1,000 operations each on SQLite and PostgreSQL, 200 on DynamoDB.
            ("sqlite", "", {"smoke": 5, "ci": 20, "full": 20, "long": 300}),
            ("postgres", "postgres", {"smoke": 5, "ci": 5, "full": 10, "long": 50}),
            ("dynamodb", "dynamodb", {"smoke": 5, "ci": 5, "full": 10, "long": 50}),
        )
    ),
)


def main(arguments: Sequence[str]) -> int:
    return trials.main(SUBJECT, arguments)
