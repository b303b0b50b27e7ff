"""Random programs as data: requests to a store, with choices that depend on answers left open.

A step names facts and clauses by their text, boundaries by how long ago they were read, versions by
what they should be (right, stale, absent). So one program can be run on any store, printed, pasted
into a regression test, and shrunk: `Pause` is the simplest step, and shrinking turns needless steps
into it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.differential.world import CLAUSES, FACTS, KEYS, RANGES, ROWS, UNKNOWN_CLAUSES

STEPS = 40
FACTS_PER_COMMIT_MAX = 5
COMMITS_PER_GROUP_MAX = 4
BOUNDARIES_PER_COMMIT_MAX = 3
WRITES_PER_COMMIT_MAX = 3
ONCE_KEYS = ("k1", "k2", "k:3")
NO_FACT = 1_000


class Action(StrEnum):
    PUT = "put"
    DELETE = "delete"
    CHECK = "check"


class Expect(StrEnum):
    """Which version a row write expects, resolved when it is sent."""

    RIGHT = "right"  # the current version of the row
    STALE = "stale"  # a version it had before, or otherwise one it never had
    ABSENT = "absent"
    NEVER = "never"  # a version that no row has


@dataclass(frozen=True, slots=True)
class Row:
    """A row write; its cause is taken modulo the commit's span, unless it is NO_FACT."""

    action: Action
    key: int
    expect: Expect
    row: int = 0
    fact: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One commit. ``boundaries`` count back from the newest one that was read."""

    facts: tuple[str, ...] = ()
    boundaries: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()
    once: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Read:
    """``after`` counts back from the head; None reads from the start."""

    clauses: tuple[str, ...]
    guard: tuple[str, ...] = ()
    after: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Several commits in one call."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Get:
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """``after`` is the place in the unlimited range of the last row read before."""

    collection: str
    index: str | None
    prefix: str
    after: int | None
    limit: int
    descending: bool


@dataclass(frozen=True, slots=True)
class Feed:
    after: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class AskReceipt:
    key: str


@dataclass(frozen=True, slots=True)
class Switch:
    """Continue through the other handle on the same log."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close the handle and open it again."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Replace a collection by its first rows, stamps included."""

    collection: str
    kept: int


Step = Pause | Read | Group | Get | Range | Feed | AskReceipt | Switch | Reopen | Restore
Program = tuple[Step, ...]

# ── how programs are drawn ────────────────────────────────────────────────────────────────────────

_clause = st.sampled_from(sorted(CLAUSES))
_back = st.none() | st.integers(0, 12)
_row = st.builds(
    Row,
    action=st.sampled_from((Action.PUT, Action.PUT, Action.PUT, Action.DELETE, Action.CHECK)),
    key=st.integers(0, len(KEYS) - 1),
    expect=st.sampled_from((*(Expect.RIGHT,) * 9, Expect.STALE, Expect.ABSENT, Expect.NEVER)),
    row=st.integers(0, 24).map(lambda dice: dice if dice == 24 else dice % len(ROWS)),
    fact=st.integers(0, FACTS_PER_COMMIT_MAX - 1),
)
_request = st.builds(
    Request,
    facts=st.lists(st.sampled_from(sorted(FACTS)), max_size=FACTS_PER_COMMIT_MAX).map(tuple),
    boundaries=st.lists(
        st.sampled_from((0, 0, 0, 1, 2, 3, 5, 8)), max_size=BOUNDARIES_PER_COMMIT_MAX, unique=True
    ).map(tuple),
    rows=st.lists(_row, max_size=WRITES_PER_COMMIT_MAX, unique_by=lambda row: row.key).map(tuple),
    once=st.none() | st.none() | st.tuples(st.sampled_from(ONCE_KEYS), st.integers(0, 3)),
)
_read = st.builds(
    Read,
    clauses=st.lists(_clause, min_size=1, max_size=3).map(tuple),
    guard=st.just(()) | st.lists(_clause, min_size=1, max_size=2).map(tuple),
    after=st.none() | _back,
    limit=st.none() | st.none() | st.integers(0, 6),
)
_group = st.lists(_request, min_size=1, max_size=COMMITS_PER_GROUP_MAX).map(
    lambda requests: Group(tuple(requests))
)
_one = _request.map(lambda request: Group((request,)))
_ill_formed = st.tuples(_row, st.booleans()).map(
    lambda drawn: Group(
        (Request(rows=(drawn[0],) * 2 if drawn[1] else (replace(drawn[0], fact=NO_FACT),)),)
    )
)
_range = st.sampled_from(list(RANGES)).flatmap(
    lambda chosen: st.builds(
        Range,
        collection=st.just(chosen[0]),
        index=st.just(chosen[1]),
        prefix=st.just("") | st.sampled_from(RANGES[chosen]),
        after=st.none() | st.integers(0, 3),
        limit=st.integers(1, 8),
        descending=st.booleans(),
    )
)
_kinds: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "pause": (1, st.just(Pause())),
    "one": (18, _one),
    "read": (18, _read),
    "group": (7, _group),
    "ill formed": (1, _ill_formed),
    "unknown": (1, st.sampled_from(sorted(UNKNOWN_CLAUSES)).map(lambda name: Read((name,)))),
    "get": (3, st.lists(st.integers(0, len(KEYS) - 1), max_size=4).map(lambda k: Get(tuple(k)))),
    "range": (6, _range),
    "feed": (3, st.builds(Feed, after=_back, limit=st.integers(1, 20))),
    "receipt": (2, st.builds(AskReceipt, st.sampled_from(ONCE_KEYS))),
    "switch": (2, st.just(Switch())),
    "reopen": (1, st.just(Reopen())),
    "restore": (1, st.builds(Restore, st.sampled_from(("tickets", "tallies")), st.integers(0, 8))),
}
_kind = st.sampled_from([name for name, (weight, _) in _kinds.items() for _ in range(weight)])


def programs(steps: int = STEPS) -> st.SearchStrategy[Program]:
    """Programs of this many steps."""
    step = _kind.flatmap(lambda kind: _kinds[kind][1])
    return st.lists(step, min_size=steps, max_size=steps).map(tuple)


@cache
def sample(seed: int, count: int) -> tuple[Program, ...]:
    """Return the same programs to every caller: drawn once, because drawing costs more than
    running.
    """
    drawn: list[Program] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(programs())
    def draw(program: Program) -> None:
        drawn.append(program)

    draw()
    return tuple(drawn)
