"""Servers for tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import httpx2
import pytest

from tests.api.protected_fleet import approver
from tests.api.served_fleet import ServedFleet, serve_fleet
from tests.api.serving import Served, serving
from tidegate.api.agents.fast_path.protocol import FastConnection
from tidegate.domain.access.roles import Role


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server for one test, set up by its administrator, on SQLite."""
    with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module that do not affect each other."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    """A server for one test, with releases, hosts and their agents."""
    with serve_fleet(tmp_path / "data") as fleet:
        yield fleet


@pytest.fixture
def cem(fleet: ServedFleet) -> httpx2.Client:
    """The approver."""
    return approver(fleet)


@pytest.fixture
def eve(fleet: ServedFleet) -> httpx2.Client:
    """The person who makes requests."""
    return fleet.served.as_role(Role.RELEASE_MANAGER, Role.FLEET_OPERATOR, Role.ON_CALL)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[int]:
    """The sizes of the chunks that the server read from its sockets, in order."""
    read: SimpleQueue[int] = SimpleQueue()
    data_received = FastConnection.data_received

    def noted(self: FastConnection, data: bytes) -> None:
        data_received(self, data)
        read.put(len(data))

    monkeypatch.setattr(FastConnection, "data_received", noted)
    return read
