"""The fast encoder writes exactly what the slow one writes, and refuses what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import msgspec
from hypothesis import given, strategies as st
from msgspec import Struct

from tidegate.errors import InvalidInput
from tidegate.kernel import codec
from tidegate.kernel.canonical_json import plain, renderer


class Phase(StrEnum):
    OPEN = "open"


class Policy(Struct, frozen=True, omit_defaults=True):
    seconds: int = 900
    name: str = "calm"
    limit: int = 1


class Step(Struct, frozen=True, omit_defaults=True):
    at: datetime
    count: int = 0
    until: datetime | None = None


class Record(Struct, frozen=True, omit_defaults=True):
    id: str
    policy: Policy
    phase: Phase = Phase.OPEN
    version: int = 0
    next: Step | None = None
    steps: tuple[Step, ...] = ()
    by_name: dict[str, Step] = {}
    numbers: dict[str, int] = {}
    seen: tuple[datetime, ...] = ()


AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
times = st.one_of(
    st.integers(0, 2_000_001).map(lambda microseconds: AT + timedelta(microseconds=microseconds)),
    st.just(AT.replace(tzinfo=None)),
    st.just(AT.astimezone(timezone(timedelta(hours=2)))),
)
numbers = st.one_of(
    st.integers(0, 1_000).map(lambda number: int(str(number))),  # equal, not the same object
    st.sampled_from([2**53 - 1, 2**53, -(2**53), True]),
)
policies = st.builds(Policy, numbers, st.sampled_from(["calm", "".join(("ca", "lm")), ""]), numbers)
steps = st.builds(Step, times, numbers, st.none() | times)
records = st.builds(
    Record,
    st.just("r1"),
    policies,
    st.just(Phase.OPEN),
    numbers,
    st.none() | steps,
    st.lists(steps, max_size=2).map(tuple),
    st.dictionaries(st.sampled_from("ab"), steps, max_size=2),
    st.dictionaries(st.sampled_from("ab"), numbers, max_size=2),
    st.lists(times, max_size=2).map(tuple),
)


def slowly(value: Struct) -> bytes:
    render = renderer(type(value))
    assert render is not None
    return msgspec.json.encode(render(value, type(value).__name__), order="deterministic")


@given(records)
def test_writes_and_refuses_as_the_slow_path_does(record: Record) -> None:
    try:
        expected = slowly(record)
    except InvalidInput as error:
        expected = str(error).encode()
    try:
        found = codec.encode(record)
    except InvalidInput as error:
        found = str(error).encode()

    assert found == expected


def test_nearly_every_value_takes_the_fast_path() -> None:
    is_plain = plain(Record)
    assert is_plain is not None

    at = AT + timedelta(microseconds=1)
    assert is_plain(Record("r1", Policy(), steps=(Step(at, 3),), by_name={"a": Step(at)}))
    assert not is_plain(Record("r1", Policy(), next=Step(AT)))
    assert not is_plain(Record("r1", Policy(seconds=int("900"))))
    assert not is_plain(Record("r1", Policy(), numbers={"a": 2**53}))
