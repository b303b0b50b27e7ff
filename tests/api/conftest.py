"""Servers for tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of its own, set up by its administrator, on SQLite."""
    with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for a module's tests that do not get into each other's way."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server
