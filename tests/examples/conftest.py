"""One fresh log per test on each engine, and processes to race on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address, address_of

PROCESSES = 2


@pytest.fixture
def address(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Address | None:
    return address_of(request, engine, tmp_path)


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(PROCESSES, mp_context=CHILDREN) as pool:
        yield pool
