"""Random programs get the same answers, errors, rows and pages from every engine and the oracle.

The seeds are fixed, so every run is the same. More programs, and others, are run by hand:
`TIDEGATE_EXAMPLES=50 TIDEGATE_SEED=7 pytest tests/differential/test_differential.py` runs fifty
times as many, from other seeds. A failure prints the shrunk program, which can be passed to `check`
unchanged.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import repeat
from typing import NamedTuple

import hypothesis
import pytest
from hypothesis import HealthCheck, given, note, settings

from tests.differential.logs import DENSE, Connect, Logs
from tests.differential.machine import Machine
from tests.differential.program import STEPS, Pause, Program, programs, sample
from tests.differential.world import CLAUSES, SCHEMA, UNKNOWN_CLAUSES
from tests.quick import more
from tidegate.engines.memory import MemoryStore
from tidegate.errors import InvalidInput
from tidegate.kernel.model import Query

FACTOR = int(os.environ.get("TIDEGATE_EXAMPLES", "1"))
FIRST_SEED = int(os.environ.get("TIDEGATE_SEED", "1"))


SHRINK_SECONDS_MAX = 600  # a failure is shrunk before it is shown


class Share(NamedTuple):
    """A part of an engine's programs, so that workers can divide them."""

    engine: str
    seed: int
    examples: int


SQLITE_SHARES = more(1, long=4)
PROGRAMS = {
    "sqlite": more(75, long=150),
    "postgres": more(40, long=60),
    "dynamodb": more(20, long=30),
}  # of 40 steps with a request
SURPLUS = {"sqlite": 1.2, "postgres": 1.35, "dynamodb": 1.5}  # hypothesis prefers pauses
SHARES = (
    *(
        Share("sqlite", FIRST_SEED + number, round(PROGRAMS["sqlite"] * SURPLUS["sqlite"]))
        for number in range(SQLITE_SHARES)
    ),
    Share("postgres", FIRST_SEED, round(PROGRAMS["postgres"] * SURPLUS["postgres"])),
    Share("dynamodb", FIRST_SEED, round(PROGRAMS["dynamodb"] * SURPLUS["dynamodb"])),
)
TINY_SHARES = (
    Share("sqlite", FIRST_SEED + 100, 40),
    Share("postgres", FIRST_SEED + 100, 20),
    Share("dynamodb", FIRST_SEED + 100, 8),
)


def check(program: Program, connect: Connect, engine: str) -> Counter[str]:
    """Compare the store with the oracle on one program. Raises: Difference."""
    return Machine(MemoryStore(SCHEMA), connect, dense=engine in DENSE).run(program)


def run_programs(logs: Logs, seed: int, examples: int) -> int:
    """Run the programs, and return how many steps sent a request. Raises: Difference."""
    asked = 0
    print(f"seed {seed}")

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples * FACTOR,
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(programs())
    def run(program: Program) -> None:
        nonlocal asked
        asking = tuple(step for step in program if not isinstance(step, Pause))
        asked += len(asking)
        note(f"{len(asking)} steps ask: {asking}")
        check(program, logs.fresh(SCHEMA), logs.engine)

    run()
    return asked


@pytest.mark.parametrize(
    ("engine", "seed", "examples"),
    SHARES,
    ids=lambda value: str(value),
    scope="function",
)
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
@pytest.mark.req("CB-17")
def test_answers_random_programs_as_the_oracle_does(logs: Logs, seed: int, examples: int) -> None:
    asked = run_programs(logs, seed, examples)

    assert asked >= PROGRAMS[logs.engine] * STEPS


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("engine", "seed", "examples"),
    TINY_SHARES,
    ids=lambda value: str(value),
    scope="function",
)
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
def test_answers_as_the_oracle_does_when_every_cache_is_tiny(
    logs: Logs, seed: int, examples: int
) -> None:
    assert run_programs(logs, seed, examples) >= examples


@pytest.mark.req("CB-17")
@pytest.mark.parametrize("bad", sorted(UNKNOWN_CLAUSES))
def test_refuses_an_unknown_word_anywhere(logs: Logs, bad: str) -> None:
    store = logs.store(SCHEMA)
    unknown, known, unfenced = (
        UNKNOWN_CLAUSES[bad],
        CLAUSES["[Opened @ order_id:1]"],
        CLAUSES["[Opened @ no tag]"],
    )

    for clauses in ((unknown,), (known, unknown), (unfenced, unknown), (unknown, unfenced)):
        with pytest.raises(InvalidInput, match=r"Vanished|nobody_id"):
            store.read(Query(clauses))
    for first in (known, unfenced):
        with pytest.raises(InvalidInput, match=r"Vanished|nobody_id"):
            store.read(Query((first,)), guard=Query((unknown,)))


def test_programs_cover_the_interesting_cases_often_enough() -> None:
    """A run without conflicts, replays or results would prove nothing."""
    tally: Counter[str] = Counter()

    for program in sample(FIRST_SEED, 60):
        tally.update(check(program, repeat(MemoryStore(SCHEMA)).__next__, "memory"))

    often = {
        "landed": 400,
        "BoundaryMoved": 150,
        "VersionConflict": 60,
        "replayed": 30,
        "IdempotencyMismatch": 20,
        "InvalidInput": 50,
        "events read": 200,
        "boundary": 250,
        "no boundary": 100,
        "read refused": 4,
        "rows ranged": 30,
        "Feed": 50,
        "Restore": 15,
        "Switch": 30,
        "Reopen": 60,
    }
    assert {name: tally[name] for name, least in often.items() if tally[name] < least} == {}
