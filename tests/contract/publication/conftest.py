"""A fixture to publish from, on a fresh log of each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.address import Address
from tests.contract.publication.publishing import (
    FOLDS,
    LOG,
    T0,
    Publishing,
    connector,
    publishing_at,
)
from tidegate.clock import ManualClock
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

Connect = Callable[[], Store]


@pytest.fixture
def connect(address: Address | None) -> Connect:
    return connector(address)


@pytest.fixture
def store(connect: Connect) -> Iterator[Store]:
    """The store of this test. At the end its rows must be exactly what the log gives."""
    with closing(connect()) as store:
        yield store
        assert differences(store, FOLDS) == []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def publishing(store: Store, home: Path, clock: ManualClock) -> Iterator[Publishing]:
    with publishing_at(store, FileBlobs(home, LOG, clock=clock), clock) as publishing:
        yield publishing
