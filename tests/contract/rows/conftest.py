"""One log of the registry's rows per module and engine; each test uses a row id of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import cast
from uuid import uuid4

import pytest

from tests.contract.address import Address, address_of
from tests.contract.rows.registry import SCHEMA, T0, Watched
from tidegate.clock import ManualClock
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store

HANDLES = 4


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Address | None:
    """Where the log lives. None for memory."""
    return address_of(request, engine, tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def handles(place: Address | None) -> Iterator[list[Store]]:
    """Several handles on the log, which stand for several processes."""
    if place is None:  # memory: the object is the log
        yield [MemoryStore(SCHEMA)] * HANDLES
        return
    with ExitStack() as stack:
        yield [stack.enter_context(closing(place.open(SCHEMA))) for _ in range(HANDLES)]


@pytest.fixture(scope="module")
def store(handles: list[Store]) -> Store:
    return handles[0]


@pytest.fixture
def id() -> str:
    return uuid4().hex


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def watched(store: Store) -> Watched:
    """The store, which records every call that reaches it."""
    return Watched(store)


@pytest.fixture
def records(watched: Watched, clock: ManualClock) -> Records:
    return Records(cast(Store, watched), clock)
